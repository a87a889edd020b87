"""Charts of any range in Chromium: live at the right end, zoomed, compared, marked, pinned, and kept as CSV and PNG."""

from __future__ import annotations

import csv
import re
import time
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import frames, painted
from tests.browser.judging import judge
from tests.waiting import wait_for

# Counts the points of a colour in each chart as it goes to paper; text there is dark.
PRINTED = """() => addEventListener("beforeprint", () => {
  window.printed = [...document.querySelectorAll("canvas.printed")].map((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) < 200) count += 1;
    }
    return count;
  });
})"""


@pytest.fixture(scope="module", autouse=True)
def measured(administrator: BrowserContext) -> None:
    """A minute of readings, at whichever age of the site this begins."""
    address = "/api/v1/telemetry/?subjects=device/1&metrics=temperature_celsius&since=-3m&points=90"

    def seconds() -> float:
        answer = administrator.request.get(address).json()
        return sum(float(answer["step"]) for line in answer["series"] for value in line["mean"] if value is not None)

    wait_for(lambda: seconds() >= 60.0, "nothing is measured", seconds=240)


def open_charts(page: Page, query: str) -> Locator:
    """Open the page and wait until its first chart is drawn; returns the charts."""
    page.goto(f"/telemetry/?{query}")
    charts = page.locator(".history figure.chart")
    # Before the server has answered, there is a chart without lines in its place.
    expect(page.locator(".history [data-panel]")).not_to_have_count(0)
    expect(page.locator(".history [data-panel][aria-busy=true]")).to_have_count(0)
    expect(charts.first.locator("canvas[data-points]")).to_be_attached()
    return charts


def newest(chart: Locator) -> float:
    return float(chart.locator("canvas").get_attribute("data-newest") or "nan")


def drag(page: Page, chart: Locator, begin: float, end: float) -> None:
    """Drag over a chart, between two shares of its width."""
    plot = chart.locator("[data-plot]").bounding_box()
    assert plot is not None
    x, width = plot["x"] + 52, plot["width"] - 64
    page.mouse.move(x + width * begin, plot["y"] + 60)
    page.mouse.down()
    for share in (begin + (end - begin) / 2, end):
        page.mouse.move(x + width * share, plot["y"] + 70)
    page.mouse.up()


def test_the_page_shows_what_is_there_and_goes_on_live(page: Page) -> None:
    charts = open_charts(page, "of=chassis/1&of=chassis/2&range=15m")
    expect(charts).to_have_count(4)
    expect(page.locator("#resolution")).to_contain_text("Each point is")
    traffic = charts.first
    traffic.scroll_into_view_if_needed()
    expect(traffic.locator(".chart-legend li")).to_have_count(4)
    expect(traffic.locator(".made")).to_contain_text("device-side ports")
    before = newest(traffic)
    wait_for(lambda: newest(traffic) > before, "the chart does not go on")
    wait_for(lambda: painted(page, traffic) > 20, "its lines are not drawn")
    expect(traffic.locator("output").first).to_contain_text("GB/s")
    page.locator("#pause-all").click()
    held = newest(traffic)
    frames(page, 4)  # of two chassis
    assert newest(traffic) == held
    page.locator("#pause-all").click()
    expect(page.locator("#pause-all")).to_have_text("Pause")
    judge(page, "telemetry")


def test_what_is_hovered_is_marked_at_the_same_instant_in_all(page: Page) -> None:
    charts = open_charts(page, "of=device/1&of=device/2&range=15m&metric=temperature_celsius&charts=apart")
    expect(charts).to_have_count(2)
    expect(charts.nth(1).locator("canvas[data-points]")).to_be_attached()
    plot = charts.first.locator("[data-plot]").bounding_box()
    assert plot is not None
    # Near the newest end: the site may be young.
    page.mouse.move(plot["x"] + plot["width"] - 40, plot["y"] + 80)
    for chart in (charts.nth(0), charts.nth(1)):
        expect(chart.locator(".chart-cross")).to_be_visible()
        expect(chart.locator(".chart-instant")).to_contain_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
    instants = charts.locator(".chart-instant")
    wait_for(lambda: len(set(instants.all_inner_texts())) == 1, "no instant is that of both charts")
    page.mouse.move(5, 5)
    expect(charts.first.locator(".chart-cross")).to_be_hidden()
    # By keys: from point to point, and said aloud.
    charts.first.locator("[data-plot]").focus()
    page.keyboard.press("End")
    said = charts.first.locator("[role=status]")
    expect(said).to_contain_text("°C")
    last = said.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(last)
    expect(charts.nth(1).locator(".chart-cross")).to_be_visible()
    page.keyboard.press("Escape")
    expect(charts.first.locator(".chart-cross")).to_be_hidden()


