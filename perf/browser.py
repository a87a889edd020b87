"""Live pages in Chromium: what eight charts, and the topology beside a map of 200 chassis, cost its main thread; leaks.

Frames arrive as the poller publishes them, one per second. The environment variable BROWSER_SECONDS shortens the
measurement. The page of charts is measured with uPlot in place of the module that paints them, too.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis.asyncio
from django.conf import settings
from django.core.management import call_command
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot
from falconweb.config import BASE_DIR
from falconweb.launch.processes import terminate_all
from perf.chassis import SyntheticReadings, catalogue_entries, create_chassis, store_readings
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from perf.servers import create_session, start_web
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.frames import Frame, FrameOutbox, FrameUpdate, set_catalogue

HOLDER = "perf"
SECONDS = 600.0
SETTLE_SECONDS = 20.0
UPLOT_SECONDS = 120.0
SUBJECTS = 4
METRICS = (
    "rx_bytes_per_second", "tx_bytes_per_second", "temperature_celsius", "power_watts", "utilisation_percent",
    "error_rate", "errors", "link_width_lanes", "link_speed_gbps",
)  # fmt: skip
CHARTS = 8
MAX_MS = 12.0
FEW, MANY = 2, 200  # chassis
MAX_TOPOLOGY_MS = {FEW: 4.0, MANY: 16.0}  # of a second
MAP_SECONDS = 60.0
MAX_GROWTH = 1.0  # MB, after garbage collection
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser")
UPLOT = BASE_DIR / "node_modules" / "uplot"
UPLOT_PAINTER = Path(__file__).parent / "uplot_painter.js"
PAINTER = re.compile(r"/static/site/chart-painter(\.\w+)?\.js$")
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--js-flags=--expose-gc",
)


class FramePublisher(threading.Thread):
    """Publishes a frame per second until stopped."""

    def __init__(self, chassis: int, entries: list[SeriesEntry]) -> None:
        super().__init__(daemon=True)
        self._chassis, self._entries = chassis, entries
        self.over = threading.Event()
        self.frames = 0

    def run(self) -> None:
        """Publish."""
        asyncio.run(self._publish())

    async def _publish(self) -> None:
        bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        outbox = FrameOutbox(bus, HOLDER)
        await bus.set(f"polling:{self._chassis}", HOLDER)
        revision = await set_catalogue(bus, self._chassis, self._entries)
        measured = SyntheticReadings(self._entries)
        while not self.over.wait(1.0 - time.time() % 1.0):
            at = time.time()
            _, values = measured.next(at)
            await outbox.publish(FrameUpdate(Frame(revision, self._chassis, int(at), at, values)))
            self.frames += 1
        await outbox.close()
        await bus.delete(f"polling:{self._chassis}")
        await bus.aclose()


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of the page; takes a little longer than the observation."""
    program = chromium_program()
    seconds = float(os.environ.get("BROWSER_SECONDS", SECONDS))
    session = create_session()
    chassis = create_chassis("perf")
    entries = catalogue_entries(chassis)
    other = create_chassis("perf-2")
    for one in (chassis, other):
        _attach(one)
    now = time.time()
    log(f"an hour of {len(entries)} series")
    store_readings(chassis.pk, entries, since=now - 3600, until=now)
    call_command("collectstatic", "--noinput", verbosity=0)
    address = _address(chassis)
    child, port = asyncio.run(start_web("site", "falconweb.asgi:application"))
    feed, other_feed = FramePublisher(chassis.pk, entries), FramePublisher(other.pk, catalogue_entries(other))
    try:
        feed.start()
        other_feed.start()
        with _opening(program, port, session) as opened:
            few = [*_topology(log, opened(), chassis.pk, FEW, seconds)]
            page = opened()
            own = _watch(log, page, address, feed, seconds)
            page.context.close()
            uplot = None
            if UPLOT.is_dir():
                page = opened()
                page.route(PAINTER, lambda route: route.fulfill(path=UPLOT_PAINTER, content_type="text/javascript"))
                page.route(
                    "**/node_modules/**",
                    lambda route: route.fulfill(path=UPLOT / route.request.url.partition("/node_modules/uplot/")[2]),
                )
                uplot = _watch(log, page, address, feed, min(seconds, UPLOT_SECONDS))
        for number in range(FEW + 1, MANY + 1):
            create_chassis(f"perf-{number}")
        with _opening(program, port, session) as opened:
            return [*_figures(own, uplot), *few, *_topology(log, opened(), chassis.pk, MANY, seconds)]
    finally:
        feed.over.set()
        other_feed.over.set()
        terminate_all([child])


@contextmanager
def _opening(program: str, port: int, session: str) -> Iterator[Callable[[], Page]]:
    """Run Chromium, and yield what opens a page; the database cannot be used meanwhile, since Playwright has a loop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_OPTIONS))
        yield lambda: open_context(browser, f"http://127.0.0.1:{port}", session).new_page()


def chromium_program() -> str:
    """Return the path of Debian's Chromium; raises CannotMeasureError."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise CannotMeasureError("Chromium is not installed: apt-get install chromium-headless-shell")
    return program


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


