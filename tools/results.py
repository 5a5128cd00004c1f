#!/usr/bin/env python3
"""The page docs/evidence/results.md, from the measurements in results/<version>/*.jsonl.

    tools/results.py                      writes the page
    tools/results.py --check              returns 1 if the page is not the newest, or a row is not whole
    tools/results.py --list               the names of tables and rows
    tools/results.py --measure NAME...    runs the command of tables or rows, takes their numbers, and writes the page

--measure runs a command three times (--runs), keeps the median, and the lowest and highest as spread. It needs what the command
runs: `cmake --build --preset release --target benches`, the Python package, a GPU. The machine should do nothing else.
A row of another machine or version than the rest of its table is refused: measure the whole table.

A row is a line of JSON with the keys of REQUIRED. `take` says where its number is in what the command prints:

    {"benchmark": [NAME, ...], "over": NAME}    Google Benchmark as JSON: medians of processor times, their sum over another
    {"of": TEXT, "row": TEXT, "column": TEXT}   a cell of the Markdown table whose first heading is `of`
    {"where": {KEY: VALUE}, "key": KEY}         a line of JSON
    {"match": EXPRESSION}                       the first group of a regular expression
"""

import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence" / "results.md"
MOST_LINES = 150
WIDEST_COMMAND = 110
ANY_MACHINE = "any machine"  # of a length, where others have times
REQUIRED = ["name", "table", "row", "column", "value", "spread", "command", "take", "version", "commit", "machine", "date"]

BEGINNING = """# Results

What does a step cost, how many bits does it send, and how long does it take on a slow link? Each table is of one machine and one
version, which its caption names. In brackets: the lowest and the highest of several runs. What a training loses is in
[local_steps.md](local_steps.md).

- **Processor**: a Top-k step takes {top_low} (0.1 %) and {top_high} times (1 %) as long as adding the gradient to the memory.
- **Bytes**: an index takes at most {above_entropy} % more than the entropy of a random choice, and less where a network makes it.
- **Slow links**, with 0.1 s of computing: DDP takes {slow} times as long as the hook with 1 % on 100 Mbit/s, {fast} times on 1
  Gbit/s.
- **GPU**: a Top-k step of 100 million entries takes {gpu_low} (0.1 %) and {gpu_high} times (1 %) as long as that addition.

`tools/results.py` makes this page from `{folder}` and measures a table again: `--measure`, and the name in its caption.
"""


class Table(NamedTuple):
    key: str
    title: str
    what: str
    heading: str  # of its rows


TABLES = [
    Table("step", "A step on one processor",
          "Times `memory += gradient` of the same run, by processor time: 25 million entries, one thread.", "sparsifier"),
    Table("threads", "A step on 16 threads",
          "Times `memory += gradient` on as many threads: 100 million entries, medians of one run.", "sparsifier"),
    Table("codec", "Encode and decode",
          "Times `memory += gradient` over all 25 million entries, for the 1 % that are sent: processor time, one thread.",
          "codec"),
    Table("length", "Bits of an index",
          "Positions drawn at random from 25 million; the header is shared among them.", "share sent"),
    Table("frame", "Bits of an entry",
          "What worker 0 sends of a network that four workers train (784-3328-3328-3328-10 units, made-up images).", "Top-k"),
    Table("hook", "The hook in one process",
          "Times `memory += gradient`: one bucket of 25 million gradients, with the dense answer. A rank alone makes no frames.",
          "sparsifier"),
    Table("links", "A step on slow links",
          "Seconds a step where computing takes 0.5 or 0.1 s; one run. Four simulated hosts share the cores; ten linear "
          "layers of 10.5 million parameters, computing is a sleep, gloo. LocalSteps and DiLoCo exchange every 30 steps.", "method"),
    Table("gpu", "A step on a GPU",
          "Times `memory += gradient` on the device, until the chosen entries lie there.", "entries, sparsifier"),
    Table("gpu-hook", "The hook on a GPU",
          "Milliseconds a step beyond DDP's own: one process, 25 million parameters, Top-k 0.1 % both ways, three buckets.",
          "method"),
]


def newest_folder():
    folders = [path for path in (ROOT / "results").iterdir() if path.is_dir()]
    return max(folders, key=lambda path: [int(one) for one in path.name.split(".")])


