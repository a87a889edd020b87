"""Debian's Chromium, and a signed-in administrator of a whole running site."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

from tests.chromium import ADVICE, ARGUMENTS, find_chromium
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for

PATIENCE = 10_000  # ms
# Points that are no shade of grey: axes and words are.
COLOURED = """async (png) => {
  const picture = await createImageBitmap(new Blob([Uint8Array.from(atob(png), (one) => one.charCodeAt(0))]));
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const { data } = context.getImageData(0, 0, picture.width, picture.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) count += 1;
  }
  return count;
}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    path = find_chromium()
    if path is None:
        pytest.skip(ADVICE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def sign_in(context: BrowserContext, name: str, password: str) -> Page:
    """Return a page of a person who has just signed in."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto("/sign-in/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("form.narrow button")
    page.wait_for_url(lambda address: "sign-in" not in address)
    return page


def painted(page: Page, chart: Locator) -> int:
    """Return how many points of a chart's picture have a colour of the palette: what its worker has drawn."""
    raw = chart.locator("canvas").screenshot()
    found: int = page.evaluate(COLOURED, base64.b64encode(raw).decode())
    return found


@pytest.fixture(scope="module")
def administrator(browser: Browser, running_site: RunningSite) -> Iterator[BrowserContext]:
    """The context of an administrator who has signed in, after the site has seen its chassis."""
    context = browser.new_context(base_url=running_site.address, viewport={"width": 1440, "height": 1000})
    page = sign_in(context, "administrator", ADMINISTRATOR_PASSWORD)

    def seen() -> bool:
        page.goto("/fabric/")
        return page.locator("[data-device]").count() >= 24

    wait_for(seen, "the site has not seen its chassis", seconds=60)
    page.close()
    yield context
    context.close()


@contextmanager
def without_errors(context: BrowserContext) -> Iterator[Page]:
    """Open a page of its own, that shows nothing yet; nothing may be written to the console as an error."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error} {error.stack}"))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    yield page
    page.close()
    assert wrong == []


@contextmanager
def topology_without_errors(context: BrowserContext) -> Iterator[Page]:
    """Open the topology in a page of its own; nothing may be written to the console as an error."""
    with without_errors(context) as page:
        page.goto("/fabric/")
        yield page


@pytest.fixture
def page(administrator: BrowserContext) -> Iterator[Page]:
    """The topology; nothing may be written to the console as an error."""
    with topology_without_errors(administrator) as page:
        yield page