def test_dragging_zooms_in_with_finer_points_and_back_leads_out(page: Page) -> None:
    charts = open_charts(page, "of=chassis/1&range=6h&metric=power_watts")
    before = page.locator("#resolution").inner_text()
    with page.expect_response(lambda answer: "/api/v1/telemetry/?" in answer.url) as answer:
        drag(page, charts.first, 0.9, 0.96)
    assert answer.value.ok
    page.wait_for_url(lambda address: "since=" in address and "range=" not in address)
    expect(page.locator("#resolution")).not_to_have_text(before)
    expect(page.locator("[data-range][aria-current]")).to_have_count(0)
    expect(page.locator("#pause-all")).to_be_hidden()
    inner = page.url
    page.get_by_role("link", name="Zoom out").click()
    page.wait_for_url(lambda address: address != inner)
    page.go_back()
    page.wait_for_url(inner)
    page.go_back()
    page.wait_for_url(re.compile("range=6h"))
    expect(page.locator("#resolution")).to_have_text(before)
    expect(page.locator("[data-range='6h']")).to_have_attribute("aria-current", "true")
    # The same by keys: Enter at one end, Enter at the other.
    plot = charts.first.locator("[data-plot]")
    plot.focus()
    for key in ("End", "Enter", "Shift+ArrowLeft", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile("since="))


def test_an_address_brings_the_same_view_to_whoever_opens_it(page: Page) -> None:
    now = time.time()
    since, until = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - ago)) for ago in (600, 60))
    open_charts(page, f"of=device/1&metric=temperature_celsius&since={since}&until={until}")
    assert page.input_value("#since").startswith(since[:16])
    page.get_by_role("link", name="1 h", exact=True).click()
    page.wait_for_url(re.compile("range=1h"))
    page.reload()
    expect(page.locator("[data-range='1h']")).to_have_attribute("aria-current", "true")
    page.goto("/telemetry/?of=device/1&since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z")
    expect(page.locator(".chart-words").first).to_contain_text("no such readings")


def test_things_are_found_compared_and_taken_away(page: Page) -> None:
    open_charts(page, "of=device/1&metric=temperature_celsius")
    page.fill("#q", "drawer 2")
    page.get_by_role("button", name="Find").click()
    page.locator("#results a").first.click()
    page.wait_for_url(re.compile(r"of=device/1&of=\w+/\d+"))
    expect(page.locator(".chips li")).to_have_count(2)
    page.get_by_role("link", name="One chart each").click()
    expect(page.locator(".history figure.chart")).to_have_count(2)
    page.locator(".chips .remove").last.click()
    expect(page.locator(".chips li")).to_have_count(1)
    # A sensor of the chassis, by itself.
    page.fill("#q", "inlet")
    page.get_by_role("button", name="Find").click()
    page.locator("#results a").first.click()
    expect(page.locator(".history figcaption").last).to_contain_text("inlet", ignore_case=True)
    page.fill("#q", "no such thing anywhere")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#results")).to_contain_text("No matches")
    judge(page, "found nothing")


@pytest.mark.nightly
def test_what_is_shown_is_kept_as_csv_and_png_and_read_as_a_table(page: Page) -> None:
    charts = open_charts(page, "of=device/1&metric=temperature_celsius&range=15m")
    chart = charts.first
    with page.expect_download() as download:
        chart.get_by_role("button", name="CSV").click()
    rows = list(csv.reader(download.value.path().read_text().splitlines()))
    assert rows[0][0] == "time"
    assert rows[0][1].endswith("Temperature (°C), mean")
    assert len(rows) > 10
    with page.expect_download() as download:
        chart.get_by_role("button", name="PNG").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    assert download.value.suggested_filename.endswith(".png")
    chart.get_by_text("As a table").click()
    expect(chart.locator("thead th")).to_have_count(4)
    expect(chart.locator("tbody tr").nth(5)).to_be_visible()
    judge(page, "a chart as a table")


