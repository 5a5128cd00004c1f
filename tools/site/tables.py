"""The generated parts of the reference's pages: tables of options and specs, by markers in the pages, and the Python API.

    <!-- options: train -->        the options of a sub-command; for others than train those that train has not are shown
    <!-- list: sparsifiers -->     a table of `sparsewire list`
    <!-- commands -->              the sub-commands
    <!-- allowed: problems -->     the keys of all specs of a kind, and what they may be
    <!-- keys: sparsifiers -->     before a table of keys and meanings: adds which specs take a key, and its range
"""

import re

SHORT = {"sparsifiers": "sparsifier", "codecs": "codec", "value_formats": "values", "exchanges": "exchange", "problems": "problem",
         "optimisers": "optimiser", "schedules": "schedule", "splits": "split"}  # fmt: skip


def with_names(lines):
    """A table whose first column has names, which are not broken (site.css)."""
    return '<div class="names" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"


def cell(text):
    return re.sub(r"(?<![\w`])(--[a-z][\w-]*)", r"`\1`", text.replace("|", "\\|").replace("<", "&lt;"))


def option_table(program, command):
    out = []
    as_train = dict(row for _, rows in program.options("train") for row in rows) if command in ("compare", "study", "pilot") else {}
    same = []
    for title, rows in program.options(command):
        shown = [row for row in rows if as_train.get(row[0]) != row[1] and not row[0].startswith("-h,")]
        same += [re.search(r"--[\w-]+", row[0])[0] for row in rows if as_train.get(row[0]) == row[1] and row[0].startswith("-") and not row[0].startswith("-h,")]
        if shown:
            head = "argument" if title == "Positionals" else "option"
            if title not in ("Positionals", "Options"):
                out.append(f"**{title}**")
            lines = [f"| {head} | meaning |", "|---|---|"]
            for names, meaning in shown:
                required = " (required)" if names.endswith(" REQUIRED") else ""
                lines.append(f"| `{re.sub(r',(?=-)', ', ', names.removesuffix(' REQUIRED'))}` | {cell(meaning)}{required} |")
            out.append(with_names(lines))
    if same:
        out.append("As in [train](#train): " + ", ".join(f"`{name}`" for name in same) + ".")
    return "\n\n".join(out)


def list_table(program, kind):
    rows = program.choices[kind]
    middle = [key for key in rows[0] if key not in ("name", "example")][0]
    lines = [f"| {SHORT[kind]} | {middle} | example |", "|---|---|---|"]
    lines += [f"| `{row['name']}` | {cell(row[middle])} | `{row['example']}` |" for row in rows]
    return "\n".join(lines)


def all_keys(program, kind):
    """Each key, with the names of the specs that take it."""
    out = {}
    for name in program.names(kind):
        for key in program.keys(kind, name):
            out.setdefault(key, []).append(name)
    return out


def allowed_text(program, kind, key, takers):
    ranges = {}
    for name in takers:
        ranges.setdefault(program.allowed(kind, name, key), []).append(name)
    if len(ranges) == 1:
        return next(iter(ranges))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in ranges.items())


def key_table(program, kind, rows):
    """`rows`: of a table of keys and meanings, by the page."""
    keys = all_keys(program, kind)
    written = {re.match(r"\| *`(\w+)=`", row)[1]: row for row in rows[2:]}
    if set(written) != set(keys):
        raise ValueError(f"the table of the keys of {kind} has {sorted(set(written) - set(keys))} too many, "
                         f"and lacks {sorted(set(keys) - set(written))}")  # fmt: skip
    everyone = program.names(kind)
    lines = ["| key | of | allowed | meaning |", "|---|---|---|---|"]
    for key, row in written.items():
        meaning = row.split("|", 2)[2].strip().rstrip("|").strip()
        takers = keys[key]
        of = "all" if takers == everyone else ", ".join(takers)
        lines.append(f"| `{key}=` | {of} | {allowed_text(program, kind, key, takers)} | {meaning} |")
    return with_names(lines)


def allowed_table(program, kind):
    """The keys of all specs of a kind, for kinds whose guide says what they mean. Not those of deep networks: asking about
    one loads libtorch, which takes a second."""
    lines = [f"| {SHORT[kind]} | keys |", "|---|---|"]
    for name in program.names(kind):
        if "needs libtorch" in str(next(row for row in program.choices[kind] if row["name"] == name)):
            continue
        keys = [f"`{key}=` {program.allowed(kind, name, key)}".strip() for key in program.keys(kind, name)]
        lines.append(f"| `{name}` | {'; '.join(keys) or 'none'} |")
    return "\n".join(lines)


def command_table(program):
    lines = ["| command | does |", "|---|---|"]
    lines += [f"| [`{name}`](#{name}) | {program.summary(name)} |" for name in program.commands]
    return "\n".join(lines)


def filled(text, program):
    text = re.sub(r"^<!-- options: (\w+) -->$", lambda found: option_table(program, found[1]), text, flags=re.MULTILINE)
    text = re.sub(r"^<!-- list: (\w+) -->$", lambda found: list_table(program, found[1]), text, flags=re.MULTILINE)
    text = re.sub(r"^<!-- allowed: (\w+) -->$", lambda found: allowed_table(program, found[1]), text, flags=re.MULTILINE)
    text = re.sub(r"^<!-- commands -->$", lambda found: command_table(program), text, flags=re.MULTILINE)
    return re.sub(r"^<!-- keys: (\w+) -->\n+((?:\|.*\n)+)", lambda found: key_table(program, found[1], found[2].strip().split("\n")) + "\n", text, flags=re.MULTILINE)


def python_page(module, title, package):
    text = f"# {title}\n\n::: {module}\n    options:\n      show_root_full_path: true\n"
    if module != "sparsewire":
        return text + "      show_if_no_docstring: false\n"
    stub = (package / "_core.pyi").read_text(encoding="utf-8")
    text += "\n## Dictionaries\n\nWhat `stats()`, `inspect()` and others return.\n"
    for name in re.findall(r"^class (\w+)\(TypedDict", stub, re.MULTILINE):
        text += f"\n::: sparsewire._core.{name}\n    options:\n      heading_level: 3\n"
    return text
