"""Figures of benchmarks: drawn, the same in chart, table and CSV, by keyboard and on paper, and runs side by side."""

from __future__ import annotations

import csv
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.judging import judge
from tests.processes import ROOT
from tests.site import RunningSite

SEED = "tests.benchmarks.figures.seed"
# What the chart library has drawn: the values of every trace that is a figure of runs.
DRAWN = "plot => plot.data.filter(one => one.type === 'bar').flatMap(one => [...one.y]).sort((a, b) => a - b)"


@pytest.fixture(scope="module")
def study(running_site: RunningSite, administrator: BrowserContext) -> list[str]:
    """Runs of a small study in the database of the site, by their ids."""
    made = subprocess.run(
        [sys.executable, "-m", SEED],
        cwd=ROOT,
        env=running_site.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.split()


def plot(page: Page) -> Locator:
    drawn = page.locator("[data-plot][data-drawn]").first
    drawn.locator(".main-svg").first.wait_for()
    return drawn


def test_a_figure_is_drawn_of_what_its_table_and_its_file_tell(page: Page, study: list[str]) -> None:
    page.goto("/benchmarks/figures/")
    page.get_by_role("link", name="Relative training time by configuration").click()
    chart = plot(page)
    drawn: list[float] = chart.evaluate(DRAWN)
    assert len(drawn) > 10
    shown = page.locator("tbody tr td:nth-child(4)").evaluate_all(
        "cells => cells.map(one => Number(one.dataset.value))"
    )
    assert drawn == sorted(shown)
    with page.expect_download() as download:
        page.get_by_role("link", name="as CSV").click()
    kept = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert sorted(float(one["Time relative to localGPUs"]) for one in kept) == drawn
    # No two provenances are in one trace, and each is said and drawn in its own way.
    traces = chart.evaluate("plot => plot.data.map(one => [one.meta.split('\\n')[1], one.marker.pattern.shape])")
    assert {tuple(one) for one in traces} == {("measured", ""), ("simulated", "/")}
    expect(page.locator(".chart-legend")).to_have_text(re.compile(r"(.*\(simulated\)){5}", re.DOTALL))
    judge(page, "a figure")


@pytest.mark.nightly
def test_the_legend_hides_a_group_by_keyboard_and_a_picture_is_saved(page: Page, study: list[str]) -> None:
    page.goto("/benchmarks/figures/relative-time/?with=predicted")
    chart = plot(page)
    before = len(chart.evaluate("plot => plot.data"))
    button = page.locator(".chart-legend button").nth(3)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert len(chart.evaluate("plot => plot.data")) == before - 1
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert download.value.suggested_filename == "relative-time.png"


@pytest.mark.nightly
def test_lines_are_drawn_over_the_run_and_scaling_beside_its_proportion(page: Page, study: list[str]) -> None:
    page.goto("/benchmarks/figures/utilisation/?time=seconds")
    assert len(plot(page).evaluate("plot => plot.data")) == 8
    expect(page.locator(".figure-notes")).to_contain_text("a chart has at most 8 lines")
    page.goto("/benchmarks/figures/scaling/")
    assert plot(page).evaluate("plot => plot.data.map(one => one.y.length)") == [4, 4]
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/benchmarks/figures/resources/")
    plot(page)
    judge(page, "several charts")


def test_places_whose_names_are_too_long_are_numbered_and_no_two_names_overlap(page: Page, study: list[str]) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/benchmarks/figures/pcie/?with=predicted")
    chart = plot(page)
    key = page.locator(".chart-places li")
    expect(key.first).to_be_visible()
    numbers = [str(number + 1) for number in range(key.count())]
    expect(chart.locator(".xaxislayer-above text")).to_have_text(numbers)
    assert "falconGPUs" in "".join(key.all_inner_texts())
    # Where there is room they stand below the axis, and apart.
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/benchmarks/figures/relative-time/?workload=resnet50&workload=bert_large")
    boxes = (
        plot(page)
        .locator(".xaxislayer-above text")
        .evaluate_all("texts => texts.map(one => one.getBoundingClientRect()).map(({left, right}) => [left, right])")
    )
    assert len(boxes) >= 2
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(boxes))
    expect(page.locator(".chart-places")).to_be_hidden()


@pytest.mark.nightly
def test_runs_are_chosen_and_laid_side_by_side(page: Page, study: list[str]) -> None:
    page.goto("/benchmarks/figures/")
    for name in ("ResNet-50 on localGPUs", "ResNet-50 on falconGPUs"):
        page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    assert page.url.count("run=") == 2
    expect(page.locator(".results .ratio").first).to_contain_text("×")
    page.get_by_role("heading", name="Loss over steps").scroll_into_view_if_needed()
    expect(page.locator("[data-plot][data-drawn]")).to_have_count(3)
    page.get_by_role("link", name="make it the baseline").first.click()
    expect(page.locator("thead th").first).to_contain_text("falconGPUs")
    judge(page, "runs side by side")


@pytest.mark.nightly
def test_on_paper_all_charts_are_drawn_and_in_light_colours(page: Page, study: list[str]) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto("/benchmarks/figures/resources/")
    plot(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    count = page.locator("[data-figure]").count()
    assert count >= 4
    expect(page.locator("[data-plot][data-drawn]")).to_have_count(count)
    ink = "plot => plot.layout.font.color"
    on_paper = page.locator("[data-plot]").first.evaluate(ink)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("[data-plot]").first.evaluate(ink) != on_paper