def read():
    """All lines of each file, and of these the rows of tables."""
    lines = {}
    for path in sorted(newest_folder().glob("*.jsonl")):
        lines[path] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return lines, [row for rows in lines.values() for row in rows if "table" in row]


def write(lines):
    for path, rows in lines.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if path.read_text(encoding="utf-8") != text and any("table" in row for row in rows):
            path.write_text(text, encoding="utf-8")


def missing_programs(command):
    """What a command names and the tree does not have."""
    targets = (ROOT / "bench" / "CMakeLists.txt").read_text(encoding="utf-8")
    for word in command.split():
        path = word.split("=", 1)[-1]
        bench = re.fullmatch(r"build/release/bench/(\w+)", path)
        if bench and not re.search(rf"\b{bench[1]}\b", targets):
            yield path
        if path.startswith(("bench/", "tools/", "examples/")) and not (ROOT / path).exists():
            yield path


def wrong_with(rows):
    """What is wrong with the rows, as sentences."""
    known = [table.key for table in TABLES]
    for row in rows:
        missing = [key for key in REQUIRED if key not in row]
        if missing:
            yield f"{row.get('name', row)} has no {', '.join(missing)}"
        else:
            yield from (f"{row['name']}: there is no {path}" for path in missing_programs(row["command"]))
        if row["table"] not in known:
            yield f"{row.get('name', row)} is of the table {row['table']}, which tools/results.py does not know"
    names = [row.get("name") for row in rows]
    yield from (f"{name} is there twice" for name in in_order(names) if names.count(name) > 1)
    for key in known:
        for what in ("machine", "version"):
            several = in_order(str(row.get(what)) for row in rows if row["table"] == key)
            if len(several) != 1:
                yield f"the table {key} has rows of {len(several)} {what}s: {'; '.join(several)}"


def in_order(words):
    return list(dict.fromkeys(words))


def number(value, digits):
    if digits is None:  # three that count
        digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def cell(row):
    words = [number(value, row.get("digits")) for value in (row["value"], *(row["spread"] or []))]
    return words[0] if len(set(words)) == 1 else f"{words[0]} ({words[1]} to {words[2]})"


def broken(command):
    """Its lines, indented as code."""
    line = "   "
    for word in command.split(" "):
        if len(line) + len(word) > WIDEST_COMMAND:
            yield line + " \\"
            line = "     "
        line += " " + word
    yield line


def section(table, rows):
    columns = in_order(row["column"] for row in rows)
    cells = {(row["row"], row["column"]): cell(row) for row in rows}
    commits, dates = (", ".join(in_order(row[what] for row in rows)) for what in ("commit", "date"))
    yield f"## {table.title}"
    yield ""
    yield table.what
    yield f"*`{table.key}`: version {rows[0]['version']}, commit {commits}; {rows[0]['machine']}; {dates}.*"
    yield ""
    yield f"| {table.heading} | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for row in in_order(row["row"] for row in rows):
        yield f"| {row} | {' | '.join(cells.get((row, column), '') for column in columns)} |"
    yield ""
    for command in in_order(row["command"] for row in rows):
        yield from broken(command)
    yield ""


def facts(rows):
    """The numbers of the page's first lines."""
    value = {row["name"]: row["value"] for row in rows}
    most = max(value[row["name"]] for row in rows if row["column"] == "times entropy")
    return {
        "folder": newest_folder().relative_to(ROOT),
        "top_low": number(value["step-topk-0.1%"], 2),
        "top_high": number(value["step-topk-1%"], 2),
        "above_entropy": number(100 * (most - 1), 1),
        "slow": number(value["links-ddp-100mbit-0.1"] / value["links-topk-0.01-100mbit-0.1"], 0),
        "fast": number(value["links-ddp-1gbit-0.1"] / value["links-topk-0.01-1gbit-0.1"], 1),
        "gpu_low": number(value["gpu-100M-topk-0.1%"], 2),
        "gpu_high": number(value["gpu-100M-topk-1%"], 2),
    }


def page(rows):
    lines = BEGINNING.format(**facts(rows)).splitlines() + [""]
    for table in TABLES:
        lines += section(table, [row for row in rows if row["table"] == table.key])
    return "\n".join(lines).rstrip() + "\n"


