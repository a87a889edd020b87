"""Debian's Chromium, and a signed-in administrator of a whole running site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.chromium import ADVICE, ARGUMENTS, find_chromium
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite

PATIENCE = 10_000  # ms


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


@pytest.fixture(scope="module")
def administrators(browser: Browser, running_site: RunningSite) -> Iterator[dict[str, BrowserContext]]:
    """A context a theme, each signed in once, after the site has seen its chassis."""
    contexts = {}
    for scheme in ("light", "dark"):
        contexts[scheme] = context = browser.new_context(
            color_scheme=scheme, base_url=running_site.address, viewport={"width": 1440, "height": 1000}
        )
        page = sign_in(context, "administrator", ADMINISTRATOR_PASSWORD)
        page.goto("/fabric/")
        page.wait_for_function("document.querySelectorAll('[data-device]').length >= 24 || location.reload()")
        page.close()
    yield contexts
    for context in contexts.values():
        context.close()


@contextmanager
def topology_without_errors(context: BrowserContext) -> Iterator[Page]:
    """Open the topology in a page of its own; nothing may be written to the console as an error."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto("/fabric/")
    yield page
    page.close()
    assert wrong == []


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, administrators: dict[str, BrowserContext]) -> Iterator[Page]:
    """The topology, in both themes; nothing may be written to the console as an error."""
    with topology_without_errors(administrators[request.param]) as page:
        yield page