def _topology(log: Callable[[str], None], page: Page, shown: int, chassis: int, seconds: float) -> Iterator[PerfFigure]:
    """Yield what the topology of the chassis `shown` (id), live, and the map of all cost the main thread."""
    page.goto(f"/fabric/?chassis={shown}")
    page.locator(f".fleet li:nth-child({chassis})").wait_for()
    page.locator("[data-reading]:not(:empty)").first.wait_for()
    seconds = min(seconds, MAP_SECONDS)
    log(f"a topology and the map of {chassis}, for {seconds:.0f} s")
    spent = main_thread_times(page, until=time.monotonic() + seconds)
    page.context.close()
    what = f"topology and map of {chassis} chassis live: main thread a second"
    yield PerfFigure(f"{what}, median", statistics.median(spent), "ms", most=MAX_TOPOLOGY_MS[chassis])
    yield PerfFigure(f"{what}, 95 of 100", percentile_95(spent), "ms")


def _address(chassis: Chassis) -> str:
    slots = Slot.objects.filter(chassis=chassis).order_by("number").values_list("pk", flat=True)[:SUBJECTS]
    of = "&".join(f"of=slot/{pk}" for pk in slots)
    return f"/telemetry/?{of}&{'&'.join(f'metric={name}' for name in METRICS)}&range=1h"


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The resources of one page: main-thread time per frame in ms, bytes in use, nodes of the document."""

    what: str
    seconds: float
    spent: list[float]
    memory: list[float]
    nodes: float


def open_context(browser: Browser, site: str, session: str) -> BrowserContext:
    """Return a browser of its own, signed in, without anything in the cache."""
    context = browser.new_context(base_url=site, viewport={"width": 1920, "height": 2200})
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": site}])
    return context


def main_thread_times(page: Page, *, until: float) -> list[float]:
    """Return what the page's main thread takes in each second until a time of the monotonic clock, ms."""
    devtools = _devtools(page)
    seen = [_metrics(devtools)["TaskDuration"]]
    while time.monotonic() < until:
        page.wait_for_timeout(1000)
        seen.append(_metrics(devtools)["TaskDuration"])
    return [(after - before) * 1e3 for before, after in pairwise(seen)]


def _watch(log: Callable[[str], None], page: Page, address: str, feed: FramePublisher, seconds: float) -> Watched:
    page.goto(address)
    charts = page.locator(".history canvas[data-points]")
    charts.nth(CHARTS - 1).wait_for(state="attached", timeout=30_000)
    devtools = _devtools(page)
    page.wait_for_timeout(SETTLE_SECONDS * 1000)
    drawn = charts.evaluate_all("(all) => all.map((one) => Number(one.dataset.points))")
    lines = page.locator(".history .chart-legend li").count()
    if min(drawn) < 300:
        raise CannotMeasureError(f"a chart has {min(drawn)} points of an hour only.")
    what = f"{CHARTS} charts, {lines} lines of {max(drawn)} points"
    log(f"{what}, for {seconds:.0f} s")
    begin, first = _metrics(devtools), _memory(devtools)
    spent: list[float] = []
    memory = [first]
    frames, until = feed.frames, time.monotonic() + seconds
    before = begin
    while time.monotonic() < until:
        had = feed.frames
        page.wait_for_timeout(1000)
        now = _metrics(devtools)
        if feed.frames > had:
            spent.append((now["TaskDuration"] - before["TaskDuration"]) * 1e3 / (feed.frames - had))
        before = now
        if len(spent) % 60 == 0:
            # The cost of the collection does not count.
            memory.append(_memory(devtools))
            before = _metrics(devtools)
    memory.append(_memory(devtools))
    taken = feed.frames - frames
    newest = float(charts.first.get_attribute("data-newest") or 0)
    if taken < 0.9 * seconds or time.time() - newest > 30:
        raise CannotMeasureError("frames did not come through.")
    nodes = _metrics(devtools)["Nodes"] - begin["Nodes"]
    return Watched(what=what, seconds=seconds, spent=spent, memory=memory, nodes=nodes)


def _figures(own: Watched, uplot: Watched | None) -> list[PerfFigure]:
    settled = own.memory[1:] if len(own.memory) > 3 else own.memory
    growth = (statistics.median(settled[-2:]) - statistics.median(settled[:2])) / 1e6
    return [
        _thread(f"main thread a frame, median, {own.what}, an hour and live", statistics.median, own, uplot),
        _thread("main thread a frame, 95 of 100", percentile_95, own, uplot),
        PerfFigure(f"growth of the memory in use over {own.seconds:.0f} s", growth, "MB", most=MAX_GROWTH),
        PerfFigure("memory in use at the end", own.memory[-1] / 1e6, "MB"),
        PerfFigure("growth of the document", own.nodes, "nodes"),
    ]


def _thread(figure: str, of: Callable[[list[float]], float], own: Watched, uplot: Watched | None) -> PerfFigure:
    beside: dict[str, Any] = {"beside": "painted by uPlot", "beside_value": of(uplot.spent)} if uplot else {}
    return PerfFigure(figure, of(own.spent), "ms", most=MAX_MS, **beside)


def _devtools(page: Page) -> CDPSession:
    devtools = page.context.new_cdp_session(page)
    # CPU time of the thread, without waiting for other processes of the machine.
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    return devtools


def _metrics(devtools: CDPSession) -> dict[str, float]:
    answer: Any = devtools.send("Performance.getMetrics")
    return {one["name"]: one["value"] for one in answer["metrics"]}


def _memory(devtools: CDPSession) -> float:
    """Return the bytes in use after garbage collection."""
    devtools.send("HeapProfiler.collectGarbage")
    return _metrics(devtools)["JSHeapUsedSize"]


def percentile_95(values: list[float]) -> float:
    """Return the value that 95 of 100 do not exceed."""
    return sorted(values)[int(len(values) * 0.95)]