def take(wanted, text):
    """The number in what a command printed; of lines of JSON the whole line."""
    if "benchmark" in wanted:
        runs = [one for one in json.loads(text)["benchmarks"] if one.get("aggregate_name") == "median"]
        medians = {one["run_name"]: one["cpu_time"] for one in runs}
        return sum(medians[name] for name in wanted["benchmark"]) / medians[wanted["over"]]
    if "where" in wanted:
        for line in text.splitlines():
            one = json.loads(line) if line.startswith("{") else {}
            if one and all(one.get(key) == value for key, value in wanted["where"].items()):
                return one
    elif "match" in wanted:
        found = re.search(wanted["match"], text, re.MULTILINE | re.DOTALL)
        if found:
            return float(found[1])
    else:
        heads = None
        for line in text.splitlines():
            cells = [one.strip() for one in line.strip().strip("|").split("|")] if line.startswith("|") else None
            if cells is None or heads is None:
                heads = cells
            elif heads[0] == wanted["of"] and cells[0] == wanted["row"]:
                return float(cells[heads.index(wanted["column"])].split()[0].replace(",", ""))
    sys.exit(f"results.py: the command did not print {wanted}")


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def this_machine(row, note):
    if row["machine"] == ANY_MACHINE:
        return ANY_MACHINE
    if "cuda" in row["command"] or "gpu" in row["command"]:
        machine = "one " + output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()[0]
    else:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        about = dict(re.findall(r"^(model name|cpu family|siblings)\s*: (.*)$", text, re.MULTILINE))
        machine = f"{about['siblings']} cores of an {about['model name']}, family {about['cpu family']}"
    return machine + (f", {note}" if note else "")


def measure(names, runs, note):
    lines, rows = read()
    wanted = [row for row in rows if row["name"] in names or row["table"] in names]
    for name in names:
        if not any(name in (row["name"], row["table"]) for row in wanted):
            sys.exit(f"results.py: no table or row {name}; see --list")
    version = newest_folder().name
    for row in wanted:
        mine = (this_machine(row, note), version)
        others = [other for other in rows if other["table"] == row["table"] and other not in wanted]
        if any((other["machine"], other["version"]) != mine for other in others):
            sys.exit(f"results.py: other rows of this table are not of {version} and {mine[0]}: measure {row['table']}")
    commit = output_of("git", "rev-parse", "--short=7", "HEAD")
    for command in in_order(row["command"] for row in wanted):
        texts = []
        for _ in range(runs):
            texts.append(subprocess.run(command, shell=True, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for row in wanted:
            if row["command"] != command:
                continue
            found = [take(row["take"], text) for text in texts]
            if isinstance(found[0], dict):  # the row has the other keys of its line, too
                key = row["take"]["key"]
                row.update(sorted(found, key=lambda one: one[key])[len(found) // 2])
                found = [one[key] for one in found]
            row["value"], row["spread"] = statistics.median(found), [min(found), max(found)] if runs > 1 else None
            row.update(version=version, commit=commit, machine=this_machine(row, note), date=str(datetime.date.today()))
            print(f"{row['name']}: {cell(row)}")
    write(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and return 1 if something is wrong")
    parser.add_argument("--list", action="store_true", help="print the names of tables and rows")
    parser.add_argument("--measure", metavar="NAME", nargs="+", help="tables, or rows")
    parser.add_argument("--runs", type=int, default=3, help="of a command; default %(default)s")
    parser.add_argument("--note", default="", help="behind the machine's name, such as 'other programs running'")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.runs, arguments.note)
    rows = read()[1]
    if arguments.list:
        for table in TABLES:
            print(table.key, *(f"    {row['name']}" for row in rows if row["table"] == table.key), sep="\n")
        return 0
    wrong = list(wrong_with(rows))
    if not wrong:
        text = page(rows)
        if text.count("\n") > MOST_LINES:
            wrong.append(f"the page has {text.count(chr(10))} lines, more than {MOST_LINES}")
        elif not arguments.check:
            PAGE.write_text(text, encoding="utf-8")
        elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            wrong.append(f"{PAGE.relative_to(ROOT)} is not the newest: run tools/results.py")
    print("\n".join(wrong) if wrong else f"{len(rows)} rows in {len(TABLES)} tables")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
