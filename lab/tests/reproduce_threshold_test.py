#!/usr/bin/env python3
"""The reproductions of the hard threshold: their documented verdicts and numbers.

    reproduce_threshold_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import math
import random
import unittest

import check_study
from reproduce_case import LONG, Case


class ThresholdTotalError(Case):
    def test_holds(self):
        report = self.report("threshold-total-error", "--quick")
        self.assertTrue(report["holds"])
        self.assertLess(self.value(report, metric="worst_excess"), 1e-12)
        threshold = self.value(report, method="threshold", metric="open_loop_total_error")
        for method in ("topk", "rtopk", "randomk"):
            self.assertGreater(self.value(report, method=method, metric="open_loop_total_error"), threshold)
        def closed(method, what, codec=None):
            return self.value(report, method=method, codec=codec, metric=f"closed_loop_{what}")

        self.assertLessEqual(closed("threshold", "bits"), closed("topk", "bits"))
        self.assertGreater(closed("threshold", "bits"), 0.97 * closed("topk", "bits"))
        self.assertLess(closed("threshold", "total_error"), 0.5 * closed("topk", "total_error"))
        for method in ("topk", "threshold"):
            self.assertNotEqual(closed(method, "total_error", "auto:values=int4"), closed(method, "total_error"))
        ratio = closed("threshold", "total_error", "auto:values=int4") / closed("topk", "total_error", "auto:values=int4")
        self.assertIn(f"{ratio:.2g} to {ratio:.2g} times", report["conditions"][0])


class ThresholdLogreg(Case):
    def factor(self, mine, others):
        """Of numbers by seed: the mean of the logarithms, and its interval, as quotients; and in the words of the report."""
        logs = [math.log(mine[seed] / others[seed]) for seed in mine]
        numbers = [math.exp(one) for one in (check_study.mean(logs), *check_study.interval(logs))]
        return numbers, "{:.3g} times ({:.3g} to {:.3g})".format(*numbers)

    def test_holds_partly_on_synthetic_data(self):
        """Fewer bits than Top-k, but then a larger memory; or a smaller memory with less of a gain."""
        report = self.report("threshold-logreg", "--quick")
        self.assertEqual(report["verdict"], "partly")
        tuned = [one for one in report["measured"] if one["stage"] == "tuning" and "seed" in one]
        judged = [one for one in report["measured"] if one["stage"] == "judging" and "seed" in one]
        settings = {one["method"]: set() for one in tuned}
        for one in tuned:
            settings[one["method"]].add((one.get("k"), one.get("every"), one.get("lambda")))
        self.assertEqual({method: len(found) for method, found in settings.items()},
                         {"dense": 1, "topk": 3, "rare_top1": 3, "threshold": 3})  # swept equally
        self.assertFalse({one["seed"] for one in tuned} & {one["seed"] for one in judged})
        for one in report["measured"]:
            self.assertEqual((one["workers"], one["gap"], one["problem"]), (20, 5e-3, "synthetic"))

        # What is judged was best on the tuning seeds.
        def by_seed(rows, method, metric="bits_per_worker"):
            found = {}
            for one in rows:
                if (one["method"], one["metric"]) == (method, metric):
                    found.setdefault((one.get("k"), one.get("lambda")), {})[one["seed"]] = one["value"]
            return {setting: values for setting, values in found.items() if None not in values.values()}

        def best(method):
            means = {setting: check_study.mean(list(values.values())) for setting, values in by_seed(tuned, method).items()}
            return min(means, key=means.get)

        topk, threshold = best("topk"), best("threshold")
        (more, low, _), in_words = self.factor(by_seed(judged, "topk")[topk], by_seed(judged, "threshold")[threshold])
        self.assertGreater(more, 1.5)
        self.assertGreater(low, 1)
        self.assertIn(f"Top-k in every round needs {in_words} the bits", report["reason"])
        self.assertEqual(by_seed(tuned, "rare_top1"), {})  # Top-1 in every second round never arrives here
        self.assertIn("Top-1 in every n-th does not arrive", report["reason"])
        peak = "peak_memory_norm2"
        (_, _, high), in_words = self.factor(by_seed(judged, "threshold", peak)[threshold], by_seed(judged, "topk", peak)[topk])
        self.assertGreater(high, 1)  # so its memory is not shown to be smaller
        self.assertIn(f"memory is {in_words} that of Top-k", report["reason"])
        self.assertEqual(len(report["conditions"]), 2)
        rounds = by_seed(judged, "topk", "rounds")[topk].values()
        self.assertIn(f"{min(rounds):.0f} to {max(rounds):.0f}", report["table"])

    @unittest.skipUnless(LONG, "with ./test.sh --all")
    def test_is_not_judged_where_dense_training_does_not_arrive(self):
        """Then the gap is below what single samples let training reach, and who gets there is luck."""
        report = self.report("threshold-logreg", "--quick", "--data", self.libsvm(("-1", "+1")), "--gap", "0.001")
        arrived = {one["method"] for one in report["measured"] if one["metric"] == "rounds" and one["stage"] == "tuning" and one["value"]}
        self.assertEqual(arrived, {"topk", "rare_top1", "threshold"})
        self.assertEqual(report["verdict"], "not judged")
        self.assertEqual(report["reason"], "dense training does not reach the gap with every seed in 1000 rounds")

    @unittest.skipUnless(LONG, "with ./test.sh --all")
    def test_is_not_judged_by_one_seed(self):
        report = self.report("threshold-logreg", "--quick", "--seeds", "1")
        self.assertEqual(report["verdict"], "not judged")
        self.assertEqual(report["reason"], "one seed has no interval: give more with --seeds")

    def libsvm(self, labels):
        """Two kinds of samples that a line nearly parts."""
        import random

        draw = random.Random(3)
        lines = []
        for i in range(400):
            side = draw.random() < 0.5
            features = [1.0 + draw.random() + (0.5 if side else 0) * (j < 3) for j in range(8)]
            label = labels[side if draw.random() < 0.9 else not side]
            lines.append(f"{label} " + " ".join(f"{j + 1}:{x:.4f}" for j, x in enumerate(features)))
        path = self.folder / "data.svm"
        path.write_text("\n".join(lines) + "\n")
        return "data.svm"

    def test_reads_a_file_whatever_its_labels_are_called(self):
        reports = []
        for labels in (("-1", "+1"), ("0", "1"), ("3", "8")):
            reports.append(self.report("threshold-logreg", "--quick", "--data", self.libsvm(labels), "--rounds", "150", "--gap", "0.05"))
        self.assertEqual(reports[0], reports[1])
        self.assertEqual(reports[0], reports[2])
        one = reports[0]["measured"][0]
        self.assertEqual((one["problem"], one["dim"], one["gap"]), ("libsvm", 8, 0.05))

    def test_says_null_where_the_gap_is_never_reached(self):
        report = self.report("threshold-logreg", "--quick", "--rounds", "3")
        self.assertEqual(report["verdict"], "not judged")
        self.assertEqual(report["reason"], "too short to judge: --rounds 3 is less than the 1000 of --quick")
        bits = [one["value"] for one in report["measured"] if one["metric"] == "bits_per_worker"]
        self.assertEqual(bits, [None] * 10)  # no setting can be chosen, so none is judged

    def test_refuses_files_that_are_none(self):
        self.refuses("threshold-logreg", "--data", "nosuch.svm", says=["nosuch.svm"])


if __name__ == "__main__":
    unittest.main()
