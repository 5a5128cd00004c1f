#!/usr/bin/env python3
"""Comparisons as processes: `sparsewire compare`.

    train_compare_test.py PROGRAM MPIEXEC [SUITE]...     MPIEXEC: "" where there is none; SUITE: some of the classes below
"""

import json
import os
import signal
import subprocess
import unittest

import processes
import report_data
from train_case import SMALL, Case


class Compare(Case):
    SMALL = [*SMALL[:2], "--lr", "0.05", "--steps", "30", "--workers", "3", "--ratio", "0.05"]
    NAMES = ["dense", "topk", "randomk", "rtopk", "threshold", "regtopk", "topk_both_ways", "local_steps"]

    def test_writes_over_nothing(self):
        (self.folder / "c.json").write_text("{}")
        for arguments, says in (
            (["--config", "c.json", "--json", "c.json"], "--config and --json are the same file"),
            (["--methods", "topk | name=a/b", "randomk | name=a:b"], "another method writes 'a_b.jsonl' too"),
        ):
            done = self.run_train(*self.SMALL, *arguments, command="compare")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)
        self.assertEqual((self.folder / "c.json").read_text(), "{}")

    def test_runs_every_method_on_the_same_problem(self):
        done = self.run_train(*self.SMALL, "--json", "r.json", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads((self.folder / "r.json").read_text())
        self.assertEqual([row["method"] for row in report["methods"]], self.NAMES)
        self.assertEqual(json.loads((self.folder / "compare-out/summary.json").read_text()), report)
        self.assertEqual(report["ratio"], 0.05)
        self.assertIn("the same for all methods", done.stdout)
        rows = dict(zip(self.NAMES, report["methods"]))
        trailers = 4 * 3 * 52 * 30  # each of 3 workers sends 2 in a step, and receives 2
        weights = 12 * 8 + 8 + 8 * 3 + 3
        self.assertAlmostEqual(rows["dense"]["ratio_to_dense"], 1 + trailers / (30 * 4 * 4 * weights), places=2)
        self.assertEqual(rows["dense"]["total_error"], 0)
        self.assertLess(rows["topk_both_ways"]["bytes_down"], rows["topk"]["bytes_down"])
        self.assertIn("local_steps: 3 exchanges of how far weights moved, each after 10 steps", done.stdout)
        for name, row in rows.items():
            lines = self.metrics(f"compare-out/{name}.jsonl")
            local = row.get("local_steps", 1)
            self.assertEqual(local, 10 if name == "local_steps" else 1)
            self.assertEqual([line["step"] for line in lines], [30 // local])
            self.assertEqual([lines[-1]["total_" + key] for key in ("bytes_up", "bytes_down")], [row["bytes_up"], row["bytes_down"]])
            self.assertEqual(lines[-1]["test_loss"], row["test_loss"])
            self.assertRegex(done.stdout, rf"(?m)^{name} +\d")
            more = ["--local-steps", "10", "--steps", "3", "--average", "senders", "--feedback", "ef:decay=0.95", "--codec", "auto:values=int2"]
            alone = self.train(*self.SMALL[:-2], "--sparsifier", row["sparsifier"], "--downlink", row.get("downlink", ""),
                               "--exchange", row["exchange"], *(more if local > 1 else []))  # fmt: skip
            self.assertEqual(alone["weights_crc32c"], row["weights_crc32c"], "as train does it")

    def test_says_how_many_times_the_bytes_of_dense_are_moved(self):
        done = self.run_train(*self.SMALL[:-2], "--ratio", "1", "--steps", "3", "--methods", "dense,topk,topk_both_ways", "-q", "--json",
                              "r.json", command="compare")  # fmt: skip
        rows = json.loads((self.folder / "r.json").read_text())["methods"]
        times = [row["ratio_to_dense"] for row in rows]
        self.assertGreater(min(times), 1.1, times)
        for row in rows:
            self.assertRegex(done.stdout, rf"(?m)^{row['method']} .* {row['ratio_to_dense']:.1f} x ")

    def test_takes_some_of_the_methods(self):
        done = self.run_train(*self.SMALL, "--methods", "topk,dense", "--out", "x", "-q", "--json", "-", command="compare")
        self.assertEqual([row["method"] for row in json.loads(done.stdout)["methods"]], ["topk", "dense"])
        self.assertEqual(sorted(os.listdir(self.folder / "x")), ["dense.jsonl", "report.html", "summary.json", "topk.jsonl"])
        self.refuses(*self.SMALL, "--methods", "topk,best", command="compare", says="'best' is not a method; there are dense, topk")
        self.refuses(*self.SMALL[:-2], "--ratio", "7", command="compare", says="--ratio 7 is not a number in (0, 1]")
        self.refuses(*self.SMALL, "--exchange", "nosuch", "--out", "y", command="compare", says="nosuch")
        self.assertFalse((self.folder / "y").exists(), "refused before anything ran")
        self.refuses(*self.SMALL, "--exchange", "allgather", command="compare", says="topk_both_ways: ")
        self.refuses(*self.SMALL, "--json", "none/r.json", "--out", "z", code=1, command="compare", says="cannot write 'none/r.json'")
        self.assertEqual(os.listdir(self.folder / "z"), [])

    def test_shows_who_diverges_and_goes_on(self):
        toy = ["--problem", "downlink_toy", "--lr", "1e9", "--json", "r.json", "--methods", "topk"]
        done = self.run_train(*toy, "dense | clip=1e-30 name=careful", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^topk +diverged ")
        self.assertRegex(done.stdout, r"(?m)^- topk: diverged in step \d+")
        self.assertRegex(done.stdout, r"(?m)^careful +\d")
        rows = json.loads((self.folder / "r.json").read_text())["methods"]
        self.assertIn("diverged", rows[0]["failure"])
        self.assertNotIn("failure", rows[1])
        done = self.run_train(*toy, "dense", command="compare")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sparsewire: every method diverged", done.stderr)
        self.assertEqual(len(json.loads((self.folder / "r.json").read_text())["methods"]), 2)

    def test_leaves_nothing_of_an_earlier_comparison(self):
        out = self.folder / "compare-out"
        self.assertEqual(self.run_train(*self.SMALL, "--methods", "topk,dense", "rtopk:r=4", command="compare").returncode, 0)
        self.assertEqual(sorted(os.listdir(out)), ["dense.jsonl", "report.html", "rtopk_r=4.jsonl", "summary.json", "topk.jsonl"])
        (out / "mine.jsonl").write_text("mine")
        (out / "randomk.jsonl").write_text("not metrics")
        self.assertEqual(self.run_train(*self.SMALL, "--methods", "regtopk", command="compare").returncode, 0)
        self.assertEqual(sorted(os.listdir(out)), ["mine.jsonl", "randomk.jsonl", "regtopk.jsonl", "report.html", "summary.json"])
        self.refuses(*self.SMALL, "--methods", "randomk", command="compare", says="randomk.jsonl' does not begin with a line of metrics")
        (out / "summary.json").write_text('{"methods": []}')
        self.refuses(*self.SMALL, command="compare", says="summary.json' is not of a comparison")
        self.assertEqual((out / "randomk.jsonl").read_text(), "not metrics")

    def test_an_earlier_comparison_stays_until_there_is_a_result(self):
        out = self.folder / "compare-out"

        def contents():
            return {path.name: path.read_bytes() for path in out.iterdir()}

        def stop(with_signal):
            long = [*self.SMALL[:-2], "--steps", "100000", "--eval-every", "1", "--methods", "topk,dense"]
            process = processes.start(self, self.command(*long, command="compare"), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)  # fmt: skip
            while (out / "rtopk.jsonl").exists() or not self.metrics("compare-out/topk.jsonl"):
                try:
                    process.wait(timeout=0.001)
                    break
                except subprocess.TimeoutExpired:
                    pass
            self.assertEqual(sorted(os.listdir(out)), [".earlier", "topk.jsonl"])
            process.send_signal(with_signal)
            self.assertNotEqual(process.wait(), 0)

        self.assertEqual(self.run_train(*self.SMALL, "--methods", "topk,rtopk", command="compare").returncode, 0)
        earlier = contents()
        self.assertEqual(sorted(earlier), ["report.html", "rtopk.jsonl", "summary.json", "topk.jsonl"])
        stop(signal.SIGINT)
        self.assertEqual(contents(), earlier)
        stop(signal.SIGKILL)
        (out / "randomk.jsonl").write_text("not metrics")
        self.refuses(*self.SMALL, "--methods", "randomk", command="compare", says="randomk.jsonl' does not begin with a line of metrics")
        os.remove(out / "randomk.jsonl")
        self.assertEqual(contents(), earlier)
        self.assertEqual(self.run_train(*self.SMALL, "--methods", "dense", command="compare").returncode, 0)
        self.assertEqual(sorted(os.listdir(out)), ["dense.jsonl", "report.html", "summary.json"])

    def test_a_signal_keeps_the_methods_that_are_done(self):
        long = [*self.SMALL, "--steps", "300", "--eval-every", "1", "--json", "r.json"]
        reader, writer = processes.narrow_pipe(500)  # for the lines of two methods or more, and not of all
        process = processes.start(self, self.command(*long, command="compare"), cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=writer)  # fmt: skip
        os.close(writer)
        while not self.metrics("compare-out/randomk.jsonl"):
            try:
                process.wait(timeout=0.001)
                break
            except subprocess.TimeoutExpired:
                pass
        process.send_signal(signal.SIGINT)
        with open(reader) as file:
            stderr = file.read()
        stdout = process.communicate()[0]
        self.assertEqual(process.returncode, 1, stderr)
        rows = json.loads((self.folder / "compare-out/summary.json").read_text())["methods"]
        names = [row["method"] for row in rows]
        self.assertEqual(names, self.NAMES[: len(names)])
        self.assertGreaterEqual(len(names), 2)
        self.assertLess(len(names), 8)
        self.assertIn(f"sparsewire: stopped by a signal; {len(names)} of 8 methods are done and in 'compare-out'", stderr)
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["methods"], rows)
        for name in names:
            self.assertRegex(stdout, rf"(?m)^{name} +\d")
        self.assertEqual(sorted(os.listdir(self.folder / "compare-out")), sorted([f"{name}.jsonl" for name in names] + ["report.html", "summary.json"]))

    def test_names_one_thing_in_the_singular(self):
        options = ["--problem", "linreg:dim=1,samples=20", "--methods", "dense", "--steps", "1", "--workers", "1", "-q"]
        self.assertIn("samples=20: 1 weight, 1 worker, 1 step, ratio", self.run_train(*options, command="compare").stdout)

    def test_takes_methods_as_a_study_does(self):
        specs = ["rtopk:r=4", "topk | codec=golomb:values=bf16 name=small"]
        done = self.run_train(*self.SMALL, "--json", "-", "-q", "--methods", "dense", *specs, command="compare")
        rows = json.loads(done.stdout)["methods"]
        self.assertEqual([row["method"] for row in rows], ["dense", "rtopk:r=4", "small"])
        self.assertEqual(rows[1]["sparsifier"], "rtopk:r=4,ratio=0.05")
        self.assertEqual([row["metrics"] for row in rows], ["dense.jsonl", "rtopk_r=4.jsonl", "small.jsonl"])
        self.refuses(*self.SMALL, "--methods", "regtopk:mu=1/4", command="compare", says="lr= and lists of values are for 'sparsewire study'")
        self.refuses(*self.SMALL, "--methods", "topk", "topk", command="compare", says="'topk' is given twice")

    def test_methods_with_local_steps_have_as_many_steps_of_the_optimiser(self):
        specs = ["dense", "dense | local_steps=15 outer_lr=0.7 name=averaging", "dense | local_steps=7 name=odd", "dense | local_steps=100 name=far"]
        report = self.train(*self.SMALL[:-2], "--eval-every", "15", "-q", "--methods", *specs, command="compare")
        steps = {row["method"]: [line["step"] for line in self.metrics("compare-out/" + row["metrics"])] for row in report["methods"]}
        self.assertEqual(steps, {"dense": [15, 30], "averaging": [1, 2], "odd": [2, 4], "far": [1]})
        page = (self.folder / "compare-out/report.html").read_text()
        runs = {run["id"]: run["series"]["step"] for run in report_data.data_of(page)["runs"]}
        self.assertEqual(runs, {"dense": [15, 30], "averaging": [15, 30], "odd": [14, 28], "far": [30]})


if __name__ == "__main__":
    unittest.main()
