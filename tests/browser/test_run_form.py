"""The form of a run in a browser: GPUs by number, by key and without scripts; what is chosen is told as it changes."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.conftest import opened
from tests.browser.judging import judge
from tests.site import RunningSite
from tests.waiting import wait_for

NEW = "/benchmarks/runs/new/?workload=resnet50&preset=custom"


def form_of(page: Page) -> Locator:
    """Open the form once the agent of node-a reports, and return the part of that host."""

    def reports() -> bool:
        page.goto(NEW)
        return page.get_by_role("radio", name="node-a", exact=True).count() == 1

    wait_for(reports, "the agent of node-a reports", seconds=60)
    page.get_by_role("radio", name="node-a", exact=True).check()
    return page.locator('[data-host-name="node-a"]')


def test_gpus_are_taken_by_number_all_at_once_and_one_by_one(page: Page) -> None:
    part = form_of(page)
    said = page.locator("[data-sum]")
    expect(said).to_have_text("No GPU is chosen yet.")
    drawer = part.get_by_role("group", name="falcon-1 · Drawer 1")
    boxes = drawer.locator("[data-gpu]")
    number = drawer.get_by_role("spinbutton")
    number.fill("3")
    assert [box.is_checked() for box in boxes.all()] == [True, True, True, False, False, False]
    expect(said).to_have_text("3 GPUs chosen, all are attached already. 48 GiB of memory together.")
    number.fill("5")
    expect(said).to_have_text(
        "5 GPUs chosen, of which 4 are attached already and 1 is taken from node-b (H2). 80 GiB of memory together."
    )
    number.fill("1")
    assert [box.is_checked() for box in boxes.all()] == [True, False, False, False, False, False]
    # By key alone: some, all, none.
    every = drawer.get_by_role("checkbox", name="all 6 of falcon-1 · Drawer 1")
    assert every.evaluate("box => box.indeterminate")
    every.focus()
    page.keyboard.press("Space")
    assert all(box.is_checked() for box in boxes.all())
    expect(number).to_have_value("6")
    page.keyboard.press("Space")
    assert not any(box.is_checked() for box in boxes.all())
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(number).to_have_value("1")
    part.get_by_role("group", name="Its own GPUs").get_by_role("spinbutton").fill("2")
    expect(said).to_have_text(
        "3 GPUs chosen, of which 2 are node-a’s own and 1 is attached already. 48 GiB of memory together."
    )
    part.get_by_role("radio", name=re.compile("the host’s own NVMe drive")).check()
    expect(said).to_contain_text("Data from SSDPEDKX040T7.")
    # Another preset brings other sizes, and leaves what was chosen.
    page.fill("#title", "Kept")
    page.select_option("#preset", "paper")
    page.wait_for_url(lambda address: "preset=paper" in address)
    expect(said).to_contain_text("3 GPUs chosen, of which 2 are node-a’s own and 1 is attached already.")
    expect(said).to_contain_text("Data from SSDPEDKX040T7.")
    expect(page.locator("#title")).to_have_value("Kept")
    page.locator("#where-cpu").check()
    expect(said).to_have_text("On the CPU of node-a. Data from SSDPEDKX040T7.")
    expect(drawer).to_be_hidden()


def test_what_is_wrong_is_focused_marked_and_led_to(administrator: BrowserContext) -> None:
    page = administrator.new_page()  # the answer 400 is told by the console as an error
    part = form_of(page)
    page.fill("#limit", "soon")
    part.get_by_role("group", name="falcon-1 · Drawer 2").get_by_role("spinbutton").fill("2")
    page.get_by_role("button", name="Start run").click()
    summary = page.get_by_role("alert")
    expect(summary).to_be_focused()
    expect(page.locator("[data-sum]")).to_have_text(re.compile("2 GPUs chosen"))
    summary.get_by_role("link", name="Time limit").click()
    expect(page.locator("#limit")).to_be_focused()
    expect(page.locator("#limit")).to_have_value("soon")
    page.set_viewport_size({"width": 390, "height": 844})
    judge(page, "the form of a run after an error")
    page.close()


@pytest.mark.nightly
def test_gpus_are_taken_by_number_without_scripts(browser: Browser, page: Page, running_site: RunningSite) -> None:
    form_of(page)
    state = page.context.storage_state()
    with opened(browser, running_site, java_script_enabled=False, storage_state=state) as context:
        plain = context.new_page()
        plain.goto(NEW)
        plain.get_by_role("radio", name="node-a", exact=True).check()
        part = plain.locator('[data-host-name="node-a"]')
        part.get_by_role("group", name="falcon-1 · Drawer 2").get_by_role("checkbox", name="all 4").check()
        number = part.get_by_role("group", name="falcon-1 · Drawer 1").get_by_role("spinbutton")
        number.fill("2")
        plain.fill("#limit", "soon")
        plain.get_by_role("button", name="Start run").click()
        # Those that were taken are ticked now: each can be given back by itself.
        expect(plain.get_by_role("alert")).to_contain_text("Enter a number of minutes.")
        assert part.locator("[data-gpu]:checked").count() == 6
        part.locator("[data-gpu]:checked").first.uncheck()
        plain.locator("#where-cpu").check()
        expect(number).to_be_hidden()
        plain.locator("#where-gpu").check()
        plain.fill("#limit", "5")
        plain.fill("[name=steps]", "2")
        plain.get_by_role("button", name="Start run").click()
        expect(plain.locator("main")).to_contain_text("5 GPUs")
        run = "/api/v1" + urlsplit(plain.url).path
    # It has the GPUs until then: other tests want them.
    ended = ("completed", "failed")
    wait_for(lambda: page.context.request.get(run).json()["state"] in ended, "the run has not ended", seconds=120)
    assert page.context.request.get(run).json()["state"] == "completed"