def test_views_become_panels_of_a_dashboard_that_hangs_on_a_wall(page: Page) -> None:
    view = "of=chassis/1&metric=temperature_celsius&range=6h"
    for name in ("Mornings", "Evenings"):
        open_charts(page, view)
        page.fill("#name", name)
        if name == "Evenings":
            page.select_option("#dashboard", label="Mornings")
        page.get_by_role("button", name="Pin", exact=True).click()
        # One stays with the charts.
        expect(page.get_by_text(f"‘{name}’ was pinned to the dashboard ‘Mornings’.")).to_be_visible()
        page.wait_for_url(f"**/telemetry/?{view}")
    page.locator(".pinned").get_by_role("link", name="Mornings").click()
    titles, charts = page.locator(".panels h2"), page.locator(".panels figure.chart canvas[data-points]")
    expect(charts).to_have_count(2)
    judge(page, "a dashboard")
    page.get_by_role("button", name="Move Evenings back").press("Enter")
    expect(titles).to_have_text([re.compile("Evenings"), re.compile("Mornings")])
    page.get_by_label("Edit Evenings").press("Enter")
    page.get_by_label("Title").first.fill("Nights")
    page.get_by_label("Follow the chosen chassis").first.check()
    page.get_by_role("button", name="Save").first.click()
    expect(titles).to_have_text([re.compile("Nights"), re.compile("Mornings")])
    page.get_by_label("Chassis", exact=True).select_option(index=2)
    page.get_by_role("button", name="Show").click()
    expect(titles.first.get_by_role("link")).to_have_attribute("href", re.compile("of=chassis/2"))
    expect(titles.last.get_by_role("link")).to_have_attribute("href", re.compile("of=chassis/1"))
    address = page.url
    page.get_by_role("link", name="Wall").click()
    expect(charts).to_have_count(2)
    for part in ("header .brand", "#navigation", "#palette-open"):
        expect(page.locator(part)).to_be_hidden()
    expect(page.locator("#freshness")).to_be_visible()
    judge(page, "a dashboard on a wall")
    page.get_by_role("button", name="Full screen").click()
    page.wait_for_function("document.fullscreenElement !== null")
    # What is removed elsewhere goes from the wall too, without leaving it.
    page.evaluate("window.stayed = true")
    with page.context.new_page() as second:
        second.goto(address)
        second.get_by_label("Edit Mornings").click()
        second.get_by_role("button", name="Remove Mornings").click()
        expect(second.locator(".panels h2")).to_have_text([re.compile("Nights")])
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(titles).to_have_text([re.compile("Nights")])
    expect(charts).to_have_count(1)
    assert page.evaluate("window.stayed && document.fullscreenElement !== null")
    page.get_by_role("link", name="Leave").click()
    titles.first.get_by_role("link").click()
    page.wait_for_url(re.compile(r"/telemetry/\?of=chassis/2&metric=temperature_celsius&range=6h"))
    page.goto("/telemetry/dashboards/")
    judge(page, "dashboards")
    page.get_by_label("New name of Mornings").fill("Days")
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("button", name="Delete Days").click()
    expect(page.locator("section.empty")).to_be_visible()


@pytest.mark.nightly
def test_pages_of_hardware_lead_to_their_history(page: Page) -> None:
    for address, ref in (
        ("/devices/1/", "device/1"), ("/ports/1/", "port/1"), ("/drawers/1/", "drawer/1"), ("/slots/1/", "slot/1"),
        ("/chassis/1/", "chassis/1"), ("/hosts/1/", "host/1"),
    ):  # fmt: skip
        page.goto(address)
        link = page.get_by_role("link", name="History", exact=True).first
        assert (link.get_attribute("href") or "").endswith(f"/telemetry/?of={ref}"), address


def test_what_is_out_of_sight_is_drawn_and_goes_to_paper_in_light_colours(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 900, "height": 400})
    charts = open_charts(page, "of=chassis/1&of=chassis/2&range=15m")
    last = charts.last
    expect(last.locator("canvas[data-points]")).to_be_attached()
    expect(last).not_to_be_in_viewport()
    page.evaluate(PRINTED)
    page.pdf()
    found = page.evaluate("printed")
    assert len(found) == charts.count()
    assert min(found) > 100, "a chart is empty on paper"
    expect(page.locator("canvas.printed")).to_have_count(0)
    assert page.evaluate("document.documentElement.style.colorScheme") == ""


def test_on_a_narrow_screen_a_heat_map_begins_at_its_newest_end(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    cell = page.locator("svg.heat rect")
    wait_for(lambda: page.goto("/telemetry/heat-map/") and cell.count(), "nothing is measured")
    place = page.get_by_role("region", name="Heat map")
    edges = "(all) => [Math.max(...all.map((one) => one.getBoundingClientRect().right)), innerWidth]"
    right, width = cell.evaluate_all(edges)
    assert right <= width, "the newest is out of sight"
    expect(page.locator("svg.heat-names text").first).to_be_in_viewport()
    before = place.evaluate("(one) => { one.scrollLeft = 200; return one.scrollLeft; }")
    place.focus()
    page.keyboard.press("ArrowLeft")
    wait_for(lambda: place.evaluate("(one) => one.scrollLeft") < before)


def test_a_heat_map_says_what_is_under_the_pointer(page: Page) -> None:
    cell = page.locator("svg.heat rect").last
    wait_for(lambda: page.goto("/telemetry/heat-map/") and cell.count(), "nothing is measured")
    cell.hover()
    expect(page.locator("#heat-words")).to_contain_text("highest")
    hours: Any = page.locator("table tbody td").all_inner_texts()
    assert any(one for one in hours)


@pytest.mark.nightly
def test_what_a_proxy_answers_for_the_site_is_asked_for_again(administrator: BrowserContext) -> None:
    errors: list[str] = []
    page = administrator.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    asked = re.compile(r"/api/v1/telemetry/\?")
    page.route(asked, lambda route: route.fulfill(status=502, content_type="text/html", body="<h1>Bad gateway</h1>"))
    page.clock.install()
    with page.expect_response(asked):
        page.goto("/telemetry/?of=device/1&range=15m&metric=temperature_celsius")
    page.unroute(asked)
    page.clock.fast_forward(10_000)
    expect(page.locator(".history .chart-legend li")).to_have_count(1)
    page.close()
    assert errors == []
