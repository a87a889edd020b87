"""Every page: without a violation that axe finds, without a scroll bar sideways, in light and dark, wide and narrow."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from falconweb.navigation import addresses
from tests.access.test_matrix import methods_of
from tests.browser.conftest import hurried, opened, sign_in, watched
from tests.browser.judging import axe, judge
from tests.browser.test_fabric import FALCON_1, handle, newest_task, open_device, port, slot
from tests.site import RunningSite


def judged_addresses() -> Iterator[str]:
    """Yield where each page is opened, as its view declares it."""
    for one in addresses().values():
        if one.is_page and not one.declaration.no_page_test and "GET" in methods_of(one.callback):
            for query in one.declaration.tested_queries:
                where = re.sub("<[^>]+>", one.declaration.tested_argument, one.route)
                yield f"/{where}?{query}".removesuffix("?")


ADDRESSES = sorted(judged_addresses())


@pytest.fixture(scope="module")
def visited(administrator: BrowserContext) -> Iterator[tuple[Page, list[str]]]:
    """A page that goes from address to address, and all that its console is told as an error."""
    page, wrong = watched(administrator)
    page.add_init_script(axe())
    yield page, wrong
    page.close()


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_is_accessible_and_fits(visited: tuple[Page, list[str]], address: str) -> None:
    page, wrong = visited
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, "Declare tested_argument, tested_queries or no_page_test where the view is"
    judge(page)
    errors = wrong.copy()
    wrong.clear()
    assert errors == []


@pytest.mark.nightly
def test_the_sign_in_is_accessible_also_when_it_refuses(browser: Browser, running_site: RunningSite) -> None:
    with opened(browser, running_site) as context:
        page = context.new_page()
        page.goto("/sign-in/")
        judge(page, "signed out")
        for attempt in range(12):
            page.fill("#id_username", "nobody")
            page.fill("#id_password", "wrong")
            page.click("form.narrow button")
            page.wait_for_load_state()
            if attempt == 0:
                expect(page.get_by_role("alert")).to_be_visible()
                judge(page, "after a wrong password")
            if page.locator("#id_username").count() == 0:
                break
        expect(page.get_by_role("heading", name="Too many attempts")).to_be_visible()
        judge(page, "locked out")


def test_a_new_token_is_accessible(page: Page) -> None:
    page.goto("/account/tokens/")
    page.fill("#id_name", f"A script of {time.monotonic()}")
    page.get_by_role("button", name="Make the token").click()
    expect(page.locator("#secret")).to_be_visible()
    judge(page, "a new token")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = page.locator("[data-copy=secret]")
    copy.click()
    expect(copy).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#secret").input_value()
    # Over plain HTTP a browser gives no clipboard.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined }); getSelection().empty()")
    copy.click()
    expect(copy).to_contain_text("Press Ctrl+C")
    assert page.evaluate("getSelection().toString()") == page.locator("#secret").input_value()


@pytest.mark.nightly
def test_a_nic_is_attached_and_detached_by_form_and_its_operations_are_accessible(
    page: Page, running_site: RunningSite
) -> None:
    page.goto(FALCON_1)
    open_device(page, "falcon-1", 7)
    device = page.url
    for target, shown in (("node-b (H2)", "node-b"), ("no host: detach", "detached")):
        page.select_option("#target", label=target)
        page.click("form[data-compose-form] button")
        page.click("#attach-yes")
        newest_task(page).get_by_role("link").click()
        page.wait_for_url("**/operations/**")
        judge(page, "an operation")
        with hurried(running_site):
            expect(page.locator("main .state.done")).to_be_visible()
        judge(page, "an operation that is done")
        page.goto(FALCON_1)
        expect(page.locator(slot(page, "falcon-1", 1, 7))).to_contain_text(shown)
        page.goto(device)


@pytest.mark.nightly
def test_a_new_password_and_what_is_refused_are_accessible(
    page: Page, browser: Browser, running_site: RunningSite
) -> None:
    page.goto("/people/add/")
    page.fill("#id_username", "user")
    page.select_option("#id_role", value="user")
    page.select_option("#id_tenant", label="Vision group")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#secret")).to_be_visible()
    judge(page, "a new password")
    with opened(browser, running_site) as context:
        theirs = sign_in(context, "user", page.locator("#secret").input_value())
        for address, status in (("/system/", 403), ("/devices/999999/", 404), ("/nowhere/", 404)):
            answer = theirs.goto(address)
            assert answer is not None
            assert answer.status == status
            judge(theirs, f"{status} at {address}")


def test_dialogs_and_menus_are_accessible(page: Page) -> None:
    page.goto(FALCON_1)
    for summary in page.locator("details.menu > summary").all():
        summary.click()
        judge(page, "a menu")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    judge(page, "keys")
    page.keyboard.press("Escape")
    handle(page, "falcon-1", 1, 6).click()
    judge(page, "a device is held")
    page.locator(port(page, "falcon-1", "H3")).click()
    expect(page.locator("#attach")).to_be_visible()
    judge(page, "the topology's dialog")
    page.click("#attach-no")
    page.goto(f"{FALCON_1}&view=list")
    page.locator("button[data-compose]").first.click()
    expect(page.locator("#attach")).to_be_visible()
    judge(page, "the list's dialog")
    page.goto("/drawers/1/")
    page.locator("[name=mode]:enabled").first.check()
    page.get_by_role("button", name="Change mode").click()
    expect(page.locator("#mode")).to_be_visible()
    judge(page, "the mode's dialog")


def test_on_a_narrow_screen_the_navigation_is_behind_one_button(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/plans/")
    navigation = page.get_by_role("navigation", name="Main")
    button = page.get_by_role("button", name="Menu")
    expect(navigation).to_be_hidden()
    button.focus()
    page.keyboard.press("Enter")
    expect(navigation.get_by_role("link", name="Overview")).to_be_visible()
    judge(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(navigation).to_be_hidden()
    expect(button).to_be_focused()
