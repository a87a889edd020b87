"""Drift in a real browser: it shows up by itself, is chosen, and is gone by one click."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_fabric import FALCON_1
from tests.site import RunningSite

CABLE = "Host port H2"


def recable(site: RunningSite, host: str) -> None:
    """Move the cable of falcon-1's H2 by hand."""
    site.control("falcon-1", "POST", "/chassis/falcon-1/cabling", {"port": "H2", "host": host})


@pytest.mark.nightly
def test_a_cable_that_is_moved_shows_up_and_is_accepted(running_site: RunningSite, page: Page) -> None:
    page.goto(FALCON_1)
    try:
        recable(running_site, "node-c")
        # The picture says so without a reload, and the page of drift lists it.
        expect(page.locator(".host.drifted")).to_have_count(1)
        expect(page.locator(".host.drifted .title")).to_contain_text("≠ node-c")
        page.goto("/drift/")
        row = page.locator("table.drifts tr", has_text=CABLE)
        expect(row).to_contain_text("node-b")
        expect(row).to_contain_text("names no account")
        # What re-applying it needs and takes out is said before it is done.
        row.get_by_role("button", name="Re-apply").click()
        expect(page.get_by_role("heading", name="Re-apply the approved state")).to_be_visible()
        expect(page.locator(".notice", has_text="at the chassis")).to_contain_text("from node-c to node-b")
        expect(page.locator(".notice", has_text="detached immediately")).to_contain_text("falcon-1 Drawer 1")
        page.get_by_role("link", name="Cancel").click()
        expect(page).to_have_url(re.compile("/drift/$"))
        bar = page.locator("[data-chosen]")
        expect(bar).to_contain_text("Nothing is chosen.")
        expect(bar.get_by_role("button", name="Accept the chosen")).to_be_disabled()
        row.get_by_role("checkbox").check()
        expect(bar).to_contain_text("1 chosen.")
        # It stays chosen when the page is brought up to date beneath.
        page.locator("h1").click()
        page.evaluate("document.activeElement.blur()")
        page.evaluate("document.dispatchEvent(new CustomEvent('falconweb:changed', { detail: { within: 0 } }))")
        page.wait_for_event("requestfinished", lambda request: "/drift/" in request.url)
        expect(row.get_by_role("checkbox")).to_be_checked()
        expect(bar).to_contain_text("1 chosen.")
        bar.get_by_role("button", name="Accept the chosen").click()
        expect(page.get_by_role("alert")).to_contain_text("Accepted: Host port H2")
        expect(page.locator("table.drifts tr", has_text=CABLE)).to_have_count(0)
    finally:
        recable(running_site, "node-b")
    # Back again: that differs from what was accepted, until it is accepted too.
    expect(row).to_contain_text("node-b")
    row.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("alert")).to_contain_text("Accepted: Host port H2")
