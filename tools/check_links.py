#!/usr/bin/env python3
"""What the pages of the repository name is there: files and headings that links lead to, and paths in code. Blocks of Python
and JSON can be parsed.

    tools/check_links.py        returns 1 and lists what is wrong

What was true when it was written may stay so: paths are not looked up in docs/archive, docs/decisions and CHANGELOG.md.
"""

import ast
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# A path from the root of the repository, in code. Not what a command writes (behind -o, --picture, >); `foo` stands for what
# a reader will make.
NAMED = re.compile(r"(?<![\w/.-])(?<!-o )(?<!--out )(?<!--output )(?<!--picture )(?<!> )((?:bench|cmake|docs|examples|fuzz|include|lab|python|results|src|tests|tools)/[\w./*-]*\w)")


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchor_of(heading):
    """As GitHub makes it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def broken_links(page, text, anchors):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"{link} is not there"
        elif anchor and target in anchors and anchor not in anchors[target]:
            yield f"{link} has no such heading"


def missing_paths(text):
    code = [block[2] for block in FENCE.findall(text)]
    code += re.findall(r"^    +(\S.*)$", without_code(text), re.MULTILINE)
    code += re.findall(r"`([^`\n]+)`", without_code(text))
    for name in sorted({name for one in code for name in NAMED.findall(one)}):
        if "foo" not in name and not (ROOT / name).exists() and not any(ROOT.glob(name)):
            yield f"{name} is not there"


def unreadable_blocks(text):
    for _, language, block in FENCE.findall(text):
        try:
            if language == "python" and ">>>" not in block:
                ast.parse(textwrap.dedent(block))
            elif language == "json":
                json.loads(block)
        except (SyntaxError, ValueError) as error:
            yield f"a block of {language} cannot be parsed: {error}"


def main():
    pages = [page for page in sorted(ROOT.rglob("*.md")) if "build" not in page.relative_to(ROOT).parts]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    anchors = {page: {anchor_of(one) for one in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)} for page, text in texts.items()}
    wrong = []
    for page, text in texts.items():
        name = page.relative_to(ROOT).as_posix()
        problems = [*broken_links(page, text, anchors), *unreadable_blocks(text)]
        if not name.startswith(("docs/archive/", "docs/decisions/", "CHANGELOG")):
            problems += missing_paths(text)
        wrong += [f"{name}: {problem}" for problem in problems]
    print("\n".join(wrong) if wrong else f"{len(pages)} pages, all they name is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
