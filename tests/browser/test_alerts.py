"""Alerts in the browser: the mark in the head, the list by keyboard, a rule tried before it is saved, a test sent."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import hurried
from tests.browser.judging import judge
from tests.site import RunningSite
from tests.telemetry.delivery.sinks import HttpSink
from tests.waiting import wait_for

BROUGHT_UP_TO_DATE = """() => new Promise((done) => {
  document.activeElement.blur(); // in the middle of something nothing is brought up to date
  document.addEventListener("falconweb:refreshed", done, { once: true });
  document.dispatchEvent(new CustomEvent("falconweb:changed", { detail: { within: 0 } }));
})"""
CHANGED = 'document.dispatchEvent(new CustomEvent("falconweb:changed", { detail: { within: 0 } }))'


def quiet(page: Page) -> None:
    """Wait until no sensor rings any more: other tests use the same site, and may have left drift."""

    def rings() -> int:
        return int(page.request.get("/api/v1/alerts/?search=sensor+beyond").json()["count"])

    wait_for(lambda: not rings(), "a sensor rings still")


def test_a_hot_device_is_in_the_head_in_the_title_and_in_the_list_until_it_is_over(
    page: Page, running_site: RunningSite
) -> None:
    page.goto("/alerts/")
    row = page.get_by_role("row", name=re.compile("critical limit"))
    mark = page.locator("#notices > summary")
    with hurried(running_site):
        fault = running_site.control("falcon-1", "POST", "/faults", {"kind": "overheat", "target": "drawer1slot2"})
        expect(row).to_be_visible()
    page.evaluate(BROUGHT_UP_TO_DATE)  # the head, too, which asks by itself every fifteen seconds
    expect(mark).to_contain_text("▲")
    expect(page).to_have_title(re.compile("^▲ Alerts"))
    assert page.evaluate("document.querySelector('link[rel=icon]').href").endswith(
        page.evaluate("new URL(document.querySelector('link[rel=icon]').dataset.bad, location).pathname")
    )
    judge(page, "with alerts")
    # By keyboard alone: the mark opens, Escape closes it, its first entry leads to the alert.
    mark.focus()
    page.keyboard.press("Enter")
    entry = page.locator("#notices li a").first
    expect(entry).to_contain_text("Sensor beyond its critical limit")
    judge(page, "with the list of the mark")
    page.keyboard.press("Escape")
    expect(entry).to_be_hidden()
    expect(mark).to_be_focused()
    box = row.get_by_role("checkbox")
    box.focus()
    page.keyboard.press("Space")
    expect(page.locator("[data-chosen-words]")).to_have_text("1 chosen.")
    # The list is brought up to date meanwhile.
    page.evaluate(BROUGHT_UP_TO_DATE)
    expect(page.locator("[data-chosen-words]")).to_have_text("1 chosen.")
    page.get_by_label("Note").fill("I look at the fans")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Acknowledged: Sensor beyond its critical limit")
    expect(page.get_by_role("row", name=re.compile("Acknowledged by administrator"))).to_contain_text(
        "I look at the fans"
    )
    page.get_by_role("link", name="Sensor beyond its critical limit").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Drawer 1 slot 2")
    judge(page, "of one alert")
    # The page of the device has the limits beside its value, and in its chart.
    page.locator("dd a", has_text="Drawer 1 slot 2").click()
    expect(page.locator("dd[data-level=critical]").first).to_have_text(re.compile(r"^▲ [\d.]+ °C of 90$"))
    expect(page.locator("figure.chart", has_text="Temperature").locator(".made")).to_contain_text(
        "Critical above 90 °C"
    )
    judge(page, "of a device beyond its limit")
    page.go_back()
    running_site.control("falcon-1", "DELETE", f"/faults/{fault['id']}")
    with hurried(running_site):
        expect(page.get_by_text(re.compile(r"^\s*Resolved at"))).to_be_visible()
    quiet(page)
    page.goto("/alerts/?show=history")
    expect(page.get_by_role("row", name=re.compile("critical limit")).first).to_be_visible()
    judge(page, "history")


def test_a_rule_is_tried_while_it_is_typed_and_the_form_shows_what_counts(page: Page) -> None:
    page.goto("/alerts/rules/add/")
    expect(page.locator("[data-scope-of=drawer]")).to_be_hidden()
    page.get_by_label("Scope").select_option("device_kind")
    expect(page.get_by_label("Kind of device")).to_be_visible()
    page.get_by_label("Kind of device").select_option("gpu")
    # Each metric has a picture of its last hour, and is chosen by it.
    picture = page.get_by_role("button", name=re.compile("^Temperature"))
    picture.click()
    expect(picture).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Measured value")).to_have_value("temperature_celsius")
    expect(page.locator("#preview")).to_contain_text("Give a number.")
    page.get_by_label("Value", exact=True).fill("-40")
    page.get_by_label("For at least (s)").fill("1")
    page.get_by_label("Preview on").select_option("3600")
    expect(page.locator("#preview strong")).to_contain_text("It would have fired")
    expect(page.locator("#preview svg").first).to_be_visible()
    page.get_by_label("Name").fill("Not frozen")
    judge(page, "with a trial")
    page.get_by_label("Condition").select_option("missing")
    expect(page.get_by_label("Value", exact=True)).to_be_hidden()
    page.get_by_label("Switched on").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("'Not frozen' was saved")
    page.get_by_role("link", name="Not frozen").click()
    page.wait_for_url(re.compile(r"/alerts/rules/\d+/$"))
    judge(page, "of one rule")
    page.get_by_role("button", name="Delete this rule").click()
    expect(page.get_by_role("alert")).to_contain_text("'Not frozen' was deleted")


def test_what_a_page_shows_is_not_asked_for_any_more_once_its_form_was_sent(page: Page) -> None:
    page.goto("/alerts/")
    address = page.url
    page.route(re.compile(r"/alerts/(\?.*)?$"), lambda _: None)  # it is not answered
    with page.expect_request(lambda one: one.headers.get("x-requested-with") == "refresh"):
        page.evaluate(CHANGED)
    with page.expect_event("requestfailed", lambda one: one.url == address):
        page.evaluate("document.querySelector('main form').requestSubmit()")
    page.unroute_all(behavior="ignoreErrors")


def test_a_test_by_a_route_arrives_and_its_log_says_so(page: Page) -> None:
    with HttpSink() as hook:
        page.goto("/alerts/routes/add/")
        page.get_by_label("Name").fill("Hook")
        page.get_by_label("Channel").select_option("webhook")
        page.get_by_label("Address").fill(hook.url)
        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Send a test").click()
        expect(page.locator("#log .state.done")).to_be_visible()
        assert len(hook.got) == 1
        judge(page, "of a route")
        page.get_by_role("button", name="Delete this route").click()
        expect(page.get_by_role("alert")).to_contain_text("'Hook' was deleted")
