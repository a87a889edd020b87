"""The site of perf.rest while a thousand people look at both of its chassis, and while a sweep of 64 runs goes on.

What all processes of the site take, whole and by kind; the people's browsers are in a process that does not count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace

from django.conf import settings

from falconweb.launch.processes import raise_file_limit
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from perf.processes import RunningSite, SiteCost, ask_site, demonstration_site
from perf.servers import LoadGeneratorProcess

SOCKETS, PEOPLE = 1000, 250  # and whose sessions the sockets have
LOOKING_SECONDS = 60.0
SETTLE_SECONDS = 5.0
RUNS = 64
RUNS_SECONDS = 1200.0  # each takes some three, beside much other work nine


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of both; reports its progress to `log`. Takes some eight minutes."""
    raise_file_limit()
    with demonstration_site(log) as site:
        log(f"{SOCKETS:,} people look")
        figures = _named(f"{SOCKETS:,} people", asyncio.run(_looking(site)))
        log(f"a sweep of {RUNS} runs")
        return figures + _named(f"{RUNS} runs", _sweeping(site))


def _named(what: str, figures: list[PerfFigure]) -> list[PerfFigure]:
    return [replace(figure, figure=f"{what}: {figure.figure}") for figure in figures]


async def _looking(site: RunningSite) -> list[PerfFigure]:
    people = ask_site(site, "people", str(PEOPLE))
    greeting = json.dumps({"subscribe": people["chassis"]})
    cookies = [f"{settings.SESSION_COOKIE_NAME}={session}" for session in people["sessions"]]
    generator = await LoadGeneratorProcess.start(f"ws://127.0.0.1:{site.port}/ws/live/", cookies, greeting)
    try:
        await generator.command("open", count=SOCKETS)
        await asyncio.sleep(SETTLE_SECONDS)
        cost = SiteCost(site)
        await generator.command("begin")
        await asyncio.sleep(LOOKING_SECONDS)
        report = await generator.command("report")
        figures = cost.figures()
    finally:
        await generator.end()
    if report["fewest"] < 1:
        raise CannotMeasureError("a socket got no frame.")
    return [
        *figures,
        PerfFigure("frames delivered", report["frames"] / LOOKING_SECONDS, "1/s"),
        PerfFigure("p99 late", report["p99"] * 1e3, "ms"),
    ]


def _sweeping(site: RunningSite) -> list[PerfFigure]:
    cost, began = SiteCost(site), time.monotonic()
    sweep = ask_site(site, "sweep", str(RUNS))["sweep"]
    while (state := ask_site(site, "state", sweep))["waiting"]:
        if time.monotonic() - began > RUNS_SECONDS:
            raise CannotMeasureError(f"{state['waiting']} runs did not end in {RUNS_SECONDS:.0f} s.")
        time.sleep(SETTLE_SECONDS)
    if state["failed"]:
        raise CannotMeasureError(f"{state['failed']} runs failed.")
    return [*cost.figures(), PerfFigure("until all have ended", time.monotonic() - began, "s")]
