"""Debian's Chromium, and an administrator of a whole running site: one of each for all tests of this folder."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect, sync_playwright

from tests.browser.judging import COUNT_FETCHES
from tests.chromium import ADVICE, ARGUMENTS, find_chromium
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for

PATIENCE = 30_000  # ms; nobody waits as long but on a busy machine
WIDE: ViewportSize = {"width": 1440, "height": 1000}
expect.set_options(timeout=PATIENCE)
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


@pytest.fixture(scope="package")
def running_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """A whole site with two simulated chassis, in processes of its own; it ends with the last test of this folder."""
    with RunningSite(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a window; it ends with the last test of this folder."""
    path = find_chromium()
    if path is None:
        pytest.skip(ADVICE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, site: RunningSite, **options: Any) -> Iterator[BrowserContext]:
    """Open a context on the site, which nobody has signed in to."""
    usual = {"base_url": site.address, "reduced_motion": "reduce", "timezone_id": "UTC"}
    context = browser.new_context(**{**usual, **options})
    context.set_default_timeout(PATIENCE)
    context.add_init_script(COUNT_FETCHES)
    yield context
    context.close()


@contextmanager
def hurried(site: RunningSite, *chassis: str) -> Iterator[None]:
    """Let the time of chassis (falcon-1 unless told) and of their hosts go faster meanwhile; clocks still agree."""
    chassis = chassis or ("falcon-1",)
    for name in chassis:
        site.control(name, "POST", "/time", {"speed": 5})
    try:
        yield
    finally:
        for name in chassis:
            site.control(name, "POST", "/time", {"speed": 1})


def frames(page: Page, count: int) -> None:
    """Wait until a page has had so many more frames of readings."""
    page.evaluate(
        """(count) => new Promise((done) => {
          document.addEventListener("falconweb:frame", function hear() {
            count -= 1;
            if (count > 0) return;
            document.removeEventListener("falconweb:frame", hear);
            requestAnimationFrame(() => requestAnimationFrame(done));
          });
        })""",
        count,
    )


def give_password(page: Page, name: str, password: str) -> None:
    """Type a name and a password on the sign-in page, and send them."""
    page.goto("/sign-in/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("form.narrow button")


def see_signed_in(page: Page, name: str) -> None:
    """Wait until the page shows that this person is signed in."""
    expect(page.locator("summary .account")).to_have_text(name)


def sign_in(context: BrowserContext, name: str, password: str) -> Page:
    """Return a page of a person who has just signed in."""
    page = context.new_page()
    give_password(page, name, password)
    page.wait_for_url(lambda address: "sign-in" not in address)
    return page


def painted(page: Page, chart: Locator) -> int:
    """Return how many points of a chart's picture have a colour of the palette: what its worker has drawn."""
    raw = chart.locator("canvas").screenshot()
    found: int = page.evaluate(COLOURED, base64.b64encode(raw).decode())
    return found


@pytest.fixture(scope="package")
def administrator(browser: Browser, running_site: RunningSite) -> Iterator[BrowserContext]:
    """The context of an administrator who has signed in, after the site has seen its chassis; there is one tenant."""
    with opened(browser, running_site, viewport=WIDE) as context:
        page = sign_in(context, "administrator", ADMINISTRATOR_PASSWORD)
        page.goto("/tenants/add/")
        page.fill("#id_name", "Vision group")
        page.click("main form button")
        page.wait_for_url("**/tenants/1/")
        # It stays, so that the pages of tests share its process instead of starting one each.
        page.goto("/healthz")
        devices = "/api/v1/devices/"
        wait_for(
            lambda: context.request.get(devices).json()["count"] >= 24, "the site has not seen its chassis", seconds=60
        )
        yield context


def delete_all(context: BrowserContext, listed: str) -> None:
    """Delete by the API all that it lists at an address."""
    token = next(str(one["value"]) for one in context.cookies() if one["name"] == "csrftoken")
    place, _, _ = listed.partition("?")
    for one in context.request.get(listed).json()["results"]:
        answer = context.request.delete(f"{place}{one['id']}/", headers={"X-CSRFToken": token})
        assert answer.ok, answer.text()


def watched(context: BrowserContext) -> tuple[Page, list[str]]:
    """Open a page of its own, that shows nothing yet; returns it and all that its console is told as an error."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error} {error.stack}"))
    page.on("console", lambda said: wrong.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    return page, wrong


@contextmanager
def without_errors(context: BrowserContext) -> Iterator[Page]:
    """Open a page of its own, that shows nothing yet; nothing may be written to the console as an error."""
    page, wrong = watched(context)
    yield page
    page.close()
    assert wrong == []


@pytest.fixture
def page(administrator: BrowserContext) -> Iterator[Page]:
    """A page of the administrator; nothing may be written to the console as an error."""
    with without_errors(administrator) as page:
        yield page
