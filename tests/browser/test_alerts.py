"""Alerts in the browser: the mark in the head, the list by keyboard, a rule tried before it is saved, a test sent."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import PATIENCE
from tests.browser.test_pages import judge
from tests.site import RunningSite
from tests.telemetry.delivery.sinks import HttpSink

SLOW = 40_000  # ms: a device takes a while to get hot, and to cool down


@pytest.fixture
def desk(administrator: BrowserContext) -> Iterator[Page]:
    """An administrator's page."""
    page = administrator.new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    yield page
    page.close()
    assert wrong == []


def quiet(page: Page) -> None:
    """Wait until nothing rings any more: other tests use the same site."""
    end = time.monotonic() + SLOW / 1000
    while page.evaluate("fetch('/alerts/badge/').then((one) => one.json()).then((one) => one.critical + one.warning)"):
        assert time.monotonic() < end
        page.wait_for_timeout(500)


def test_a_hot_device_is_in_the_head_in_the_title_and_in_the_list_until_it_is_over(
    desk: Page, running_site: RunningSite
) -> None:
    fault = running_site.control("falcon-1", "POST", "/faults", {"kind": "overheat", "target": "drawer1slot2"})
    desk.goto("/alerts/")
    row = desk.get_by_role("row", name=re.compile("critical limit"))
    expect(row).to_be_visible(timeout=SLOW)
    mark = desk.locator("details.alarm > summary")
    expect(mark).to_be_visible(timeout=SLOW)
    expect(desk).to_have_title(re.compile("^▲ Alerts"))
    assert desk.evaluate("document.querySelector('link[rel=icon]').href").endswith(
        desk.evaluate("new URL(document.querySelector('link[rel=icon]').dataset.bad, location).pathname")
    )
    judge(desk, "with alerts")
    # By keyboard alone: the mark opens, Escape closes it, its first entry leads to the alert.
    mark.focus()
    desk.keyboard.press("Enter")
    entry = desk.locator("details.alarm li a").first
    expect(entry).to_contain_text("Sensor beyond its critical limit")
    judge(desk, "with the list of the mark")
    desk.keyboard.press("Escape")
    expect(entry).to_be_hidden()
    expect(mark).to_be_focused()
    box = row.get_by_role("checkbox")
    box.focus()
    desk.keyboard.press("Space")
    expect(desk.locator("[data-chosen-words]")).to_have_text("1 chosen.")
    # The list is brought up to date meanwhile.
    desk.evaluate("document.dispatchEvent(new CustomEvent('falconweb:changed', {detail: {within: 0}}))")
    desk.wait_for_timeout(1500)
    expect(desk.locator("[data-chosen-words]")).to_have_text("1 chosen.")
    desk.get_by_label("Note").fill("I look at the fans")
    desk.keyboard.press("Enter")
    expect(desk.get_by_role("alert")).to_contain_text("Acknowledged: Sensor beyond its critical limit")
    expect(desk.get_by_role("row", name=re.compile("Acknowledged by administrator"))).to_contain_text(
        "I look at the fans"
    )
    desk.get_by_role("link", name="Sensor beyond its critical limit").first.click()
    expect(desk.get_by_role("heading", level=1)).to_contain_text("Drawer 1 slot 2")
    judge(desk, "of one alert")
    running_site.control("falcon-1", "DELETE", f"/faults/{fault['id']}")
    expect(desk.get_by_text(re.compile("^Over since"))).to_be_visible(timeout=SLOW)
    quiet(desk)
    desk.goto("/alerts/?show=history")
    expect(desk.get_by_role("row", name=re.compile("critical limit")).first).to_be_visible()
    judge(desk, "history")


def test_a_rule_is_tried_while_it_is_typed_and_the_form_shows_what_counts(desk: Page) -> None:
    desk.goto("/alerts/rules/add/")
    expect(desk.locator("[data-scope-of=drawer]")).to_be_hidden()
    desk.get_by_label("Of what").select_option("device_kind")
    expect(desk.get_by_label("Kind of device")).to_be_visible()
    desk.get_by_label("Kind of device").select_option("gpu")
    desk.get_by_label("Measured value").fill("temperature_celsius")
    desk.get_by_label("Value", exact=True).fill("-40")
    desk.get_by_label("Has to last (s)").fill("1")
    expect(desk.locator("#preview")).to_contain_text("Fill in the rule first")
    desk.get_by_label("Name").fill("Not frozen")
    desk.get_by_label("Try it on").select_option("3600")
    expect(desk.locator("#preview strong")).to_contain_text("It would have fired", timeout=SLOW)
    expect(desk.locator("#preview svg").first).to_be_visible()
    judge(desk, "with a trial")
    desk.get_by_label("Rings when it").select_option("missing")
    expect(desk.get_by_label("Value", exact=True)).to_be_hidden()
    desk.get_by_label("Switched on").uncheck()
    desk.get_by_role("button", name="Save").click()
    expect(desk.get_by_role("alert")).to_contain_text("'Not frozen' is saved")
    desk.get_by_role("link", name="Not frozen").click()
    desk.wait_for_url(re.compile(r"/alerts/rules/\d+/$"))
    judge(desk, "of one rule")
    desk.get_by_role("button", name="Delete this rule").click()
    expect(desk.get_by_role("alert")).to_contain_text("'Not frozen' is deleted")


def test_a_test_by_a_route_arrives_and_its_log_says_so(desk: Page) -> None:
    with HttpSink() as hook:
        desk.goto("/alerts/routes/add/")
        desk.get_by_label("Name").fill("Hook")
        desk.get_by_label("How").select_option("webhook")
        desk.get_by_label("Address").fill(hook.url)
        desk.get_by_role("button", name="Save").click()
        desk.get_by_role("button", name="Send a test").click()
        expect(desk.locator("#log .state.done")).to_be_visible(timeout=SLOW)
        assert len(hook.got) == 1
        judge(desk, "of a route")
        desk.get_by_role("button", name="Delete this route").click()
        expect(desk.get_by_role("alert")).to_contain_text("'Hook' is deleted")
