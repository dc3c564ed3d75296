"""The report in a real browser: Chromium without a window, from a file, with no network."""

from __future__ import annotations

import os
import shutil
import time

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


def _chart(page, expression):
    """Something of the uPlot chart that the explorer shows."""
    return page.execute_script(f"const chart = document.getElementById('explorer').chart; return {expression}")


def _labels(page):
    """The methods that are shown."""
    return _chart(page, "chart.series.filter((s) => s.method && !s.class && s.show).map((s) => s.label)")


def _medians(page):
    return _chart(
        page, "chart.series.map((s, k) => s.method && !s.class && s.show ? chart.data[k] : 0).filter(Boolean)"
    )


def _switch(page, label):
    """The row of the legend that shows or hides a method."""
    return next(head for head in _all(page, ".u-legend th") if head.text.strip().rstrip(":") == label)


def _choose(page, name, value):
    from selenium.webdriver.support.ui import Select

    Select(_one(page, f"#{name}")).select_by_value(value)


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
    assert _chart(page, "chart.axes[0].label") == "epochs"
    before = _chart(page, "chart.data")
    for value, words in (
        ("passes", "Hessian products counted"),
        ("passes_without", "not counted"),
        ("time", "seconds"),
    ):
        _choose(page, "axis", value)
        assert words in _chart(page, "chart.axes[0].label")
        assert words in _one(page, "canvas").get_attribute("aria-label")
        assert _chart(page, "chart.data") != before
    _choose(page, "height", "gradient_norm_sq")
    assert _chart(page, "chart.axes[1].label") == "squared gradient norm"
    _choose(page, "axis", "epoch")
    assert _medians(page) != before[1:]


def test_methods_can_be_chosen_with_mouse_and_keyboard(page):
    assert len(_labels(page)) == 3
    switch = _switch(page, "TRSVR-EstH")
    switch.click()
    assert "TRSVR-EstH" not in _labels(page)
    assert switch.get_attribute("aria-checked") == "false"
    assert _chart(page, "chart.series.filter((s) => s.method === 'TRSVR-EstH' && s.show).length") == 0  # band and all
    switch.send_keys(" ")
    assert len(_labels(page)) == 3
    assert switch.get_attribute("aria-checked") == "true"


def test_seeds_and_single_runs_can_be_chosen(page):
    boxes = _all(page, "input[name=seed]")
    assert [box.get_attribute("value") for box in boxes] == ["0", "1", "2"]
    before = _medians(page)
    boxes[0].click()
    assert _medians(page) != before
    count = _chart(page, "chart.series.length")
    _one(page, "input[name=single]").click()
    assert _chart(page, "chart.series.length") == count + 3 * 2  # two seeds are left


def test_medians_and_bands_are_those_of_the_figures(page, reported):
    """What the page computes in the browser against the curves that Matplotlib draws."""
    from trsvr.experiments import curves, results

    subject = results.read(reported[0]).study("tiny").subjects[0]
    for line in subject.lines:
        band = curves.band(line.xs("epoch"), line.ys("gap"), line.floor("gap"), 600)
        for part, ending in ((band.middle, ""), (band.low, ", 20 %"), (band.high, ", 80 %")):
            label = line.shown + ending
            drawn = page.execute_script(
                "const c = document.getElementById('explorer').chart;"
                "return c.data[c.series.findIndex((s) => s.label === arguments[0])]",
                label,
            )
            places = _chart(page, "chart.data[0]")
            assert places == pytest.approx(band.x, abs=1e-9)
            assert drawn == pytest.approx(part, rel=1e-3)


def test_drag_zooms_and_hover_tells(page):
    from selenium.webdriver import ActionChains

    over = _one(page, ".u-over")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    scales = "[chart.scales.x.min, chart.scales.x.max, chart.scales.y.min, chart.scales.y.max]"
    before = _chart(page, scales)
    ActionChains(page).move_to_element_with_offset(over, -200, -100).click_and_hold().move_by_offset(
        300, 150
    ).release().perform()
    left, right, low, high = _chart(page, scales)
    assert before[0] < left < right < before[1]
    assert before[2] < low < high < before[3]
    _one(page, "#reset").click()
    assert _chart(page, scales) == before
    ActionChains(page).move_to_element_with_offset(over, 30, 10).perform()
    value = _all(page, ".u-series .u-value")[1].text
    place = _chart(page, "chart.cursor.idx")
    assert float(value) == pytest.approx(_medians(page)[0][place], rel=0.01)


def test_picture_and_numbers_can_be_saved(page, tmp_path):
    import csv

    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    _switch(page, "TRSVR adaptive").click()
    for button, name in (("picture", "curves.png"), ("numbers", "curves.csv")):
        _one(page, f"#{button}").click()
        deadline = time.monotonic() + 20
        while not (tmp_path / name).exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "curves.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head[:4] == ["epochs", "TRSVR-EstH", "TRSVR-EstH, 20 %", "TRSVR-EstH, 80 %"]
    assert not [label for label in head if "adaptive" in label]
    assert len(rows) == 600
    assert [float(row[1]) for row in rows] == pytest.approx(_medians(page)[0])


def test_another_study_can_be_chosen(page):
    before = _medians(page)
    _choose(page, "study", "1")
    assert _medians(page) != before
    assert len(_labels(page)) == 3


def test_a_narrow_screen_needs_no_scrolling_sideways(page):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        page.refresh()
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        assert _chart(page, "chart.width") <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
