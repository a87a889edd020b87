"""Composing on the fabric page in Debian's Chromium: by drag, by keyboard, by form."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.conftest import hurried, opened
from tests.browser.judging import judge
from tests.site import RunningSite
from tests.waiting import wait_for

# The fabric page draws one chassis.
FALCON_1, FALCON_2 = "/fabric/?chassis=1", "/fabric/?chassis=2"


def slot(page: Page, chassis: str, drawer: int, number: int) -> str:
    """Return a selector of the slot, by what is read aloud."""
    return f'section[aria-label="{chassis}"] [aria-label*="Drawer {drawer} slot {number},"]'


def port(page: Page, chassis: str, label: str) -> str:
    return f'section[aria-label="{chassis}"] [aria-label*="host port {label},"]'


def handle(page: Page, chassis: str, drawer: int, number: int) -> Locator:
    """Return what picks a slot's device up."""
    return page.locator(f"{slot(page, chassis, drawer, number)} + .handle")


def open_device(page: Page, chassis: str, number: int) -> None:
    """Go to the page of a device in the first drawer, and wait until its scripts listen."""
    page.locator(slot(page, chassis, 1, number)).click()
    page.wait_for_url("**/devices/**")


def drawer(page: Page, chassis: str, number: int) -> str:
    """Return a drawer's address."""
    link = page.locator(f'section[aria-label="{chassis}"] g[aria-label^="Drawer {number}"] .drawer-name a')
    return link.get_attribute("href") or ""


def newest_task(page: Page) -> Locator:
    """Return what was requested last, once the dialog is closed: the first of the task drawer, on another page too."""
    expect(page.locator("#attach")).to_be_hidden()
    page.goto(FALCON_1)
    return page.locator("#tasks li").first


def done(page: Page, site: RunningSite) -> None:
    """See what was requested end well in the task drawer, and go back to the topology."""
    task = newest_task(page)
    with hurried(site):
        expect(task.locator(".state.done")).to_be_attached()  # on a phone the drawer is closed
    page.goto(FALCON_1)  # at rest


def mode_done(page: Page, site: RunningSite) -> None:
    """See the change of a mode end well on the page of its operation."""
    page.wait_for_url("**/operations/**")
    with hurried(site):
        expect(page.locator("main .state.done")).to_be_visible()
    expect(page.locator("#operation-status")).to_have_text("Done")
    page.goto(FALCON_1)


@pytest.fixture
def page(page: Page) -> Page:
    """The topology of falcon-1."""
    page.goto(FALCON_1)
    return page


def test_live_readings_arrive(page: Page) -> None:
    expect(page.locator("#freshness")).to_have_text("● Live")
    reading = page.locator(slot(page, "falcon-1", 2, 1)).locator(".reading")
    expect(reading).to_contain_text("°C")


def test_a_gpu_is_moved_by_mouse_and_back_by_keyboard(page: Page, running_site: RunningSite) -> None:
    page.locator(slot(page, "falcon-1", 1, 2)).hover()
    page.mouse.down()
    page.locator(port(page, "falcon-1", "H3")).hover()
    page.mouse.up()
    expect(page.locator("#attach-words")).to_contain_text("attached to node-c (H3)")
    page.click("#attach-yes")
    done(page, running_site)
    expect(page.locator(slot(page, "falcon-1", 1, 2))).to_contain_text("node-c")
    page.locator(slot(page, "falcon-1", 1, 2)).focus()
    page.keyboard.press("Space")
    expect(page.locator("#picked")).to_contain_text("Holding")
    page.locator(port(page, "falcon-1", "H1")).focus()
    page.keyboard.press("Enter")
    page.locator("#attach-yes").focus()
    page.keyboard.press("Enter")
    done(page, running_site)
    expect(page.locator(slot(page, "falcon-1", 1, 2))).to_contain_text("node-a")


