#!/usr/bin/env python3
"""The reproductions of RegTop-k: their documented verdicts and numbers. The toy is written down here once more, in plain
Python that shares nothing with the program, and compared with it step by step.

    reproduce_regtopk_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import math
import unittest

from reproduce_case import Case, f32


def toy_losses(method, steps, mu=1.0, form="a", lr=0.9):
    """RegTop-k's toy. Weights are doubles; gradients, memories and updates are floats, as they travel."""
    features = [(100.0, 1.0), (-100.0, 1.0)]
    weights = [0.0, 1.0]
    memories = [[0.0, 0.0], [0.0, 0.0]]
    last = [None, None]  # of each worker: (index, sent, update there)
    losses = []
    for _ in range(steps + 1):
        margins = [w_x[0] * weights[0] + w_x[1] * weights[1] for w_x in features]
        losses.append(sum(max(0.0, -m) + math.log1p(math.exp(-abs(m))) for m in margins) / 2)
        update = [0.0, 0.0]
        sent = []
        for n in range(2):
            pull = 1 / (1 + math.exp(margins[n])) if margins[n] < 700 else 0.0
            a = [f32(memories[n][j] + f32(-pull * features[n][j])) for j in range(2)]
            scores = [abs(x) for x in a]
            if method == "regtopk" and last[n] is not None:
                j, s, g = last[n]
                scores[j] *= math.tanh(abs(1 + (g - 0.5 * s) / (0.5 * (s if form == "a" else a[j]))) / mu)
            chosen = [0, 1] if method == "dense" else [0 if scores[0] >= scores[1] else 1]
            sent.append([(j, a[j]) for j in chosen if a[j] != 0])
            for j, _value in sent[n]:
                update[j] = f32(update[j] + f32(0.5 * a[j]))
                a[j] = 0.0
            memories[n] = a
        last = [(s[0][0], s[0][1], update[s[0][0]]) if s else None for s in sent]
        weights = [w - lr * u for w, u in zip(weights, update)]
    return losses


class RegtopkToy(Case):
    def test_has_the_published_losses_to_five_digits(self):
        report = self.report("regtopk-toy", "--quick", "--at", "0,1,2,10,99,100")
        self.assertTrue(report["holds"])
        published = {
            ("dense", None): {0: 0.31326, 1: 0.25371, 10: 0.08797, 100: 0.01097},
            ("topk", None): {0: 0.31326, 1: 0.31326, 2: 0.31326, 10: 0.31326, 99: 0.31326},
            ("regtopk", "a"): {0: 0.31326, 1: 0.31326, 2: 0.20433, 10: 0.08366, 100: 0.01078},
        }
        for (method, form), losses in published.items():
            for step, loss in losses.items():
                measured = self.value(report, method=method, form=form, step=step, metric="loss")
                self.assertEqual(round(measured, 5), loss, (method, form, step))

    def test_agrees_with_plain_python_at_every_step(self):
        steps = 250
        for mu in (1, 0.25):
            at = ",".join(str(step) for step in range(steps + 1))
            report = self.report("regtopk-toy", "--at", at, "--mu", str(mu))
            for method, form in (("dense", None), ("topk", None), ("regtopk", "a"), ("regtopk", "b")):
                losses = toy_losses(method, steps, mu, form)
                for step in range(steps + 1):
                    measured = self.value(report, method=method, form=form, step=step)
                    self.assertAlmostEqual(measured, losses[step], delta=1e-9, msg=(method, form, mu, step))

    def test_shows_the_steps_asked_for_in_order_and_once(self):
        report = self.report("regtopk-toy", "--at", "7,3,7")
        self.assertEqual([one["step"] for one in report["measured"]], [3, 7] * 4)
        self.assertTrue(report["holds"])  # judged by the whole run, whatever is shown
        self.assertEqual(report["measured"][2].get("ratio"), 0.5)


class RegtopkLinreg(Case):
    def test_holds_partly(self):
        """From a ratio of 0.6 on and at a constant learning rate; not at 0.4, the authors' default; not with a cosine."""
        report = self.report("regtopk-linreg", "--quick")
        self.assertEqual(report["verdict"], "partly")

        def mean(method, ratio, form=None, metric="median_log10_distance", schedule="constant"):
            return self.value(report, method=method, form=form, ratio=ratio, schedule=schedule, step=1000,
                              metric="mean_" + metric)

        self.assertLess(mean("dense", 1), -11)
        for ratio in (0.4, 0.6):
            self.assertTrue(-3.5 < mean("topk", ratio) < -2, mean("topk", ratio))
            self.assertTrue(-3.5 < mean("regtopk", ratio, "b") < -2)
        self.assertTrue(-3.5 < mean("regtopk", 0.4, "a") < -2)
        self.assertLess(mean("regtopk", 0.6, "a"), -7)
        self.assertLess(mean("regtopk", 0.6, "a", "median_log10_distance_in_double"), -12)
        self.assertIn("at ratio 0.6 and not at 0.4, Top-k at none below 1", report["reason"])
        # Close to the optimum the engine jumps away now and then, which the median does not see.
        self.assertGreater(mean("regtopk", 0.6, "a", "excursions"), 0)
        self.assertEqual(mean("topk", 0.6, metric="excursions"), 0)
        # With a learning rate that falls, Top-k gets as far as dense training in as many rounds.
        dense = mean("dense", 1, metric="log10_distance", schedule="cosine")
        self.assertTrue(-7 < dense < -6, dense)
        for method, form in (("topk", None), ("regtopk", "a")):
            for ratio in (0.4, 0.6):
                self.assertAlmostEqual(mean(method, ratio, form, "log10_distance", "cosine"), dense, delta=0.3)
        self.assertEqual(len(report["conditions"]), 4)
        self.assertIn("cosine schedule, ratio 0.4: Top-k ends at 10^-6.", report["conditions"][1])
        self.assertIn("no advantage", report["conditions"][1])

    def test_engine_and_double_agree_until_floats_stop_it(self):
        report = self.report("regtopk-linreg", "--rounds", "300", "--ratio", "0.3,0.6,0.9", "--seeds", "1", "--seed", "3")
        ends = [one for one in report["measured"] if one["metric"] == "log10_distance"]
        self.assertEqual(len(ends), 20)
        for one in ends:
            named = {key: one.get(key) for key in ("method", "form", "ratio", "schedule", "seed")}
            in_double = self.value(report, metric="log10_distance_in_double", **named)
            # Form b never settles: one rounding sets it on another course.
            self.assertAlmostEqual(one["value"], in_double, delta=0.5 if named["form"] == "b" else 0.02, msg=named)

    def test_takes_ratios_rounds_and_seeds(self):
        report = self.report("regtopk-linreg", "--ratio", "0.5,0.25", "--rounds", "20", "--seeds", "2", "--seed", "7", "--mu", "2")
        self.assertEqual(report["verdict"], "not judged")  # twenty rounds are not enough for any method
        each = [one for one in report["measured"] if one["metric"] == "log10_distance"]
        self.assertEqual(sorted({one["ratio"] for one in each}), [0.25, 0.5, 1])
        self.assertEqual({one["seed"] for one in each}, {7, 8})
        self.assertEqual({one["step"] for one in each}, {20})
        self.assertEqual({one.get("mu") for one in each}, {None, 2})
        self.assertEqual(len(each), 2 * 2 * (1 + 2 * 3))


if __name__ == "__main__":
    unittest.main()
