"""What is around each page: the search of the site, and the sidebar."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import hurried, opened, sign_in
from tests.browser.judging import judge
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for


def token(page: Page) -> dict[str, str]:
    """Return the header without which a signed-in browser's request changes nothing."""
    return {"X-CSRFToken": next(str(one["value"]) for one in page.context.cookies() if one["name"] == "csrftoken")}


def is_done(page: Page, operation: str) -> bool:
    """Return whether an operation, by its address, is done."""
    return bool(page.request.get(operation).json()["state"] == "done")


def test_the_search_opens_from_everywhere_and_leads_there_by_keyboard_alone(page: Page) -> None:
    page.goto("/fabric/")
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()  # of the page, where it has one
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search")
    expect(field).to_be_focused()
    expect(page.get_by_role("option", name="Add chassis")).to_be_visible()
    expect(page.locator("#palette-scope")).to_be_visible()
    judge(page, "the search without words")
    page.keyboard.type("node-b")
    host = page.get_by_role("group", name="Hosts").get_by_role("option", name="node-b")
    expect(host).to_have_attribute("aria-selected", "true")
    expect(page.locator("#palette [role=status]")).to_have_text(re.compile(r"^\d+ results$"))
    judge(page, "the search with results")
    page.keyboard.press("ArrowDown")
    expect(host).to_have_attribute("aria-selected", "false")
    page.keyboard.press("ArrowUp")
    expect(field).to_have_attribute("aria-activedescendant", str(host.get_attribute("id")))
    page.keyboard.press("Enter")
    page.wait_for_url("**/hosts/*/")
    page.keyboard.press("/")  # there is no search on this page
    field.fill("nothing is called like this")
    expect(page.locator("#palette [role=status]")).to_contain_text("Nothing found")
    expect(field).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()


def test_what_is_typed_fast_leads_to_its_own_result(page: Page) -> None:
    page.goto("/hosts/")
    page.get_by_role("button", name="Search Ctrl K").click()
    page.keyboard.type("audit")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit/")


def test_the_bell_tells_what_of_own_work_has_ended_until_it_is_seen(page: Page, running_site: RunningSite) -> None:
    page.goto("/hosts/")
    page.request.post("/notices/", headers=token(page))
    bell = page.locator("#notices > summary")
    (nic,) = [
        one for one in page.request.get("/api/v1/devices/?search=ConnectX").json()["results"]
        if one["host_port_id"] is None
    ][:1]  # fmt: skip
    ports = page.request.get("/api/v1/host-ports/").json()["results"]
    port = next(one for one in ports if one["drawer_id"] == nic["drawer_id"])
    for target in (port["id"], None):
        with hurried(running_site, "falcon-1", "falcon-2"):
            wanted = {"device_id": nic["id"], "target_host_port_id": target}
            asked = page.request.post("/api/v1/operations/", data=wanted, headers=token(page))
            assert asked.status == 202, asked.text()
            where = asked.headers["location"]
            wait_for(partial(is_done, page, where), "it was not done", seconds=60)
    page.reload()
    expect(page.locator("#notices [data-name]")).to_contain_text("2 new of your work")
    bell.focus()
    page.keyboard.press("Enter")
    entry = page.locator("#notices li.new a").first
    expect(entry).to_contain_text(re.compile(r"Done, .+, new"))
    judge(page, "with the list of the bell")
    page.get_by_role("button", name="Mark all as seen").click()
    expect(page.locator("#notices li.new")).to_have_count(0)
    expect(page.locator("#notices [data-name]")).to_contain_text("0 new of your work")
    page.keyboard.press("Escape")
    expect(bell).to_be_focused()


def test_what_is_fetched_with_chosen_devices_has_no_token_in_its_address(page: Page) -> None:
    page.goto("/devices/")
    page.get_by_role("checkbox", name="Choose").first.check()
    page.get_by_role("button", name="New lease").click()
    page.wait_for_url("**/leases/give/**")
    assert "devices=" in page.url
    assert "csrf" not in page.url


def test_the_sidebar_is_words_or_icons_and_stays_so(page: Page) -> None:
    page.goto("/plans/")
    navigation = page.get_by_role("navigation", name="Main")
    plans = navigation.get_by_role("link", name="Plans")
    expect(plans).to_have_attribute("aria-current", "page")
    wide = page.locator("main").bounding_box()
    navigation.get_by_role("button", name="Icons only").click()
    expect(plans).to_be_hidden()
    narrow = page.locator("main").bounding_box()
    assert wide is not None
    assert narrow is not None
    assert narrow["x"] < wide["x"] - 100
    page.reload()
    expect(plans).to_be_hidden()
    judge(page, "with icons")
    # The groups are menus then.
    summary = navigation.locator("summary", has_text="Compose")
    summary.focus()
    page.keyboard.press("Enter")
    expect(plans).to_be_visible()
    page.keyboard.press("Escape")
    expect(plans).to_be_hidden()
    expect(summary).to_be_focused()
    page.keyboard.press("Enter")
    expect(plans).to_be_visible()
    judge(page, "with a menu of an icon")
    navigation.get_by_role("button", name="Icons only").click()
    expect(plans).to_be_visible()


@pytest.mark.parametrize("width", [390, 720])
def test_without_scripts_the_navigation_is_there(browser: Browser, running_site: RunningSite, width: int) -> None:
    with opened(browser, running_site, viewport={"width": width, "height": 900}, java_script_enabled=False) as context:
        page = sign_in(context, "administrator", ADMINISTRATOR_PASSWORD)
        expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="Overview")).to_be_visible()
        page.locator("summary", has_text="Compose").click()
        expect(page.get_by_role("link", name="Plans").first).to_be_visible()
