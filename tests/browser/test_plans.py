"""A plan from the draft on the topology to its roll-back, in Debian's Chromium: by mouse, touch, keyboard only."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import delete_all, hurried
from tests.browser.judging import judge
from tests.browser.test_fabric import FALCON_1, drawer, handle, port, slot
from tests.browser.test_pick_up import phone
from tests.site import RunningSite
from tests.waiting import wait_for

__all__ = ["phone"]


def zones(site: RunningSite) -> dict[str, list[str]]:
    """Return which devices of falcon-1's first drawer each of its host ports has, as the chassis itself says."""
    state = site.control("falcon-1", "GET", "/state")
    return {zone: sorted(held) for zone, held in state["zones"].items()}


@pytest.fixture
def slow(running_site: RunningSite) -> Iterator[str]:
    """Let each bind of falcon-1 take its time, so that a plan has a middle."""
    asked = {"kind": "slow", "target": "", "method": "PATCH", "delay": 1.2}
    fault: str = running_site.control("falcon-1", "POST", "/faults", asked)["id"]
    yield fault
    running_site.control("falcon-1", "DELETE", "/faults")
    running_site.control("falcon-1", "POST", "/time", {"speed": 1})


@pytest.fixture
def page(page: Page) -> Page:
    """The topology."""
    page.goto(FALCON_1)
    return page


@pytest.fixture(autouse=True)
def no_draft(administrator: BrowserContext) -> Iterator[None]:
    """Leave no draft behind."""
    yield
    delete_all(administrator, "/api/v1/plans/?state=draft")


