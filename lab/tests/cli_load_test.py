#!/usr/bin/env python3
"""Sparsifiers of one's own, from a shared library: examples/plugin.cc, built beside the program.

    cli_load_test.py PROGRAM [SUITE]...     SUITE: some of the classes below
"""

import ctypes
import json
import os
import shutil
import struct
import unittest
from pathlib import Path

from cli_case import PROGRAM, TOPK, Case, gaussians, npy

EVERY = Path(PROGRAM).parents[2] / "examples" / "libevery.so"
SMALL = ["--problem", "linreg:dim=40,samples=50", "--workers", "2", "--steps", "20"]
# The address sanitizer would complain that the program and the library both have the library's globals.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_odr_violation=0:" + os.environ.get("ASAN_OPTIONS", "")}


class Load(Case):
    def setUp(self):
        super().setUp()
        self.plugin = shutil.copy(EVERY, self.folder / "libmine.so")

    def run_program(self, *arguments, **more):
        return super().run_program(*arguments, **{"env": ENVIRONMENT, **more})

    def weights(self, *arguments):
        return json.loads(self.run_ok("train", *SMALL, "-q", "--json", "-", *arguments))["weights_crc32c"]

    def test_it_is_a_sparsifier_like_any_other(self):
        self.assertIn(b"every        every n-th entry, in turn", self.run_ok("list", "--load", "libmine.so"))
        self.assertNotIn(b"every n-th", self.run_ok("list"))
        # All entries, whoever chooses them.
        self.assertEqual(
            self.weights("--load", "libmine.so", "--sparsifier", "every:n=1"), self.weights("--sparsifier", "topk:ratio=1")
        )
        self.assertNotEqual(
            self.weights("--load", "./libmine.so", "--sparsifier", "every:n=2"), self.weights("--sparsifier", "topk:ratio=1")
        )
        compared = self.run_ok("compare", *SMALL, "--load", "libmine.so", "--methods", "topk,every", "--out", "c", "--ratio", "0.1", "-q")
        self.assertRegex(compared.decode(), r"\n *every ")
        self.put("g.npy", npy(gaussians(10)))
        self.run_ok("compress", "g.npy", "--load", "libmine.so", "--sparsifier", "every:n=2", "-o", "g.swf")
        self.assertIn(b"kept             5", self.run_ok("inspect", "g.swf"))

    def test_a_downlink_has_it_too(self):
        self.weights("--load", "libmine.so", "--downlink", "every:n=3", *TOPK)

    def test_twice_is_once(self):
        (self.folder / "link.so").symlink_to("libmine.so")
        self.weights("--load", "libmine.so", "--load", "link.so", "--sparsifier", "every")

    def test_a_study_names_the_code(self):
        study = ["study", *SMALL, "--methods", "every:n=4", "topk", "--lr", "0.1", "--tune-seeds", "0", "--seeds", "2", "--out", "s", "--ratio", "0.1"]
        self.run_ok(*study, "--load", "libmine.so", "--quiet")
        self.assertEqual(self.run_program(*study, "--load", "libmine.so").returncode, 0)
        with open(self.plugin, "ab") as file:
            file.write(b"another build")
        self.refuses(*study, "--load", "libmine.so", says="the program, or a library of --load, has other code now")
        self.refuses(*study, says="'every' is not a sparsifier")

    def test_what_cannot_be_loaded_is_one_line(self):
        for path, says in (
            ("nosuch.so", "cannot read 'nosuch.so': No such file or directory"),
            (".", "cannot load '.': it is not a regular file"),
            ("/dev/zero", "cannot load '/dev/zero': it is not a regular file"),
            (self.put("text.so", b"no library\n"), "cannot load 'text.so'"),
            (self.put("empty.so", b""), "cannot load 'empty.so'"),
            (self.put("half.so", Path(self.plugin).read_bytes()[:70000]), "cannot load 'half.so': it is cut short"),
            (self.put("quarter.so", Path(self.plugin).read_bytes()[:5000]), "cannot load 'quarter.so': it is cut short"),
            (shutil.copy(libz(), self.folder / "z.so").name, "'z.so' is no plugin"),
        ):
            self.refuses("train", *SMALL, "--load", path, says=says)
        self.refuses("train", *SMALL, "--load", lines=2, says="--load needs a value")

    def test_a_name_can_be_taken_once(self):
        shutil.copy(self.plugin, self.folder / "other.so")
        self.refuses("train", *SMALL, "--load", "libmine.so", "--load", "other.so", says="'other.so': there is a sparsifier 'every' already")

    def test_another_version_is_refused(self):
        built = (ctypes.c_uint32 * 2).in_dll(ctypes.CDLL(str(EVERY)), "sparsewire_plugin")
        border, others = struct.pack("<2I", *built), struct.pack("<2I", built[0] + 1, built[1])
        content = Path(self.plugin).read_bytes()
        self.assertEqual(content.count(border), 1)
        for changed in (others, struct.pack("<2I", built[0], built[1] + 1)):
            self.put("libmine.so", content.replace(border, changed))
            self.refuses("train", *SMALL, "--load", "libmine.so", says="was built for another version of sparsewire")


def libz():
    """A library that is no plugin: this process has it."""
    import zlib  # noqa: F401

    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(line.split()[-1] for line in maps if "/libz.so" in line)


if __name__ == "__main__":
    unittest.main()
