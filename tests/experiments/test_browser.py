"""The report in a real browser: Chromium without a window, from a file, with no network."""

from __future__ import annotations

import os
import shutil

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--window-size=1300,1000",),
)

pytestmark = pytest.mark.browser


def _find(variable, *names):
    """A program that an environment variable names, or one that is installed."""
    chosen = os.environ.get(variable)
    found = chosen or next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.skip(f"no {names[0]} here: `make browser` installs it, or set {variable} to one")
    return found


@pytest.fixture(scope="module")
def browser(reported, tmp_path_factory):
    """Chromium, looking at the report of the tiny study."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    program, driver = _find("CHROMIUM", "chromium", "chromium-browser"), _find("CHROMEDRIVER", "chromedriver")
    folder, _ = reported
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        opened.get((folder / "report.html").as_uri())
        yield opened
    finally:
        opened.quit()


@pytest.fixture
def page(browser):
    """The page as it was opened."""
    browser.refresh()
    return browser


def _all(page, selector):
    return page.find_elements("css selector", selector)


def _one(page, selector):
    return page.find_element("css selector", selector)


def _labels(page):
    return [curve.get_attribute("data-label") for curve in _all(page, ".curve")]


def _choose(page, name, value):
    from selenium.webdriver.support.ui import Select

    Select(_one(page, f"#{name}")).select_by_value(value)


def _medians(page):
    return [path.get_attribute("d") for path in _all(page, ".curve path[stroke-width='2']")]


def test_it_opens_without_complaint_and_without_network(browser):
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    asked = [entry["message"] for entry in browser.get_log("performance") if "requestWillBeSent" in entry["message"]]
    assert asked
    assert not [message for message in asked if '"url":"http' in message]
    assert "alert" not in browser.title
    assert _one(browser, "h1").text == "Studies: tiny, tiny-nonconvex"


def test_a_name_with_markup_is_only_a_name(page):
    assert "SVRG </script><script>alert(1)</script>" in _labels(page)
    assert not _all(page, "h2 b")


def test_the_axis_can_be_chosen(page):
    assert _one(page, ".xlabel").text == "epochs"
    before = _medians(page)
    for value, words in (
        ("passes", "Hessian products counted"),
        ("passes_without", "not counted"),
        ("time", "seconds"),
    ):
        _choose(page, "axis", value)
        assert words in _one(page, ".xlabel").text
        assert _medians(page) != before
    _choose(page, "height", "gradient_norm_sq")
    assert _one(page, ".ylabel").text == "squared gradient norm"
    _choose(page, "axis", "epoch")
    assert _medians(page) != before


def test_methods_can_be_chosen(page):
    assert len(_labels(page)) == 3
    _one(page, "input[name=method][value='TRSVR-EstH']").click()
    assert "TRSVR-EstH" not in _labels(page)
    assert len(_labels(page)) == 2
    _one(page, "input[name=method][value='TRSVR-EstH']").click()
    assert len(_labels(page)) == 3


def test_seeds_and_single_runs_can_be_chosen(page):
    boxes = _all(page, "input[name=seed]")
    assert [box.get_attribute("value") for box in boxes] == ["0", "1", "2"]
    before = _medians(page)
    boxes[0].click()
    assert _medians(page) != before
    count = len(_all(page, ".curve path"))
    _one(page, "input[name=single]").click()
    assert len(_all(page, ".curve path")) == count + 3 * 2  # two seeds are left


def test_the_median_is_the_median(page):
    """The height of the last point, read back from the picture, against NumPy."""
    script = """
        const data = JSON.parse(document.getElementById('curves-data').textContent);
        return data.studies[0].problems[0].lines[0].runs.map((run) => run.gap[run.gap.length - 1]);
    """
    import numpy as np

    ends = page.execute_script(script)
    _one(page, "input[name=method][value='TRSVR adaptive']").click()
    last = _medians(page)[0].split("L")[-1].split()
    marks = {}
    for text in _all(page, ".plot svg > text"):
        if text.get_attribute("text-anchor") == "end":
            marks[float(text.text)] = float(text.get_attribute("y")) - 4
    values, heights = np.log10(list(marks)), list(marks.values())
    slope, offset = np.polyfit(heights, values, 1)
    assert slope * float(last[1]) + offset == pytest.approx(np.log10(np.median(ends)), abs=0.05)


def test_drag_zooms_and_hover_tells(page):
    from selenium.webdriver import ActionChains

    svg = _one(page, ".plot svg")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    before = _medians(page)
    ActionChains(page).move_to_element_with_offset(svg, -200, -100).click_and_hold().move_by_offset(
        300, 150
    ).release().perform()
    zoomed = _medians(page)
    assert zoomed != before
    _one(page, "#reset").click()
    assert _medians(page) == before
    # Over the first point of a curve, which all of them share: a tip with the method's name.
    spot = page.execute_script("""
        const path = document.querySelector(".curve path[stroke-width='2']");
        const point = path.getPointAtLength(path.getTotalLength() / 2);
        const box = document.querySelector('.plot svg').getBoundingClientRect();
        return [point.x * box.width / 1160 - box.width / 2, point.y * box.height / 520 - box.height / 2];
    """)
    ActionChains(page).move_to_element_with_offset(_one(page, ".plot svg"), round(spot[0]), round(spot[1])).perform()
    tip = _one(page, ".tip")
    assert tip.is_displayed()
    assert "gap f − f*:" in tip.text


def test_another_study_can_be_chosen(page):
    before = _medians(page)
    _choose(page, "study", "1")
    assert _medians(page) != before
    assert len(_labels(page)) == 3
