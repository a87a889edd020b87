"""How long a BMC takes to show a change that it has accepted: waited for longer at first, then as was seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fabric.bmc.client import TASK_SECONDS, BmcClient
from fabric.bmc.errors import CompositionRefused
from fabric.bmc.transport import BmcResponse

# Where nothing is known, s. Fabrics were seen whose zones show a change after 8 s and more, without a task.
FIRST_SECONDS = 30.0
MIN_SECONDS = 10.0
MAX_SECONDS = 90.0
# What is waited for, in multiples of the longest time of late.
MARGIN = 4.0
# How much of the known time stays after a faster change; a slower one counts at once.
PERSISTENCE = 0.8
MIN_POLL_SECONDS = 0.2
MAX_POLL_SECONDS = 1.0

Found = TypeVar("Found")


def settle_limit(known: float | None) -> float:
    """Return how long to wait for a change, s; `known` is the longest time of late, None: unknown."""
    return FIRST_SECONDS if known is None else min(max(MARGIN * known, MIN_SECONDS), MAX_SECONDS)


def settle_learned(known: float | None, seen: float) -> float:
    """Return the longest time of late, s, after a change that was shown after `seen` s."""
    return seen if known is None or seen >= known else PERSISTENCE * known + (1 - PERSISTENCE) * seen


async def settle(
    bmc: BmcClient,
    written: BmcResponse,
    read: Callable[[], Awaitable[Found]],
    is_settled: Callable[[Found], bool],
    failure: Callable[[Found], str],
) -> Found:
    """Return what `read` finds once a write shows in it, and learn how long that took in `bmc.settle_seconds`.

    A task is followed first; one that cannot be is given a task's time. Raises CompositionRefused with `failure` where
    the change is not shown in time (the next one is waited for as the first), TaskFailed or another BmcError.
    """
    finished = await bmc.finish(written)
    begun, pause = time.monotonic(), MIN_POLL_SECONDS
    limit = TASK_SECONDS if finished.status == 202 else settle_limit(bmc.settle_seconds)
    while not is_settled(found := await read()):
        if time.monotonic() > begun + limit:
            bmc.settle_seconds = None
            raise CompositionRefused(failure(found))
        await asyncio.sleep(pause)
        pause = min(pause * 1.25, MAX_POLL_SECONDS)
    bmc.settle_seconds = settle_learned(bmc.settle_seconds, time.monotonic() - begun)
    return found
