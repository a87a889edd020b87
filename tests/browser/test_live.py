"""Live values, charts and stale states in Chromium."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.browser.conftest import frames, opened, painted, sign_in
from tests.browser.test_fabric import FALCON_1, FALCON_2, slot
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for


def test_readings_arrive_and_links_are_coloured_by_load(page: Page) -> None:
    page.goto(FALCON_1)
    expect(page.locator("#freshness")).to_have_text("● Live")
    gpu = page.locator(slot(page, "falcon-1", 2, 1))
    expect(gpu.locator(".reading")).to_contain_text("°C")
    expect(gpu.locator(".reading")).to_contain_text("%")
    expect(page.locator('section[aria-label="falcon-1"] .link.up[data-step]').first).to_be_visible()
    steps = page.eval_on_selector_all(".link.up", "(all) => all.map((one) => Number(one.dataset.step))")
    assert max(steps) >= 1  # something carries traffic in the simulated lab


def test_a_device_page_shows_charts_that_move_on(page: Page) -> None:
    page.goto(FALCON_1)
    page.locator(slot(page, "falcon-1", 1, 1)).click()
    traffic = page.locator("figure.chart", has_text="Port traffic").first
    traffic.scroll_into_view_if_needed()
    canvas = traffic.locator("canvas[data-points]")
    expect(canvas).to_be_attached()
    before = canvas.get_attribute("data-newest")
    wait_for(lambda: canvas.get_attribute("data-newest") != before, "the chart does not go on")
    # What was before the page was opened is there too: the server keeps ten minutes.
    wait_for(lambda: int(canvas.get_attribute("data-points") or 0) > 3, "the chart has nothing from before")
    wait_for(lambda: painted(page, traffic) > 100, "its lines are not drawn")
    traffic.locator("summary").click()
    expect(traffic.locator("tbody tr").nth(3)).to_be_visible()
    traffic.locator("[data-pause]").click()
    expect(traffic.locator("[data-pause]")).to_have_text("Resume")
    held = canvas.get_attribute("data-newest")
    frames(page, 2)
    assert canvas.get_attribute("data-newest") == held
    with page.expect_download() as download:
        traffic.locator("[data-csv]").click()
    lines = download.value.path().read_text().splitlines()
    assert re.match(r'"time","Receive \(GB/s\)","Transmit \(GB/s\)"', lines[0])
    assert len(lines) > 3


def test_a_name_from_a_bmc_is_no_markup_in_a_chart(page: Page) -> None:
    name = "Receive <b>fast</b> &amp;<br>"

    def change(side: WebSocketRoute) -> None:
        server = side.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            told = json.loads(message) if isinstance(message, str) else {}
            for series in told.get("series", []):
                series["label"] = series["label"].replace("Receive", name)
            side.send(json.dumps(told) if told else message)

        server.on_message(pass_on)

    page.route_web_socket("**/ws/live/", change)
    page.goto("/devices/1/")
    traffic = page.locator("figure.chart", has_text="Port traffic").first
    traffic.scroll_into_view_if_needed()
    expect(traffic.locator(".chart-legend li").first).to_contain_text(name)
    expect(traffic.locator("canvas")).to_have_attribute("data-points", re.compile("^[1-9]"))
    assert traffic.locator(".chart-legend b, .chart-legend br").count() == 0
    traffic.locator("[data-plot]").focus()
    page.keyboard.press("End")
    expect(traffic.locator("[role=status]")).to_contain_text(name)
    assert traffic.locator("[role=status] b").count() == 0


def test_a_chassis_that_stops_sending_turns_stale_alone_and_comes_back(page: Page, running_site: RunningSite) -> None:
    page.goto(FALCON_2)
    other = page.context.new_page()
    other.goto(FALCON_1)
    expect(page.locator("#freshness")).to_have_text("● Live")
    running_site.control("falcon-2", "POST", "/faults", {"kind": "hang", "seconds": 600})
    ill, well = page.locator('section[aria-label="falcon-2"]'), other.locator('section[aria-label="falcon-1"]')
    expect(ill).to_have_class(re.compile("stale"))
    expect(ill.locator("[data-last-seen]").last).to_contain_text("Last seen")
    expect(well).not_to_have_class(re.compile("stale"))
    other.close()
    expect(page).to_have_title(re.compile("^▲"))
    # What is old is not composed with, and the dialog says why.
    page.locator(slot(page, "falcon-2", 1, 1)).focus()
    page.keyboard.press("Space")
    page.keyboard.press("Delete")
    expect(page.locator("#attach-reason")).to_contain_text("last heard of")
    expect(page.locator("#attach-yes")).to_be_disabled()
    page.keyboard.press("Escape")
    running_site.control("falcon-2", "DELETE", "/faults")
    expect(page.locator("#freshness")).to_have_text("● Live")
    expect(ill).not_to_have_class(re.compile("stale"))
    # Its alert is over with it; the head is told a moment later.
    expect(page).not_to_have_title(re.compile("^▲"))


def test_signing_out_elsewhere_is_said_with_a_way_back(browser: Browser, running_site: RunningSite) -> None:
    with opened(browser, running_site) as context:
        pages = [sign_in(context, "administrator", ADMINISTRATOR_PASSWORD), context.new_page()]
        for page, address in zip(pages, ("/fabric/", "/people/"), strict=True):
            page.goto(address)
            expect(page.locator("#freshness")).to_have_text("● Live")
        other = context.new_page()
        other.goto("/account/")
        other.get_by_role("button", name="Sign out", exact=True).click()
        for page in pages:
            expect(page.locator("#freshness a")).to_contain_text("sign in again")
