"""Events in a real browser: new ones announce themselves, and rows stay where they are until somebody asks."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.site import RunningSite


def test_new_events_announce_themselves_and_move_no_row(running_site: RunningSite, page: Page) -> None:
    page.goto("/events/")
    first = page.locator("table.events tbody tr").first
    before, place = first.inner_text(), first.bounding_box()
    running_site.control(
        "falcon-1", "POST", "/events",
        {"count": 3, "message": "A visitor {n}.", "message_id": "H3Falcon.1.0.Visit", "severity": "Warning"},
    )  # fmt: skip
    bar = page.locator("[data-news] a")
    expect(bar).to_have_text(re.compile(r"^\d+ new events: show them$"))
    assert first.inner_text() == before
    moved = first.bounding_box()
    assert place is not None
    assert moved is not None
    assert moved["y"] >= place["y"]
    # By keyboard: to the bar, to the newest, to one of them, to what it is about.
    bar.focus()
    page.keyboard.press("Enter")
    expect(page.locator("table.events tbody")).to_contain_text("A visitor 3.")
    expect(page.locator("[data-news]")).to_be_hidden()
    page.get_by_role("link", name="A visitor 2.").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("A visitor 2.")
    expect(page.get_by_text("This message is not in the catalogue.")).to_be_visible()
    expect(page.locator("tr[aria-current]")).to_contain_text("A visitor 2.")
    page.go_back()
    # '/' searches, and what is found stands in the address.
    page.keyboard.press("/")
    page.keyboard.type("visitor 3.")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=visitor"))
    expect(page.locator("table.events tbody tr")).to_have_count(1)
    page.get_by_label("Save this search as a view").fill("Visits")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("The view ‘Visits’ was saved.")
    expect(page.get_by_role("link", name="Visits")).to_have_attribute("aria-current", "true")
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("alert")).to_contain_text("The view was deleted.")


def test_the_newest_events_of_a_device_stand_on_its_page(page: Page) -> None:
    page.goto("/devices/1/")
    part = page.locator("#newest-events")
    expect(part).not_to_contain_text("Loading")
    expect(part).to_contain_text(re.compile(r"No events yet|All events\s+of it"))
    page.goto("/")
    expect(page.locator("#newest-events").get_by_role("link", name="All events")).to_be_visible()
