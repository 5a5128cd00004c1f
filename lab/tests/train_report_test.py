#!/usr/bin/env python3
"""Reports that commands write by themselves, and of trainings that run.

    train_report_test.py PROGRAM MPIEXEC [SUITE]...     MPIEXEC: "" where there is none; SUITE: some of the classes below
"""

import json
import signal
import subprocess
import unittest

import processes
from report_data import data_of
from train_case import PROGRAM, SMALL, THREADS, Case

SHORT = [*SMALL, *THREADS, "--steps", "30", "-q"]
COMPARE = [option for option in SHORT if option not in ("--sparsifier", "topk:ratio=0.05", "--downlink", "topk:ratio=0.1")]


class Reports(Case):
    def data(self, name):
        return data_of((self.folder / name).read_text())

    def test_of_a_training(self):
        done = self.run_train(*SHORT, "--report", "r.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("\nReport: r.html\n"), done.stdout)
        data = self.data("r.html")
        run = data["runs"][0]
        self.assertEqual([run["status"], run["seed"], run["lr"], run["series"]["step"]], ["finished", 3, 0.05, [10, 20, 30]])
        self.assertEqual(data["problem"], f"{SMALL[1]}: 131 weights, 3 workers, 30 steps")
        self.assertEqual(data["methods"][0]["label"], "topk:ratio=0.05 | downlink=topk:ratio=0.1")
        report = self.train(*SHORT, "--metrics", "m.jsonl", "--metrics-every-step", "--report", "r.html")
        run = self.data("r.html")["runs"][0]
        self.assertEqual(run["series"]["step"], list(range(1, 31)))
        self.assertEqual(run["result"]["test_loss"], report["test_loss"])
        seconds = run["series"]["seconds"]
        self.assertTrue(all(0 <= a <= b for a, b in zip(seconds, seconds[1:])), seconds)
        self.assertEqual([line.get("steps") for line in self.metrics()][9::10], [30, 30, 30])
        # From its files.
        done = self.run_train("report.json", "-o", "again.html", command="report")
        self.assertEqual(done.returncode, 0, done.stderr)
        again = self.data("again.html")["runs"][0]
        self.assertEqual([again[key] for key in ("series", "config", "status", "seconds")], [run[key] for key in ("series", "config", "status", "seconds")])

    def test_of_a_training_that_diverges_or_is_stopped(self):
        self.refuses(*SHORT, "--lr", "1e30", "--report", "r.html", code=1, says="diverged in step")
        run = self.data("r.html")["runs"][0]
        self.assertEqual(run["status"], "diverged")
        self.assertGreater(run["diverged_at"], 0)
        process = self.start(*SMALL, *THREADS, "--steps", "10000000", "--metrics", "m.jsonl", "--report", "r.html")
        self.assertTrue(self.wait_for_step(process, 20))
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.data("r.html")["runs"][0]["status"], "interrupted")

    def test_seconds_go_on_where_a_training_is_resumed(self):
        files = ["--checkpoint-dir", "c", "--metrics", "m.jsonl"]
        self.train(*SHORT, *files)
        before = self.metrics()
        self.train(*SHORT, *files, "--steps", "60", "--resume")
        after = self.metrics()
        self.assertEqual(after[:3], before)
        self.assertGreater(after[3]["seconds"], before[2]["seconds"])
        self.assertEqual([line["steps"] for line in after], [30, 30, 30, 60, 60, 60])

    def test_never_replace_another_file(self):
        (self.folder / "mine.html").write_text("mine")
        self.refuses(*SHORT, "--report", "mine.html", says="'mine.html' is there, and is not a report of sparsewire")
        self.refuses(*SHORT, "--report", "x", "--json", "x", says="--json and --report are the same file")
        self.refuses(*SHORT, "--report", "-", says="--report - is not allowed")
        self.refuses(*SHORT, "--report", "none/r.html", code=1, says="cannot write 'none/r.html'")

    def test_of_a_comparison(self):
        done = self.run_train(*COMPARE, "--methods", "dense,topk", "--ratio", "0.05", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("\nReport: compare-out/report.html\n"), done.stdout)
        data = self.data("compare-out/report.html")
        self.assertEqual([data["kind"], [one["label"] for one in data["methods"]]], ["compare", ["dense", "topk"]])
        self.assertEqual([run["series"]["step"] for run in data["runs"]], [[10, 20, 30]] * 2)
        self.assertEqual(data["notices"], [])
        # A file of somebody else stays, and the results are kept.
        (self.folder / "compare-out/report.html").write_text("mine")
        done = self.run_train(*COMPARE, "--methods", "dense", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "sparsewire: warning: there is no report: 'compare-out/report.html' is there, and is not a report of "
                         "sparsewire, so it was not changed: name another file\n")  # fmt: skip
        self.assertNotIn("Report:", done.stdout)
        self.assertEqual((self.folder / "compare-out/report.html").read_text(), "mine")
        self.assertEqual(len(json.loads((self.folder / "compare-out/summary.json").read_text())["methods"]), 1)

    def test_of_a_reproduction(self):
        done = self.run_train("regtopk-toy", "--quick", "--json", "r.json", "--report", "r.html", command="reproduce")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("\nReport: r.html\n"), done.stdout)
        data = self.data("r.html")
        report = json.loads((self.folder / "r.json").read_text())
        self.assertEqual([data["kind"], data["reproduction"]], ["reproduce", report])
        self.assertIn(report["table"].splitlines()[-1], done.stdout)
        self.assertEqual(self.run_train("r.json", "-o", "again.html", command="report").returncode, 0)
        self.assertEqual((self.folder / "again.html").read_text(), (self.folder / "r.html").read_text())


class Followed(Case):
    def test_under_mpirun(self):
        follow = [PROGRAM, "report", "m.jsonl", "--follow", "0.1"]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        follower = processes.start(self, follow, cwd=self.folder, text=True, **pipes)
        self.assertIn("following", follower.stderr.readline())
        self.train(*SMALL, "--steps", "200", "--metrics", "m.jsonl", ranks=2)
        out, err = follower.communicate()
        self.assertEqual((follower.returncode, out), (0, "report.html\n"), err)
        data = data_of((self.folder / "report.html").read_text())
        self.assertEqual([data["live"], data["runs"][0]["status"], data["runs"][0]["lines"]], [None, "finished", 20])


if __name__ == "__main__":
    unittest.main()
