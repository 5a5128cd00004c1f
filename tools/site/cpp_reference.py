"""Pages about the public headers, from what doxygen read in them (tools/site/Doxyfile)."""

import html
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import tables

# The headers in the order in which a newcomer needs them; others follow.
ORDER = ["worker", "worker_config", "transport", "tcp_transport", "gradient", "layout", "sifter", "sparsifier", "sparse_vector",
         "codec", "spec", "state", "device", "pool", "errors"]  # fmt: skip
SKIPPED = {"friend", "define"}


# What is code in a comment's prose: `x`, a path, f(), A::b, key=value, two_words.
CODE = (r"(`[^`]*`|(?:docs|examples|tests|src)/[\w/.]*\w|\b[\w:.]+\((?:[\w.]*)\)|\b\w+::[\w:]+\b|\b(?:\w+:)?\w+=[\w./]*"
        r"|\b[A-Za-z]\w+_\w\w+\b)")  # fmt: skip


class Declaration:
    """A class, function, variable or enumeration: where it is, what it is called, what is said about it."""

    def __init__(self, node, text):
        self.node, self.text = node, text
        self.kind = node.get("kind")
        at = node.find("location")
        self.file, self.line = at.get("file"), int(at.get("line", 0))
        self.name = (node.findtext("compoundname") or node.findtext("name")).replace("sparsewire::", "")
        self.members, self.parent = [], None


def text_of(node):
    """The comment, as it stands in the header."""
    verbatim = node.find("detaileddescription//verbatim")
    if verbatim is None:
        return ""
    lines = [re.sub(r"^///<? ?", "", line) for line in verbatim.text.split("\n")]
    return "\n".join(lines).strip("\n ")


def plain(node):
    return "" if node is None else " ".join("".join(node.itertext()).split())


def tidy(code):
    code = code.replace("sparsewire::", "").replace("< ", "<").replace(" >", ">").replace(" &", "&").replace(" *", "*")
    return re.sub(r" ?= ?(?=[\w{:])", " = ", re.sub(r"([\w>])([&*]+)(\w)", r"\1\2 \3", code))


def template_of(node):
    found = node.find("templateparamlist")
    if found is None:
        return ""
    # doxygen says "class T" for both; concepts are types.
    parts = [f"{plain(one.find('type'))} {plain(one.find('declname'))}".strip() for one in found.findall("param")]
    return f"template <{', '.join(parts)}>\n"


def signature(one):
    """The declaration of a function or variable, as in the header."""
    node = one.node
    if one.kind == "typedef":
        return f"using {one.name} = {tidy(plain(node.find('type')))};"
    words = [word for word in ("explicit", "static") if node.get(word) == "yes"]
    if node.get("virt") in ("virtual", "pure-virtual") and "override" not in plain(node.find("argsstring")):
        words.append("virtual")
    kind = tidy(plain(node.find("type")))
    start = " ".join([*(word for word in words if word not in kind.split()), kind, one.name.split("::")[-1]]).replace("  ", " ").strip()
    if one.kind == "variable":
        first = tidy(plain(node.find("initializer")))
        return " ".join(f"{start} {first}".split()) + ";"
    code = start + tidy(plain(node.find("argsstring"))).replace("=0", " = 0").replace("=default", " = default").replace("=delete", " = delete")
    if len(code) > 96 and "(" in code:
        head, _, rest = code.partition("(")
        inside, bracket, tail = rest.rpartition(")")
        parts, depth = [""], 0
        for letter in inside:
            depth += letter in "<({["
            depth -= letter in ">)}]"
            if letter == "," and not depth:
                parts.append("")
            else:
                parts[-1] += letter
        code = head + "(\n    " + ",\n    ".join(part.strip() for part in parts) + bracket + tail
    return template_of(node) + code + ";"


