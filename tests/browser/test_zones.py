"""A person in Tokyo: pages show and take the times of their browser's zone, and addresses hold instants."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import WIDE, opened, sign_in
from tests.browser.judging import judge
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite

TOKYO = ZoneInfo("Asia/Tokyo")


@pytest.fixture
def tokyo(browser: Browser, running_site: RunningSite, administrator: BrowserContext) -> Iterator[Page]:
    """A page of an administrator in Tokyo."""
    with opened(browser, running_site, viewport=WIDE, timezone_id="Asia/Tokyo") as context:
        yield sign_in(context, "administrator", ADMINISTRATOR_PASSWORD)


def test_a_page_is_in_the_zone_of_its_browser(tokyo: Page) -> None:
    tokyo.goto("/account/")
    expect(tokyo.locator("html")).to_have_attribute("data-zone", "Asia/Tokyo")
    began = tokyo.locator("dd time").first
    instant = datetime.fromisoformat(began.get_attribute("datetime") or "")
    expect(began).to_have_text(f"{instant.astimezone(TOKYO):%Y-%m-%d %H:%M:%S}")
    tokyo.locator("summary .account").click()
    expect(tokyo.get_by_role("link", name="Times in Asia/Tokyo (UTC+9)")).to_be_visible()
    judge(tokyo, "account")


def test_a_chart_is_in_the_zone_and_its_address_holds_instants(tokyo: Page) -> None:
    tokyo.goto("/telemetry/?of=chassis/1&range=15m")
    chart = tokyo.locator(".history figure.chart").first
    expect(chart.locator("canvas[data-points]")).to_be_attached()
    tokyo.fill("#since", "2026-03-02T05:00:00")
    tokyo.fill("#until", "2026-03-02T06:00:00")
    tokyo.click("#custom button")
    tokyo.wait_for_url("**since=2026-03-01T20:00:00Z&until=2026-03-01T21:00:00Z")
    expect(tokyo.locator("#since")).to_have_value("2026-03-02T05:00")
    tokyo.locator("[data-move=earlier]").click()
    tokyo.wait_for_url("**since=2026-03-01T19:30:00Z&until=2026-03-01T20:30:00Z")
    expect(tokyo.locator("#until")).to_have_value("2026-03-02T05:30")
