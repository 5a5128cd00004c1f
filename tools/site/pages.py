#!/usr/bin/env python3
"""Lays out the pages of the site, for MkDocs: those of docs/ with their links turned, and those that are generated.

    tools/site/pages.py --build BUILD --xml XML --to DIR

BUILD has the program and the Python package, XML is what doxygen wrote. DIR becomes a configuration (mkdocs.yml) and the
folder docs. Pages keep their order within a group by ORDER; a page that it does not name comes last.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).parent))
import cpp_reference  # noqa: E402
import doxygen_filter  # noqa: E402
import tables  # noqa: E402
from program import Program  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ["start", "guides", "reference", "evidence"]
ORDER = ["install", "pytorch", "python", "choosing", "comparison", "limits", "machines", "gpu", "study", "report", "training", "problems",
         "embedding", "extending", "troubleshooting", "commands", "specs", "exchange", "glossary", "wire_format", "message_format",
         "state_format", "results", "local_steps"]  # fmt: skip
# Pages that lie elsewhere in the repository. None: the site does not lead there.
ELSEWHERE = {"README.md": "index.md", "python/README.md": "start/python.md", "HACKING.md": "project/hacking.md",
             "CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md", "SECURITY.md": "project/security.md",
             "ROADMAP.md": "project/roadmap.md", "CITATION.cff": "project/citation.md", "docs/decisions": "decisions/index.md",
             "include/sparsewire": "reference/cpp/index.md", "docs/reference": "reference/commands.md"}  # fmt: skip
PYTHON = {"index.md": ("sparsewire", "Python"), "torch.md": ("sparsewire.torch", "PyTorch")}


def tracked():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\n") if name and (ROOT / name).is_file())


class Site:
    def __init__(self, to):
        self.to = to / "docs"
        self.files = set(tracked())
        self.shown = set()  # files of the repository that some page shows as they are
        self.place = dict(ELSEWHERE)
        for name in self.files:
            if name.startswith("docs/"):
                group = name.split("/")[1]
                self.place[name] = name[5:] if group in [*GROUPS, "decisions"] else None
            header = re.fullmatch(r"include/sparsewire/(\w+)\.h", name)
            if header:
                self.place[name] = f"reference/cpp/{header[1]}.md"

    def place_of(self, target):
        """Where a file or folder of the repository is in the site, or None."""
        if target in self.place:
            return self.place[target]
        if target.startswith("docs/archive"):
            return None
        if target + "/README.md" in self.place:
            return self.place[target + "/README.md"]
        if target in self.files and not target.endswith(".md"):
            self.shown.add(target)
            return f"source/{target}.md"
        if any(name.startswith(target + "/") for name in self.files):
            self.shown.add(target)
            return f"source/{target}/index.md"
        return None

    def turned(self, text, source, page):
        """The text with its links led to where things are in the site; those that lead out of it become plain words."""

        def turn(link):
            words, target = link[2], link[3]
            if re.match(r"[a-z]+:", target) or target.startswith("#"):
                return link[0]
            name, hash_, anchor = target.partition("#")
            path = os.path.normpath(PurePosixPath(source).parent / name)
            if link[1] or path.endswith((".png", ".svg")):
                place = self.place.get(path)
                return f"{link[1]}[{words}]({os.path.relpath(place, PurePosixPath(page).parent)})" if place else words
            place = self.place_of(path)
            if not place:
                return words
            here = os.path.relpath(place, PurePosixPath(page).parent)
            if re.fullmatch(r"[\w/.-]+\.md", words):  # the site has no such files
                words = PurePosixPath(words).stem.replace("_", " ")
            return f"[{words}]({here}{hash_}{anchor})"

        return outside_code(text, lambda part: re.sub(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)", turn, part))

    def write(self, page, text):
        group = page.split("/")[0]
        search = {"source": "exclude: true", "decisions": "boost: 0.3", "project": "boost: 0.5"}.get(group)
        if page == "index.md":
            text = "---\nhide: [navigation]\n---\n\n" + text
        elif search:
            text = f"---\nsearch:\n  {search}\n---\n\n" + text
        path = self.to / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def add(self, source, page, extra=lambda text: text):
        text = (ROOT / source).read_text(encoding="utf-8")
        self.write(page, for_python_markdown(extra(self.turned(text, source, page))))

    def add_shown(self):
        """Pages with the files that others link to."""
        done = set()
        while self.shown - done:
            name = min(self.shown - done)
            done.add(name)
            if name in self.files:
                language = {".py": "python", ".cc": "cpp", ".h": "cpp", ".sh": "bash", ".cu": "cpp", ".txt": "text", ".cff": "yaml", ".toml": "toml",
                            ".json": "json"}.get(PurePosixPath(name).suffix, "text")  # fmt: skip
                text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
                self.write(f"source/{name}.md", f"# {name}\n\n````{language}\n{text.rstrip()}\n````\n")
                continue
            inside = [one for one in sorted(self.files) if one.startswith(name + "/") and not one.endswith((".png", ".npy", ".state", ".swf"))]
            page = f"source/{name}/index.md"
            rows = []
            for one in inside[:200]:
                place = self.place_of(one)
                here = place and os.path.relpath(place, PurePosixPath(page).parent)
                rows.append(f"- [{one}]({here})" if here else f"- {one}")
            self.write(page, f"# {name}\n\n" + "\n".join(rows) + "\n")


def outside_code(text, change):
    """The text with `change` made to what is no block of code."""
    parts = re.split(r"(^ *```.*?^ *```[ \t]*$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def for_python_markdown(text):
    """GitHub's Markdown as Python-Markdown reads it: lists and tables begin after a blank line, and nest by four spaces."""
    out, fence, depths = [], None, []
    for line in text.split("\n"):
        bare = line.lstrip()
        indent = len(line) - len(bare)
        if fence:
            out.append(" " * 4 * fence[1] + line[min(indent, fence[2]) :])
            if bare.startswith("```"):
                fence = None
            continue
        if bare:
            while depths and indent < depths[-1]:
                depths.pop()
        item = re.match(r"([-*+]|\d+\.) +", bare)
        if bare.startswith("```"):
            fence = (bare, len(depths), indent)
            out.append(" " * 4 * len(depths) + bare)
            continue
        before = out[-1].strip() if out else ""
        if item and indent - (depths[-1] if depths else 0) < 4:
            is_list = re.match(r"([-*+]|\d+\.) +", before)
            if before and not is_list and not depths and not out[-1].startswith(" "):
                if not bare[0].isdigit() or bare.startswith("1."):
                    out.append("")
                else:  # a number that ended up at the beginning of a line
                    out.append(line)
                    continue
            out.append(" " * 4 * len(depths) + bare)
            depths.append(indent + len(item[0]))
            continue
        if bare.startswith("|"):
            if before and not before.startswith("|"):
                out.append("")
            # A bar in code separates no cells here, and needs no backslash.
            line = re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line)
        if not bare:
            out.append("")
            continue
        out.append(" " * 4 * len(depths) + line[depths[-1] if depths else 0 :] if not depths or indent >= depths[-1] else line)
    return "\n".join(out)


