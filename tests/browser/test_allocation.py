"""Allocation files in a real browser: export, what is wrong, what it comes to, and the plan; without any script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from fabric.allocation.reader import FILE_TOO_LARGE, MAX_FILE_BYTES
from tests.browser.conftest import opened
from tests.site import RunningSite

NARROW: ViewportSize = {"width": 390, "height": 800}
WIDE: ViewportSize = {"width": 1280, "height": 900}


@pytest.fixture
def context(browser: Browser, running_site: RunningSite, administrator: BrowserContext) -> Iterator[BrowserContext]:
    """An administrator's browser that runs no script, once the site has seen its chassis."""
    state = administrator.storage_state()
    with opened(browser, running_site, viewport=NARROW, java_script_enabled=False, storage_state=state) as plain:
        yield plain


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    page = context.new_page()
    yield page
    page.close()


def fits(page: Page) -> bool:
    """Tell whether nothing makes the page wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_file_is_exported_changed_and_imported_by_way_of_a_plan(page: Page, tmp_path: Path) -> None:
    page.goto("/allocation/")
    page.get_by_label("What", exact=True).select_option(label="Chassis falcon-1")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert download.value.suggested_filename.startswith("allocation-falcon-1-")
    plain = json.loads(Path(download.value.path()).read_text())
    plain["chassis"][0]["drawers"][0]["slots"][0]["attached_to"] = None
    plain["chassis"][0]["drawers"][0]["slots"][1]["slto"] = 1
    file = tmp_path / "lab.json"
    file.write_text(json.dumps(plain, indent=2))
    page.get_by_label("File, JSON or YAML").set_input_files(file)
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("heading", name="1 problem in the file")).to_be_visible()
    expect(page.get_by_text("'slto' is not known here. Is 'slot' meant?")).to_be_visible()
    assert fits(page)
    # It is corrected where it is shown.
    del plain["chassis"][0]["drawers"][0]["slots"][1]["slto"]
    page.get_by_label("Text", exact=True).fill(json.dumps(plain, indent=2))
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("1 entry changes something.")).to_be_visible()
    expect(page.get_by_text("Detach it from node-a (H1).")).to_be_visible()
    assert fits(page)
    page.set_viewport_size(WIDE)
    assert fits(page)
    page.get_by_role("button", name="Make plan").click()
    page.wait_for_url("**/plans/**")
    expect(page.get_by_text("Import of lab.json").first).to_be_visible()


def test_a_file_that_is_too_large_is_told_of_before_it_is_sent(administrator: BrowserContext, tmp_path: Path) -> None:
    large, small = tmp_path / "large.json", tmp_path / "small.json"
    large.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    small.write_text("{}")
    page = administrator.new_page()
    page.goto("/allocation/")
    page.get_by_label("File, JSON or YAML").set_input_files(large)
    refused = page.locator("#file-refused")
    expect(refused).to_have_text(FILE_TOO_LARGE)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    page.get_by_role("button", name="Check file").click()
    expect(refused).to_be_visible()
    assert not sent
    page.get_by_label("File, JSON or YAML").set_input_files(small)
    expect(refused).to_be_hidden()
    # What was typed is not sent beside a file: together they could be too large.
    # Nobody looks at it here: to lay out so much takes a busy browser half a minute.
    page.locator("#text").evaluate("(field, length) => { field.value = 'x'.repeat(length); }", MAX_FILE_BYTES - 1)
    page.get_by_role("button", name="Check file").click()
    page.get_by_role("heading", name="in the file").wait_for()
    page.close()
