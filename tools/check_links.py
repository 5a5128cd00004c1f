#!/usr/bin/env python3
"""Links between the pages of the repository: each names a file that there is, and a heading that is in it.

    tools/check_links.py        returns 1 and lists those that do not
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchor_of(heading):
    """As GitHub makes it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def main():
    pages = [page for page in sorted(ROOT.rglob("*.md")) if "build" not in page.relative_to(ROOT).parts]
    texts = {page: without_code(page.read_text(encoding="utf-8")) for page in pages}
    anchors = {page: {anchor_of(one) for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)} for page, text in texts.items()}
    wrong = []
    for page, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {link} is not there")
            elif anchor and target in anchors and anchor not in anchors[target]:
                wrong.append(f"{page.relative_to(ROOT)}: {link} has no such heading")
    print("\n".join(wrong) if wrong else f"{len(pages)} pages, all links lead somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
