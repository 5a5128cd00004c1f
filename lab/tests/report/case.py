"""What the tests of pages share: the browser, and pages that are opened without a complaint."""

import unittest

import page_files
from browser import Browser

SETTINGS = {"chromium": None, "driver": None, "program": None, "browser": None}


def close():
    if SETTINGS["browser"]:
        SETTINGS["browser"].close()
        SETTINGS["browser"] = None


class Case(unittest.TestCase):
    def setUp(self):
        if not SETTINGS["browser"]:
            SETTINGS["browser"] = Browser(SETTINGS["chromium"], SETTINGS["driver"])
        self.browser = SETTINGS["browser"]
        self.browser.screen()
        self.browser.complaints()
        self.browser.requests()

    def tearDown(self):
        """Whatever a test did: the console is empty, and nothing asked for anything."""
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [])

    def show(self, data, fragment="", name="made-up"):
        path = self.browser.folder / f"{name}.html"
        path.write_text(page_files.filled(data), encoding="utf-8")
        self.browser.open(path, fragment)
        return path

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)
