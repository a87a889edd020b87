"""A reader whose browser asks for German: pages, and what their scripts say, are German and fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import WIDE, opened, without_errors
from tests.browser.judging import judge
from tests.browser.test_fabric import FALCON_1
from tests.site import RunningSite

# Links of the navigation whose words are wider than their place.
CLIPPED = """() => {
  for (const group of document.querySelectorAll(".sidebar details")) group.open = true;
  const links = [...document.querySelectorAll(".sidebar a")];
  for (const link of links) link.setAttribute("aria-current", "page");
  return links.filter((link) => link.scrollWidth > link.clientWidth).map((link) => link.textContent.trim());
}"""


@pytest.fixture
def german(browser: Browser, running_site: RunningSite, administrator: BrowserContext) -> Iterator[Page]:
    """A page of an administrator whose browser asks for German; nothing may be written to the console as an error."""
    state = administrator.storage_state()
    with (
        opened(browser, running_site, viewport=WIDE, locale="de-DE", storage_state=state) as context,
        without_errors(context) as page,
    ):
        yield page


def test_pages_and_scripts_are_german_and_fit(german: Page) -> None:
    german.goto(FALCON_1)
    expect(german.locator("html")).to_have_attribute("lang", "de")
    expect(german.get_by_role("link", name="Übersicht")).to_be_visible()
    picture = german.locator('section[aria-label="falcon-1"]')
    expect(picture).to_contain_text("kein Link")
    picture.get_by_role("button", name="Steckplatz 6 aufnehmen").first.click()
    expect(german.locator("#picked")).to_contain_text("Aufgenommen: ")
    expect(german.locator("#picked")).to_contain_text("Esc legt es zurück.")
    picture.get_by_label("Host node-c, Host-Port H3").click()
    dialog = german.locator("#attach")
    expect(dialog.get_by_role("heading", name="Gerät verschieben")).to_be_visible()
    expect(dialog.get_by_role("button", name="Jetzt verschieben")).to_be_enabled()
    expect(dialog).to_contain_text("wird an node-c (H3) angeschlossen.")
    judge(german, "the topology's dialog in German")
    german.goto("/alerts/rules/add/")
    expect(german.locator("#metric-pictures")).to_contain_text("Temperatur")
    judge(german)
    assert german.evaluate(CLIPPED) == []
