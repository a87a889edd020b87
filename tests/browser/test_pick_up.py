"""Picking devices up by their handle on the topology, by click and by touch; the load of links in words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect

from tests.browser.conftest import frames, opened, without_errors
from tests.browser.test_fabric import FALCON_1, done, handle, port, slot
from tests.site import RunningSite
from tests.waiting import wait_for


def middle(target: Locator) -> tuple[float, float]:
    """Return where in the window the middle of something is, once it stands still."""
    found = target.element_handle()
    found.wait_for_element_state("stable")
    box = found.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag_by_finger(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Move a finger from here to there, as a touch screen reports it."""
    session = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})

    touch("touchStart", start)
    for part in range(1, 9):
        touch("touchMove", tuple(a + (b - a) * part / 8 for a, b in zip(start, end, strict=True)))  # type: ignore[arg-type]
    touch("touchEnd")
    session.detach()


@pytest.fixture
def phone(
    browser: Browser,
    administrator: BrowserContext,
    running_site: RunningSite,
) -> Iterator[Page]:
    """The topology on a narrow touch screen; nothing may be written to the console as an error."""
    narrow: ViewportSize = {"width": 412, "height": 900}
    state = administrator.storage_state()
    with (
        opened(browser, running_site, has_touch=True, is_mobile=True, viewport=narrow, storage_state=state) as context,
        without_errors(context) as page,
    ):
        page.goto(FALCON_1)
        yield page


@pytest.fixture
def page(page: Page) -> Page:
    """The topology."""
    page.goto(FALCON_1)
    return page


@pytest.mark.nightly
def test_a_gpu_is_picked_up_and_placed_by_click(page: Page, running_site: RunningSite) -> None:
    gpu = page.locator(slot(page, "falcon-1", 1, 6))
    grip = handle(page, "falcon-1", 1, 6)
    box = grip.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 24
    grip.click()
    expect(page.locator("#picked")).to_contain_text("Holding")
    expect(grip).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Detach", exact=True)).to_be_visible()
    # Again: it is put back. So does the button, and Escape.
    grip.click()
    expect(grip).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".takes")).to_have_count(0)
    grip.click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    expect(gpu).to_be_focused()
    grip.click()
    page.keyboard.press("Escape")
    expect(page.locator(".lifted")).to_have_count(0)
    # Asked to detach, and not done: it stays what it was, and its box still opens the details.
    grip.click()
    page.get_by_role("button", name="Detach", exact=True).click()
    expect(page.locator("#attach-title")).to_have_text("Detach device")
    page.click("#attach-no")
    expect(page.locator(".lifted")).to_have_count(0)
    grip.click()
    page.locator(port(page, "falcon-1", "H3")).click()
    expect(page.locator("#attach-words")).to_contain_text("attached to node-c (H3)")
    page.click("#attach-yes")
    done(page, running_site)
    expect(gpu).to_contain_text("node-c")
    grip.click()
    page.locator(port(page, "falcon-1", "H2")).click()
    page.click("#attach-yes")
    done(page, running_site)
    expect(gpu).to_contain_text("node-b")
    gpu.click()
    page.wait_for_url("**/devices/**")


@pytest.mark.nightly
def test_a_gpu_is_moved_by_taps_and_by_a_finger_on_its_handle(phone: Page, running_site: RunningSite) -> None:
    gpu = phone.locator(slot(phone, "falcon-1", 1, 5))
    grip = handle(phone, "falcon-1", 1, 5)
    grip.tap()
    expect(phone.locator("#picked")).to_contain_text("Holding")
    phone.get_by_role("button", name="Cancel").tap()
    expect(phone.locator(".lifted")).to_have_count(0)
    grip.tap()
    phone.locator(port(phone, "falcon-1", "H3")).tap()
    expect(phone.locator("#attach-words")).to_contain_text("attached to node-c (H3)")
    phone.locator("#attach-yes").tap()
    done(phone, running_site)
    expect(gpu).to_contain_text("node-c")
    target = phone.locator(port(phone, "falcon-1", "H2"))
    target.scroll_into_view_if_needed()
    grip.scroll_into_view_if_needed()
    drag_by_finger(phone, middle(grip), middle(target))
    expect(phone.locator("#attach-words")).to_contain_text("attached to node-b (H2)")
    phone.locator("#attach-yes").click()  # a tap this soon after a swipe would only stop the swipe
    done(phone, running_site)
    expect(gpu).to_contain_text("node-b")
    gpu.tap()
    phone.wait_for_url("**/devices/**")
    phone.goto(FALCON_1)
    # A finger that moves elsewhere on the box scrolls and picks nothing up.
    gpu.scroll_into_view_if_needed()
    x, y = middle(gpu)
    before = phone.evaluate("scrollY")

    def is_scrolled() -> bool:
        drag_by_finger(phone, (x, y + 20), (x, y - 160))
        return bool(phone.evaluate("scrollY") > before)

    wait_for(is_scrolled)  # a loaded browser drops a touch before the first frame of a page
    expect(phone.locator(".lifted")).to_have_count(0)


def test_a_page_does_not_move_on_a_phone_while_it_opens(phone: Page) -> None:
    phone.add_init_script("""
      window.moved = [];
      const sayMoved = (list) => window.moved.push(...list.getEntries().flatMap((one) => [...one.sources]));
      new PerformanceObserver(sayMoved).observe({ type: "layout-shift", buffered: true });
    """)
    phone.goto(FALCON_1)
    expect(phone.locator("#freshness")).to_have_text("● Live")
    frames(phone, 3)
    # Sideways in the head a name may move; nothing goes up or down.
    moved = "window.moved.filter((one) => one.previousRect.y !== one.currentRect.y).map((one) => one.node?.nodeName)"
    assert phone.evaluate(moved) == []


def test_the_load_of_a_link_is_in_words_too(page: Page) -> None:
    for node in (page.locator(slot(page, "falcon-1", 2, 1)), page.locator(port(page, "falcon-1", "H4"))):
        expect(node).to_have_attribute("aria-label", re.compile(r", (link )?x16( Gen 3)?, \d+ % load$"))
        expect(node.locator("[data-load-words]")).to_have_text(re.compile(r"^link \d+ %$"))
        assert node.evaluate("(one) => one.querySelector('title').textContent === one.getAttribute('aria-label')")
    # Screen readers are not flooded: in five seconds the words change at most once, whatever else comes and goes.
    page.evaluate("""() => {
      window.changes = 0;
      window.began = performance.now();
      const watcher = new MutationObserver((records) => { window.changes += records.length; });
      const node = document.querySelector('[data-device][data-link]');
      watcher.observe(node, { attributeFilter: ["aria-label"] });
      document.addEventListener("falconweb:frame", () => document.body.append(document.createElement("i")));
    }""")
    frames(page, 5)  # of two chassis
    changes, milliseconds = page.evaluate("[window.changes, performance.now() - window.began]")
    assert changes <= 1 + milliseconds // 5000
