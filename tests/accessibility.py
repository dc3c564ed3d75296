"""Every page of the site, and a report of the studies, before axe in Chromium: ``make accessibility``.

    python tests/accessibility.py site path/to/axe.min.js

Looked at in light and dark, by the rules of WCAG 2.1 A and AA and axe's best practices. What axe cannot see is looked
at here: whether every control can be reached by the keyboard, and whether a page fits a narrow screen. A finding is one
line; none is exit status 0.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "experiments"))

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from tiny_study import TINY, run_here

from trsvr.experiments import report, specification

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
LOOK = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: {type: "tag", values: arguments[0]}}).then(found => done(found.violations.flatMap(
  rule => rule.nodes.map(node => [
    rule.id, node.target.join(" "), (node.any[0] || node.all[0] || node.none[0] || {}).message])
)), error => done([["axe failed", "", String(error)]]));
"""
UNREACHABLE = """
return [...document.querySelectorAll("a[href], button, select, input, summary, [role=button], [onclick]")]
  .filter(e => e.checkVisibility() && !e.disabled && e.tabIndex < 0)
  .map(e => ["not reached by the keyboard", e.outerHTML.slice(0, 80), ""]);
"""


NARROW = 390
WIDER = """
return [...document.querySelectorAll("article *, main *")].filter(e => e.checkVisibility()
    && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre, math, .md-typeset__scrollwrap, .table, p"))
  .slice(0, 3).map(e => ["wider than the screen", e.outerHTML.slice(0, 80), ""]);
"""


def small_report(folder: Path) -> Path:
    """The report of a study that runs in seconds."""
    study = specification.parse(TINY, "tiny.toml")
    run_here([study, study.nonconvex()], folder)
    report.write(folder)
    return folder / "report.html"


def chromium() -> webdriver.Chrome:
    """A browser without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(flag)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver") or ""
    return webdriver.Chrome(options=options, service=Service(driver))


def findings(browser: webdriver.Chrome, page: Path, axe: str) -> list[tuple[Any, ...]]:
    """What is wrong with a page, in light and in dark."""
    found = []
    for scheme in ("light", "dark"):
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(page.absolute().as_uri())
        browser.execute_script("localStorage.clear()")  # where the site remembers light or dark
        browser.refresh()
        time.sleep(0.5)  # its scripts take some time to build the page
        browser.execute_script(axe)
        rules = [*browser.execute_async_script(LOOK, RULES), *browser.execute_script(UNREACHABLE)]
        found += [(scheme, *rule) for rule in rules]
    return found


def too_wide(browser: webdriver.Chrome, page: Path) -> list[tuple[Any, ...]]:
    """What reaches beyond a narrow screen and does not scroll in its place."""
    size = {"width": NARROW, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.absolute().as_uri())
    time.sleep(0.5)
    found = [("narrow", *one) for one in browser.execute_script(WIDER)]
    if browser.execute_script("return document.documentElement.scrollWidth") > NARROW:
        found.append(("narrow", "the page scrolls sideways", "", ""))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


def main(site: str, axe: str) -> int:
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        pages = [page for page in sorted(Path(site).rglob("*.html")) if page.name != "404.html"]  # which needs a server
        pages.append(small_report(Path(folder) / "run"))
        browser = chromium()
        browser.set_script_timeout(120)
        try:
            for page in pages:
                for finding in (
                    *findings(browser, page, Path(axe).read_text(encoding="utf-8")),
                    *too_wide(browser, page),
                ):
                    print(page.name, *finding, sep=" | ")
                    total += 1
        finally:
            browser.quit()
    print(f"{len(pages)} pages, in light, dark and narrow: {total} findings")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
