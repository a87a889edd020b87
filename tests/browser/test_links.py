"""Link health in a browser: the worst first, live, by keyboard alone, and the reset of counters."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.judging import judge
from tests.site import RunningSite

BURST = {"kind": "error_burst", "target": "drawer1slot2", "counter": "BadTLPCount", "rate": 60.0}


def test_a_link_falls_ill_before_one_s_eyes_and_its_counters_are_reset_by_keyboard(
    page: Page, running_site: RunningSite
) -> None:
    page.goto("/links/")
    rows = page.locator("table.link-list tbody tr")
    expect(rows.first).to_be_visible()
    running_site.control("falcon-1", "POST", "/faults", BURST)
    try:
        # Nobody loads the page anew.
        expect(rows.first).to_contain_text("Drawer 1 slot 2")
        expect(rows.first).to_contain_text("receive errors/")
        judge(page, "a link is ill")
        rows.first.get_by_role("link").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("Drawer 1 slot 2")
        counter = page.locator("table.counters tr", has_text="Bad TLP count")
        expect(counter).to_contain_text("received")
        live = counter.locator("[data-live]")
        before = live.inner_text()
        expect(live).not_to_have_text(before)  # it counts on before one's eyes
        expect(counter.locator("svg.bars path")).to_have_count(1)
        # One stretch at least: tests before this one may have taken the link down and up.
        expect(page.locator("svg.time-line rect.up")).not_to_have_count(0)
        judge(page, "a link in detail")
    finally:
        running_site.control("falcon-1", "DELETE", "/faults")
    page.locator("#reset summary").focus()
    page.keyboard.press("Enter")
    judge(page, "the question before a reset")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Yes, reset them")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the counters were reset")
    # A simulated link, too, has an error of its own now and then.
    expect(counter.locator("[data-live]")).to_have_text(re.compile(r"^\s*\d\s*$"))
    total = counter.locator("td[data-label='Total']")
    expect(total).not_to_have_text("0")
    page.locator("#resets summary").click()
    expect(page.locator("#resets li")).to_contain_text("asked for here by administrator")


def test_the_filter_is_in_the_address_and_a_search_without_result_says_what_to_do(page: Page) -> None:
    page.goto("/links/")
    page.select_option("#link-kind", "host")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**kind=host**")
    expect(page.locator("table.link-list tbody tr").first).to_contain_text("Host port")
    page.get_by_role("link", name="Link", exact=True).click()
    page.wait_for_url(lambda address: "sort=name" in address and "kind=host" in address)
    expect(page.locator("th[aria-sort='ascending']")).to_have_text("Link ↑")
    page.fill("#link-q", "no such thing")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No matching links")).to_be_visible()
    page.get_by_role("link", name="show all", exact=True).click()
    expect(page.locator("table.link-list tbody tr").first).to_be_visible()
