#!/usr/bin/env python3
"""Holds every #include of both houses, src/ and lab/, and of include/ against the module tables of their CMakeLists.txt.

    includes_test.py TABLE ROOT     TABLE: the modules.json that CMake wrote; ROOT: the source tree
    includes_test.py --self-test    each kind of forbidden include is found in a small tree made for it
"""

import json
import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s*(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')
SOURCES = {".cc", ".h", ".def", ".cu", ".cuh"}
PUBLIC = "include/sparsewire/"
PROGRAM = "lab/program"  # its own headers are beside it
TESTING = PUBLIC + "testing/"  # for the tests of other projects: these headers use GoogleTest


class Table:
    def __init__(self, rows):
        self.depends = {folder: set(row["depends"]) for folder, row in rows.items()}
        self.owner = {  # public header -> module of src/
            "sparsewire/" + header: folder.removeprefix("src/") for folder, row in rows.items() for header in row["headers"]
        }

    def modules(self, house):
        return {folder.removeprefix(house + "/") for folder in self.depends if folder.startswith(house + "/")}

    def row_of(self, path):
        """The row that a file falls under, or None. `path` is relative to the root."""
        if path.startswith(PUBLIC):
            owner = self.owner.get(path.removeprefix("include/"))
            return f"src/{owner}" if owner else None
        folder = "/".join(path.split("/")[:2])
        return folder if folder in self.depends else None

    def objection(self, path, name, quoted):
        """Why the file may not include `name`, or None."""
        row = self.row_of(path)
        house, module = row.split("/")
        is_program = row == PROGRAM
        is_public = path.startswith(PUBLIC)
        allowed = self.depends[row] | {module}
        first, _, rest = name.partition("/")

        if first == "sparsewire":
            if name not in self.owner:
                return "no public header of the module table"
            owner = self.owner[name]
            return None if house == "lab" or owner in allowed else f"it belongs to {owner}, which {module} may not include"
        if first in self.modules(house) and rest:
            if is_public:
                return "a public header may not include an internal one"
            return None if first in allowed else f"{module} may not include {first}"
        if quoted:
            return None if is_program and not rest else "not the name of a header of this house: write module/header.h"
        if path.startswith(TESTING) and name == "gtest/gtest.h":
            return None
        if is_public and not re.fullmatch(r"[a-z_0-9]+", name):
            return "a public header may include only the standard library and other public headers"
        return None


def complaints(table, root):
    found = []
    files = [p for top in ("src", "include", "lab") for p in (root / top).rglob("*") if p.suffix in SOURCES]
    files = [p for p in files if p.relative_to(root).parts[:2] != ("lab", "tests")]
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        if table.row_of(path) is None:
            found.append(f"{path}:1: this file belongs to no row of the module table")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if match := INCLUDE.match(line):
                name = match["quoted"] or match["angled"]
                if why := table.objection(path, name, quoted=match["quoted"] is not None):
                    found.append(f"{path}:{number}: {name}: {why}")
    return found, len(files)


def self_test():
    table = Table(
        {
            "src/core": {"headers": ["errors.h", "testing/a.h"], "depends": []},
            "src/kernels": {"headers": [], "depends": ["core"]},
            "src/sparsify": {"headers": ["sifter.h"], "depends": ["core"]},
            "src/exchange": {"headers": [], "depends": ["sparsify"]},
            "lab/text": {"headers": [], "depends": []},
            "lab/loop": {"headers": [], "depends": ["text"]},
            "lab/program": {"headers": [], "depends": ["loop"]},
        }
    )
    allowed = {
        "include/sparsewire/errors.h": ["<string>"],
        "include/sparsewire/sifter.h": ['"sparsewire/errors.h"', "<vector>"],
        "include/sparsewire/testing/a.h": ["<gtest/gtest.h>", '"sparsewire/errors.h"'],
        "src/core/a.cc": ['"core/a.h"', '"sparsewire/errors.h"', "<hwy/highway.h>", "<sys/mman.h>"],
        "src/kernels/a.cc": ['"core/a.h"', '"kernels/a.h"'],
        "src/kernels/deep/a.cc": ['"core/a.h"'],
        "lab/loop/a.cc": ['"text/a.h"', '"loop/a.h"', '"sparsewire/sifter.h"', "<nlohmann/json.hpp>"],
        "lab/program/main.cc": ['"command.h"', '"sparsewire/sifter.h"', '"loop/a.h"', "<fmt/format.h>"],
        "lab/tests/unit/a_test.cc": ['"../src/kernels/a.h"'],  # tests are no row
    }
    forbidden = {
        "src/core/up.cc": ['"kernels/a.h"', '"sparsewire/sifter.h"', "<kernels/a.h>"],
        "src/core/odd.h": ['"a.h"', '"../kernels/a.h"', '"sparsewire/no_such.h"'],
        "src/exchange/through.cc": ['"core/a.h"'],  # sparsify may, and that does not carry over
        "src/sparsify/sibling.def": ['"kernels/a.h"'],
        "include/sparsewire/sifter.h": ["<hwy/highway.h>", "<immintrin.h>", '"fmt/format.h"', '"core/a.h"'],
        "include/sparsewire/errors.h": ["<gtest/gtest.h>"],
        "include/sparsewire/testing/a.h": ["<gmock/gmock.h>", '"core/a.h"'],
        "src/core/other.cc": ['"loop/a.h"', '"text/a.h"'],
        "lab/text/up.cc": ['"loop/a.h"'],
        "lab/loop/inside.cc": ['"core/a.h"', '"kernels/a.h"', '"sparsewire/no_such.h"', '"a.h"', '"../src/core/a.h"'],
        "lab/program/main.cc": ['"core/a.h"', '"../core/a.h"', '"text/a.h"'],
    }
    stray = ["include/sparsewire/unlisted.h", "src/utils/a.h", "lab/core/a.h"]

    for files, wanted in ((allowed, 0), (forbidden, 1)):
        for path, includes in files.items():
            for include in includes:
                with tempfile.TemporaryDirectory() as folder:
                    write(Path(folder) / path, f"// first line\n  #  include {include}  // why\n")
                    found, _ = complaints(table, Path(folder))
                    if len(found) != wanted or any(not f.startswith(f"{path}:2: ") for f in found):
                        return f"{path} with #include {include}: wanted {wanted} complaints about line 2, got {found}"
    for path in stray:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / path, "\n")
            if complaints(table, Path(folder))[0] != [f"{path}:1: this file belongs to no row of the module table"]:
                return f"{path}: not reported"
    return None


def write(file, text):
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")


def main(arguments):
    if arguments == ["--self-test"]:
        wrong = self_test()
        print(wrong or "self-test passed")
        return 1 if wrong else 0
    if len(arguments) != 2:
        print(__doc__)
        return 2
    table = Table(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    found, files = complaints(table, Path(arguments[1]))
    print("\n".join(found) if found else f"{files} files follow the module table")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
