"""Headless Chromium for the tests of pages: one session for all of them, no network, and a time limit on everything."""

import json
import shutil
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.remote_connection import RemoteConnection

from patience import patient

LIMIT = patient(60)  # seconds, for each thing that is waited for


class Browser:
    def __init__(self, chromium, driver):
        self.folder = Path(tempfile.mkdtemp(prefix="sparsewire_report_"))
        self.downloads = self.folder / "downloads"
        self.downloads.mkdir()
        options = Options()
        options.binary_location = chromium
        # No sandbox: it does not work as root, nor in many containers. The pages are our own.
        for one in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
                    "--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars", f"--user-data-dir={self.folder / 'profile'}"]:
            options.add_argument(one)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        RemoteConnection.set_timeout(2 * LIMIT)
        try:
            self.driver = webdriver.Chrome(options=options, service=Service(driver))
        except Exception:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.driver.set_page_load_timeout(LIMIT)
        self.driver.set_script_timeout(LIMIT)
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))

    def close(self):
        try:
            self.driver.quit()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def screen(self, width=1100, height=900, dark=False, media=""):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path, fragment=""):
        """Opens a file anew, also if only the fragment differs, and waits until its charts are drawn."""
        self.driver.get("about:blank")
        self.driver.get(Path(path).resolve().as_uri() + fragment)
        self.settle()

    def settle(self):
        """Charts are drawn when the browser has told them their width."""
        self.wait(lambda: self.run("return [...document.querySelectorAll('figure')].every((one) => one.querySelector('.plot > svg, .plot > [role=alert]'))"), "charts are drawn")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, what):
        deadline = time.monotonic() + LIMIT
        while True:
            failure = None
            try:
                found = condition()
            except WebDriverException as error:  # the page is just loaded again
                found, failure = None, error
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {LIMIT} s until {what}") from failure
            time.sleep(0.02)

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).click()", selector)

    def double_click(self, element):
        """However long the page takes for the first of the two."""
        place = self.run("""arguments[0].scrollIntoView({block: "center"}); const box = arguments[0].getBoundingClientRect();
                            return {x: box.x + box.width / 2, y: box.y + box.height / 2}""", element)
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                self.cdp("Input.dispatchMouseEvent", type=kind, button="left", clickCount=count, **place)

    def choose(self, identifier, value):
        """Sets a list, a number or a check box as a reader does."""
        self.run("""const one = document.getElementById(arguments[0]);
                    if (one.type === "checkbox") { if (one.checked !== arguments[1]) one.click(); return; }
                    one.value = arguments[1];
                    one.dispatchEvent(new Event("change", {bubbles: true}))""", identifier, value)

    def saved(self, figure, kind):
        """What the button below a figure saves."""
        for old in self.downloads.iterdir():
            old.unlink()
        # Chromium 156 often drops a file that the page offers after a pause (a picture has to be painted first) if it has
        # just saved another one. No reader is that fast.
        if kind == "png":
            time.sleep(1)
        # A real click: without one, a browser asks before it saves several files.
        self.driver.find_element("css selector", f"#{figure} [data-save={kind}]").click()

        def whole():
            files = list(self.downloads.iterdir())
            return files if files and not any(file.suffix == ".crdownload" for file in files) else None

        (file,) = self.wait(whole, f"{kind} is saved")
        return file.name, file.read_bytes()

    def complaints(self):
        """What the console says since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses that the page asked for since the last call, other than its own file and what it holds in memory."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [address for address in found if not address.startswith(("file:", "data:", "blob:", "about:"))]
