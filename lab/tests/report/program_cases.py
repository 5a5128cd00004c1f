"""Pages as the program writes them: of a study, a comparison, a reproduction, metrics, and metrics that are damaged."""

import csv
import io
import json
import random
import re
import subprocess
import tempfile
from pathlib import Path

import case
import processes
import page_files
import rule

METHODS = ["--methods", "dense", "topk", "topk | downlink=topk name=both_ways"]


def write_samples(path, count):
    draw = random.Random(path.name)
    lines = []
    for _ in range(count):
        chosen = sorted(draw.sample(range(40), 8))
        values = [round(draw.gauss(0, 1), 3) for _ in chosen]
        label = sum(value * (index % 3 - 1) for index, value in zip(chosen, values)) > 0
        lines.append(f"{'+1' if label else '-1'} " + " ".join(f"{index + 1}:{value}" for index, value in zip(chosen, values)))
    path.write_text("\n".join(lines) + "\n")


class Program(case.Case):
    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp(dir=self.browser.folder))

    def run_program(self, *arguments):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        done = processes.run([case.SETTINGS["program"], *arguments], cwd=self.folder, **pipes)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def open_report(self, *inputs):
        self.run_program("report", *inputs, "-o", "page.html")
        self.browser.open(self.folder / "page.html")
        self.assertEqual(self.count("[role=alert]"), 0)
        for figure in self.browser.run("return [...document.querySelectorAll('figure')].map((one) => one.id)"):
            self.assertGreater(self.count(f"#{figure} .plot svg :is(.line, .mark, .cell)"), 0, figure)

    def test_a_study_says_what_the_rule_says_and_draws_what_was_measured(self):
        write_samples(self.folder / "train.txt", 200)
        write_samples(self.folder / "test.txt", 100)
        self.run_program("study", "--problem", "logreg", "--data", "train.txt", "--test-data", "test.txt", "--workers", "2", *METHODS, "--ratio", "0.1", "--lr", "0.3,1",
                         "--tune-seeds", "1", "--seeds", "3", "--steps", "60", "--eval-every", "5", "--out", "study")
        self.open_report("study")
        summary = json.loads((self.folder / "study/summary.json").read_text())
        ((use, _),) = rule.answers(summary)
        self.assertEqual(self.browser.run("return document.querySelector('#answer [data-use]')?.dataset.use ?? null"), use)
        # Somebody who knows none of the words is told what the method does.
        self.assertIn("In each step every worker sends 10 % of its gradient’s entries: those with the largest", self.text("#answer .settings"))
        self.assertIn("error memory", self.text("#words"))
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('figure')].map((one) => one.id)"),
                         ["tradeoff", "differences", "target", "progress", "memory", "density", "bytes", "stages", "grid"])
        rows = list(csv.DictReader(io.StringIO(self.browser.saved("methods", "csv")[1].decode("utf-8-sig"))))
        self.assertEqual([float(row["test loss"]) for row in rows], [one["measures"]["test_loss"]["mean"] for one in summary["methods"]])
        # The last point of a line is the mean that the study judged.
        self.browser.choose("progress.x", "step")
        rows = list(csv.DictReader(io.StringIO(self.browser.saved("progress", "csv")[1].decode("utf-8-sig"))))
        for one in summary["methods"]:
            last = [row for row in rows if row["method"] == one["name"]][-1]
            for key, value in [("test_loss", one["measures"]["test_loss"]["mean"]), ("low", one["measures"]["test_loss"]["ci95"][0])]:
                self.assertAlmostEqual(float(last[key]), value, delta=1e-6)

    def test_a_comparison(self):
        self.run_program("compare", "--problem", "linreg", "--workers", "2", "--steps", "20", "--eval-every", "5", "--methods", "dense", "topk", "--ratio", "0.1", "--out", "out")
        self.open_report("out")
        self.assertIn("not which method is best", self.text("#answer"))
        self.assertEqual(self.count("#results tbody tr"), 2)
        # One number everywhere: a dense exchange is what the program compares with, not the run of dense, which has headers.
        (dense, topk) = json.loads((self.folder / "out/summary.json").read_text())["methods"]
        part = f"1/{1 / topk['ratio_to_dense']:.3g}"
        self.assertNotEqual(part, f"1/{(dense['bytes_up'] + dense['bytes_down']) / (topk['bytes_up'] + topk['bytes_down']):.3g}")
        self.assertIn(f": {part} of a dense exchange", self.text("#answer"))
        self.assertIn(part, self.text("#results"))
        self.assertEqual(self.count("#progress .legend button"), 2)
        self.assertIn("Emulated time", self.text("#progress figcaption"))

    def test_a_reproduction(self):
        self.run_program("reproduce", "regtopk-toy", "--quick", "--json", "toy.json")
        self.open_report("toy.json")
        self.assertIn("The claim holds.", self.text("#answer"))
        self.assertNotIn("batches", self.text("#measured"))
        measured = json.loads((self.folder / "toy.json").read_text())["measured"]
        rows = list(csv.DictReader(io.StringIO(self.browser.saved("measured", "csv")[1].decode("utf-8-sig"))))
        self.assertEqual(sorted(float(row["loss"]) for row in rows), sorted(row["value"] for row in measured))

    def test_a_reproduction_by_studies_begins_with_what_was_judged(self):
        measured = []
        for part, steps, lr in [("one_step", 100, 0.3), ("local_steps", 10, 0.1)]:
            for method, ratio, k in [("dense", None, 5000), ("topk", 0.001, 5), ("topk", 0.01, 50)]:
                row = {"part": part, "method": method, "k": k, "lr": lr} | ({"ratio": ratio} if ratio else {})
                measured += [{**row, "stage": "tuning", "seed": 1000, "step": steps, "lr": one, "metric": "val_loss", "value": one} for one in (0.1, 0.3)]
                for metric, value in [("accuracy", 0.9 if ratio == 0.01 else 0.8), ("test_loss", 0.5), ("bytes_up", 10 * k)]:
                    measured += [{**row, "stage": "judging", "seed": seed, "step": steps, "metric": metric, "value": value} for seed in (0, 1)]
        report = {"name": "made-up", "paper": "", "claim": "c", "verdict": "partly", "holds": False, "reason": "r", "conditions": [], "table": "t", "measured": measured}
        (self.folder / "made-up.json").write_text(json.dumps(report))
        self.open_report("made-up.json")
        chosen = lambda name: self.browser.run(f"return document.getElementById('measured.{name}')?.value ?? null")
        self.assertEqual([chosen(name) for name in ("metric", "x", "only.part")], ["accuracy", "ratio", "local_steps"])
        self.assertEqual([chosen(name) for name in ("only.k", "only.lr", "only.step", "only.ratio")], [None] * 4)  # they follow from these
        rows = list(csv.DictReader(io.StringIO(self.browser.saved("measured", "csv")[1].decode("utf-8-sig"))))
        self.assertEqual(sorted((float(row["ratio"]), float(row["accuracy"])) for row in rows), [(0.001, 0.8), (0.001, 0.8), (0.01, 0.8), (0.01, 0.9)])

    def test_methods_side_by_side_have_whole_intervals_and_no_list_of_axes(self):
        rows = [("sgd", 0.1, (0.80, 0.90)), ("topk", 0.3, (0.84, 0.86))]  # equal means; a setting that differs, but not within a method
        measured = [{"method": method, "lr": lr, "stage": "judging", "seed": seed, "step": 9, "metric": metric, "value": value}
                    for method, lr, values in rows for seed, value in enumerate(values) for metric in ("accuracy", "test_loss")]
        report = {"name": "made-up", "paper": "", "claim": "c", "verdict": "holds", "holds": True, "reason": "r", "conditions": [], "table": "t", "measured": measured}
        (self.folder / "made-up.json").write_text(json.dumps(report))
        self.open_report("made-up.json")
        self.assertIsNone(self.browser.run("return document.getElementById('measured.x')"))
        lengths = self.browser.run("return Array.from(document.querySelectorAll('#measured svg line[stroke-width=\"1.5\"]'), (one) => one.getAttribute('y1') - one.getAttribute('y2'))")
        self.assertAlmostEqual(lengths[0] / lengths[1], 5, delta=0.05)

    def test_metrics_of_the_hook_for_pytorch(self):
        for rank in range(2):
            lines = []
            for step in range(1, 21):
                so_far = {"step": step, "rank": rank, "seconds": step / 2, "rank_bytes_up": 100 * step, "rank_bytes_down": 150 * step}
                lines.append({**so_far, "skipped": False, "entries_sent": 10, "bytes_up": 100, "memory_norm": 2.0, "seconds_sift": 0.001, "factor_against_dense": 20.0})
                lines.append({**so_far, "loss": 1 / step})  # what the script recorded
            lines.append({**so_far, "test_loss": 0.25})
            (self.folder / f"run-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.open_report("run-0.jsonl", "run-1.jsonl")
        self.assertEqual(self.text("#notices"), "")
        # A test loss at the end alone is not what comes first.
        self.assertEqual(self.browser.run("return document.getElementById('progress.y').value"), "loss")
        self.assertIn("entries sent (of its rank)", self.text("#progress"))
        self.assertNotIn("Emulated time", self.text("#progress figcaption"))  # there is no such axis
        self.browser.choose("progress.x", "rank_bytes")
        rows = list(csv.DictReader(io.StringIO(self.browser.saved("progress", "csv")[1].decode("utf-8-sig"))))
        self.assertEqual([(float(row["rank_bytes"]), float(row["loss"])) for row in rows[:20]], [(250 * step, float(f"{1 / step:.8g}")) for step in range(1, 21)])
        self.assertIn("2.00 kB", self.text("#results"))
        self.assertIn("0.25", self.text("#results"))

    def test_metrics_that_are_hostile(self):
        good = [json.dumps({"step": step, "loss": 1 / step, "<img src=x onerror=alert(1)>": step}) for step in range(1, 50)]
        (self.folder / "<img src=x onerror=alert(1)>.jsonl").write_text("\n".join(good) + '\n{"step": 50, "lo')
        (self.folder / "nan.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": NaN}\n{"step": 3, "loss": 1e999}\nnonsense\n{"step": 4, "loss": 2}\n')
        self.open_report("<img src=x onerror=alert(1)>.jsonl", "nan.jsonl")
        self.assertEqual(self.count("img, main script"), 0)
        self.assertGreater(self.count("#notices li"), 0)
        self.assertEqual(self.count("#progress .legend button"), 2)

    def test_runs_its_own_script_and_no_other(self):
        (self.folder / "run.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
        self.open_report("run.jsonl")
        page = (self.folder / "page.html").read_text()
        (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        (policy,) = re.findall(r'"Content-Security-Policy" content="([^"]*)"', page)
        self.assertEqual(re.findall(r"script-src ([^;]*)", policy), [f"'sha256-{page_files.hash_of(script)}'"])
        injected = "<script>document.title = 'injected'</script><img src='x' onerror='document.title = 1'><a href='javascript:document.title = 2'>x</a>"
        (self.folder / "page.html").write_text(page.replace("<body>", "<body>" + injected))
        self.browser.open(self.folder / "page.html")
        self.browser.click("a")
        self.assertEqual(self.count("#progress .line"), 1)
        self.assertNotIn(self.browser.run("return document.title"), ["injected", "1", "2"])
        complaints = self.browser.complaints()
        self.assertEqual([any(words in one for one in complaints) for words in ("inline script", "event handler", "JavaScript URL")], [True] * 3, complaints)
