"""What the tests of reproductions share: a run of the command, and the form of its report."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import processes

# The first argument of the test that imports this.
if len(sys.argv) < 2:
    print(sys.modules["__main__"].__doc__)
    sys.exit(2)
PROGRAM = os.path.abspath(sys.argv.pop(1))


LONG = "SPARSEWIRE_LONG_TESTS" in os.environ

# What a number may come with, besides "method", "metric" and "value".
KEYS = {"part": str, "form": str, "problem": str, "codec": str, "stage": str, "workers": int, "dim": int, "ratio": (int, float), "k": int, "s": int, "mu": (int, float)}
KEYS |= {"lambda": float, "gap": float, "lr": float, "schedule": str, "every": int, "seed": int, "step": int}


def f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparsewire_reproduce_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, *arguments):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.run([PROGRAM, "reproduce", *arguments], cwd=self.folder, text=True, **pipes)

    def run_ok(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def refuses(self, *arguments, says=()):
        done = self.run_program(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), f"{arguments}: {done.stderr}")
        self.assertRegex(done.stderr, r"\Asparsewire: .")
        for words in says:
            self.assertIn(words, done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def report(self, name, *arguments):
        """The report, after a look at its form, which docs/reference/commands.md fixes."""
        text = self.run_ok(name, "--json", "out.json", *arguments)
        report = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(list(report), ["name", "paper", "claim", "verdict", "holds", "reason",
                                        "conditions", "table", "measured"])
        self.assertEqual(report["name"], name)
        self.assertRegex(report["paper"], r"^arXiv:\d{4}\.\d{5}$")
        self.assertIn(report["verdict"], ["holds", "partly", "does not hold", "not judged"])
        self.assertIs(report["holds"], report["verdict"] == "holds")
        self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
        joined = " ".join(text.split())
        self.assertIn(f" {report['verdict']}: {report['reason']}", joined)
        for condition in report["conditions"]:
            self.assertIn(f" - {condition}", joined)
        self.assertIn(f"claim: {report['claim']} ", joined)
        self.assertTrue(report["measured"])
        for one in report["measured"]:
            self.assertEqual(list(one)[0], "method")
            self.assertEqual(list(one)[-2:], ["metric", "value"])
            self.assertIsInstance(one["value"], (float, int, type(None)))
            for key in list(one)[1:-2]:
                self.assertIsInstance(one[key], KEYS[key], key)
        return report

    def value(self, report, **wanted):
        """The only number that was measured for this."""
        found = [one["value"] for one in report["measured"] if all(one.get(key) == value for key, value in wanted.items())]
        self.assertEqual(len(found), 1, wanted)
        return found[0]