def title_of(path):
    heading = re.search(r"^# +(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading[1]) if heading else path.stem


def rank(page):
    name = PurePosixPath(page).stem
    return (ORDER.index(name) if name in ORDER else len(ORDER), name != "index", page)


def navigation(site, cpp):
    """Four groups and the project's own pages. Titles are those of the pages."""

    def entries(folder):
        pages = [f"{folder}/{path.name}" for path in (site.to / folder).glob("*.md")]
        return [{title_of(site.to / page): page} for page in sorted(pages, key=rank)]

    nav = [{"Home": "index.md"}]
    for group in GROUPS:
        inside = entries(group)
        if group == "reference":
            inside += [{"C++": [f"reference/cpp/{name}" for name in cpp]}, {"Python": [f"reference/python/{name}" for name in PYTHON]}]
        for path in sorted((site.to / group).iterdir()):
            if path.is_dir() and path.name not in ("cpp", "python"):
                pages = sorted(path.glob("*.md"), key=lambda page: (page.stem not in ("README", "index"), page.stem))
                inside.append({path.name.capitalize(): [{title_of(page): f"{group}/{path.name}/{page.name}"} for page in pages]})
        nav.append({group.capitalize(): inside})
    nav.append({"Project": [*entries("project"), {"Decisions": [*entries("decisions")]}]})
    return nav


def main():
    parser = argparse.ArgumentParser()
    for name in ("build", "xml", "to"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    shutil.rmtree(given.to, ignore_errors=True)
    site = Site(given.to)
    program = Program(given.build / "apps/sparsewire/sparsewire")

    for source, page in sorted(site.place.items()):
        if page and source.endswith(".md") and (ROOT / source).is_file():
            site.add(source, page, lambda text: tables.filled(text, program))
        elif page and source.startswith("docs/") and source in site.files:
            (site.to / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, site.to / page)
    site.write("project/citation.md", "# How to cite\n\n```yaml\n" + (ROOT / "CITATION.cff").read_text(encoding="utf-8") + "```\n")
    rows = [f"- [{title_of(path)}]({path.name})" for path in sorted((site.to / "decisions").glob("*.md"))]
    site.write("decisions/index.md", "# Decisions\n\nWhat was decided, and why.\n\n" + "\n".join(rows) + "\n")

    cpp = cpp_reference.write(given.xml, ROOT, site.to / "reference/cpp", doxygen_filter.filtered)
    for name, (module, title) in PYTHON.items():
        site.write(f"reference/python/{name}", tables.python_page(module, title, given.build / "python/sparsewire"))
    site.add_shown()
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(Path(__file__).parent / name, site.to / name)
    # The package as griffe reads it: without the compiled module, whose stub says more.
    shutil.copytree(given.build / "python/sparsewire", given.to / "python/sparsewire", ignore=shutil.ignore_patterns("*.so", "__pycache__"))

    # JSON is YAML. Paths count from the folder of this file.
    python = {"paths": [str(given.to.resolve() / "python")],
              "options": {"extensions": [str(Path(__file__).resolve().parent / "docstrings.py")]}}  # fmt: skip
    config = {"INHERIT": os.path.relpath(ROOT / "mkdocs.yml", given.to), "docs_dir": "docs", "site_dir": "../site", "nav": navigation(site, cpp),
              "plugins": {"mkdocstrings": {"handlers": {"python": python}}}}  # fmt: skip
    (given.to / "mkdocs.yml").write_text(json.dumps(config, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
