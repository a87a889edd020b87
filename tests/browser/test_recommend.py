"""A recommendation from the question to the run that decides it, to what that teaches, to the plan that composes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import delete_all, hurried
from tests.browser.judging import judge
from tests.browser.test_plans import settled, zones
from tests.site import RunningSite

LONG = 60_000  # ms


def ask(page: Page) -> None:
    """Ask for two GPUs of chassis for node-c, by the form; for a workload that no other test of the site measures."""
    page.goto("/benchmarks/recommend/")
    page.get_by_label("Workload").select_option(label="VGG-16")
    page.get_by_label("Preset").select_option("paper")
    page.get_by_text("Constraints", exact=True).click()
    page.get_by_label("At least GPUs").fill("2")
    page.get_by_label("At most GPUs").fill("2")
    page.get_by_label("GPUs", exact=True).select_option("chassis")
    page.get_by_role("checkbox", name="node-c").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="By least time")).to_be_visible()
    page.wait_for_load_state()


@pytest.fixture
def nothing_left(administrator: BrowserContext) -> Iterator[None]:
    """Delete what was run and imported: other tests draw figures of all that there is."""
    yield
    delete_all(administrator, "/api/v1/benchmarks/runs/?workload=vgg16")


def bases(page: Page) -> set[str]:
    """Return what the lines of the ranking rest on."""
    return set(page.locator(".ranking dd.basis").all_inner_texts())


def test_an_answer_says_what_it_rests_on(page: Page) -> None:
    ask(page)
    assert bases(page) == {"prior"}
    # Which of the two depends on the modes and attachments that other tests have left.
    expect(page.get_by_role("heading", name=re.compile("Undecided|Recommended"))).to_be_visible()
    judge(page, "a recommendation")


@pytest.mark.nightly
def test_an_answer_becomes_a_run_its_record_teaches_and_a_plan_composes_it(
    page: Page, running_site: RunningSite, nothing_left: None
) -> None:
    before = zones(running_site)
    ask(page)
    # The run that it proposes is composed, goes on, and gives its devices back.
    page.locator("#answer").get_by_role("button", name="Start simulated run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("VGG-16 as recommended: node-c")
    expect(page.locator("[data-run-state=running]")).to_be_visible(timeout=LONG)
    assert zones(running_site) != before
    with hurried(running_site, "falcon-1", "falcon-2"):
        expect(page.locator("[data-run-state=completed]")).to_be_visible(timeout=LONG)
    assert zones(running_site) == before
    # Its charts call GPUs by where they are; by which address the host counts them is in the table.
    chart = page.locator("[data-run-chart][data-title=Utilisation]")
    expect(chart.locator("[data-plot]")).to_contain_text(re.compile(r"falcon-\d drawer \d slot \d|own GPU \d"))
    chart.locator("summary").click()
    expect(chart.locator("tbody tr").first).to_contain_text("/utilisation")
    judge(page, "a run that has ended")
    with page.expect_download() as download:
        page.get_by_role("link", name="Record as JSON Lines").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    # What was simulated teaches nothing, and the page says so.
    ask(page)
    assert bases(page) == {"prior"}
    expect(page.locator("#answer")).to_contain_text("Simulated runs are not used.")
    # Had it been measured, elsewhere, the answer would rest on it.
    measured = [{**line, "run": "elsewhere"} if "run" in line else line for line in lines]
    measured[0] |= {"id": "elsewhere", "provenance": "measured", "executor": "torch"}
    page.goto("/benchmarks/records/import/")
    text = "".join(json.dumps(line) + "\n" for line in measured)
    page.locator("#file").set_input_files({"name": "runs.jsonl", "mimeType": "text/plain", "buffer": text.encode()})
    page.get_by_role("button", name="Preview").click()
    page.locator("button[name=make]").click()
    expect(page.locator("[data-run-state=completed]")).to_contain_text("imported")
    ask(page)
    assert "measured" in bases(page)
    assert "prior" not in bases(page)
    # A plan composes it; asked again, all of it is there; undone, nothing has changed.
    line = page.locator(".ranking > li", has=page.locator(".basis.measured")).first
    if not line.get_by_role("button", name="Create plan").is_visible():
        line.locator("summary").click()
    line.get_by_role("button", name="Create plan").click()
    page.get_by_role("button", name="Apply plan").click()
    settled(page, "done", running_site)
    assert zones(running_site) != before
    plan = page.url
    ask(page)
    expect(page.locator(".ranking > li", has_text="All of it is composed already.")).not_to_have_count(0)
    page.goto(plan)
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Apply plan").click()
    settled(page, "done", running_site)
    assert zones(running_site) == before
