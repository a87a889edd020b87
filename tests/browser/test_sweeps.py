"""Sweeps in a browser: counted while the form is filled in, begun, halted, resumed, their charts drawn; accessible."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import hurried
from tests.browser.judging import judge
from tests.site import RunningSite
from tests.waiting import wait_for

SECONDS = 90_000  # ms; two runs and what is around them, on a busy machine
SIXTY = (
    "workload=resnet50&workload=mobilenet_v2&workload=bert_base&host={a}&host={b}&placement=spread&count=1&count=2"
    "&batch_more=4,8,12,16,24&executor=simulated&steps=5&warmup=1&title=Sixty&preset=custom"
)
MANIFEST = """name: small
gpus: [1, 2]
learners: 1
framework:
  name: pytorch
workload: mnist_cnn
"""


def hosts(page: Page) -> list[str]:
    """Return the numbers of the hosts whose agents can simulate runs, once there are two."""
    ready = page.locator('[data-axis="host"] .chip', has_text="simulated")

    def two() -> bool:
        page.goto("/benchmarks/sweeps/new/")
        return ready.count() >= 2

    wait_for(two, "the agents of two hosts report", seconds=60)
    return [one.get_attribute("value") or "" for one in ready.locator("input").all()]


def only(page: Page, axis: str, *values: str) -> None:
    """Tick these chips of an axis and no others."""
    for box in page.locator(f'[data-axis="{axis}"] input[type="checkbox"]').all():
        box.set_checked(box.get_attribute("value") in values)


def counted(page: Page, state: str) -> int:
    """Return how many points of a sweep are in a state."""
    found = re.search(rf"(\d+) {state}", page.locator(".sweep-counts").inner_text())
    return int(found.group(1)) if found else 0


@pytest.mark.nightly
def test_a_sweep_is_counted_begun_halted_and_resumed(page: Page, running_site: RunningSite) -> None:
    first = hosts(page)[0]
    only(page, "workload", "mnist_cnn")
    only(page, "host", first)
    only(page, "placement", "local")
    only(page, "count", "1", "2", "32")
    only(page, "batch", "64")
    expect(page.locator("#count")).to_contain_text("8 GPUs of its own; 32 would be needed")
    expect(page.locator("#count dd").first).to_have_text("2")
    page.get_by_label("Timed steps").fill("1500")
    page.get_by_role("button", name="Start sweep").click()
    page.wait_for_url(re.compile(r"/benchmarks/sweeps/[0-9a-f-]{36}/"))
    expect(page.locator(".cell.open").first).to_be_visible(timeout=SECONDS)
    page.get_by_role("button", name="Halt all").click()
    expect(page.locator(".sweep-state.halted")).to_be_visible()
    expect(page.locator(".cell.open")).to_have_count(0, timeout=SECONDS)
    page.get_by_role("button", name="Resume", exact=True).click()
    judge(page, "a sweep that goes on")
    # Whoever is at a point by keyboard stays there while the page comes up to date, and reads which one it is.
    last = page.locator("a.cell", has_text="Point 2")
    with hurried(running_site, "falcon-1", "falcon-2"):
        last.focus(timeout=SECONDS)
        expect(last.locator(".hidden")).to_have_css("clip-path", "none")
        expect(page.locator(".sweep-state.completed")).to_be_visible(timeout=SECONDS)
    expect(page.locator(".cell.completed")).to_have_count(2)
    expect(last).to_be_focused()
    expect(page.locator("[data-scaling] .scatterlayer .point")).to_have_count(2)
    judge(page, "a sweep that is done")
    page.get_by_text("As a table").click()
    expect(page.get_by_role("region", name="Devices, as a table")).to_contain_text("simulated")
    page.locator("#sure-delete summary").click()
    judge(page, "a sweep that is to be deleted")
    page.get_by_label("and its ").check()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/benchmarks/sweeps/")
    expect(page.get_by_text("is deleted with its runs.")).to_be_visible()


def test_a_manifest_is_explained_without_leaving_the_page(page: Page) -> None:
    hosts(page)
    # Of its own: a manifest that is refused is an error to the console.
    page = page.context.new_page()
    page.goto("/benchmarks/sweeps/new/manifest/")
    page.get_by_label("Manifest", exact=True).fill(MANIFEST + "memory: much\n")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Problems")).to_contain_text("'memory' is a size")
    judge(page, "a manifest with a problem")
    page.get_by_label("Manifest", exact=True).fill(MANIFEST)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Fields")).to_contain_text("The axis 'workload'")
    judge(page, "a manifest that is explained")
    assert page.get_by_label("Manifest", exact=True).input_value() == MANIFEST
    page.close()


@pytest.mark.nightly
def test_sixty_runs_on_two_chassis_are_halted_and_resumed(page: Page) -> None:
    first, second = hosts(page)[:2]
    page.goto("/benchmarks/sweeps/new/?" + SIXTY.format(a=first, b=second))
    expect(page.locator("#count dd").first).to_have_text("60")
    page.get_by_role("button", name="Start sweep").click()
    page.wait_for_url(re.compile(r"/benchmarks/sweeps/[0-9a-f-]{36}/"))
    wait_for(lambda: counted(page, "completed") >= 8, "eight runs complete", seconds=300)
    page.get_by_role("button", name="Halt all").click()
    expect(page.locator(".sweep-state.halted")).to_be_visible()
    expect(page.locator(".cell.open")).to_have_count(0, timeout=SECONDS)
    assert counted(page, "waiting") > 0
    page.get_by_role("button", name="Resume", exact=True).click()
    wait_for(lambda: counted(page, "completed") == 60, "all sixty complete", seconds=900)
    expect(page.locator(".sweep-state.completed")).to_be_visible(timeout=SECONDS)
    page.reload()
    expect(page.locator("[data-scaling]")).to_have_count(2)
    judge(page, "sixty runs")
