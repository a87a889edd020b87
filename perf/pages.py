"""Main pages with 200 chassis: their size, and how long they take without a cache."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from playwright.sync_api import Browser, sync_playwright

from falconweb.launch.processes import terminate_all
from perf.browser import CHROMIUM_OPTIONS, chromium_program, open_context
from perf.chassis import create_chassis
from perf.figures import PerfFigure
from perf.servers import create_session, start_web

CHASSIS = 200
PAGES = {
    "overview": "/", "fabric": "/fabric/", "devices": "/devices/", "hosts": "/hosts/", "charts": "/telemetry/",
}  # fmt: skip
LOADS = 5
MAX_KB = 150.0
MAX_LOAD_MS = 700.0
LOADED = """() => {
  const [page] = performance.getEntriesByType("navigation");
  return [page.loadEventEnd, page.decodedBodySize / 1000];
}"""


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of each page."""
    program = chromium_program()
    session = create_session()
    log(f"{CHASSIS} chassis")
    for number in range(1, CHASSIS + 1):
        create_chassis(f"perf-{number}")
    call_command("collectstatic", "--noinput", verbosity=0)
    child, port = asyncio.run(start_web("site", "falconweb.asgi:application"))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_OPTIONS))
            site = f"http://127.0.0.1:{port}"
            return [figure for name in PAGES for figure in _loads(browser, site, session, name)]
    finally:
        terminate_all([child])


def _loads(browser: Browser, site: str, session: str, name: str) -> list[PerfFigure]:
    """Return how long a page takes until it is loaded, each time without anything in the cache, and its size."""
    seen: list[Any] = []
    for _ in range(LOADS + 1):
        context = open_context(browser, site, session)
        page = context.new_page()
        page.goto(PAGES[name])
        page.wait_for_function("() => performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
        seen.append(page.evaluate(LOADED))
        context.close()
    # The first one compiles the templates of the site.
    times = [one[0] for one in seen[1:]]
    return [
        PerfFigure(
            f"{name}: loaded without a cache, median of {LOADS}", statistics.median(times), "ms", most=MAX_LOAD_MS
        ),
        PerfFigure(f"{name}: HTML", seen[-1][1], "KB", most=MAX_KB),
    ]
