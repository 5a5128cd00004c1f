#!/usr/bin/env python3
"""Studies as a user runs them: whole, killed, stopped and continued; in a terminal of 80 columns.

    study_test.py PROGRAM [SUITE]...     SUITE: some of the classes below
"""

import csv
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import check_study
import paper_tables
import processes
from report_data import data_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ""
DATA = ["--problem", "logreg", "--data", "train.txt", "--test-data", "test.txt", "--workers", "2", "--split", "dirichlet:alpha=1"]
METHODS = ["--methods", "dense", "topk", "threshold", "topk | downlink=topk name=both_ways"]
STUDY = ["--ratio", "0.1,0.3", "--lr", "0.1,1", "--tune-seeds", "1", "--seeds", "2", "--steps", "40", "--jobs", "2"]
RUNS = 4 + 14 + 14  # pilots, tuning, judging
SAME = ["summary.json", "runs.csv", "summary.md", "summary.tex", "references.bib", "plan.json"]  # whatever happened on the way


def write_samples(path, count, seed):
    draw = random.Random(seed)
    truth = [draw.gauss(0, 1) for _ in range(20)]
    draw = random.Random(seed + path.name)
    lines = []
    for _ in range(count):
        chosen = sorted(draw.sample(range(20), 6))
        values = [round(draw.gauss(0, 1), 3) for _ in chosen]
        label = sum(truth[i] * x for i, x in zip(chosen, values)) + draw.gauss(0, 0.5) > 0
        lines.append(f"{'+1' if label else '-1'} " + " ".join(f"{i + 1}:{x}" for i, x in zip(chosen, values)))
    path.write_text("\n".join(lines) + "\n")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparsewire_study_"))
        self.addCleanup(shutil.rmtree, self.folder)
        write_samples(self.folder / "train.txt", 200, "data")
        write_samples(self.folder / "test.txt", 100, "data")

    def run_program(self, *arguments, **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.run([PROGRAM, *arguments], cwd=self.folder, text=True, **{**pipes, **more})

    def study(self, *arguments, **more):
        methods = [] if "--methods" in arguments else METHODS
        return self.run_program("study", *DATA, *STUDY, *methods, *arguments, **more)

    def hold(self, name, count):
        """A study that has done so many runs, and cannot end before somebody reads what it says about further ones."""
        room = (count - len(self.runs(name)) + 6) * 79  # a line for each new run, and some more
        reader, writer = processes.narrow_pipe(room)
        file = open(reader)
        self.addCleanup(file.close)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": writer}
        command = [PROGRAM, "study", *DATA, *STUDY, *METHODS, "--out", name]
        process = processes.start(self, command, cwd=self.folder, text=True, **pipes)
        os.close(writer)
        self.wait_for_runs(process, name, count)
        return process, file

    def runs(self, name):
        """Those that are whole."""
        folder = self.folder / name / "runs"
        return [one for one in os.listdir(folder) if not one.startswith(".")] if folder.exists() else []

    def wait_for_runs(self, process, name, count):
        while len(self.runs(name)) < count:
            try:
                process.wait(timeout=0.001)
                return
            except subprocess.TimeoutExpired:
                pass

    def refuses(self, *arguments, says, code=2):
        done = self.study(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(says, done.stderr)

    def contents(self, name):
        return {file: (self.folder / name / file).read_bytes() for file in SAME}

    def fits(self, text):
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)


class Whole(Case):
    def test_ends_with_tables_that_a_script_of_its_own_agrees_with(self):
        done = self.study("--out", "s", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        self.assertEqual(len(self.runs("s")), RUNS)
        self.assertEqual(sorted(os.listdir(self.folder / "s")),
                         ["plan.json", "references.bib", "report.html", "runs", "runs.csv", "summary.json", "summary.md", "summary.tex", "timings.csv"])  # fmt: skip
        self.fits(done.stdout)
        self.fits(done.stderr)
        self.assertEqual(len(re.findall(r"(?m)^(pilot|tune|judge) ", done.stderr)), RUNS, "a line for each run")
        summary = json.loads((self.folder / "s/summary.json").read_text())
        self.assertEqual(json.loads((self.folder / "r.json").read_text()), summary)
        self.assertEqual(len(summary["methods"]), 1 + 3 * 2)
        with open(self.folder / "s/runs.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), RUNS)
        for row in rows:
            if row["phase"] != "pilot" and row["method"] == "threshold":
                self.assertIn("threshold:lambda=", json.loads((self.folder / f"s/runs/{row['id']}/config.json").read_text())["sparsifier"])
        for file in SAME[:-1]:
            self.assertNotIn(str(self.folder), (self.folder / "s" / file).read_text(), "no names of folders")

        # The page of it.
        self.assertTrue(done.stdout.endswith("\nReport: s/report.html\n"), done.stdout)
        data = data_of((self.folder / "s/report.html").read_text())
        self.assertEqual([data["kind"], len(data["runs"]), data["notices"]], ["study", RUNS, []])
        self.assertEqual(data["summary"], json.loads((self.folder / "s/summary.json").read_text()))
        for run in data["runs"]:
            self.assertEqual(run["chosen"], run["phase"] == "judge")
            self.assertEqual(run["series"].get("step", [])[-1:], [40] if run["chosen"] else [])

        # The same again takes what is there.
        before = self.contents("s")
        again = self.study("--out", "s")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotRegex(again.stderr, r"(?m)^(pilot|tune|judge) ")
        self.assertIn("judging: 14 runs are there already", again.stderr)
        self.assertEqual(self.contents("s"), before)

        # A run can be trained again by itself.
        judged = [row for row in rows if row["phase"] == "judge"][-1]
        alone = self.run_program("train", "--config", f"s/runs/{judged['id']}/config.json", "--json", "-")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(json.loads(alone.stdout)["weights_crc32c"], judged["weights_crc32c"])
        self.assertEqual(json.loads(alone.stdout)["test_loss"], float(judged["test_loss"]))

    def test_has_tables_and_references_for_a_paper(self):
        done = self.study("--seeds", "3", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        latex = (self.folder / "s/summary.tex").read_text()
        self.assertEqual(paper_tables.read_latex(latex), paper_tables.read_markdown((self.folder / "s/summary.md").read_text()))
        _, (measures, _, settings), _ = paper_tables.read_latex(latex)
        summary = json.loads((self.folder / "s/summary.json").read_text())
        self.assertEqual(len(measures), 1 + len(summary["methods"]))
        for row, chosen, one in zip(measures[1:], settings[1:], summary["methods"]):
            versus = one["vs_baseline"]
            self.assertEqual(row[:2], [one["name"], "-" if one["ratio"] is None else str(one["ratio"])])
            self.agrees(row[2], one["measures"]["test_loss"]["mean"], one["measures"]["test_loss"]["ci95"])
            self.assertEqual(chosen[2], f"{one['chosen']['lr']:g}" + "*" * (one["at_edge"]["lr"] in ("low", "high")))
            if versus is None:
                self.assertEqual(row[3:], ["-", "-", "-"])
                continue
            self.agrees(row[3], versus["diff"], versus["ci95"])
            self.assertAlmostEqual(float(row[4].replace("<0.001", "0.0005")), versus["p_holm"], delta=0.0005001)
            self.assertEqual(row[5], f"{versus['wins']} of 3")
        first = latex[: latex.index("\n\n")]
        for words in ("seeds 0, 1, 2;", "chosen on seeds 1000.", '"steps":40', f"sparsewire {summary['environment']['sparsewire']},"):
            self.assertIn(words, first)
        keys = re.findall(r"(?m)^@\w+\{(\w+),$", (self.folder / "s/references.bib").read_text())
        self.assertEqual(keys, ["sparsewire", "stich2018sparsified", "sahu2021rethinking", "zou2022downlink"])
        self.assertIn("\\cite{" + ",".join(keys) + "}", first)

    def agrees(self, cell, middle, ends):
        """The cell has these numbers, rounded."""
        for text, number in zip(cell.split(" ±"), (middle, (ends[1] - ends[0]) / 2)):
            digits = len(text.partition(".")[2].partition("e")[0])
            power = int(text.partition("e")[2] or 0)
            self.assertAlmostEqual(float(text), number, delta=0.5001 * 10.0 ** (power - digits), msg=cell)

    def test_papers_are_those_that_the_program_cites(self):
        done = self.run_program("study", "--problem", "linreg:dim=10,samples=20", "--workers", "2", "--steps", "2", "--local-steps", "2",
                                "--ratio", "0.5", "--lr", "0.01", "--tune-seeds", "0", "--seeds", "1", "--out", "s", "--methods",
                                "threshold:lambda=0.1", "regtopk", "rtopk", "topk | downlink=topk")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        entries = (self.folder / "s/references.bib").read_text().split("\n\n")
        field = lambda entry, name: re.search(rf"(?m)^  {name} = \{{(.*)\}},?$", entry)[1].replace("{\\'e}", "é")
        program, *papers = (ROOT / "CITATION.cff").read_text(encoding="utf-8").split("  - type: ")
        self.assertEqual(field(entries[0], "year"), re.search(r'date-released: "(\d+)-', program)[1])
        self.assertEqual(field(entries[0], "author"), "{" + re.search(r"- name: (.*)", program)[1] + "}")
        self.assertEqual(len(papers), 5)
        for paper in papers:
            number = re.search(r'"(arXiv:\S+)"', paper)[1]
            entry = next(one for one in entries if number in one)
            self.assertEqual(re.sub("[{}]", "", field(entry, "title")), re.search(r'title: "(.*)"', paper)[1])
            self.assertEqual(field(entry, "year"), re.search(r"year: (\d+)", paper)[1])
            self.assertEqual(field(entry, "author").split(" and "),
                             [", ".join(names) for names in re.findall(r"family-names: (.*?), given-names: (.*?)\}", paper)])

    def test_hostile_names_are_printed_and_not_obeyed(self):
        data = b"50%_&#{$\n\n\\end{table}\xff.txt"
        os.rename(self.folder / "train.txt", os.path.join(os.fsencode(self.folder), data))
        names = ["[5pt]", "*", "\\\\", "a&b%c#d_e$f{g}h~i^j", "--,,!`?`<<>>|\"'", "\\end{document}", "%", "é", "-5"]
        done = self.study("--data", data, "--methods", "dense", *[f"topk | name={name}" for name in names], "--lr", "0.1", "--out", "s",
                          errors="replace")
        self.assertEqual(done.returncode, 0, done.stderr)
        captions, tables, _ = paper_tables.read_latex((self.folder / "s/summary.tex").read_text())
        self.assertTrue(captions[0].startswith("logreg on 50%_&#{$  \\end{table}.txt: 20 weights"), captions[0])
        for table in tables:
            self.assertEqual([row[0] for row in table[1:]], ["dense"] + [name for name in names for _ in range(2)])

    def test_says_beforehand_what_it_takes(self):
        done = self.study("--dry-run", "--json", "r.json", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "s").exists())
        report = json.loads((self.folder / "r.json").read_text())
        self.assertEqual([report[key] for key in ("runs", "pilots", "tuning", "judging")], [RUNS, 4, 14, 14])
        self.assertGreater(report["hours"], 0)
        self.assertGreater(report["disk_bytes"], 1000 * RUNS)
        text = self.study("--dry-run").stdout
        self.assertRegex(text, r"(?m)^all +32 runs$")
        self.assertRegex(text, r"(?m)^time: about .*, 2 runs at a time")
        self.fits(text)

    def test_fails_if_every_method_diverges(self):
        done = self.run_program("study", "--problem", "linreg:dim=10,samples=20", "--methods", "dense", "topk", "--ratio", "0.5", "--lr",
                                "1e9", "--seeds", "2", "--tune-seeds", "1", "--steps", "20", "--workers", "2")  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("every method diverged", done.stderr)
        self.assertTrue((self.folder / "study-out/summary.json").exists())


class Interrupted(Case):
    def test_killed_at_any_moment_ends_with_the_same_bytes(self):
        whole = self.study("--out", "whole")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        for count in (0, 2, 9, 21):
            process, _ = self.hold("s", count)
            process.kill()
            process.wait()
        self.assertLess(len(self.runs("s")), RUNS)
        done = self.study("--out", "s", "--jobs", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("there already", done.stderr)
        self.assertEqual(self.contents("s"), self.contents("whole"))
        self.assertEqual(sorted(self.runs("s")), sorted(self.runs("whole")))

    def test_a_signal_keeps_what_is_done(self):
        process, said = self.hold("s", 5)
        process.send_signal(signal.SIGINT)
        stderr = said.read()
        process.communicate()
        self.assertEqual(process.returncode, 1, stderr)
        kept = len(self.runs("s"))
        self.assertIn(f"stopped by a signal; {kept} of {RUNS} runs are done and kept in 's': the same command continues", stderr)
        self.assertGreaterEqual(kept, 5)
        self.assertEqual(len(os.listdir(self.folder / "s/runs")), kept, "no unfinished run is left")
        self.assertFalse((self.folder / "s/summary.json").exists())
        data = data_of((self.folder / "s/report.html").read_text())
        self.assertEqual([data["summary"], len(data["runs"])], [None, kept])
        self.assertTrue(any("the study is not finished" in one for one in data["notices"]), data["notices"])
        done = self.study("--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"(?m)^(pilot|tune|judge) ", done.stderr)), RUNS - kept)

    def test_no_run_starts_after_the_time(self):
        self.refuses("--out", "s", "--max-hours", "0", says=f"stopped after --max-hours; 0 of {RUNS} runs are done", code=1)
        self.assertEqual(self.runs("s"), [])
        self.assertEqual(self.study("--out", "s", "--max-hours", "1").returncode, 0)

    def test_one_study_at_a_time(self):
        process, said = self.hold("s", 1)
        self.refuses("--out", "s", says="'s'")
        said.read()
        process.communicate()
        self.assertEqual(process.returncode, 0)


class Plans(Case):
    def test_a_folder_of_another_study_is_refused(self):
        self.assertEqual(self.study("--out", "s", "--max-hours", "0").returncode, 1)
        for more in ([], ["--dry-run"]):
            self.refuses("--out", "s", "--steps", "41", *more, says="'s' is of another study: --steps was 40 and is 41.")
        self.refuses("--config", "s/plan.json", "--out", "t", says="'s/plan.json': is of a study")
        self.refuses("--out", "s", "--seeds", "3", says="--seeds was [0,1] and is [0,1,2]")
        self.refuses("--out", "s", "--primary", "metric", says="--primary was test_loss and is metric")
        with open(self.folder / "test.txt", "a") as file:
            file.write("+1 1:1\n")
        self.refuses("--out", "s", says="--test-data was ")
        self.refuses("--json", "train.txt", says="--data and --json are the same file")
        self.refuses("--out", ".", says="'.' is not empty and has no plan.json")

    def test_methods_that_differ_at_their_ends_are_other_methods(self):
        method = "topk | downlink=topk feedback=ef:decay=0.9,scale=lr codec=golomb:values=f16 clip="
        self.assertEqual(self.study("--methods", "dense", method + "1", "--out", "s", "--max-hours", "0").returncode, 1)
        self.refuses("--methods", "dense", method + "0.01", "--out", "s", says="is of another study: --methods was 'dense' 'topk |")

    def test_what_has_no_meaning_is_refused(self):
        for methods, says in (
            (["dense | lr=0.1/0.3", "regtopk:mu=4/4.0"], "'4.0' is twice in a list of values"),
            (["dense | lr=0.1/0.3", "topk | downlink=topk/threshold"], "a list of downlinks: give a method for each"),
            (["dense", "topk | name=a name=b"], "'name' is given twice"),
            (["dense,topk,rtopk:r=2"], "only plain names may have commas between them; put spaces between methods"),
            (["dense", "topk | name=a\x1b[31m"], "has characters that cannot be printed"),
            (["dense", b"topk | name=a\xff"], "has characters that cannot be printed"),
        ):
            self.refuses("--methods", *methods, "--dry-run", says=says)
        self.refuses("--target", "inf", "--dry-run", says="--target: 'inf' is not a number")
        self.refuses("--out", "s", "--json", "s/plan.json", says="--json 's/plan.json' is in the folder of the study")

    def test_a_run_that_is_not_the_one_it_should_be_is_refused(self):
        arguments = ["--methods", "dense", "topk", "--lr", "0.3", "--ratio", "0.3", "--out", "s", "--json", "r.json"]
        self.assertEqual(self.study(*arguments).returncode, 0)
        one, other = (self.folder / "s/runs" / name for name in sorted(self.runs("s"))[:2])
        self.assertEqual(json.loads((one / "config.json").read_text())["json"], "")
        shutil.move(one, self.folder / "kept")
        shutil.copytree(other, one)
        self.refuses(*arguments, says=f"'s/runs/{one.name}' is of another run: remove it")
        shutil.rmtree(one)
        shutil.copytree(self.folder / "kept", one)
        (one / "result.json").unlink()
        os.mkfifo(one / "result.json")
        self.refuses(*arguments, says="is damaged ('result.json' is no file)")

    def test_the_grid_grows_by_new_learning_rates_only(self):
        done = self.study("--methods", "dense", "--lr", "0.1,0.1001", "--grow", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        rates = [cell["lr"] for cell in json.loads((self.folder / "s/summary.json").read_text())["grid"]]
        self.assertEqual(len(rates), len(set(rates)), rates)
        done = self.study("--methods", "dense", "--lr", "1e-170,1e-30", "--grow", "--out", "t")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_grid_grows_beyond_the_edge_of_a_parameter(self):
        done = self.study("--methods", "dense | clip=0.001/0.002", "--lr", "0.01,0.1", "--grow", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        grid = json.loads((self.folder / "s/summary.json").read_text())["grid"]
        self.assertEqual([cell["grown"] for cell in grid if cell["own"]["clip"] == "0.004"], [1])
        self.assertIn("* The best value may be beyond the grid", done.stdout)

    def test_the_name_of_the_data_may_change(self):
        self.assertEqual(self.study("--out", "s", "--max-hours", "0").returncode, 1)
        self.refuses("--out", "s", "--max-hours", "0", "--data", "./train.txt", says="stopped after --max-hours", code=1)

    def test_starts_from_given_weights(self):
        small = ["--methods", "dense", "topk", "--ratio", "0.3", "--lr", "0.3"]
        for name, seed in (("w.npy", "8"), ("other.npy", "9")):
            done = self.run_program("train", *DATA, "--steps", "30", "--seed", seed, "--save-weights", name, "--json", name + ".json")
            self.assertEqual(done.returncode, 0, done.stderr)
        contents = "20 weights, CRC-32C " + json.loads((self.folder / "w.npy.json").read_text())["weights_crc32c"]
        (self.folder / "nan.npy").write_bytes((self.folder / "w.npy").read_bytes()[:-4] + struct.pack("<f", math.nan))
        for name, says in (("none.npy", "cannot read 'none.npy': No such file"), (".", "cannot read '.': Is a directory"),
                           ("w.npy.json", "'w.npy.json' is not a .npy file"), ("nan.npy", "'nan.npy': weight 19 is nan")):  # fmt: skip
            self.refuses(*small, "--out", "s", "--init-weights", name, says=says)
            self.assertFalse((self.folder / "s").exists())
        self.refuses("--init-weights", "w.npy", "--json", "w.npy", says="--init-weights and --json are the same file")
        done = self.study(*small, "--out", "s", "--init-weights", "w.npy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.folder / "s/plan.json").read_text())["init_weights"], contents)
        for text in (done.stdout, done.stderr, (self.folder / "s/summary.md").read_text()):
            self.assertIn(f"every run starts from given weights ({contents})", " ".join(text.split()))
        page = data_of((self.folder / "s/report.html").read_text())
        self.assertTrue(page["problem"].endswith(f", every run from given weights ({contents})"), page["problem"])
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        with open(self.folder / "s/runs.csv", newline="") as file:
            judged = [row for row in csv.DictReader(file) if row["phase"] == "judge"][-1]
        alone = self.run_program("train", "--config", f"s/runs/{judged['id']}/config.json", "--json", "-")
        self.assertEqual(json.loads(alone.stdout)["weights_crc32c"], judged["weights_crc32c"])

        # The file may have moved, and be a pipe.
        shutil.rmtree(self.folder / "s/runs" / judged["id"])
        before = self.contents("s")
        os.mkfifo(self.folder / "moved.npy")
        content = (self.folder / "w.npy").read_bytes()
        threading.Thread(target=(self.folder / "moved.npy").write_bytes, args=(content,), daemon=True).start()
        again = self.study(*small, "--out", "s", "--init-weights", "moved.npy")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(len(re.findall(r"(?m)^(tune|judge) ", again.stderr)), 1)
        self.assertEqual(self.contents("s"), before)
        for more, says in ((["--init-weights", "other.npy"], f"--init-weights was {contents} and is 20 weights, CRC-32C "),
                           ([], f"--init-weights was {contents} and is not given.")):  # fmt: skip
            self.refuses(*small, "--out", "s", *more, says=says)
        self.assertEqual(self.contents("s"), before)

    def test_a_parameter_takes_no_learning_rates_away(self):
        """A method with fewer of them looked worse than it is, with a p of .008."""
        done = self.study("--methods", "dense", "regtopk:mu=1/4", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        self.assertNotIn("different learning rates", done.stdout)
        self.assertIn("chosen from 2 to 4 by", " ".join(done.stdout.split()))
        self.assertIn("regtopk:mu=1/4, ratio 0.1: it had 4 settings to choose from.", " ".join(done.stdout.split()))
        self.assertNotIn("dense: it had", done.stdout)

    def test_other_learning_rates_of_a_method_are_said(self):
        done = self.study("--methods", "dense", "topk | lr=0.01/0.03 name=topk", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        words = "methods had different learning rates to choose from (dense: 0.1 1; topk: 0.01 0.03)"
        for text in (done.stdout, done.stderr, (self.folder / "s/summary.md").read_text()):
            self.assertIn(words, " ".join(text.split()))

    def test_plain_names_may_have_commas_between_them(self):
        done = self.study("--methods", "dense,topk", "rtopk:r=4,ratio=0.2", "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 methods, 8 combinations", done.stdout)

    def test_ratios_that_send_equally_many_are_merged(self):
        done = self.study("--ratio", "0.1,0.101,0.3", "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ratio 0.101 is left out: like 0.1 it sends 2 of 20 entries", done.stderr)

    def test_a_budget_sets_the_steps(self):
        arguments = ["--methods", "dense", "topk", "--ratio", "0.1", "--lr", "0.3", "--schedule", "cosine", "--budget-bytes", "20000"]
        done = self.study(*arguments, "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        with open(self.folder / "s/runs.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["phase"] == "judge"]
        for row in rows:
            self.assertAlmostEqual((int(row["bytes_up"]) + int(row["bytes_down"])) / 20000, 1, delta=0.03)
        for more in ([], ["--dry-run"]):
            self.refuses(*arguments, "--workers", "1", *more, "--out", "t", says="--budget-bytes needs at least 2 workers")
        self.assertFalse((self.folder / "t").exists())

    def test_tuning_runs_can_be_shorter(self):
        done = self.study("--methods", "dense", "topk", "--ratio", "0.3", "--tune-steps", "10", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        with open(self.folder / "s/runs.csv", newline="") as file:
            steps = {(row["phase"], row["steps"]) for row in csv.DictReader(file)}
        self.assertEqual(steps, {("tune", "10"), ("judge", "40")})

    def test_settings_can_be_chosen_by_the_accuracy(self):
        done = self.study("--methods", "dense", "topk", "--ratio", "0.3", "--tuned-by", "val_metric", "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("val acc.", done.stderr)
        self.assertIn("by the mean validation accuracy on", " ".join(done.stdout.split()))
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        summary = json.loads((self.folder / "s/summary.json").read_text())
        with open(self.folder / "s/runs.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["phase"] == "tune"]
        for row in rows:
            lines = (self.folder / f"s/runs/{row['id']}/metrics.jsonl").read_text().splitlines()
            self.assertEqual(json.loads(lines[-1])["validation_accuracy"], float(row["val_metric"]))
        for name in ("dense", "topk"):
            cells = [cell for cell in summary["grid"] if cell["spec"] == name]
            self.assertEqual(max(cell["mean"] for cell in cells), next(cell["mean"] for cell in cells if cell["chosen"]))
        self.refuses("--tuned-by", "test_loss", "--out", "t",
                     says="--tuned-by 'test_loss' is not measured here; there are val_loss, val_metric")

    def test_the_grid_grows_at_its_edge(self):
        arguments = ["--methods", "dense", "topk", "--ratio", "0.3", "--lr", "1e-5,1e-4", "--grow"]
        done = self.study(*arguments, "--out", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check_study.check(str(self.folder / "s")), [])
        methods = json.loads((self.folder / "s/summary.json").read_text())["methods"]
        self.assertEqual([one["cells_tried"] for one in methods], [4, 4])


class Terminal(Case):
    def shown(self, *arguments, until=None):
        return processes.on_terminal(self, [PROGRAM, *arguments], until=until, cwd=self.folder)

    def test_a_study_fits_80_columns(self):
        text = self.shown("study", *DATA, *STUDY, *METHODS, "--out", "a_folder_with_a_name")
        lines = re.split(r"\r\n|\r\x1b\[K", text)
        self.fits("\n".join(lines))
        states = [line for line in lines if line.startswith("[")]
        self.assertTrue(states)
        self.assertLess(max(map(len, states)), 80, "a full line would wrap")
        for one in states:
            self.assertRegex(one, rf"^\[[#.]{{12}}\] (pilots|tuning|judging), \d+ of {RUNS} runs done(, [\d hmins]+ left)?$")
        self.assertEqual(len([line for line in lines if re.match(r"(pilot|tune|judge) ", line)]), RUNS)

    def test_the_time_left_is_shown(self):
        text = self.shown("study", *DATA, *STUDY, *METHODS, "--steps", "200000", "--jobs", "1", "--out", "s", until=b" left")
        lines = re.split(r"\r\n|\r\x1b\[K", text)
        # On a busy machine it is known before the four pilots have ended.
        known = rf"\[[#.]{{12}}\] (pilots, [1-4]|tuning, 4) of {RUNS} runs done, [\d hmind]+ left$"
        self.assertTrue(any(re.match(known, one) for one in lines), lines)

    def test_help_fits_80_columns(self):
        text = self.shown("study", "--help")
        self.fits(text.replace("\r\n", "\n"))
        for option in ("--methods", "--tune-seeds", "--max-hours", "--dry-run", "--grow", "--budget-bytes", "--config"):
            self.assertIn(option, text)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
