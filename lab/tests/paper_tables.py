"""Reads the tables of summary.md and summary.tex back, to compare them. What TeX would not print as it stands is an error."""

import re

# Each is one character of the text; what is in none of them, TeX would obey.
PIECES = re.compile(
    r"""(?P<backslash>\\textbackslash\{\}) | \{\\char(?P<code>\d+)\} | (?P<pm>\$\\pm\$[ ]) | \$(?P<math>[-<>|])\$ |
        \{(?P<lone>[*\[])\} | \\(?P<escaped>[{}$&#%_]) | (?P<break>(?<=[-,])\{\}) | (?P<plain>[^\\{}$&#%_^~"'`*\[<>|\x00-\x1f])""",
    re.VERBOSE,
)


def printed(latex):
    """What TeX prints."""
    text = ""
    at = 0
    while at < len(latex):
        piece = PIECES.match(latex, at)
        if not piece or latex[at : at + 2] in ("--", ",,"):  # TeX would join these two
            raise ValueError(f"TeX would not print {latex[at:]!r}")
        known = {"backslash": "\\", "pm": "±", "break": ""}
        text += chr(int(piece["code"])) if piece["code"] else known.get(piece.lastgroup, piece[piece.lastgroup])
        at = piece.end()
    return text


def check_balance(latex):
    """Braces, dollars and environments."""
    body = "\n".join(line for line in latex.split("\n") if not line.startswith("%"))
    depth = 0
    for one in re.findall(r"\\.|[{}]", body):
        depth += {"{": 1, "}": -1}.get(one, 0)
        if depth < 0:
            raise ValueError("a brace is closed that was not opened")
    if depth or len(re.findall(r"(?<!\\)\$", body)) % 2:
        raise ValueError("a brace or dollar is left open")
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if kind == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            raise ValueError(f"{name} is ended and was not begun")
    if opened:
        raise ValueError(f"{opened} not ended")


def read_latex(latex):
    """The captions, the tables as lists of rows (the titles first), and the notes."""
    check_balance(latex)
    captions = [printed(one) for one in re.findall(r"(?m)^  \\caption\{(.*)\}$", latex)]
    tables = []
    for columns, body in re.findall(r"\\begin\{tabular\}\{@\{\}(l?r*)@\{\}\}\n(.*?) *\\end\{tabular\}", latex, re.DOTALL):
        lines = [line.strip() for line in body.splitlines()]
        if [lines[0], lines[2], lines[-1]] != ["\\toprule", "\\midrule", "\\bottomrule"]:
            raise ValueError(f"rules are missing: {lines}")
        rows = []
        for line in [lines[1]] + lines[3:-1]:
            cells = re.split(r" & ", line.removesuffix(" \\\\"))
            if not line.endswith(" \\\\") or len(cells) != len(columns):
                raise ValueError(f"not a row of {len(columns)} cells: {line}")
            rows.append(["-" if cell == "--" else printed(cell) for cell in cells])
        tables.append(rows)
    notes = [printed(one) for one in re.findall(r"(?m)^  (.*)\\par$", latex)]
    return captions, tables, notes


def read_markdown(text):
    """As read_latex(): a caption is the heading of the page and of the table."""
    plain = lambda cell: re.sub(r"\\(.)", r"\1", cell)
    page = plain(text.split("\n")[0].removeprefix("# "))
    headings, tables, notes = [], [], []
    for block in text.strip().split("\n\n")[1:]:
        lines = block.split("\n")
        if lines[0].startswith("|"):
            rows = [[plain(cell) for cell in re.split(r"(?<!\\) \| ", line[2:-2])] for line in lines]
            tables.append([rows[0]] + rows[2:])
        elif lines[0].startswith("- "):
            notes = [plain(line[2:]) for line in lines]
        else:
            headings.append(plain(block))
    return [f"{page}. {heading}" for heading in headings], tables, notes
