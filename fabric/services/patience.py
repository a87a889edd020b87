"""Asking a BMC again while it is away: what was done meanwhile is looked at, never repeated blindly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fabric.bmc.errors import BmcError, ZoneChanged

REQUEST_SECONDS = 10.0  # one answer of the BMC
PLACES = 1  # of the BMC's four: the poller keeps some, and the other drawer may have an operation of its own
OUTAGE_SECONDS = 60.0  # how long a BMC may be away before whoever asks gives up
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 3.0

Answered = TypeVar("Answered")


async def patiently(
    ask: Callable[[], Awaitable[Answered]], *, pausing: Callable[[BmcError, float], Awaitable[None]] | None = None
) -> Answered:
    """Return what `ask` returns, asked again while the BMC is away or a zone changes under us.

    `pausing` is awaited with the error and a time in s before each new try: it waits so long, or raises to give up.
    Raises the last BmcError after OUTAGE_SECONDS.
    """
    end = time.monotonic() + OUTAGE_SECONDS
    pause = FIRST_PAUSE
    while True:
        try:
            return await ask()
        except BmcError as error:
            why = error
            if not (error.retry_helps or isinstance(error, ZoneChanged)) or time.monotonic() + pause > end:
                raise
        await (asyncio.sleep(pause) if pausing is None else pausing(why, pause))
        pause = min(pause * 2, LONGEST_PAUSE)