def drag(page: Page, number: int, label: str) -> None:
    """Drag a device of falcon-1's first drawer to a host port, and add that to the draft."""
    page.locator(slot(page, "falcon-1", 1, number)).hover()
    page.mouse.down()
    page.locator(port(page, "falcon-1", label)).hover()
    page.mouse.up()
    page.click("#attach-draft")
    expect(page.locator("#attach")).to_be_hidden()


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until something has the focus."""
    for _ in range(120):
        if target.evaluate_all("(found) => found.includes(document.activeElement)"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("Tab does not lead there")


def has_moved(site: RunningSite, endpoint: str, before: dict[str, list[str]]) -> bool:
    """Tell whether a device is in another zone than before, and its link is up there."""
    state = site.control("falcon-1", "GET", "/state")
    zone = next((zone for zone, held in state["zones"].items() if endpoint in held), None)
    return zone is not None and endpoint not in before[zone] and state["links"][endpoint]["status"] == "LinkUp"


def settled(page: Page, state: str, site: RunningSite) -> None:
    """See a plan come to an end, in time that hurries."""
    with hurried(site, "falcon-1", "falcon-2"):
        expect(page.locator(f".plan-facts .state.{state}")).to_be_visible(timeout=60_000)


def test_a_plan_is_drafted_reviewed_applied_watched_cancelled_and_rolled_back_by_mouse(
    page: Page, running_site: RunningSite, slow: str
) -> None:
    before = zones(running_site)
    for number in (1, 3, 4):
        drag(page, number, "H3")
    # The draft is drawn, counted, listed and announced, and nothing has changed.
    box = page.locator(slot(page, "falcon-1", 1, 3))
    expect(box).to_have_class(re.compile(r"\bplanned\b"))
    expect(box).to_contain_text("→ node-c · H3")
    expect(box).to_have_attribute("aria-label", re.compile(r"in your draft: to node-c · H3"))
    expect(page.locator(port(page, "falcon-1", "H3"))).to_contain_text("0 → 3")
    expect(page.locator(".draft-list summary")).to_contain_text("3 changes, 3 steps")
    expect(page.locator("#draft-status")).to_contain_text("Added to the draft.")
    assert zones(running_site) == before
    judge(page, "a draft on the topology")
    # Taken out again, it is as if it had never been added.
    page.get_by_role("button", name=re.compile("Take .* slot 4, out of the draft")).click()
    expect(page.locator(".draft-list summary")).to_contain_text("2 changes")
    expect(page.locator(slot(page, "falcon-1", 1, 4))).not_to_have_class(re.compile("planned"))
    page.get_by_role("link", name="Review plan").click()
    expect(page.get_by_role("heading", name="What changes")).to_be_visible()
    expect(page.locator("#plan-now table.rows tbody tr")).to_have_count(2)
    judge(page, "a draft")
    page.get_by_role("button", name="Apply plan").click()
    expect(page.locator(".plan-facts .state.running")).to_be_visible()
    wait_for(lambda: has_moved(running_site, "drawer1slot1", before), "no step of the plan was done")
    # From here on no link comes up: the second step runs until time goes on, however long the page takes.
    running_site.control("falcon-1", "POST", "/time", {"speed": 0.001})
    expect(page.locator(".plan-facts")).to_contain_text("1 of 2 steps")
    page.reload()  # it survives that
    judge(page, "a running plan")
    page.get_by_role("button", name="Cancel and roll back").click()
    expect(page.locator("#plan-now")).to_contain_text("No further step starts.")
    running_site.control("falcon-1", "DELETE", f"/faults/{slow}")
    settled(page, "rolled_back", running_site)
    expect(page.get_by_role("heading", name="Rollback")).to_be_visible()
    expect(page.locator("#plan-status")).to_contain_text("Rolled back")
    assert zones(running_site) == before
    expect(page.locator("main").get_by_role("button", name="Undo")).to_have_count(0)  # it is undone
    judge(page, "a plan that was rolled back")


@pytest.mark.nightly
def test_the_same_by_keyboard_only(page: Page, running_site: RunningSite, slow: str) -> None:
    before = zones(running_site)
    first = page.locator(slot(page, "falcon-1", 1, 1))
    tab_to(page, page.locator("section[aria-label='falcon-1'] a[data-node]"))
    while not first.evaluate("(node) => node === document.activeElement"):
        page.keyboard.press("ArrowLeft")
    for _ in range(2):
        page.keyboard.press("Space")
        expect(page.locator("#picked")).to_contain_text("Holding")
        target = page.locator(port(page, "falcon-1", "H3"))
        for _ in range(3):
            if target.evaluate("(node) => node === document.activeElement"):
                break
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.locator("#attach-words")).to_contain_text("attached to node-c (H3)")
        tab_to(page, page.locator("#attach-draft"))
        page.keyboard.press("Enter")
        expect(page.locator("#attach")).to_be_hidden()
        # Back on the device, also once the picture has been brought up to date.
        expect(page.locator("a.slot.planned:focus")).to_have_count(1)
        page.keyboard.press("ArrowRight")
    expect(page.locator(".draft-list summary")).to_contain_text("2 changes")
    page.keyboard.press("r")
    page.wait_for_url("**/plans/**")
    tab_to(page, page.get_by_role("button", name="Apply plan"))
    page.keyboard.press("Enter")
    expect(page.locator(".plan-facts .state.running")).to_be_visible()
    back = page.get_by_role("button", name="Cancel and roll back")
    tab_to(page, back)
    expect(page.locator(".plan-facts")).to_contain_text("1 of 2 steps")
    expect(back).to_be_focused()  # though the page was brought up to date meanwhile
    page.keyboard.press("Enter")
    expect(page.locator("#plan-now")).to_contain_text("No further step starts.")
    running_site.control("falcon-1", "DELETE", f"/faults/{slow}")
    settled(page, "rolled_back", running_site)
    assert zones(running_site) == before
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_contain_text("Review the plan of your draft")


@pytest.mark.nightly
def test_a_draft_is_made_and_discarded_by_taps(phone: Page, page: Page) -> None:
    handle(phone, "falcon-1", 1, 3).tap()
    phone.locator(port(phone, "falcon-1", "H3")).tap()
    phone.locator("#attach-draft").tap()
    expect(phone.locator(".draft-list summary")).to_contain_text("1 change, 1 step")
    judge(phone, "a draft on a phone")
    phone.locator("#draft-discard summary").tap()
    phone.get_by_role("button", name="Discard draft").tap()
    expect(phone.locator(".draft-bar")).to_have_count(0)
    expect(phone.locator(".planned-to")).to_have_count(0)


def test_what_does_not_reach_the_server_is_said_in_the_dialog(page: Page) -> None:
    other = page.context.new_page()  # its console tells of the request that failed
    other.route("**/draft/", lambda route: route.abort())
    other.goto(f"{FALCON_1}&view=list")
    other.locator("button[data-compose]").first.click()
    other.click("#attach-draft")
    told = "There is no connection to FalconWeb. Nothing was added. Try again."
    expect(other.locator("#attach-reason")).to_have_text(told)
    # It stays when the preview arrives, or the age of values is judged again.
    other.evaluate("document.dispatchEvent(new Event('falconweb:freshness'))")
    assert other.inner_text("#attach-reason") == told
    other.unroute("**/draft/")
    other.click("#attach-draft")
    expect(other.locator("#attach")).to_be_hidden()
    expect(other.locator(".planned-words")).to_have_count(1)
    other.close()


def test_a_mode_that_breaks_attachments_goes_into_the_draft_with_their_detaches(page: Page) -> None:
    page.goto(drawer(page, "falcon-1", 1))
    page.get_by_role("radio", name=re.compile("Standard, one host")).check()
    page.get_by_role("button", name="Change mode").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Not at once: In this mode one host port at a time has devices")
    expect(dialog.get_by_role("button", name="Change mode now")).to_be_disabled()
    expect(dialog.get_by_role("checkbox")).to_be_checked()
    judge(page, "a mode that breaks something")
    dialog.get_by_role("button", name="Add to draft").click()
    expect(page.locator(".draft-list summary")).to_contain_text("3 changes")
    expect(page.locator(".drawer-mode.planned-to")).to_have_text("→ Standard, one host")


@pytest.mark.nightly
def test_plans_are_accessible_in_each_state(page: Page, running_site: RunningSite, slow: str) -> None:
    page.goto("/draft/")
    judge(page, "nothing drafted")
    page.goto(FALCON_1)
    page.locator(slot(page, "falcon-1", 1, 3)).scroll_into_view_if_needed()
    drag(page, 3, "H3")
    expect(page.locator(".draft-bar")).to_be_visible()
    judge(page, "a draft on the topology")
    page.get_by_role("link", name="Review plan").click()
    expect(page.get_by_role("button", name="Apply plan")).to_be_enabled()
    judge(page, "a draft")
    page.get_by_role("radio", name="Roll everything back").check()
    page.get_by_role("button", name="Apply plan").click()
    expect(page.locator(".plan-facts .state.running")).to_be_visible()
    judge(page, "a running plan")
    page.get_by_role("button", name="Cancel", exact=True).click()
    running_site.control("falcon-1", "DELETE", f"/faults/{slow}")
    settled(page, "cancelled", running_site)
    judge(page, "a cancelled plan")
    page.locator("main").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name=re.compile("^Undo: "))).to_be_visible()
    judge(page, "a way back")
    if page.get_by_role("button", name="Apply plan").is_enabled():
        page.get_by_role("button", name="Apply plan").click()
        settled(page, "done", running_site)
        judge(page, "a plan that is done")
    page.goto("/plans/")
    judge(page, "the list")
    page.goto("/operations/")
    judge(page, "operations with their plans")


def test_a_draft_that_rules_stand_against_says_so(page: Page) -> None:
    page.goto(drawer(page, "falcon-1", 1))
    page.get_by_role("radio", name=re.compile("Standard, one host")).check()
    page.get_by_role("button", name="Change mode").click()
    page.get_by_role("checkbox").uncheck()
    page.get_by_role("dialog").get_by_role("button", name="Add to draft").click()
    expect(page.locator(".draft-list summary")).to_contain_text("▲ a rule blocks it")
    page.get_by_role("link", name="Review plan").click()
    expect(page.locator(".notice.error")).to_contain_text(re.compile("rules? blocks? it"))
    expect(page.get_by_role("button", name="Apply plan")).to_be_disabled()
    expect(page.locator("[data-apply] [data-reason]")).to_have_text("A rule blocks it: change the draft first.")
    judge(page, "a draft that cannot be")


def test_two_windows_see_one_draft(page: Page) -> None:
    handle(page, "falcon-1", 1, 3).click()
    page.locator(port(page, "falcon-1", "H3")).click()
    page.click("#attach-draft")
    expect(page.locator(".draft-bar")).to_be_visible()
    other = page.context.new_page()  # its console tells of the page that is not there
    other.goto("/draft/")
    expect(other.get_by_role("button", name="Apply plan")).to_be_enabled()
    # It is discarded here: there it is found out when it is to be applied.
    page.locator("#draft-discard summary").click()
    page.get_by_role("button", name="Discard draft").click()
    expect(page.locator(".draft-bar")).to_have_count(0)
    other.get_by_role("button", name="Apply plan").click()
    expect(other.locator("main")).to_contain_text("There is no such plan.")
    other.close()
