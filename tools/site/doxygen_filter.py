#!/usr/bin/env python3
"""Shows doxygen a header with its plain `//` comments as documentation. Doxygen runs it as its INPUT_FILTER.

    tools/site/doxygen_filter.py HEADER

A block of comments belongs to what follows it, unless a blank line is between them; the first block of a file belongs to
the file. Texts are passed on as they are, in @verbatim: tools/site/cpp_reference.py reads them.
"""

import re
import sys


def is_comment(line):
    return line.lstrip().startswith("//")


def text_of(line):
    return re.sub(r"^\s*// ?", "", line)


def documentation(lines, begin, command=""):
    lines = [line for line in lines if not line.startswith(("NOLINT", "----"))]
    return [begin + command + "@verbatim", *(begin + line for line in lines), begin + "@endverbatim"] if lines else []


def filtered(lines):
    out, at = [], 0
    while at < len(lines):
        line = lines[at]
        if is_comment(line):
            block = []
            while at < len(lines) and is_comment(lines[at]):
                block.append(text_of(lines[at]))
                at += 1
            if not out:
                out += documentation(block, "/// ", "@file\n/// ")
            elif at < len(lines) and lines[at].strip():
                out += documentation(block, "/// ")
            continue
        at += 1
        code = re.match(r"^(.*[;,({}]|.*\w) +// (.*)$", line)
        if not code or line.startswith("#") or re.match(r"(class|struct) \w+;", line):
            out.append(line)
            continue
        column = code.start(2) - 3
        block = [code[2]]
        while at < len(lines) and is_comment(lines[at]) and lines[at].index("//") == column:
            block.append(text_of(lines[at]))
            at += 1
        out += [code[1].rstrip(), *documentation(block, "///< ")]
        if at < len(lines) and is_comment(lines[at]):
            out.append("")  # or doxygen would take the next comment for a part of this one
    return out


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(filtered(header.read().splitlines())))
