"""Charts: what is drawn, switches, legend, values under the pointer, files that are saved."""

import csv
import io
import struct
import xml.etree.ElementTree as xml
import zlib

import case
import check_study
import made_up
from answer_cases import FIVE, shifted
from made_up import Method
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

FIGURES = {"tradeoff", "differences", "target", "progress", "memory", "density", "bytes", "stages", "grid"}


def study():
    return made_up.report(made_up.summary([
        Method("dense", FIVE, [1000e3] * 5, [500e3] * 5), Method("topk", shifted(-0.002), [100e3] * 5, [50e3] * 5, 0.01),
        Method("rtopk", shifted(0.02), [90e3] * 5, [40e3, None, 45e3, 41e3, 40e3], 0.01),
        Method("threshold", [None, *FIVE[1:]], [95e3] * 5, [None, 50e3, 51e3, 52e3, 50e3], 0.01)]))


def pixels(png):
    """(width, height, the colours of the picture) of an 8-bit PNG."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    return width, height, zlib.decompress(data)


class Charts(case.Case):
    def rows(self, figure):
        name, text = self.browser.saved(figure, "csv")
        self.assertEqual(name, f"sparsewire-{figure}.csv")
        return list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"))))

    def test_every_chart_of_a_study_has_points_a_name_and_a_caption(self):
        self.show(study())
        self.assertEqual(set(self.browser.run("return [...document.querySelectorAll('figure')].map((one) => one.id)")), FIGURES)
        for figure in FIGURES:
            self.assertGreater(self.count(f"#{figure} .plot svg :is(.line, .mark, .cell)"), 2, figure)
            self.assertEqual(self.count(f"#{figure} .plot > svg[role=img][aria-label]"), 1)
            self.assertGreater(len(self.text(f"#{figure} figcaption")), 40)
        self.assertEqual(self.count("#target .censored"), 2)
        self.assertEqual(self.count("#grid .chosen"), 4)
        self.assertEqual(self.browser.run("return document.querySelectorAll('[id]').length - new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size"), 0)

    def test_every_point_has_its_name_however_crowded_and_bytes_are_those_of_the_answer(self):
        wide = [0.1, 0.2, 0.7]
        data = made_up.report(made_up.summary([
            Method("dense", wide, [183e6] * 3, [110e6, 110e6, None]), Method("topk", wide, [4.4e6] * 3, [2.66e6, 2.66e6, None]),
            Method("rtopk", wide, [4.5e6] * 3, [2.85e6, 2.85e6, None]), Method("threshold", wide, [4.5e6] * 3, [2.89e6, 2.89e6, None]),
            Method("regtopk", wide, [4.4e6] * 3, [2.73e6, 2.73e6, None]), Method("both_ways", wide, [2.1e6] * 3, [1.63e6, 1.63e6, None])]))
        names = [one["name"] for one in data["methods"]]
        for width in (360, 740, 1100):
            self.browser.screen(width)
            self.show(data)
            # Nobody reached the target on every seed, so the answer is about the bytes of all steps.
            self.assertEqual(self.browser.run("return document.getElementById('tradeoff.x').value"), "all")
            self.browser.choose("tradeoff.x", "target")
            shown = self.browser.run("return [...document.querySelectorAll('#tradeoff .plot > svg > text')].map((one) => one.textContent)")
            self.assertEqual([name for name in names if name not in shown], [], width)

    def test_means_and_intervals_are_those_of_the_study(self):
        data = study()
        self.show(data, "#progress.x=step&progress.y=test_loss")
        rows = self.rows("progress")
        self.assertEqual(len(rows), 4 * 20)
        for row in rows:
            index = ["dense", "topk", "rtopk", "threshold"].index(row["method"])
            at = data["runs"][0]["series"]["step"].index(int(row["step"]))
            values = [run["series"]["test_loss"][at] for run in data["runs"] if run["method"] == index]
            low, high = check_study.interval(values)
            for found, wanted in [(row["test_loss"], check_study.mean(values)), (row["low"], low), (row["high"], high)]:
                self.assertAlmostEqual(float(found), wanted, delta=1e-12)
            self.assertEqual(row["n"], "5")

    def test_axes_columns_seeds_and_logs_can_be_switched(self):
        data = study()
        self.show(data)
        self.browser.choose("progress.x", "step")
        self.assertEqual(float(self.rows("progress")[0]["step"]), 10)
        self.browser.choose("progress.x", "bytes")
        self.assertEqual(float(self.rows("progress")[0]["bytes"]), 40000)
        self.browser.choose("progress.x", "link")
        self.browser.choose("progress.link-rate", "8")  # a million bytes a second, for each of 4 workers
        self.browser.choose("progress.link-latency", "5")
        self.assertAlmostEqual(float(self.rows("progress")[0]["link"]), 40000 / 4 / 1e6 + 10 * 0.01)
        self.browser.choose("progress.y", "density")
        self.assertEqual(float(self.rows("progress")[0]["density"]), 0.01)
        lines = self.count("#progress .line")
        self.browser.choose("progress.seeds", True)
        self.assertEqual(self.count("#progress .line"), lines + 4 * 5)
        before = self.browser.run("return document.querySelector('#progress .line').getAttribute('d')")
        self.browser.choose("progress.logy", True)
        self.browser.choose("progress.logx", False)
        self.assertNotEqual(self.browser.run("return document.querySelector('#progress .line').getAttribute('d')"), before)
        # A reload, or a link that is passed on, shows the same.
        shown = self.rows("progress")
        self.browser.driver.refresh()
        self.browser.settle()
        self.assertEqual(self.rows("progress"), shown)
        self.assertTrue(self.browser.run("return document.getElementById('progress.logy').checked"))

    def test_the_legend_switches_lines_off_and_alone(self):
        self.show(study(), "#progress.x=step")
        names = lambda: list(dict.fromkeys(row["method"] for row in self.rows("progress")))  # noqa: E731
        legend = self.browser.driver.find_elements("css selector", "#progress .legend button")
        self.assertEqual([one.text for one in legend], ["dense", "topk", "rtopk", "threshold"])
        legend[1].click()
        self.assertEqual(names(), ["dense", "rtopk", "threshold"])
        self.assertEqual([one.get_attribute("aria-pressed") for one in legend], ["true", "false", "true", "true"])
        legend[1].send_keys(Keys.ENTER)
        self.assertEqual(len(names()), 4)
        self.browser.double_click(legend[2])
        self.assertEqual(names(), ["rtopk"])
        self.browser.double_click(legend[2])
        self.assertEqual(len(names()), 4)

    def test_pointer_and_keys_show_the_values_of_all_lines(self):
        data = study()
        self.show(data, "#progress.x=step")
        chart = self.browser.driver.find_element("css selector", "#progress .plot > svg")
        self.browser.run("arguments[0].scrollIntoView({block: 'center'})", chart)
        ActionChains(self.browser.driver).move_to_element(chart).perform()
        self.browser.wait(lambda: self.count("#progress .hover:not([hidden]) tr") == 4, "values are shown")
        self.assertRegex(self.text("#progress .hover strong"), r"^steps: 1\d0$")
        self.browser.run("arguments[0].focus()", chart)
        chart.send_keys(Keys.HOME)
        self.assertEqual(self.text("#progress .hover strong"), "steps: 10")
        chart.send_keys(Keys.RIGHT)
        self.assertEqual(self.text("#progress .hover strong"), "steps: 20")
        values = [run["series"]["test_loss"][1] for run in data["runs"] if run["method"] == 0]
        shown = dict(self.browser.run("return [...document.querySelectorAll('#progress .hover tr')].map((row) => [row.querySelector('th').textContent, row.children[2].textContent])"))
        self.assertEqual(shown["dense"], f"{check_study.mean(values):.4g}")
        chart.send_keys(Keys.ESCAPE)
        self.assertEqual(self.count("#progress .hover[hidden]"), 1)

    def test_every_chart_is_saved_as_svg_png_and_csv(self):
        self.browser.screen(dark=True)  # what is saved is for paper all the same
        self.show(study())
        for figure in sorted(FIGURES):
            name, text = self.browser.saved(figure, "svg")
            self.assertEqual(name, f"sparsewire-{figure}.svg")
            root = xml.fromstring(text.decode())
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertEqual(root[0].get("fill"), "#ffffff")
            self.assertNotIn("var(", text.decode())
            self.assertNotIn("class=\"hover", text.decode())
            self.assertIn("#1f2328", text.decode())  # ink of the light theme
        for figure in ["progress", "grid"]:
            name, picture = self.browser.saved(figure, "png")
            self.assertEqual(name, f"sparsewire-{figure}.png")
            width, height, painted = pixels(picture)
            self.assertEqual(width, 2 * 760)
            self.assertGreater(len(set(zip(*[iter(painted)] * 4))), 50)
        self.assertEqual([float(row["difference"]) for row in self.rows("differences") if row["difference"]],
                         [one["vs_baseline"]["diff"] for one in study()["summary"]["methods"] if one["vs_baseline"] and one["vs_baseline"]["diff"] is not None])
        self.assertEqual([row["bytes_to_target"] for row in self.rows("target") if row["method"] == "rtopk"], ["40000", "", "45000", "41000", "40000"])

    def test_tables_are_sorted_by_a_click_and_rows_open(self):
        self.show(study())
        first = lambda: self.text("#methods tbody th")  # noqa: E731
        self.assertEqual(first(), "dense")
        self.browser.click("#methods thead th:nth-child(6) button")  # bytes
        self.assertEqual(first(), "rtopk")
        self.browser.click("#methods thead th:nth-child(6) button")
        self.assertEqual(first(), "dense")
        self.assertEqual(self.browser.run("return document.querySelector('#methods [aria-sort]').getAttribute('aria-sort')"), "descending")
        self.assertEqual(self.count("#runs tbody tr"), 20)
        self.browser.click("#runs tbody .opener button")
        self.assertIn("workers", self.text("#runs .detail"))
        self.browser.click("#runs tbody .opener button")
        self.assertEqual(self.count("#runs .detail"), 0)
