#!/usr/bin/env python3
"""The reproduction of rTop-k: its documented verdict and numbers, and the exact risk computed once more.

    reproduce_rtopk_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import math
import unittest

from reproduce_case import Case


def chances_of_ones(theta):
    """The distribution of the number of ones, by adding one bit after the other: Poisson's binomial distribution."""
    chances = [1.0]
    for p in theta:
        nexts = [0.0] * (len(chances) + 1)
        for ones, chance in enumerate(chances):
            nexts[ones] += chance * (1 - p)
            nexts[ones + 1] += chance * p
        while len(nexts) > 1 and nexts[-1] < 1e-18:
            nexts.pop()
        chances = nexts
    return chances


def slope(points):
    """Of least squares through (x, y)."""
    x, y = (sum(of) / len(points) for of in zip(*points))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


class RtopkEstimation(Case):
    def test_holds_by_the_exact_risk_and_by_its_growth(self):
        report = self.report("rtopk-estimation", "--quick")
        self.assertEqual(report["verdict"], "holds")
        values = {}
        for one in report["measured"]:
            if "k" in one:
                values.setdefault((one["problem"], one["workers"], one["s"], one["k"]), {})[one["method"], one["metric"]] = one["value"]
        self.assertEqual(len(values), 2 * 2 * 4 * 6)
        d, chances = 1024, {}
        blind = []
        for (means, n, s, k), of in values.items():
            theta = [s / d] * d if means == "flat" else [0.5] * (2 * s)
            if (means, s) not in chances:
                chances[means, s] = chances_of_ones(theta)
            # An index has 10 bits, the number of ones 11. E||estimate||^2 of one node is E[ones^2/sent]; less ||theta||^2.
            fit = (k - 11) // 10
            second = sum(chance * ones * ones / min(ones, fit) for ones, chance in enumerate(chances[means, s]) if ones)
            norm2 = sum(p * p for p in theta)
            self.assertAlmostEqual(of["rtopk", "exact_risk"] / ((second - norm2) / n), 1, delta=1e-9)
            self.assertAlmostEqual(of["randomk", "exact_risk"] / ((s * d / fit - norm2) / n), 1, delta=1e-9)
            self.assertAlmostEqual(of["rtopk", "predicted_order"], max(s / n, s * s * 10 / (n * k)), delta=1e-12)
            self.assertLess(abs(of["rtopk", "risk"] - of["rtopk", "exact_risk"]), 4 * of["rtopk", "standard_error"])
            # The error of one repetition is at most about that of a chi^2 with as many degrees as means that are not 0.
            self.assertLess(of["rtopk", "standard_error"] / of["rtopk", "exact_risk"], 1.5 * math.sqrt(2 / len(theta) / 8) + 0.05)
            blind.append(of["randomk", "exact_risk"] / of["rtopk", "exact_risk"])
        self.assertAlmostEqual(min(blind), 4.0, delta=0.05)
        self.assertAlmostEqual(max(blind), 365.2, delta=0.05)
        self.assertIn("Random-k with as many positions, drawn from all d, has 4.0 to 365.2 times the exact risk", report["conditions"])
        # Random-k, measured: rare hits, so all settings together.
        ratios = [of["randomk", "risk"] / of["randomk", "exact_risk"] for of in values.values()]
        self.assertAlmostEqual(sum(ratios) / len(ratios), 1, delta=0.08)
        # Slopes, from single lines through the measured risks and from the report.
        few = slope([(math.log(k), math.log(values["flat", 200, 256, k]["rtopk", "risk"])) for k in (256, 512)])
        self.assertAlmostEqual(few, -1, delta=0.2)
        many = slope([(math.log(s), math.log(values["flat", 200, s, 1024]["rtopk", "risk"])) for s in (4, 16)])
        self.assertAlmostEqual(many, 1, delta=0.15)
        for where, growth in (("few_bits", {"k": -1, "s": 2, "n": -1}), ("many_bits", {"k": 0, "s": 1, "n": -1})):
            for parameter, predicted in growth.items():
                for metric, tolerance in (("slope", 0.2), ("exact_slope", 0.2), ("predicted_slope", 0)):
                    self.assertAlmostEqual(self.value(report, metric=f"{metric}_in_{parameter}_{where}"), predicted, delta=tolerance)

    def test_knows_how_far_chance_goes(self):
        """The standard error, against the spread of risks that were measured with other seeds, one repetition each."""
        squares, count = 0.0, 0
        for seed in range(1, 7):
            report = self.report("rtopk-estimation", "--quick", "--rounds", "1", "--seed", str(seed))
            of = {}
            for one in report["measured"]:
                if one["method"] == "rtopk" and one.get("k") in (32, 1024):
                    of.setdefault((one["problem"], one["workers"], one["s"], one["k"]), {})[one["metric"]] = one["value"]
            for one in of.values():
                squares += ((one["risk"] - one["exact_risk"]) / one["standard_error"]) ** 2
                count += 1
        self.assertEqual(count, 6 * 2 * 2 * 4 * 2)
        self.assertTrue(0.7 < squares / count < 1.4, squares / count)


if __name__ == "__main__":
    unittest.main()