def test_two_gpus_are_given_to_a_host_with_few_keys_and_taken_back_where_one_is(
    page: Page, running_site: RunningSite
) -> None:
    expect(page.locator("#freshness")).to_have_text("● Live")
    target = page.locator(port(page, "falcon-1", "H2"))
    keys = ["ArrowRight", "ArrowRight", "ArrowRight", "Control+Space", "ArrowRight", "Space", "Enter"]
    for key in keys:
        if key == "Enter":
            expect(target).to_be_focused()  # the first port that they are not at
            expect(page.locator("#picked")).to_contain_text("Holding 2 devices.")
        page.keyboard.press(key)
    expect(page.locator("#attach-words")).to_have_text("2 devices are moved to node-b (H2).")
    rows = page.locator(".impacts li")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("node-a (H1) → node-b (H2)")
    expect(rows.first.locator("[data-reading]")).to_contain_text("%")
    judge(page, "two devices in the dialog")
    expect(page.locator("#attach-yes")).to_be_focused()
    page.keyboard.press("Enter")
    assert len(keys) + 1 <= 14
    # One stays where one is, and sees it there: also after a reload, and on another page.
    expect(page.locator("#tasks li").first).to_contain_text("Move 2 devices to node-b (H2)")
    assert page.url.endswith(FALCON_1)
    # It makes way for the bar of what is picked up.
    handle(page, "falcon-1", 1, 1).click()
    expect(page.locator("#tasks")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#tasks")).to_be_visible()
    page.goto("/events/")
    task = page.locator("#tasks li").first
    judge(page, "the task drawer")
    with hurried(running_site):
        expect(task.locator(".state.done")).to_be_visible()
    task.get_by_role("button", name="Undo").click()
    expect(rows.first).to_contain_text("node-b (H2) → node-a (H1)")
    page.click("#attach-yes")
    expect(task).to_contain_text("Undo: Move 2 devices to node-b (H2)")
    with hurried(running_site):
        expect(task.locator(".state.done")).to_be_visible()
    for _ in range(2):
        task.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#tasks").get_by_text("Move 2 devices to node-b (H2)")).to_have_count(0)
    page.goto(FALCON_1)
    expect(page.locator(slot(page, "falcon-1", 1, 3))).to_contain_text("node-a")


def lasso(page: Page, first: str, last: str) -> None:
    """Draw a lasso from above the first box to the middle of the last one."""
    boxes = [box for one in (first, last) if (box := page.locator(one).bounding_box())]
    page.mouse.move(boxes[0]["x"] + 5, boxes[0]["y"] - 12)
    page.mouse.down()
    page.mouse.move(boxes[1]["x"] + boxes[1]["width"] / 2, boxes[1]["y"] + boxes[1]["height"] / 2, steps=5)
    expect(page.locator(".lasso")).to_be_visible()
    page.mouse.up()


def test_a_selection_is_extended_dragged_and_cleared(page: Page) -> None:
    handle(page, "falcon-1", 1, 1).click()
    handle(page, "falcon-1", 1, 4).click(modifiers=["Shift"])
    expect(page.locator("#picked")).to_contain_text("Holding 4 devices.")
    handle(page, "falcon-1", 1, 2).click()
    expect(page.locator(".lifted")).to_have_count(3)
    # Another drawer's device can only be detached together with them.
    handle(page, "falcon-1", 2, 1).click()
    expect(page.locator("#picked")).to_contain_text("They are in several drawers")
    expect(page.locator(".takes")).to_have_count(0)
    handle(page, "falcon-1", 2, 1).click()
    # One of them takes all along, and their number follows the pointer.
    page.locator(slot(page, "falcon-1", 1, 3)).hover()
    page.mouse.down()
    page.locator(port(page, "falcon-1", "H3")).hover()
    expect(page.locator(".ghost")).to_have_text("3")
    page.mouse.up()
    expect(page.locator(".ghost")).to_have_count(0)
    expect(page.locator("#attach-words")).to_have_text("3 devices are moved to node-c (H3).")
    page.keyboard.press("Escape")
    expect(page.locator("#attach")).to_be_hidden()
    expect(page.locator(".lifted")).to_have_count(0)
    # A lasso around two of them; with Shift, a third one comes to them.
    lasso(page, slot(page, "falcon-1", 1, 1), slot(page, "falcon-1", 1, 2))
    expect(page.locator("#picked")).to_contain_text("Holding 2 devices.")
    page.keyboard.down("Shift")
    lasso(page, slot(page, "falcon-1", 1, 4), slot(page, "falcon-1", 1, 4))
    page.keyboard.up("Shift")
    expect(page.locator("#picked")).to_contain_text("Holding 3 devices.")
    expect(page.locator(".lasso")).to_have_count(0)
    page.keyboard.press("Escape")
    # In the list by checkboxes, and by single clicks alone; to detach is never what is proposed.
    page.goto(f"{FALCON_1}&view=list")
    boxes = page.locator("[data-pick]")
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    expect(page.locator("#picked")).to_contain_text("Holding 3 devices.")
    page.get_by_role("button", name="Attach…").click()
    expect(page.locator(".impacts li")).to_have_count(3)
    expect(page.locator("#attach-title")).to_have_text("Move 3 devices")
    page.click("#attach-no")
    expect(page.locator("[data-pick]:checked")).to_have_count(0)
    boxes.nth(0).click()
    page.keyboard.press("Escape")
    expect(page.locator("[data-pick]:checked")).to_have_count(0)


@pytest.mark.nightly
def test_a_device_is_detached_and_attached_from_the_list(page: Page, running_site: RunningSite) -> None:
    def change(target: str) -> None:
        page.goto(f"{FALCON_1}&view=list")
        page.locator("main").get_by_label("Drawer 2 slot 5").last.click()
        page.select_option("#attach-target", label=target)
        page.click("#attach-yes")
        done(page, running_site)

    change("no host: detach")
    change("node-a (H4)")


def test_the_list_is_a_table_for_spreadsheets_too(page: Page) -> None:
    page.goto("/fabric/?view=list&q=ConnectX")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("chassis,drawer,slot,state,device,kind,")
    assert len(lines) == 3


def test_arrow_keys_follow_the_picture(page: Page) -> None:
    first = page.locator(slot(page, "falcon-1", 1, 1))
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(slot(page, "falcon-1", 1, 2))).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.locator('section[aria-label="falcon-1"] a.host').first).to_be_focused()
    # One stop of the Tab key a picture.
    assert page.locator('section[aria-label="falcon-1"] a[data-node][tabindex="0"]').count() == 1


