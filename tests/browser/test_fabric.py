"""The fabric page in Debian's Chromium, against a whole running site."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.chromium import ADVICE, ARGUMENTS, find_chromium
from tests.processes import ROOT
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite

pytestmark = pytest.mark.browser
RUN_AXE = """;
axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
   .then((found) => found.violations.map((one) => one.id + ": " + one.nodes[0].html.slice(0, 150)))
"""
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip(ADVICE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser, running_site: RunningSite) -> Iterator[Page]:
    """A signed-in administrator on the topology; nothing may be written to the console as an error."""
    context = browser.new_context(
        color_scheme=request.param, base_url=running_site.address, viewport={"width": 1440, "height": 1000}
    )
    page = context.new_page()
    page.set_default_timeout(10_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto("/")
    page.fill("#id_username", "administrator")
    page.fill("#id_password", ADMINISTRATOR_PASSWORD)
    page.click("form.narrow button")
    page.wait_for_url("**/fabric/**")
    for _ in range(40):
        if page.locator("[data-device]").count() >= 24:
            break
        page.wait_for_timeout(250)
        page.reload()
    yield page
    context.close()
    assert wrong == []


def slot(page: Page, chassis: str, drawer: int, number: int) -> str:
    """Return a selector of the slot, by what is read aloud."""
    return f'section[aria-label="{chassis}"] [aria-label*="Drawer {drawer} slot {number},"]'


def port(page: Page, chassis: str, label: str) -> str:
    return f'section[aria-label="{chassis}"] [aria-label*="host port {label},"]'


def done(page: Page) -> None:
    page.wait_for_url("**/operations/**")
    expect(page.locator(".state.done")).to_be_visible(timeout=30_000)
    page.goto("/fabric/")


def test_live_readings_arrive(page: Page) -> None:
    expect(page.locator("#freshness")).to_have_text("● Live", timeout=15_000)
    reading = page.locator(slot(page, "falcon-1", 2, 1)).locator(".reading")
    expect(reading).to_contain_text("°C")


def test_a_gpu_is_moved_by_mouse_and_back_by_keyboard(page: Page) -> None:
    page.locator(slot(page, "falcon-1", 1, 2)).hover()
    page.mouse.down()
    page.locator(port(page, "falcon-1", "H3")).hover()
    page.mouse.up()
    expect(page.locator("#attach-words")).to_contain_text("attached to node-c (H3)")
    page.click("#attach-yes")
    done(page)
    expect(page.locator(slot(page, "falcon-1", 1, 2))).to_contain_text("node-c")
    page.locator(slot(page, "falcon-1", 1, 2)).focus()
    page.keyboard.press("Space")
    expect(page.locator("#picked")).to_contain_text("Holding")
    page.locator(port(page, "falcon-1", "H1")).focus()
    page.keyboard.press("Enter")
    page.locator("#attach-yes").focus()
    page.keyboard.press("Enter")
    done(page)
    expect(page.locator(slot(page, "falcon-1", 1, 2))).to_contain_text("node-a")


def test_a_nic_is_attached_and_detached_by_form(page: Page) -> None:
    page.locator(slot(page, "falcon-1", 1, 7)).click()
    page.select_option("#target", label="node-b (H2)")
    page.click("form.row button")
    done(page)
    page.locator(slot(page, "falcon-1", 1, 7)).click()
    page.select_option("#target", label="no host: detach")
    page.click("form.row button")
    done(page)
    expect(page.locator(slot(page, "falcon-1", 1, 7))).to_contain_text("not attached")


@pytest.mark.parametrize(
    "address",
    ["/fabric/", "/fabric/?view=list", "/chassis/1/", "/devices/1/", "/ports/1/", "/hosts/1/", "/operations/"],
)
def test_axe_finds_no_violation(page: Page, address: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make test installs it")
    page.goto(address)
    violations = page.evaluate(AXE.read_text() + RUN_AXE)
    assert violations == []
