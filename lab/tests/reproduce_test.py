#!/usr/bin/env python3
"""The command reproduce: its options, what it refuses, and runs that it does not judge.

    reproduce_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import json
import os
import subprocess
import unittest

import processes
from reproduce_case import Case, PROGRAM


NAMES = ["regtopk-toy", "regtopk-linreg", "downlink-toy", "downlink-union", "threshold-total-error", "threshold-logreg", "rtopk-estimation"]
NAMES += ["downlink-mnist", "downlink-fashion", "threshold-fashion", "threshold-cifar", "rtopk-fashion", "rtopk-text", "regtopk-cifar", "all-cifar", "loco-text"]


class Command(Case):
    def test_lists_all(self):
        text = self.run_ok("--list")
        self.assertIn("All take --quick, --full, --json and --report.", text)
        listed = json.loads(self.run_ok("--list", "--json", "-"))["reproductions"]
        self.assertEqual([one["name"] for one in listed], NAMES)
        for one in listed:
            self.assertEqual(list(one), ["name", "paper", "claim", "options"])
            self.assertIn(one["claim"], " ".join(text.split()))

    def test_refuses_unknown_names_and_lists_the_known(self):
        self.refuses("nosuch", says=["'nosuch'", *NAMES])
        self.refuses(says=NAMES)
        self.refuses("--list", "regtopk-toy", says=["--list"])

    def test_refuses_options_that_a_reproduction_does_not_take(self):
        given = {"at": "1", "ratio": "0.5", "mu": "1", "rounds": "5", "seed": "1", "seeds": "1", "gap": "0.1", "data": "x"}
        given |= {"workers": "2", "device": "cpu", "data-dir": "x", "only": "x", "out": "x", "jobs": "1", "max-hours": "1", "dry-run": None, "quiet": None}
        for one in json.loads(self.run_ok("--list", "--json", "-"))["reproductions"]:
            self.assertLessEqual({option[2:] for option in one["options"]}, set(given))
            for option, value in given.items():
                if f"--{option}" not in one["options"]:
                    self.refuses(one["name"], f"--{option}", *([] if value is None else [value]), says=[one["name"], f"no --{option}", *one["options"]])

    def test_refuses_odd_values_and_says_what_is_allowed(self):
        for at in ("-1", "1e3", "a", "1.5", "1,", ",1", "1,,2", "1 2", "+1", "1000001", "99999999999999999999999"):
            self.refuses("regtopk-toy", f"--at={at}", says=["--at", "[0, 1000000]"])
        self.refuses("regtopk-toy", "--at=", says=["--at"])
        for option, bad, allowed in (
            ("ratio", ("0", "1.1", "-0.5", "nan", "x", "0.5,2"), "(0, 1]"),
            ("mu", ("0", "-1", "inf", "nan", "x"), "(0, "),
            ("rounds", ("0", "-1", "1e3", "1000001"), "[1, 1000000]"),
            ("seeds", ("0", "1001", "x"), "[1, 1000]"),
            ("seed", ("-1", "18446744073709551615", "x"), "[0, "),
        ):
            for value in bad:
                self.refuses("regtopk-linreg", f"--{option}={value}", says=[f"--{option}", allowed])
        for gap in ("0", "1", "-1", "nan"):
            self.refuses("threshold-logreg", f"--gap={gap}", says=["--gap", "(0, 1)"])
        self.refuses("regtopk-toy", "--quick", "--full", says=["--quick", "--full"])

    def test_a_report_that_cannot_be_written_fails_before_the_work(self):
        done = self.run_program("regtopk-linreg", "--full", "--json", "nosuch/out.json")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nosuch/out.json", done.stderr)

    def test_shows_progress_on_a_terminal_and_clears_it(self):
        ours, theirs = os.openpty()
        done = processes.run([PROGRAM, "reproduce", "downlink-toy", "--rounds", "10", "--seeds", "1"], stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        shown = ""
        try:
            while piece := os.read(ours, 10000):
                shown += piece.decode()
        except OSError:  # Linux's end of a terminal
            pass
        os.close(ours)
        self.assertEqual(done.returncode, 0)
        self.assertIn("downlink-toy: 50 %", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"), shown)

    def test_prints_the_report_instead_of_the_text(self):
        self.assertTrue(json.loads(self.run_ok("regtopk-toy", "--quick", "--json", "-"))["holds"])

    def test_does_not_judge_runs_that_are_shorter_than_quick_ones(self):
        """Exit code 0, as for every verdict: report() looks at it."""
        for name, quick in (("regtopk-linreg", 1000), ("downlink-toy", 1000), ("downlink-union", 120), ("threshold-total-error", 200), ("rtopk-estimation", 8)):
            report = self.report(name, "--quick", "--rounds", "1")
            self.assertEqual(report["verdict"], "not judged", name)
            self.assertEqual(report["reason"], f"too short to judge: --rounds 1 is less than the {quick} of --quick")
        self.assertEqual(self.report("threshold-logreg", "--quick", "--rounds", "1")["verdict"], "not judged")
        report = self.report("regtopk-linreg", "--quick", "--rounds", "1", "--ratio", "1")
        self.assertEqual((report["verdict"], report["reason"]), ("not judged", "all entries are sent at every ratio, so there is nothing to compare"))

    def test_measures_the_same_again(self):
        for name, *small in (("downlink-toy", "--rounds", "30", "--seeds", "2"), ("downlink-union", "--rounds", "4"), ("threshold-total-error",), ("rtopk-estimation", "--rounds", "2")):
            self.assertEqual(self.report(name, "--quick", *small), self.report(name, "--quick", *small), name)


if __name__ == "__main__":
    unittest.main()