def test_focus_lights_the_path_and_dims_the_rest(page: Page) -> None:
    page.locator(slot(page, "falcon-1", 1, 1)).focus()
    lit = page.locator('section[aria-label="falcon-1"] [data-node].lit')
    expect(lit).to_have_count(2)
    page.locator("#search").focus()
    expect(page.locator(".lit")).to_have_count(0)


def test_a_search_keeps_what_fits_and_is_in_the_address(page: Page) -> None:
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("ConnectX")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=ConnectX**")
    # One of each chassis: of two drawings one is shown, the list has both.
    expect(page.locator("svg [data-device]")).to_have_count(1)
    page.keyboard.press("]")
    expect(page.locator('section[aria-label="falcon-2"] svg [data-device]')).to_have_count(1)
    page.get_by_role("link", name="List", exact=True).click()
    expect(page.locator("table.slots tbody tr")).to_have_count(2)
    expect(page.get_by_role("status").filter(has_text="found")).to_have_text("2 devices found")


def test_a_question_mark_shows_the_keys(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()


@pytest.mark.nightly
def test_a_mode_is_changed_only_after_a_dialog_has_said_what_it_does(page: Page, running_site: RunningSite) -> None:
    # falcon-1's second drawer serves one host: it may become advanced, and back.
    def change(name: str) -> None:
        page.goto(drawer(page, "falcon-1", 2))
        page.get_by_role("radio", name=re.compile(name)).check()
        page.get_by_role("button", name="Change mode").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"to {name}.")
        expect(dialog).to_contain_text("No attachment is broken: all 5 stay as they are.")
        expect(dialog.locator("li")).to_have_count(5)

    change("Advanced")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.goto(FALCON_1)
    for name in ("Advanced", "Standard, one host"):
        change(name)
        page.get_by_role("button", name="Change mode now").click()
        mode_done(page, running_site)


@pytest.mark.nightly
def test_a_mode_is_asked_for_without_javascript_too(
    browser: Browser, administrator: BrowserContext, running_site: RunningSite
) -> None:
    state = administrator.storage_state()
    with opened(browser, running_site, java_script_enabled=False, storage_state=state) as context:
        page = context.new_page()
        page.goto(FALCON_2)
        page.goto(drawer(page, "falcon-2", 1))
        for name in ("Advanced", "Standard, two hosts"):
            address = page.url
            page.get_by_role("radio", name=re.compile(name)).check()
            page.get_by_role("button", name="Change mode").click()
            page.wait_for_url("**/operations/**")
            with hurried(running_site, "falcon-2"):
                wait_for(
                    lambda: page.reload() and page.locator(".state.done").count(), "the mode is not changed", every=0.3
                )
            page.goto(address)
            expect(page.locator("dd", has_text=name)).to_be_visible()


