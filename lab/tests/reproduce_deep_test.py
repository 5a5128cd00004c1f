#!/usr/bin/env python3
"""The reproductions with deep networks, on tiny data: that each runs to its end and reports what it measured. What they
find out on the real data is on their pages, and takes too long for a test.

    reproduce_deep_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import json
import re
import shutil
import unittest
from pathlib import Path

import reproduce_case
from reproduce_case import PROGRAM
from tiny_data import write_cifar, write_mnist, write_text

HAS_MODULE = Path(PROGRAM).with_name("libsparsewire_torch.so").exists()

# Their parts and methods in the quick form, and the unit of what decides.
DOWNLINK = {"table-2": ["sgd", "uplink", "both_ways"]}
THRESHOLDS = ["topk", "topk_by_layer", "threshold"]
RTOPKS = ["topk", "rtopk:r=2", "rtopk:r=5", "randomk"]
EXPERIMENTS = {
    "downlink-mnist": (DOWNLINK, "accuracy"),
    "downlink-fashion": (DOWNLINK, "accuracy"),
    "threshold-fashion": ({"iid-0.01": THRESHOLDS, "shards-0.01": THRESHOLDS}, "accuracy"),
    "threshold-cifar": ({"iid-0.1": THRESHOLDS, "shards-0.1": THRESHOLDS}, "accuracy"),
    "rtopk-fashion": ({"one_step": RTOPKS, "local_steps": RTOPKS}, "accuracy"),
    "rtopk-text": ({"one_step": RTOPKS, "local_steps": RTOPKS}, "bits_per_character"),
    "regtopk-cifar": ({"one_way": ["topk", "regtopk"], "both_ways": ["topk", "regtopk"], "dense": ["dense"]}, "accuracy"),
    "all-cifar": ({"one_way": ["dense", "topk", "rtopk", "randomk", "regtopk", "threshold", "dgc"], "both_ways": ["topk", "rtopk", "regtopk", "threshold"]}, "accuracy"),
    "loco-text": ({"local_steps": ["averaging", "diloco", "sparseloco", "both_ways"], "sparsifiers": ["threshold", "rtopk", "regtopk"], "every_step": ["dense", "topk"]}, "bits_per_character"),
}


class Case(reproduce_case.Case):
    def setUp(self):
        super().setUp()
        if not HAS_MODULE:
            self.skipTest("this build has no deep networks: -DSPARSEWIRE_TORCH=ON")
        self.data = self.folder / "data"

    def quick(self, name, *arguments, workers=2):
        return self.report(name, "--quick", "--workers", str(workers), "--data-dir", str(self.data), "-q", *arguments)

    def check(self, name, workers=2, seeds=2, only=None):
        """Every method has its judging runs, and what was chosen was tuned on other seeds."""
        parts, metric = EXPERIMENTS[name]
        if only:
            parts = {only: parts[only]}
        report = self.quick(name, *(["--only", only] if only else []), "--seeds", str(seeds), workers=workers)
        self.assertEqual(list(dict.fromkeys(one["part"] for one in report["measured"])), list(parts))
        for part, methods in parts.items():
            mine = [one for one in report["measured"] if one["part"] == part]
            self.assertEqual(list(dict.fromkeys(one["method"] for one in mine)), methods)
            for method in methods:
                for seed in range(seeds):
                    self.value(report, part=part, method=method, seed=seed, stage="judging", metric=metric, workers=workers)
            for one in mine:
                self.assertEqual(one["seed"] >= 1000, one["stage"] == "tuning", one)
            folder = self.folder / f"{name}-quick" / part
            for file in ("plan.json", "summary.json", "runs.csv", "report.html"):
                self.assertTrue((folder / file).is_file(), file)
        return report


    def change_judged(self, folder, methods, **fields):
        """Changes the kept judging runs of these methods. A field with a list has a value for each seed."""
        for file in (self.folder / folder / "runs").glob("*/result.json"):
            run = json.loads(file.read_text())
            if run["phase"] == "judge" and run["method"].split("name=")[-1] in methods:
                new = {key: value[run["seed"]] if isinstance(value, list) else value for key, value in fields.items()}
                file.write_text(json.dumps(run | new))


class ExperimentsOnImages(Case):
    def setUp(self):
        super().setUp()
        write_mnist(self.data / "mnist", 60, 10)
        write_mnist(self.data / "fashion-mnist", 60, 10)

    def test_downlink(self):
        for name in ("downlink-mnist", "downlink-fashion"):
            report = self.check(name)
            # Two workers whose sets hardly overlap: the answer is about twice as long without a downlink.
            down = {one["method"]: one["value"] for one in report["measured"] if one["metric"] == "paper_bits_down" and one["seed"] == 0}
            self.assertTrue(1.5 < down["uplink"] / down["both_ways"] <= 2, down)
            self.assertEqual(down["sgd"], 9 * 2 * 32 * report["measured"][0]["dim"])  # 9 steps of 2 workers
            self.assertTrue(any("times smaller with a compressed downlink" in one for one in report["conditions"]))
            for seed in (0, 1):
                dense, up, both = (self.value(report, method=method, seed=seed, metric="density_down") for method in ("sgd", "uplink", "both_ways"))
                self.assertEqual(dense, 1)
                self.assertTrue(0.001 < both < up < 0.003, (up, both))
                self.assertAlmostEqual(self.value(report, method="both_ways", seed=seed, metric="downlink_saving"), up / both)

    def test_threshold(self):
        report = self.check("threshold-fashion")
        self.assertEqual(len(report["conditions"]), 4)  # two rivals in two parts
        self.assertIn("comparisons at equal bytes", report["reason"])
        self.assertEqual(sum(one["metric"] == "accuracy_at_equal_bytes" for one in report["measured"]), 2 * 3 * 2)

    def test_a_worker_alone_sends_nothing(self):
        report = self.quick("threshold-fashion", "--seeds", "1", "--only", "iid", workers=1)
        self.assertEqual((report["verdict"], report["reason"]), ("not judged", "one worker alone sends nothing, so there are no equal bytes"))
        report = self.quick("downlink-fashion", "--seeds", "1", workers=1)
        self.assertEqual((report["verdict"], report["reason"]), ("not judged", "one worker alone has no server, so there is nothing to compress"))

    def test_rtopk(self):
        report = self.check("rtopk-fashion")
        self.assertEqual(len(report["conditions"]), 4)
        self.assertIn("the r/k chosen on the tuning seeds", report["reason"])

    def test_a_run_that_diverged_does_not_show_the_claim(self):
        def diverge(part, *methods, name="threshold-fashion"):
            self.change_judged(f"{name}-quick/{part}", methods, status="diverged", diverged_at=3)

        self.quick("threshold-fashion", "--seeds", "1")
        diverge("iid-0.01", "topk")
        report = self.quick("threshold-fashion", "--seeds", "1")
        self.assertIn(" of 4 comparisons", report["reason"])
        self.assertFalse(report["holds"])
        self.assertEqual(sum("cannot be compared with topk: a run diverged" in one for one in report["conditions"]), 1)
        for part in ("iid-0.01", "shards-0.01"):
            diverge(part, "threshold")
        self.assertEqual(self.quick("threshold-fashion", "--seeds", "1")["verdict"], "not judged")
        self.assertNotEqual(self.quick("downlink-fashion", "--seeds", "1")["verdict"], "not judged")
        diverge("table-2", "sgd", name="downlink-fashion")
        self.assertNotIn(self.quick("downlink-fashion", "--seeds", "1")["verdict"], ("holds", "not judged"))
        diverge("table-2", "both_ways", name="downlink-fashion")
        self.assertEqual(self.quick("downlink-fashion", "--seeds", "1")["verdict"], "not judged")
        self.assertNotEqual(self.quick("rtopk-fashion", "--seeds", "1")["verdict"], "not judged")
        diverge("one_step", "topk", name="rtopk-fashion")
        self.assertNotIn(self.quick("rtopk-fashion", "--seeds", "1")["verdict"], ("holds", "not judged"))
        for part in ("one_step", "local_steps"):
            diverge(part, "topk", "randomk", name="rtopk-fashion")
        self.assertEqual(self.quick("rtopk-fashion", "--seeds", "1")["verdict"], "not judged")

    def test_continues_where_it_was_and_says_the_same(self):
        only = ["--seeds", "1", "--only", "one_step"]
        first = self.quick("rtopk-fashion", *only)
        runs = self.folder / "rtopk-fashion-quick" / "one_step" / "runs"
        before = {one.name: one.stat().st_mtime_ns for one in runs.iterdir()}
        shutil.rmtree(runs / sorted(before)[0])
        self.assertEqual(self.quick("rtopk-fashion", *only), first)
        after = {one.name: one.stat().st_mtime_ns for one in runs.iterdir()}
        self.assertEqual(sum(before[name] != after[name] for name in before), 1)
        self.assertEqual([one["part"] for one in first["measured"]], ["one_step"] * len(first["measured"]))
        # Another number of seeds is another study: it needs a folder of its own.
        done = self.run_program("rtopk-fashion", "--quick", "--workers", "2", "--data-dir", str(self.data), "-q", "--only", "one_step")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--seeds was", done.stderr.replace("\n", " "))
        # What differs is named as this command names it, or in words.
        taken = set(re.findall(r"--[a-z-]+", self.run_ok("--help")))
        for rounds, first in ((2, "--rounds was 4 and is 2."), (1, "the limit on the rounds of a tuning run was 1 and is not given; --rounds was 4 and is 1.")):
            done = self.run_program("rtopk-fashion", "--quick", "--workers", "2", "--data-dir", str(self.data), "-q", *only, "--rounds", str(rounds))
            self.assertEqual(done.returncode, 2)
            message = " ".join(done.stderr.split())
            self.assertIn(f"is of another study: {first} Choose another folder for --out", message)
            self.assertLessEqual(set(re.findall(r"--[a-z-]+", message)), taken, message)

    def test_is_not_judged_if_it_is_too_short(self):
        report = self.quick("downlink-mnist", "--rounds", "2", "--seeds", "1")
        self.assertEqual(report["verdict"], "not judged")
        self.assertEqual(report["reason"], "too short to judge: --rounds 2 is less than the 9 of --quick in part table-2")

    def test_refuses_what_it_cannot_do(self):
        place = ["--data-dir", str(self.data), "--quick", "--workers", "2"]
        for arguments, words in (
            (["downlink-fashion", *place, "--only", "tables"], "--only 'tables' is not a part; there are table-2"),
            (["downlink-fashion", *place, "--device", "tpu"], "--device 'tpu' is not cpu or cuda"),
            (["loco-text", *place], "tinyshakespeare"),
            (["downlink-fashion", "--data-dir", "nosuch"], "nosuch"),
        ):
            done = self.run_program(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(words, " ".join(done.stderr.split()))

    def test_says_what_it_would_take(self):
        dry_run = ["downlink-mnist", "--dry-run", "-q", "--workers", "2", "--data-dir", str(self.data), "--only", "union,memory"]
        text = self.run_ok(*dry_run, "--json", "dry.json")
        self.assertEqual(text.count("time: about"), 2)
        for part in ("union-2", "memory"):
            self.assertIn(f"downlink-mnist/{part}\n", text)
        report = json.loads((self.folder / "dry.json").read_text())
        self.assertEqual([(part["part"], part["judging"]) for part in report["parts"]], [("union-2", 2), ("memory", 6)])
        self.assertEqual([part["part"] for part in json.loads(self.run_ok(*dry_run, "--json", "-"))["parts"]], ["union-2", "memory"])
        self.assertFalse((self.folder / "downlink-mnist").exists())
        text = self.run_ok(*dry_run, "--rounds", "2")  # no run has more
        self.assertEqual(text.count("(from 2 steps of each method)"), 2, text)


class ExperimentsOnOtherData(Case):
    def test_cifar(self):
        write_cifar(self.data / "cifar10", 4)
        # Some parts only: with another split, or with a downlink, a residual network takes as long again.
        for name, only in (("regtopk-cifar", None), ("threshold-cifar", "shards-0.1"), ("all-cifar", "one_way")):
            report = self.check(name, workers=1, seeds=1, only=only)
            self.assertEqual((report["verdict"], report["reason"]), ("not judged", "--quick trains a small network on few images: it shows that everything runs"))
            rates = [one for one in report["conditions"] if "different learning rates" in one]
            self.assertEqual([one.endswith("dgc: 0.01): what looks like a difference between methods may be one between learning rates") for one in rates],
                             [True] * (name == "all-cifar"))

    def test_the_verdict_about_regtopk(self):
        write_cifar(self.data / "cifar10", 5)

        def verdict(topk, regtopk, status="finished"):
            self.change_judged("regtopk-cifar/one_way", ["topk"], status="finished", metric=topk)
            self.change_judged("regtopk-cifar/one_way", ["regtopk"], status=status, metric=regtopk)
            return again()["verdict"]

        def again():
            return self.report("regtopk-cifar", "--only", "one_way", "--workers", "1", "--seeds", "2", "--rounds", "2", "--data-dir", str(self.data), "-q")

        again()
        self.assertEqual(verdict([0.5, 0.6], [0.56, 0.66]), "holds")
        self.assertEqual(verdict([0.5, 0.6], [0.53, 0.63]), "partly")
        self.assertEqual(verdict([0.5, 0.6], [0.56, 0.6]), "does not hold")  # not beyond what seeds explain
        self.assertEqual(verdict([0.5, 0.6], [0.56, 0.66], "diverged"), "not judged")

    def test_text(self):
        write_text(self.data / "tinyshakespeare", 32)
        self.check("rtopk-text", seeds=1)
        for part in ("every_step", "sparsifiers") if reproduce_case.LONG else ("every_step",):
            self.check("loco-text", seeds=1, only=part)
        report = self.check("loco-text", seeds=1, only="local_steps")
        values = {one["method"]: one["value"] for one in report["measured"] if one["metric"] == "bytes_up" and one["seed"] == 0 and one["part"] == "local_steps"}
        self.assertLess(values["sparseloco"], values["averaging"] / 40)  # 2 bits a value, and an index
        self.assertEqual(values["diloco"], values["averaging"])
        self.assertLess(values["both_ways"], 1.1 * values["sparseloco"])
        self.assertIn("of its bytes", report["reason"])


class WithoutLibtorch(Case):
    def setUp(self):
        reproduce_case.Case.setUp(self)  # a build with it will do

    def test_one_line_says_what_to_install(self):
        copy = self.folder / "alone" / "sparsewire"  # the module is looked for beside the program
        copy.parent.mkdir()
        shutil.copy(PROGRAM, copy)
        done = reproduce_case.processes.run([str(copy), "reproduce", "downlink-mnist", "--quick"], cwd=self.folder, text=True, stdout=-1, stderr=-1)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("needs libtorch", done.stderr)
        self.assertIn("-DSPARSEWIRE_TORCH=ON", done.stderr)


if __name__ == "__main__":
    unittest.main()
