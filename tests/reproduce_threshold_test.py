#!/usr/bin/env python3
"""The reproductions of the hard threshold: their documented verdicts and numbers.

    reproduce_threshold_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import random
import unittest

from reproduce_case import Case


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
        def bits(rows, method):
            return {(one.get("k"), one.get("lambda")): one["value"] for one in rows
                    if one["method"] == method and one["metric"] == "bits_per_worker" and one["value"] is not None}

        best = {method: min(bits(tuned, method), key=bits(tuned, method).get) for method in ("topk", "threshold")}
        of_topk, of_threshold = bits(judged, "topk")[best["topk"]], bits(judged, "threshold")[best["threshold"]]
        self.assertGreater(of_topk / of_threshold, 1.5)
        self.assertIn(f"needs {of_topk / of_threshold:.2f} times the bits", report["reason"])
        self.assertEqual(bits(tuned, "rare_top1"), {})  # Top-1 in every second round never arrives here
        self.assertIn("Top-1 in every n-th does not arrive", report["reason"])
        peaks = {one.get("lambda"): one["value"] for one in judged if one["metric"] == "peak_memory_norm2"}
        self.assertGreater(peaks[best["threshold"][1]], peaks[None])  # None: Top-k, the last without a lambda
        self.assertEqual(len(report["conditions"]), 2)

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
        self.assertEqual(report["reason"], "too short to judge: the gap is not reached by either in 3 rounds")
        bits = [one["value"] for one in report["measured"] if one["metric"] == "bits_per_worker"]
        self.assertEqual(bits, [None] * 10)  # no setting can be chosen, so none is judged

    def test_refuses_files_that_are_none(self):
        self.refuses("threshold-logreg", "--data", "nosuch.svm", says=["nosuch.svm"])


if __name__ == "__main__":
    unittest.main()
