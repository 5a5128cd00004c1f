"""Pages of reports, filled from data that a test made up: the files of lab/report/page and the form that docs/guides/report.md gives."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "report" / "page"


def scripts():
    listed = re.search(r"^set\(report_scripts([^)]*)\)", (FOLDER / "files.cmake").read_text(), re.MULTILINE).group(1)
    names = re.sub(r"#.*", "", listed).split()
    return {name: (FOLDER / name).read_text() for name in names}


def filled(data):
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    script = '(function () {\n"use strict";\n' + "\n".join(scripts().values()) + "})();\n"
    pieces = {"{{STYLE}}": (FOLDER / "page.css").read_text(), "{{SCRIPT}}": script, "{{HASH}}": hash_of(script),
              "{{DATA}}": text, "{{TITLE}}": html.escape(data["title"])}
    return re.sub("|".join(map(re.escape, pieces)), lambda found: pieces[found.group()], (FOLDER / "page.html").read_text())


def hash_of(script):
    """As a content policy has it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def empty(kind="metrics", title="made up", **more):
    """A report without anything in it."""
    data = {"schema": 1, "kind": kind, "title": title, "made_by": "sparsewire 0", "problem": None, "notices": [], "live": None,
            "summary": None, "methods": [], "runs": [], "reproduction": None}
    return {**data, **more}


def run(method=0, seed=0, status="finished", chosen=True, **series):
    lines = max((len(column) for column in series.values()), default=0)
    return {"id": f"run-{method}-{seed}", "method": method, "phase": "run", "seed": seed, "lr": 0.1, "chosen": chosen, "status": status,
            "diverged_at": None, "seconds": 1.0, "config": {"workers": 4}, "result": {}, "lines": lines, "series": series}