def test_a_choice_survives_that_the_page_is_brought_up_to_date(page: Page) -> None:
    page.goto(FALCON_2)
    open_device(page, "falcon-2", 3)
    target = page.locator("#target")
    target.select_option(label="node-c (H2)")
    target.evaluate("(one) => one.blur()")
    chosen = target.input_value()
    target.evaluate(
        """(before) => new Promise((done) => {
          document.addEventListener("falconweb:refreshed", () => before.isConnected || done());
          document.dispatchEvent(new CustomEvent("falconweb:changed", { detail: { within: 0 } }));
        })"""
    )
    assert target.input_value() == chosen
    page.click("form[data-compose-form] button")
    expect(page.locator("#attach")).to_contain_text("node-c (H2)")


def test_the_rules_refusal_is_a_sentence(page: Page) -> None:
    # falcon-2's first drawer is in standard mode for two hosts: H2 does not reach slots 1 to 4.
    page.goto(FALCON_2)
    open_device(page, "falcon-2", 3)
    page.select_option("#target", label="node-c (H2)")
    page.click("form[data-compose-form] button")
    # It is said before it is asked for.
    expect(page.locator("#attach-reason")).to_contain_text("H2 reaches slots 5 to 8, not slot 3")
    expect(page.locator("#attach-yes")).to_be_disabled()


def test_one_chassis_is_drawn_at_a_time_chosen_on_the_map_or_by_keys(page: Page) -> None:
    page.goto("/fabric/")
    drawn = page.locator("section[aria-label]:has(svg.topology)")
    expect(drawn).to_have_count(1)
    # The address names it from now on: it stays, whatever becomes worst.
    first = drawn.get_attribute("aria-label")
    page.wait_for_url("**chassis=**")
    tiles = page.get_by_role("navigation", name="Chassis", exact=True).get_by_role("link")
    expect(tiles).to_have_count(2)
    tiles.nth(1).click()
    expect(drawn).not_to_have_attribute("aria-label", first or "")
    expect(page.locator("[aria-current=true] .tile-name")).to_contain_text(drawn.get_attribute("aria-label") or "")
    page.wait_for_load_state()  # keys are listened to from then on
    page.keyboard.press("]")  # after the last comes the first
    expect(drawn).to_have_attribute("aria-label", first or "")
    page.wait_for_load_state()
    page.keyboard.press("[")
    expect(drawn).not_to_have_attribute("aria-label", first or "")
    page.get_by_role("link", name="List", exact=True).click()
    expect(page.locator("section:has(table.slots)")).not_to_have_attribute("aria-label", first or "")


def test_the_topology_fits_the_screen_on_a_phone_and_at_twice_the_size(page: Page) -> None:
    picture = page.locator("svg.topology")
    for width, screen in ((720, "medium"), (390, "narrow"), (1440, "wide")):
        page.set_viewport_size({"width": width, "height": 900})
        expect(picture).to_have_attribute("data-screen", screen)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator(".wide:has(svg)").evaluate("(one) => one.scrollWidth <= one.clientWidth")
        grip = handle(page, "falcon-1", 1, 1).bounding_box()
        assert grip is not None
        assert min(grip["width"], grip["height"]) >= 24, screen


def test_the_front_shows_temperatures_and_fans_live(page: Page) -> None:
    page.get_by_role("link", name="Front", exact=True).click()
    page.wait_for_url("**view=front**")
    front = page.locator("svg.front")
    expect(front.locator('[aria-label*="Drawer 2 slot 1,"] .reading')).to_have_text(re.compile(r"^\d+\.\d °C$"))
    expect(front.locator(".fan .reading").first).to_have_text(re.compile(r"^\d+ rpm$"))
    front.locator('[aria-label*="Drawer 1 slot 1,"]').focus()
    page.keyboard.press("ArrowRight")
    expect(front.locator('[aria-label*="Drawer 1 slot 2,"]')).to_be_focused()
    expect(front.locator("[data-node].lit")).to_have_count(2)