class Pages:
    def __init__(self, xml, root, filtered):
        self.root = root
        self.files = {}  # header: its text
        self.declarations = {}  # header: its declarations
        self.lines = filtered  # header: the lines that doxygen read
        classes = {}
        for path in sorted(Path(xml).glob("*.xml")):
            if path.name == "index.xml" or path.name == "Doxyfile.xml":
                continue
            for compound in ElementTree.parse(path).getroot().iter("compounddef"):
                if compound.get("kind") == "file":
                    self.files[compound.findtext("compoundname")] = text_of(compound)
                elif compound.get("kind") in ("class", "struct", "concept") and compound.get("prot") != "private":
                    one = Declaration(compound, text_of(compound))
                    classes[one.name] = one
                    self.add_members(compound, one)
                elif compound.findtext("compoundname") == "sparsewire":
                    self.add_members(compound, None)
        for name, one in classes.items():
            outer = name.rpartition("::")[0]
            one.parent = classes.get(outer)
            if outer and not one.parent:
                continue  # of a class that is private
            self.declarations.setdefault(Path(one.file).name, []).append(one)
        self.known = {one.name: f"{Path(file).stem}.md#{anchor(one.name)}"
                      for file, all_of in self.declarations.items() for one in all_of if one.kind in ("class", "struct", "enum")}  # fmt: skip

    def add_members(self, compound, owner):
        for member in compound.iter("memberdef"):
            if member.get("prot") == "private" or member.get("kind") in SKIPPED:
                continue
            one = Declaration(member, text_of(member))
            if owner and one.kind != "enum":
                owner.members.append(one)
            else:
                if owner:
                    one.name = f"{owner.name}::{one.name}"
                self.declarations.setdefault(Path(one.file).name, []).append(one)

    def prose(self, text):
        """A comment as Markdown: code stays code, and what looks like markup is none."""
        out = []
        for block in re.split(r"\n[ \t]*\n", text):
            lines = block.split("\n")
            if all(line.startswith("  ") for line in lines) or any(re.search(r"\S {3,}\S", line) for line in lines):
                least = min(len(line) - len(line.lstrip()) for line in lines)
                is_table = any(re.match(r" *\S+ {3,}(?!//)\S", line) for line in lines)
                language = "cpp" if re.search(r"\);|\) \{", block) and not is_table else "text"
                out.append(f"```{language}\n" + "\n".join(line[least:] for line in lines) + "\n```")
                continue
            out.append(self.inline("\n".join(line.strip() for line in lines)))
        return "\n\n".join(out).replace("```\n\n```cpp\n", "\n").replace("```\n\n```text\n", "\n")

    def inline(self, text):
        pieces = re.split(CODE, text)
        out = []
        for at, piece in enumerate(pieces):
            if at % 2:
                code = piece.strip("`")
                if code.startswith("docs/") and code.endswith(".md"):
                    out.append(f"[{code.rsplit('/', 1)[1]}](../..{code[4:]})")
                else:
                    out.append(f"`{code}`")
                continue
            piece = re.sub(r"([\\*_\[\]#|])", r"\\\1", piece)
            piece = re.sub(r"(?<!\S)\\\*(\w+)\\\*(?!\S)", r"*\1*", html.escape(piece, quote=False))
            piece = re.sub(r"\b([A-Z]\w*[a-z]\w*)\b", lambda word: f"[`{word[1]}`]({self.known[word[1]]})" if word[1] in self.known else word[1], piece)
            out.append(re.sub(r"\b(REQUIRES|ENSURES|THREADS|COST):", r"**\1:**", piece))
        return "".join(out)

    def cell(self, text):
        return self.inline(" ".join(text.split()))

    def follows(self, header, one, before):
        """Whether it stands right behind the one before, with no words of its own."""
        if one.text or not before or one.kind != before.kind:
            return False
        return all(line.strip() for line in self.lines[header][before.line : one.line - 1])

    def groups(self, header, members):
        out = []
        for one in sorted(members, key=lambda one: one.line):
            if out and self.follows(header, one, out[-1][-1]):
                out[-1].append(one)
            else:
                out.append([one])
        return out

    def functions(self, header, members, level):
        out = []
        for group in self.groups(header, members):
            names = list(dict.fromkeys(one.name.split("::")[-1] for one in group))
            if level:
                out.append(f"{'#' * level} {', '.join(f'`{name}`' for name in names[:4])}{' …' if len(names) > 4 else ''}")
            out.append("```cpp\n" + "\n".join(signature(one) for one in group) + "\n```")
            if group[0].text:
                out.append(self.prose(group[0].text))
        return out

    def variables(self, members):
        if members and not any(one.text for one in members):
            return ["```cpp\n" + "\n".join(signature(one) for one in members) + "\n```"]
        rows = ["| field | meaning |", "|---|---|"]
        for one in members:
            code = signature(one).rstrip(";").replace("|", "\\|")
            rows.append(f"| `{code}` | {self.cell(one.text)} |")
        return [tables.with_names(rows)] if members else []

    def values(self, node):
        if not any(text_of(value) for value in node.findall("enumvalue")):
            return ["One of " + ", ".join(f"`{value.findtext('name')}`" for value in node.findall("enumvalue")) + "."]
        rows = ["| value | meaning |", "|---|---|"]
        for value in node.findall("enumvalue"):
            rows.append(f"| `{value.findtext('name')}` | {self.cell(text_of(value))} |")
        return ["\n".join(rows)]

    def section(self, header, one):
        out = [f"## {one.name}"]
        if one.kind == "enum":
            return [*out, self.prose(one.text), *self.values(one.node)]
        if one.kind == "concept":
            return [*out, self.prose(one.text), "```cpp\n" + tidy(plain(one.node.find("initializer"))) + ";\n```"]
        bases = ", ".join(f"{base.get('prot')} {base.text}" for base in one.node.findall("basecompoundref"))
        head = f"{template_of(one.node)}{one.kind} {one.name}{' : ' + bases if bases else ''};"
        if bases or template_of(one.node):
            out.append("```cpp\n" + tidy(head) + "\n```")
        out.append(self.prose(one.text))
        data = [member for member in one.members if member.kind == "variable" and member.node.get("static") == "no"]
        out += self.variables(data)
        rest = [member for member in one.members if member not in data]
        own = one.name.split("::")[-1]
        made = [member for member in rest if member.name in (own, f"~{own}") or member.name == "operator=" and not member.text]
        if made:
            out += self.functions(header, made, 0)
        return out + self.functions(header, [member for member in rest if member not in made], 3)

    def page(self, header):
        out = [f"# {header}", f"`#include <sparsewire/{header}>`", self.prose(self.files[header])]
        free = []

        def flush():
            if free:
                for group in self.groups(header, free):
                    out.append("## " + ", ".join(dict.fromkeys(f"`{one.name}`" for one in group)))
                    out.extend(self.functions(header, group, 0))
                free.clear()

        for one in sorted(self.declarations.get(header, []), key=lambda one: one.line):
            if one.kind in ("function", "variable", "typedef"):
                free.append(one)
                continue
            flush()
            out.extend(self.section(header, one))
        flush()
        return "\n\n".join(part for part in out if part) + "\n"


def anchor(name):
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def write(xml, root, to, filter_lines):
    """Writes a page for each header and an index into the folder `to`; returns the names of the pages in their order."""
    headers = {path.name: filter_lines(path.read_text(encoding="utf-8").splitlines()) for path in sorted((root / "include/sparsewire").glob("*.h"))}
    pages = Pages(xml, root, headers)
    names = sorted(headers, key=lambda name: (ORDER.index(name[:-2]) if name[:-2] in ORDER else len(ORDER), name))
    to.mkdir(parents=True, exist_ok=True)
    table = ["| header | what it has |", "|---|---|"]
    for name in names:
        first = re.split(r"(?<=[.:])(?:\s|$)", pages.files[name], maxsplit=1)[0].rstrip(":")
        table.append(f"| [{name}]({name[:-2]}.md) | {pages.cell(first)} |")
    text = "What each public header has. All names are in the namespace `sparsewire`. These pages are made from the headers."
    rows = ["# C++", text, "\n".join(table)]
    (to / "index.md").write_text("\n\n".join(rows) + "\n", encoding="utf-8")
    for name in names:
        (to / f"{name[:-2]}.md").write_text(pages.page(name), encoding="utf-8")
    return ["index.md", *(f"{name[:-2]}.md" for name in names)]
