"""The published experiment in a browser: its charts are loaded as they come into view."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.judging import judge


def test_charts_take_the_place_of_pictures_as_they_come_into_view_with_published_limits(page: Page) -> None:
    page.goto("/benchmarks/experiment/")
    last = page.locator("#figure-16")
    expect(last.locator(".picture")).to_have_count(1)
    first = page.locator("#table-4")
    first.scroll_into_view_if_needed()
    expect(first.locator("[data-plot][data-drawn]").first).to_be_visible()
    expect(first.locator(".picture")).to_have_count(0)
    expect(last.locator(".picture")).to_have_count(1)
    judge(page, "the experiment with charts")
    page.goto("/benchmarks/experiment/figure-11/")
    limits = page.locator("[data-plot][data-drawn] .annotation-text")
    expect(limits).to_have_text(["< 1.05", "< 1.05", "< 1.07", "falconGPUs ≈ 2"])
    expect(page.locator(".chart-bound")).to_have_text("published limit")
