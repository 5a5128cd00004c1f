#!/usr/bin/env python3
"""The command report: pages of metrics files, once and while they grow. (Of studies and trainings: study_test.py, train_report_test.py.)

    cli_report_test.py PROGRAM [SUITE]...     SUITE: some of the classes below
"""

import json
import os
import signal
import subprocess
import threading
import unittest
from pathlib import Path

import cli_case
import processes
from report_data import data_of


def lines(first, last, **more):
    return b"".join(json.dumps({"step": step, "loss": 1 / step, **more}).encode() + b"\n" for step in range(first, last + 1))


class Case(cli_case.Case):
    def data(self, name="report.html"):
        return data_of(self.get(name).decode())


class Report(Case):
    def test_is_of_one_or_several_metrics_files(self):
        self.put("a.jsonl", lines(1, 3))
        self.put("b.jsonl", lines(1, 5))
        self.assertEqual(self.run_ok("report", "a.jsonl", "b.jsonl", "--title", "Both & <more>"), b"report.html\n")
        data = self.data()
        self.assertEqual([data["kind"], data["title"], data["live"]], ["metrics", "Both & <more>", None])
        self.assertEqual([run["lines"] for run in data["runs"]], [3, 5])
        self.assertEqual(data["runs"][1]["series"]["step"], [1, 2, 3, 4, 5])
        self.assertIn(b"<title>Both &amp; &lt;more&gt;</title>", self.get("report.html"))
        self.assertEqual(self.run_ok("report", "a.jsonl"), b"report.html\n", "over its own page")
        self.assertEqual(len(self.data()["runs"]), 1)
        os.mkdir(self.folder / "runs")
        self.put("runs/c.jsonl", lines(1, 2))
        self.assertEqual(self.run_ok("report", "runs"), b"runs/report.html\n")
        self.assertEqual(self.data("runs/report.html")["methods"][0]["label"], "c")

    def test_goes_to_standard_output(self):
        self.put("a.jsonl", lines(1, 3))
        page = self.run_ok("report", "a.jsonl", "-o", "-")
        self.assertEqual(len(data_of(page.decode())["runs"]), 1)
        self.assertFalse((self.folder / "report.html").exists())
        reader, writer = os.pipe()
        os.close(reader)
        done = self.run_program("report", "a.jsonl", "-o", "-", stdout=writer)
        os.close(writer)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)
        self.refuses("report", "a.jsonl", "-o", "/dev/full", code=1, says="cannot write '/dev/full': No space left on device")
        self.refuses("report", "a.jsonl", "-o", "none/x.html", code=1, says="cannot write 'none/x.html'")

    def test_reads_a_pipe(self):
        os.mkfifo(self.folder / "pipe")
        writer = threading.Thread(target=lambda: (self.folder / "pipe").write_bytes(lines(1, 4)), daemon=True)
        writer.start()
        self.run_ok("report", "pipe")
        writer.join(processes.LIMIT)
        self.assertFalse(writer.is_alive())
        self.assertEqual(self.data()["runs"][0]["lines"], 4)

    def test_reads_hostile_files_as_far_as_they_go(self):
        evil = "</script><script>alert(1)</script><!-- \u2028"
        text = lines(1, 2, **{evil: 7}) + b'{"step": 3, "loss": NaN, "note": "\xff"}\n' + b"\x00\xff\xfe\n[1]\n" + b'{"step": 4, "lo'
        self.put("evil <b>.jsonl", text)
        done = self.run_program("report", "evil <b>.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"note: evil <b>.jsonl: ends in mid-line", done.stderr)
        page = self.get("report.html").decode()  # valid UTF-8
        self.assertNotIn("<b>", page)
        self.assertNotIn("alert(1)<", page)
        data = data_of(page)
        run = data["runs"][0]
        self.assertEqual(run["series"][evil], [7, 7, None])
        self.assertEqual(run["series"]["loss"], [1, 0.5, "nan"])
        self.assertEqual([run["status"], run["diverged_at"], run["lines"]], ["diverged", 3, 6])
        self.assertIn("evil <b>.jsonl: 2 lines are not JSON, and were left out (the first is line 4)", data["notices"])

    def test_thins_long_files_and_says_so(self):
        self.put("long.jsonl", lines(1, 30_000))
        self.put("one.jsonl", lines(1, 1) + b'{"step": 2, "x": "' + b"x" * (2 << 20) + b'"}\n' + lines(3, 3))
        done = self.run_program("report", "long.jsonl", "one.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = self.data()
        steps = data["runs"][0]["series"]["step"]
        self.assertEqual([steps[0], steps[-1], data["runs"][0]["lines"]], [1, 30_000, 30_000])
        self.assertTrue(1000 < len(steps) <= 5000, len(steps))
        self.assertEqual(data["runs"][1]["series"]["step"], [1, 3])
        self.assertTrue(any("of 30000 lines of metrics are shown" in one for one in data["notices"]), data["notices"])
        self.assertIn("one.jsonl: line 2 is longer than 1 MiB, and was left out", data["notices"])

    def test_refuses_what_it_cannot_show(self):
        self.put("a.jsonl", lines(1, 3))
        self.put("rubbish", bytes(range(256)))
        self.put("empty", b"")
        self.put("mine.html", b"<!doctype html>\n<p>mine")
        os.mkdir(self.folder / "nothing")
        os.makedirs(self.folder / "parts" / "one")
        os.mkdir(self.folder / "parts" / "other")
        self.put("parts/one/plan.json", b"{}")
        for arguments, says in (
            ([], "INPUT is missing"),
            (["none.jsonl"], "cannot read 'none.jsonl': No such file or directory"),
            (["rubbish"], "'rubbish' has no line of metrics"),
            (["empty"], "'empty' has no line of metrics"),
            (["nothing"], "'nothing' has nothing to report"),
            (["/dev/zero"], "'/dev/zero' has 256 MiB or more and is not a regular file"),
            (["parts"], "nor metrics (*.jsonl); there are studies in it: 'parts/one'"),
            (["a.jsonl", "nothing"], "'nothing' is a folder"),
            (["-"], "an input cannot be -"),
            (["a.jsonl", "-o", "a.jsonl"], "'a.jsonl' is an input"),
            (["a.jsonl", "-o", "mine.html"], "'mine.html' is there, and is not a report of sparsewire"),
            (["a.jsonl", "--follow", "0"], "--follow 0 is not a number of seconds"),
            (["a.jsonl", "--follow", "-o", "-"], "must be a file"),
            (["/dev/null", "--follow"], "--follow reads '/dev/null' again and again"),
        ):
            self.refuses("report", *arguments, says=says)


class Follow(Case):
    def wait_for(self, process, is_so):
        """`is_so` gets the data of the page."""
        while True:
            if (self.folder / "report.html").exists() and is_so(data := self.data()):
                return data
            try:
                process.wait(timeout=0.005)
                self.fail(f"it has ended: {process.stderr.read()}")
            except subprocess.TimeoutExpired:
                pass

    def steps(self, data):
        return data["runs"][0]["series"].get("step", []) if data["runs"] else []

    def test_shows_lines_as_they_come(self):
        process = self.start("report", "m.jsonl", "--follow", "0.1")
        data = self.wait_for(process, lambda data: True)
        self.assertEqual([data["live"], data["runs"], data["notices"]], [{"every": 0.1, "finished": False}, [], ["'m.jsonl' is not there yet"]])
        path = self.folder / "m.jsonl"
        path.write_bytes(lines(1, 3) + b'{"step": 4')
        data = self.wait_for(process, lambda data: self.steps(data) == [1, 2, 3])
        self.assertEqual(data["runs"][0]["status"], "running")
        with open(path, "ab") as file:
            file.write(b', "loss": 1}\n' + lines(5, 6))
        self.wait_for(process, lambda data: self.steps(data) == [1, 2, 3, 4, 5, 6])
        os.truncate(path, len(lines(1, 2)))  # as a resumed training does
        self.wait_for(process, lambda data: self.steps(data) == [1, 2])
        (self.folder / "new").write_bytes(lines(1, 4))
        os.replace(self.folder / "new", path)
        self.wait_for(process, lambda data: self.steps(data) == [1, 2, 3, 4])
        path.unlink()
        self.wait_for(process, lambda data: not data["runs"])
        path.write_bytes(lines(1, 5))
        self.wait_for(process, lambda data: self.steps(data) == [1, 2, 3, 4, 5])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertEqual((process.returncode, out), (0, b"report.html\n"), err)
        self.assertIn(b"sparsewire: 'm.jsonl' is not there yet\n", err)
        self.assertEqual(self.data()["live"], None)
        self.assertEqual(self.steps(self.data()), [1, 2, 3, 4, 5])
        self.assertEqual(sorted(os.listdir(self.folder)), ["m.jsonl", "report.html"])

    def test_ends_when_all_runs_are_finished(self):
        self.put("a.jsonl", lines(1, 3, steps=3))
        self.put("b.jsonl", lines(1, 2, steps=3))
        process = self.start("report", "--follow", "a.jsonl", "b.jsonl", "c.jsonl", "-o", "report.html")
        data = self.wait_for(process, lambda data: True)
        self.assertEqual([run["status"] for run in data["runs"]], ["finished", "running"])
        self.put("c.jsonl", lines(1, 3, steps=3))
        self.assertEqual(data["live"], {"every": 2, "finished": False})
        self.put("b.jsonl", lines(1, 3, steps=3))
        out, err = process.communicate()
        self.assertEqual((process.returncode, out), (0, b"report.html\n"), err)
        self.assertIn(b"all runs are finished", err)
        self.assertEqual(err.count(b"'c.jsonl' is not there yet"), 1)  # it may be mistyped
        self.assertEqual(self.data()["live"], None)

    def test_a_folder_may_come_later(self):
        process = self.start("report", "out/", "--follow", "0.1")
        self.assertIn(b"following", process.stderr.readline())
        self.assertIn(b"'out/' is not there yet", process.stderr.readline())
        os.mkdir(self.folder / "out")
        self.put("out/dense.jsonl", lines(1, 2))
        self.assertEqual(process.stdout.readline(), b"out/report.html\n")
        self.assertEqual(self.steps(self.data("out/report.html")), [1, 2])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 0)

    def test_leaves_a_folder_alone_that_is_empty(self):
        os.mkdir(self.folder / "out")
        process = self.start("report", "out", "--follow", "0.1")
        process.stderr.readline()
        self.assertIn(b"'out' has nothing to show yet", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 0)
        self.assertEqual(os.listdir(self.folder / "out"), [])


if __name__ == "__main__":
    unittest.main()
