"""Files that want to break the page: text as markup, numbers that are none, far too many points."""

import math

import case
import chart_cases
import made_up
import page_files
from made_up import Method

NAMES = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "x" * 5000, "\u202eturned around\u202c", "شبكة عصبية متناثرة",
         "🦊🧪" * 40, "'\"`${alert(1)}", "=HYPERLINK(\"http://example.org\")", "constructor", "__proto__", ""]


def methods(names):
    return [{"name": name, "ratio": None, "label": name or f"nameless {index}", "spec": None} for index, name in enumerate(names)]


class Hostile(case.Case):
    def assert_fits(self):
        self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), self.browser.run("return document.documentElement.clientWidth"))

    def test_text_of_files_never_becomes_markup(self):
        runs = [page_files.run(index, step=[1, 2, 3], loss=[3.0, 2.0, 1.0], **{"<b>column</b>": [1.0, 2.0, 3.0]}) for index in range(len(NAMES))]
        for run, name in zip(runs, NAMES):
            run["config"] = {name: name, "workers": name}
            run["result"] = {name: name}
            run["id"] += name
        data = page_files.empty(methods=methods(NAMES), runs=runs, title=NAMES[1], problem=NAMES[0], notices=NAMES, made_by=NAMES[0])
        self.show(data)
        self.browser.choose("progress.y", "<b>column</b>")
        self.assertEqual(self.count("img, b, main script"), 0)
        self.assertEqual(self.count("#progress .line"), len(NAMES))
        self.assertEqual(self.count("#notices li"), len(NAMES))
        self.assert_fits()
        self.browser.click("#runs .opener button")
        self.assertIn("'=HYPERLINK", self.browser.saved("runs", "csv")[1].decode())
        self.assertIn("&lt;b&gt;column", self.browser.saved("progress", "svg")[1].decode())
        self.browser.screen(360, 800)
        self.show(data)
        self.assert_fits()

    def test_hostile_names_in_a_study_and_a_reproduction(self):
        made = made_up.summary([Method(name, [0.3 + 0.01 * i, 0.31, 0.33 - 0.01 * i], [1000 + i] * 3, [500] * 3) for i, name in enumerate(NAMES)], baseline=NAMES[0])
        self.browser.screen(360, 800)
        self.show(made_up.report(made))
        self.assertEqual(self.count("img, main script"), 0)
        self.assertEqual(self.count("#answer [data-outcome=use]"), 1)
        self.assert_fits()
        measured = [{"method": name, "form": name, "metric": NAMES[0], "step": step, "value": value, NAMES[1]: name}
                    for name in NAMES for step, value in [(1, 1.0), (2, 0.1)]]
        self.show(page_files.empty("reproduce", reproduction={"name": NAMES[0], "paper": NAMES[1], "claim": NAMES[2], "verdict": NAMES[0], "holds": False,
                                                              "reason": NAMES[3], "conditions": NAMES, "measured": measured, "table": NAMES[1]}))
        self.assertEqual(self.count("img, main script"), 0)
        self.assert_fits()

    def test_what_is_not_finite_has_a_place_and_diverged_runs_end_with_a_cross(self):
        steps = list(range(1, 11))
        losses = [1.0, 0.9, "nan", 0.8, None, "inf", 0.7, "-inf", 0.6, 0.5]
        early = page_files.run(1, status="diverged", step=steps[:4], loss=[1.0, 2.0, 40.0, "nan"])
        runs = [page_files.run(0, step=steps, loss=losses), early]
        self.show(page_files.empty(methods=methods(["a", "b"]), runs=runs), "#progress.x=step")
        self.assertEqual(self.count("#progress .strip"), 1)
        self.assertEqual(self.count("#progress .not-finite"), 4)  # three of a, one of b
        self.assertEqual(len(self.browser.saved("progress", "csv")[1].splitlines()), 1 + 9 + 4)  # a single run is shown whole
        self.assertEqual(self.count("#progress .diverged"), 1)
        self.assertIn("Diverged: b", self.text("#answer"))
        self.assertIn(",nan,", self.browser.saved("progress", "csv")[1].decode())

    def test_a_mean_ends_where_the_first_of_its_runs_does(self):
        steps = list(range(1, 11))
        runs = [page_files.run(0, 0, step=steps, loss=[1.0] * 10), page_files.run(0, 1, status="diverged", step=steps[:6], loss=[3.0] * 6),
                page_files.run(1, 0, step=steps, loss=[1.0] * 10), page_files.run(1, 1, status="running", step=steps[:6], loss=[3.0] * 6)]
        self.show(page_files.empty(methods=methods(["a", "b"]), runs=runs), "#progress.x=step")
        rows = [line.split(",") for line in self.browser.saved("progress", "csv")[1].decode("utf-8-sig").splitlines()[1:]]
        means = {name: [(float(row[3]), row[6]) for row in rows if row[0] == name and row[1] == "mean"] for name in "ab"}
        self.assertEqual(means["a"], [(2.0, "2")] * 6)
        self.assertEqual(means["b"], [(2.0, "2")] * 6 + [(1.0, "1")] * 4)  # the other one will get there too
        self.assertEqual(self.count("#progress .line"), 1 + 2 + 1)  # and the single runs of a method of which one diverged
        self.assertEqual(self.count("#progress .diverged"), 1)

    def test_values_at_or_below_0_are_counted_where_a_log_axis_has_no_place(self):
        runs = [page_files.run(0, step=list(range(4)), loss=[1.0, 0.0, -1.0, 0.5])]
        self.show(page_files.empty(methods=methods(["a"]), runs=runs), "#progress.logy=1")
        self.assertIn("2 points at or below 0", self.text("#progress .notes"))

    def test_files_that_end_early_are_empty_or_make_no_sense(self):
        ragged = page_files.run(2, step=[1, 2, 3], loss=[1.0])
        for runs in [[], [page_files.run(0)], [page_files.run(0, step=[], loss=[])], [page_files.run(0, step=[1], loss=[None])],
                     [page_files.run(0, step=[5, 5, 3], loss=[1.0, 2.0, 3.0])], [page_files.run(0, status="running", step=[1], loss=[1.0]), ragged],
                     [page_files.run(0, step=[1, 2], loss=[1e308, -1e308])], [page_files.run(0, step=[1, 2], loss=[5e-324, 5e-324])],
                     [page_files.run(0, step=[1, 2, 3], loss=[1e-320, 1e308, 5.0])], [page_files.run(0, step=[1, 2], loss=[1e308, 1.7e308])],
                     [page_files.run(0, step=[1, 2], loss=[1.0, 1 + 2e-16])], [page_files.run(0, step=[0, 1e18], loss=[1.0, 2.0])]]:
            self.show(page_files.empty(methods=methods(["a", "b", "c"]), runs=runs, notices=["cut off in line 7"]))
            self.assertIn("cut off in line 7", self.text("#notices"))
            self.assertEqual(self.count("[role=alert]"), 0)
            self.assertNotIn("NaN", self.browser.run("return [...document.querySelectorAll('.plot svg')].map((one) => one.outerHTML).join()"))

    def test_one_part_that_makes_no_sense_leaves_the_others(self):
        data = chart_cases.study()
        data["summary"]["methods"][2] = None
        self.show(data, "#tradeoff.x=all")
        self.assertGreater(self.count("[role=alert]"), 0)
        self.assertGreater(self.count("#progress .line"), 2)
        self.assertGreater(self.count("#runs tbody tr"), 10)
        data["summary"] = {"plan": {}}
        self.show(data)
        self.assertGreater(self.count("[role=alert]"), 0)
        self.assertGreater(self.count("#progress .line"), 2)

    def test_a_hundred_thousand_points_are_thinned_and_it_says_so(self):
        count = 20000
        steps = list(range(count))
        runs = [page_files.run(index, step=steps, loss=[1 + index + math.sin(step * 0.7) for step in steps]) for index in range(5)]
        runs[3]["series"]["loss"][777] = 99.0
        self.show(page_files.empty(methods=methods(list("abcde")), runs=runs))
        drawn = self.browser.run("return [...document.querySelectorAll('#progress .line')].map((one) => one.getAttribute('d').split('L').length)")
        self.assertEqual(len(drawn), 5)
        self.assertLess(max(drawn), 4 * 1100)
        self.assertIn("100,000 points", self.text("#progress .notes"))
        # The highest point of a column of pixels stays.
        self.assertAlmostEqual(self.browser.run("""const box = document.querySelector('#progress .lines').getBBox(); return box.height"""), 340, delta=25)
        self.assertEqual(len(self.browser.saved("progress", "csv")[1].splitlines()), 5 * count + 1)
