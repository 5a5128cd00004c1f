"""Which method the page says to use."""

import json
import random

import case
import made_up
import page_files
import rule
from made_up import Method

FIVE = [0.30, 0.32, 0.31, 0.33, 0.29]


def shifted(by, values=FIVE):
    """Differences that are not all equal, with that mean."""
    return [value + by + change for value, change in zip(values, [0.001, -0.001, 0.002, -0.002, 0])]


class Answers(case.Case):
    def answers(self, summaries):
        """What the page's own function says, for many summaries at once."""
        code = [text for name, text in page_files.scripts().items() if name != "main.js"]
        self.browser.driver.get("about:blank")
        found = self.browser.run("""return JSON.stringify(new Function("summaries", arguments[0] + `
            return summaries.map((summary) => answers_of(summary).map((one) => [one.use ? label_in(one.use) : null, one.use ? one.measure : one.why,
                (one.close || []).map((other) => label_in(other.group))]))`)(JSON.parse(arguments[1])))""", "\n".join(code), json.dumps(summaries))
        return json.loads(found)

    def answer(self, methods, **more):
        (one,) = self.answers([made_up.summary(methods, **more)])[0]
        return one

    def test_the_cheapest_to_the_target_that_is_not_worse(self):
        dense = Method("dense", FIVE, [1000] * 5, [500, 510, 490, 505, 495])
        good = Method("topk", shifted(0.0), [100] * 5, [50, 51, 49, 50, 50], ratio=0.01)
        cheap_but_worse = Method("randomk", shifted(0.2), [10] * 5, [5] * 5, ratio=0.01)
        cheap_but_late = Method("rtopk", shifted(0.0), [20] * 5, [10, 10, None, 10, 10], ratio=0.01)
        cheap_but_diverged = Method("threshold", [None, *shifted(0.0)[1:]], [20] * 5, [10] * 5, ratio=0.01)
        everyone = [dense, good, cheap_but_worse, cheap_but_late, cheap_but_diverged]
        self.assertEqual(self.answer(everyone), ["topk (ratio 0.01)", "to_target", []])
        self.assertEqual(self.answer(everyone, target=None), ["rtopk (ratio 0.01)", "bytes", []])

    def test_says_in_words_what_a_method_does(self):
        configs = [{"sparsifier": "topk:ratio=0.01", "feedback": "ef", "downlink": "topk:ratio=0.001"}, {"sparsifier": "threshold:ratio=0.05,calibrate=9"},
                   {"sparsifier": "randomk:k=7", "feedback": "none"}, {"sparsifier": "threshold:lambda=0.1", "feedback": "none"},
                   {"sparsifier": "dense"}, {"sparsifier": "my_own:ratio=0.1"}, {}, {"sparsifier": "toString"}]
        code = [text for name, text in page_files.scripts().items() if name != "main.js"]
        self.browser.driver.get("about:blank")
        said = self.browser.run("return new Function('configs', arguments[0] + '\\nreturn configs.map(method_sentence)')(arguments[1])", "\n".join(code), configs)
        self.assertEqual(said, [
            "In each step every worker sends 1 % of its gradient’s entries: those with the largest magnitudes. The rest is kept for later steps. "
            "Of the sum of all workers, too, only 0.1 % is sent back, and the rest kept for later.",
            "In each step every worker sends about 5 % of its gradient’s entries: all whose magnitude is above a constant, which was measured first. "
            "The rest is kept for later steps. All that the workers sent comes back, summed up.",
            "In each step every worker sends some of its gradient’s entries: drawn at random. The rest is dropped. All that the workers sent comes back, summed up.",
            "In each step every worker sends some of its gradient’s entries: all whose magnitude is above a constant, which was measured first. "
            "The rest is dropped. All that the workers sent comes back, summed up.",
            "In each step every worker sends its whole gradient.", "", "", ""])

    def test_the_baseline_where_all_others_are_worse(self):
        dense = Method("dense", FIVE, [1000] * 5, [500] * 5)
        self.assertEqual(self.answer([dense, Method("topk", shifted(0.1), [10] * 5, [5] * 5)]), ["dense", "to_target", []])
        self.assertEqual(self.answer([dense, Method("topk", shifted(-0.1), [10] * 5, [5] * 5)], primary="metric"), ["dense", "to_target", []])
        self.assertEqual(self.answer([dense, Method("topk", shifted(-0.1), [10] * 5, [5] * 5)], primary="metric", metric="distance"),
                         ["topk", "to_target", []])

    def test_bytes_of_all_steps_where_none_reaches_the_target(self):
        methods = [Method("dense", FIVE, [1000] * 5, [None] * 5), Method("topk", shifted(0), [10] * 5, [5, None, 5, 5, 5])]
        self.assertEqual(self.answer(methods), ["topk", "bytes", []])

    def test_the_bytes_of_a_pilot_count(self):
        def threshold(bytes):
            return [Method("dense", FIVE, [1000] * 5, [500] * 5), Method("threshold", shifted(0), [100] * 5, [50] * 5, pilot={"bytes": bytes})]
        self.assertEqual(self.answer(threshold(449)), ["threshold", "to_target", []])
        self.assertEqual(self.answer(threshold(451)), ["dense", "to_target", []])
        self.assertEqual(self.answer(threshold(899), target=None), ["threshold", "bytes", []])
        self.assertEqual(self.answer(threshold(901), target=None), ["dense", "bytes", []])
        self.show(made_up.report(made_up.summary(threshold(150))))
        for words in ["It needs 200 B to reach the target (validation loss 0.5; median over the seeds)", "1/2.50 of dense", "The pilot that measured its threshold moved 150 B of these bytes",
                      "The bytes of a threshold’s pilot count too"]:
            self.assertIn(words, self.text("#answer"))
        self.assertIn("with those of its pilot", self.text("#tradeoff"))
        self.assertIn("Without the bytes of a threshold’s pilot", self.text("#target"))
        self.assertIn("150 B", self.text("#methods"))
        self.show(made_up.report(made_up.summary(threshold(460))))
        self.assertIn("threshold needs 510 B, of which its pilot moved 460 B.", self.text("#answer"))
        better = [*threshold(0)[:1], Method("topk", shifted(0), [100] * 5, [50] * 5), Method("rtopk", shifted(-0.1), [100] * 5, [60] * 5)]
        self.show(made_up.report(made_up.summary(better)))
        self.assertIn("Use topk.", self.text("#answer"))
        self.assertIn("rtopk has a better test loss than dense, by its interval, and needs 60 B.", self.text("#answer"))

    def test_names_those_that_cannot_be_told_apart_in_bytes(self):
        methods = [Method("dense", FIVE, [1000] * 5, [500] * 5), Method("a", shifted(0), [100] * 5, [50, 52, 48, 51, 49]),
                   Method("b", shifted(0), [100] * 5, [53, 49, 51, 48, 52])]
        self.assertEqual(self.answer(methods), ["a", "to_target", ["b"]])

    def test_says_nothing_where_nothing_is_known(self):
        dense = Method("dense", [0.3], [1000], [500])
        topk = Method("topk", [0.2], [10], [5])
        gone = Method("dense", [None, 0.3], [1000] * 2, [None] * 2)
        lost = Method("topk", [None, None], [10] * 2, [None] * 2)
        never = Method("dense", [], [], chosen=False)
        self.assertEqual(self.answer([dense, topk])[:2], [None, "one_seed"])
        self.assertEqual(self.answer([gone, Method("topk", [0.2, 0.3], [10] * 2, [5] * 2)])[:2], [None, "baseline_diverged"])
        self.assertEqual(self.answer([never, Method("topk", [0.2, 0.3], [10] * 2, [5] * 2)], seeds=2)[:2], [None, "baseline_diverged"])
        self.assertEqual(self.answer([gone, lost])[:2], [None, "all_diverged"])
        self.assertEqual(self.answer([Method("dense", FIVE, [1000] * 5, [5] * 5)])[:2], [None, "nothing_to_compare"])

    def test_an_answer_for_each_ratio_of_a_baseline_with_ratios(self):
        methods = [Method(name, shifted(by), [total] * 5, [total / 2] * 5, ratio)
                   for name, by, total, ratio in [("topk", 0, 100, 0.01), ("topk", 0.01, 1000, 0.1), ("rtopk", 0.1, 90, 0.01), ("rtopk", 0, 900, 0.1)]]
        made = made_up.summary(methods, baseline="topk")
        self.assertEqual([one[:2] for one in self.answers([made])[0]], [["topk (ratio 0.01)", "to_target"], ["rtopk (ratio 0.1)", "to_target"]])

    def test_agrees_with_the_rule_in_python_on_any_study(self):
        draw = random.Random(15)
        summaries = [made_up.anything(draw) for _ in range(400)]
        seen = set()
        for made, found in zip(summaries, self.answers(summaries)):
            wanted = [list(one) for one in rule.answers(made)]
            self.assertEqual([one[:2] for one in found], wanted, json.dumps(made))
            seen.update(why for _, why in wanted)
        self.assertEqual(seen, {"to_target", "bytes", "one_seed", "baseline_diverged", "all_diverged", "nothing_to_compare"})

    def test_the_page_says_it_in_words(self):
        methods = [Method("dense", FIVE, [572e6] * 5, [68e6, 69e6, 57e6, 80e6, 68e6], at_edge={"lr": "high"}),
                   Method("both_ways", shifted(-0.001), [8.5e6] * 5, [1.2e6, 1.2e6, 1.2e6, 1.4e6, 1.2e6], 0.01),
                   Method("randomk", shifted(0.2), [10e6] * 5, [5e6] * 5, 0.01, at_edge={"lr": "low"}),
                   Method("threshold", shifted(0), [9e6] * 5, [1.1e6, 1.2e6, 1.0e6, 1.3e6, 1.1e6], 0.01, pilot={"bytes": 0.1e6})]
        self.show(made_up.report(made_up.summary(methods)))
        said = self.text("#answer")
        for words in ["Use both_ways (ratio 0.01).", "needs 1.20 MB to reach the target (validation loss 0.5; median over the seeds)", "cannot be told apart from that of dense",
                      "may be up to", "That is both_ways, ratio 0.01, learning rate 0.3, the best of 3 settings", "learning rate of dense, 0.3, is the largest that was tried", "flatter the other methods",
                      "cannot be told apart from threshold (ratio 0.01)", "Left out: randomk (ratio 0.01)",
                      "interval of the difference in test loss does not lie entirely on the worse side of 0"]:
            self.assertIn(words, said)
        self.assertNotIn("The pilot", said)  # the pilot of another method than the one that is recommended

    def test_every_setting_at_an_edge_has_a_sentence_with_the_name(self):
        methods = [Method("dense", FIVE, [1000] * 5, [500] * 5),
                   Method("momentum", shifted(-0.001), [100] * 5, [50] * 5, 0.01, at_edge={"lr": "high", "m": "low"})]
        made = made_up.summary(methods)
        made["methods"][1]["chosen"]["own"] = {"m": 0.5}
        self.show(made_up.report(made))
        for words in ["The learning rate of momentum (ratio 0.01), 0.3, is the largest", "The m of momentum (ratio 0.01), 0.5, is the smallest"]:
            self.assertIn(words, self.text("#answer .cautions"))

    def test_the_page_says_who_had_other_learning_rates_and_more_settings(self):
        methods = [Method("dense", FIVE, [572e6] * 5, [68e6] * 5), Method("topk", FIVE, [9e6] * 5, [1e6] * 5, 0.01)]
        made = made_up.summary(methods)
        grown = {**made["grid"][-1], "lr": 9, "grown": 1}
        self.show(made_up.report({**made, "grid": [*made["grid"], grown]}))
        self.assertNotIn("different learning rates", self.text("#answer"))
        self.assertIn("chosen from equally many", self.text("#rule"))
        fewer = [one for one in made["grid"] if (one["spec"], one["lr"]) != ("topk", 3)]
        self.show(made_up.report({**made, "grid": fewer}))
        self.assertIn("Methods had different learning rates to choose from (dense: 0.1, 0.3, 3; topk: 0.1, 0.3): what looks like a difference",
                      self.text("#answer .cautions"))
        made["methods"][1]["cells_tried"] = 6
        self.show(made_up.report(made))
        self.assertIn("The settings of a method were chosen from 3 to 6 (most: topk (ratio 0.01)) by the mean", self.text("#rule"))

    def test_the_page_says_why_it_has_no_answer(self):
        self.show(made_up.report(made_up.summary([Method("dense", [0.3], [1000], [500]), Method("topk", [0.2], [10], [5], 0.01)])))
        self.assertIn("One seed does not tell", self.text("#answer"))
        self.assertEqual(self.count("#answer [data-use]"), 0)
        unfinished = {**made_up.report(made_up.summary([Method("dense", FIVE, [1] * 5), Method("topk", FIVE, [1] * 5)])), "summary": None}
        self.show(unfinished)
        self.assertIn("not finished", self.text("#answer"))
        self.assertEqual((self.count("#progress .line"), self.count("#tradeoff")), (2, 0))
        data = page_files.empty("compare", methods=[{"name": name, "ratio": None, "label": name, "spec": None} for name in ("dense", "topk")])
        data["runs"] = [page_files.run(index, step=[1, 2], loss=[2.0, 1.0], total_bytes_up=[100 / (index + 1)] * 2, total_bytes_down=[100 / (index + 1)] * 2)
                        for index in range(2)]
        self.show(data)
        self.assertIn("not which method is best", self.text("#answer"))
        self.assertIn("topk moved the fewest bytes, 100 B: 1/2.00 of dense’s 200 B", self.text("#answer"))

    def test_numbers_are_written_as_the_program_writes_them(self):
        code = "\n".join(text for name, text in page_files.scripts().items() if name != "main.js")
        cases = {"quotient_text(1 / 53.94)": "1/53.9", "quotient_text(1 / 12345)": "1/12,300", "quotient_text(2)": "2.00", "quotient_text(12345)": "12,300",
                 "bytes_text(8537517)": "8.54 MB", "bytes_text(999)": "999 B", "bytes_text(999.6e3)": "1.00 MB", "interval_text(0.3251, [0.3239, 0.3263])": "0.3251 ±0.0012",
                 "interval_text(-0.015, [-0.046, 0.016], true)": "−0.015 ±0.031", "range_text([-0.046, 0.016])": "−0.046 to 0.016", "range_text([-0.004, -0.00001])": "−0.0040 to −10⁻⁵",
                 "p_text(0.0001)": "<0.001", "three_digits(0.37)": "0.370", "three_digits(-12345)": "−12,300", "three_digits(1e-7)": "10⁻⁷", "number_text(-1234567.8)": "−1.235×10⁶", "number_text(1e-7)": "10⁻⁷", "number_text(NaN)": "not a number",
                 "t_975(4).toFixed(6)": "2.776445", "t_975(1).toFixed(4)": "12.7062", "tick_text('10.0 MB')": "10 MB", "tick_text('1.50 MB')": "1.5 MB", "tick_text('100 kB')": "100 kB",
                 "seconds_text(0.0021)": "2.1 ms",
                 "new Set(Array.from({length: 56}, (_, i) => JSON.stringify([style_of(i).colour, style_of(i).dash]))).size": 56, "log_ticks(0.2, 30, 6).join()": "0.2,0.5,1,2,5,10,20", "linear_ticks(0, 1, 5).join()": "0,0.2,0.4,0.6,0.8,1"}
        self.browser.driver.get("about:blank")
        found = self.browser.run("return new Function(arguments[0] + `return [${arguments[1].join()}]`)()", code, list(cases))
        self.assertEqual(dict(zip(cases, found)), cases)
