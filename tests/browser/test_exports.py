"""Exports in a browser: defined by keyboard, previewed, run with a bar that moves by itself, downloaded; accessible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.judging import judge


def define(page: Page, name: str) -> None:
    """Define an export of everything as JSON Lines, by the keyboard alone."""
    page.goto("/exports/")
    page.get_by_role("link", name="New export").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/exports/add/")
    page.get_by_label("Name").focus()
    page.keyboard.type(name)
    page.get_by_role("radio", name="CSV").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="JSON Lines")).to_be_checked()
    page.get_by_role("button", name="Add it").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/exports/\d+/$"))


def test_an_export_is_defined_by_keyboard_run_and_downloaded(page: Page, tmp_path: Path) -> None:
    define(page, "Everything")
    judge(page, "an export that has not run")
    page.get_by_role("button", name="Run now").click()
    page.wait_for_url("**/exports/runs/*/")
    # A worker takes it and the page shows that by itself.
    expect(page.locator(".run-state.done")).to_be_visible()
    judge(page, "a run that is done")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    download.value.save_as(tmp_path / "file")
    assert download.value.suggested_filename.startswith("everything-")
    assert (tmp_path / "file").read_text().startswith('{"id":')
    for address in ("/exports/", "/exports/runs/"):
        page.goto(address)
        judge(page, address)


@pytest.mark.nightly
def test_the_form_shows_what_a_target_asks_for_and_says_what_is_wrong(page: Page) -> None:
    # Of its own: a form that is refused is an error to the console.
    page = page.context.new_page()
    page.goto("/exports/add/")
    expect(page.get_by_label("Address", exact=True)).to_be_hidden()
    expect(page.get_by_label("Files kept")).to_be_visible()
    judge(page, "the form of a download")
    page.get_by_role("radio", name="Webhook").check()
    page.get_by_role("radio", name="On a schedule").check()
    expect(page.get_by_label("Address", exact=True)).to_be_visible()
    expect(page.get_by_label("Secret", exact=True)).to_be_visible()
    expect(page.get_by_label("Own schedule (cron, UTC)")).to_be_visible()
    expect(page.get_by_label("Files kept")).to_be_hidden()
    judge(page, "the form of a webhook")
    page.get_by_label("Name").fill("A webhook")
    page.get_by_label("Address", exact=True).fill("http://169.254.169.254/latest")
    page.get_by_label("Own schedule (cron, UTC)").fill("every day")
    page.get_by_role("button", name="Add it").click()
    expect(page.locator("[data-field=address]").get_by_text("is a link-local address")).to_be_visible()
    expect(page.locator("[data-field=cron]").get_by_text("Give the five fields of cron")).to_be_visible()
    # The first of them has the focus, and the summary leads to each.
    expect(page.get_by_label("Address", exact=True)).to_be_focused()
    page.get_by_role("alert").get_by_role("link", name="Own schedule (cron, UTC)").click()
    expect(page.get_by_label("Own schedule (cron, UTC)")).to_be_focused()
    judge(page, "a form that is refused")
    ticked = page.locator("[data-field=columns]").get_by_role("checkbox", checked=True)
    while ticked.count():
        ticked.first.uncheck()
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("group", name="Columns")).to_be_focused()
    page.get_by_role("checkbox", name="Text", exact=True).check()
    page.get_by_role("radio", name="Download").check()
    page.get_by_role("radio", name="On request").check()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()
    judge(page, "a preview")
    page.close()
