"""Runs that go on at a host although they have ended here: counted as lost while its agent was away, mostly.

What such a host reports is ended there and forgotten, so that no process keeps a device that another run is given.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from benchmarks.runs.models import Run
from fabric.models import Host, HostAgent
from fabric.services.agents import agent_ask, is_away, report_of
from falconweb.errors import Unavailable
from falconweb.threads import one_connection
from hostwire.shapes import TrainForget, TrainStop

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0


def strays_end() -> list[str]:
    """End what hosts run of runs that have ended here, or that this site never had; returns the runs' ids."""
    ended = []
    for agent in HostAgent.objects.select_related("host"):
        report = None if is_away(agent) else report_of(agent)
        running = report.trainer.running if report is not None else ()
        ended += [run for run in _strays(running) if _end(agent.host, run)]
    return ended


def _strays(running: tuple[str, ...]) -> list[str]:
    known = {}
    for one in running:
        try:
            known[UUID(one)] = one
        except ValueError:
            continue  # nothing that this site could have asked for
    there = Run.objects.open().filter(pk__in=known).values_list("pk", flat=True)
    return [name for pk, name in known.items() if pk not in set(there)]


def _end(host: Host, run: str) -> bool:
    """Ask a host to end and forget a run; False where it does not answer now: it is asked again."""

    async def ask() -> bool:
        stopped = await agent_ask(host, TrainStop(run, GRACE_SECONDS), wait=GRACE_SECONDS + 15.0)
        return stopped is not None and await agent_ask(host, TrainForget(run)) is not None

    try:
        with one_connection():
            done = asyncio.run(ask())
    except Unavailable as error:
        logger.info("%s: run %s: %s", host.name, run, error.sentence)
        return False
    logger.warning("%s still ran %s, which has ended here: %s", host.name, run, "ended" if done else "no answer")
    return done
