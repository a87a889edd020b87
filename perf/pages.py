"""Main pages with 200 chassis: their size, how long they take without a cache, and what live pages cost a frame."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port
from falconweb.launch.processes import terminate_all
from perf.browser import (
    CHROMIUM_OPTIONS,
    FramePublisher,
    chromium_program,
    main_thread_times,
    open_context,
    percentile_95,
)
from perf.chassis import catalogue_entries, create_chassis
from perf.figures import PerfFigure
from perf.servers import create_session, start_web

FEW, CHASSIS = 2, 200
PAGES = {
    "overview": "/", "fabric": "/fabric/", "devices": "/devices/", "hosts": "/hosts/", "charts": "/telemetry/",
}  # fmt: skip
LOADS = 5
FRAMES_SECONDS = 60.0
MAX_KB = 150.0
MAX_LOAD_MS = 700.0
# On the main thread, a frame a second: with two chassis, and with 200.
MAX_FEW_MS, MAX_FRAME_MS = 4.0, 16.0
LOADED = """() => {
  const [page] = performance.getEntriesByType("navigation");
  return [page.loadEventEnd, page.decodedBodySize / 1000];
}"""


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of each page, and of the map."""
    program = chromium_program()
    session = create_session()
    log(f"{FEW} chassis")
    chassis = [create_chassis(f"perf-{number}") for number in range(1, FEW + 1)]
    for one in chassis:
        _attach(one)
    call_command("collectstatic", "--noinput", verbosity=0)
    child, port = asyncio.run(start_web("site", "falconweb.asgi:application"))
    feeds = [FramePublisher(one.pk, catalogue_entries(one)) for one in chassis]
    try:
        for feed in feeds:
            feed.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_OPTIONS))
            site = f"http://127.0.0.1:{port}"
            figures = _live(log, open_context(browser, site, session), chassis[0].pk, FEW, MAX_FEW_MS)
            log(f"{CHASSIS} chassis")
            for number in range(FEW + 1, CHASSIS + 1):
                create_chassis(f"perf-{number}")
            return [
                *(figure for name in PAGES for figure in _loads(browser, site, session, name)),
                *figures,
                *_live(log, open_context(browser, site, session), chassis[0].pk, CHASSIS, MAX_FRAME_MS),
            ]
    finally:
        for feed in feeds:
            feed.over.set()
        terminate_all([child])


def _attach(chassis: Chassis) -> None:
    """Give each drawer two hosts, and half of its devices to each."""
    for drawer in Drawer.objects.filter(chassis=chassis).order_by("pk"):
        devices = Device.objects.filter(slot__drawer=drawer).order_by("pk")
        for number in (1, 2):
            label = f"{drawer.pk}-{number}"
            port = Port.objects.create(chassis=chassis, uri=f"/port{label}", name=f"H{number}", width=16)
            host = Host.objects.create(identity=f"host-{label}", name=f"host-{label}")
            host_port = HostPort.objects.create(
                chassis=chassis, drawer=drawer, uri=f"/zone{label}", label=f"H{number}", number=number, host=host,
                port=port,
            )  # fmt: skip
            half = [one.pk for one in devices[number - 1 :: 2]]
            Device.objects.filter(pk__in=half).update(host_port=host_port)


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


def _live(
    log: Callable[[str], None], context: BrowserContext, shown: int, chassis: int, most: float
) -> list[PerfFigure]:
    """Return what the topology of the chassis `shown` (id), live, and the map of all cost the main thread."""
    page = context.new_page()
    page.goto(f"{PAGES['fabric']}?chassis={shown}")
    page.locator(f".fleet li:nth-child({chassis})").wait_for()
    page.locator("[data-reading]:not(:empty)").first.wait_for()
    log(f"a topology and the map of {chassis}, for {FRAMES_SECONDS:.0f} s")
    spent = main_thread_times(page, until=time.monotonic() + FRAMES_SECONDS)
    context.close()
    what = f"topology and map of {chassis} live: main thread a second"
    return [
        PerfFigure(f"{what}, median", statistics.median(spent), "ms", most=most),
        PerfFigure(f"{what}, 95 of 100", percentile_95(spent), "ms"),
    ]
