"""How the page looks: colours and their contrast, dark, phone, print; and that it follows a run in progress."""

import itertools
import math
import re

import case
import page_files
from chart_cases import study

# Machado, Oliveira and Fernandes, 2009: what is seen with severe protanopia, deuteranopia and tritanopia.
SIGHT = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one, other):
    bright, dark = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def lab(colour, sight):
    seen = [min(1, max(0, sum(a * b for a, b in zip(row, linear(colour))))) for row in SIGHT[sight]]
    x, y, z = (sum(a * b for a, b in zip(row, seen)) for row in ([0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]))
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


class Look(case.Case):
    def colours(self):
        names = re.findall(r"(--[a-z0-9-]+):", (page_files.FOLDER / "page.css").read_text())
        return self.browser.run("const style = getComputedStyle(document.documentElement); return Object.fromEntries(arguments[0].map((one) => [one, style.getPropertyValue(one).trim()]))",
                                sorted(set(names)))

    def test_colours_can_be_told_apart_in_both_themes(self):
        seen = []
        for dark in (False, True):
            self.browser.screen(dark=dark)
            self.show(page_files.empty())
            colours = self.colours()
            seen.append(colours["--surface"])
            for name, value in colours.items():
                if re.fullmatch(r"--c\d|--mark|--axis", name):
                    self.assertGreater(contrast(value, colours["--surface"]), 3, name)
                if name in ("--ink", "--soft", "--link"):
                    self.assertGreater(min(contrast(value, colours["--surface"]), contrast(value, colours["--page"])), 4.5, name)
            self.assertGreater(contrast(colours["--ink"], colours["--warn"]), 4.5)
            for one, other in itertools.combinations([colours[f"--c{i}"] for i in range(7)], 2):
                for sight in SIGHT:
                    self.assertGreater(math.dist(lab(one, sight), lab(other, sight)), 18, (one, other, sight, dark))
        self.assertEqual(len(set(seen)), 2)

    def test_numbers_of_the_grid_can_be_read_on_every_shade(self):
        data = study()
        (first, *_) = data["summary"]["grid"]
        data["summary"]["grid"] = [{**first, "lr": lr, "mean": 0.3 * 1.0002 ** (lr * lr), "chosen": lr == 1} for lr in range(1, 41)]
        for dark in (False, True):
            self.browser.screen(dark=dark)
            self.show(data)
            surface = self.colours()["--surface"]
            cells = self.browser.run("""return [...document.querySelectorAll('#grid .cell')].map((one) => {
                const rect = one.querySelector('rect'), style = getComputedStyle(rect);
                return [style.fill, Number(style.fillOpacity), getComputedStyle(one.querySelector('text')).fill];
            })""")
            self.assertEqual(len(cells), 40)
            self.assertGreater(len({alpha for _, alpha, _ in cells}), 20)
            for fill, alpha, ink in cells:
                fill, ink = ([int(part) for part in re.findall(r"\d+", colour)] for colour in (fill, ink))
                under = [int(surface[i:i + 2], 16) for i in (1, 3, 5)]
                shade = [round(alpha * top + (1 - alpha) * below) for top, below in zip(fill, under)]
                self.assertGreater(contrast(*("#" + "".join(f"{part:02x}" for part in colour) for colour in (shade, ink))), 3.75, (alpha, dark))

    def test_the_reader_chooses_the_theme_and_print_is_light(self):
        self.show(study(), "#theme=dark")
        dark = self.colours()["--surface"]
        self.browser.run("const one = document.querySelector('.theme select'); one.value = 'light'; one.dispatchEvent(new Event('change'))")
        light = self.colours()["--surface"]
        self.assertNotEqual(dark, light)
        self.browser.run("const one = document.querySelector('.theme select'); one.value = 'dark'; one.dispatchEvent(new Event('change'))")
        self.assertEqual(self.colours()["--surface"], dark)
        self.browser.screen(width=740, dark=True, media="print")
        self.assertEqual(self.colours()["--surface"], light)
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.save, .switches, select, nav, .opener')].filter((one) => one.offsetParent).length"), 0)
        wide = self.browser.run("return [...document.querySelectorAll('figure')].filter((one) => one.querySelector('.plot > svg').getBoundingClientRect().right > one.getBoundingClientRect().right + 1).map((one) => one.id)")
        self.assertEqual(wide, [])
        # On paper charts are as wide as the paper, whatever the screen is.
        width = "return document.querySelector('#progress .plot > svg').getAttribute('width')"
        shown = self.browser.run(width)
        self.browser.run("window.dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(self.browser.run(width), "760")
        self.browser.run("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(self.browser.run(width), shown)
        self.assertTrue(self.browser.cdp("Page.printToPDF")["data"].startswith("JVBERi0"))  # %PDF-

    def test_nothing_is_wider_than_a_phone(self):
        self.browser.screen(360, 800)
        self.show(study(), "#progress.x=link&progress.seeds=1")
        self.assertEqual(self.browser.run("return document.documentElement.scrollWidth"), 360)
        cut = self.browser.run("""return [...document.querySelectorAll('.plot > svg text')].filter((one) => {
            const box = one.getBoundingClientRect(), all = one.closest('svg').getBoundingClientRect();
            return box.right > all.right + 1 || box.left < all.left - 1;
        }).map((one) => one.textContent)""")
        self.assertEqual(cut, [])

    def test_a_page_of_a_run_in_progress_loads_itself_again_and_stays_where_it_was(self):
        data = study()
        data["live"] = {"every": 1, "finished": False}
        path = self.show(data, "#progress.x=step&paused=1")  # so that it is not loaded again before it is prepared
        self.assertIn("In progress", self.text(".live"))
        self.browser.run("window.scrollTo(0, 777); window.is_old = true")
        data["title"] = "made up, a second later"
        path.write_text(page_files.filled(data), encoding="utf-8")
        self.browser.click(".live button")
        self.browser.wait(lambda: self.text("h1") == data["title"] and not self.browser.run("return window.is_old"), "the page is loaded again")
        self.browser.wait(lambda: self.browser.run("return scrollY") == 777, "it is where it was")
        self.browser.wait(lambda: self.browser.run("return location.hash") == "#progress.x=step", "it is set as it was")

        def paused():
            if "does not follow" not in self.text(".live"):
                self.browser.click(".live button")
            return "does not follow" in self.text(".live")

        self.browser.wait(paused, "it is paused")
        data["live"]["finished"] = True
        self.show(data)
        self.assertEqual(self.count(".live"), 0)
