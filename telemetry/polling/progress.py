"""How walks of a worker proceed that take long, told to pages: one statement for all that proceed alike, or wait.

With a thousand chassis to walk, a statement for each would keep from the database what the walks have to store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error

from core.threads import run_in_thread
from fabric.bmc.walk_turns import WalkPace
from fabric.inventory.progress import FRESH, WalkState, walk_progress_record

logger = logging.getLogger(__name__)

LOOK_SECONDS = 4.0  # a walk that is over before is not told
STALE_SECONDS = FRESH.total_seconds() * 0.6  # what has not changed is told again


class WalkProgress:
    """The walks of one event loop that go on now."""

    def __init__(self) -> None:
        self._paces: dict[int, WalkPace] = {}
        self._told: dict[int, tuple[WalkState | None, float]] = {}  # by chassis: what, and when (monotonic s)

    @contextmanager
    def of(self, chassis: int, pace: WalkPace) -> Iterator[None]:
        """Tell how a walk proceeds while it does."""
        self._paces[chassis], self._told[chassis] = pace, (None, time.monotonic())
        try:
            yield
        finally:
            del self._paces[chassis], self._told[chassis]

    async def watch(self) -> None:
        """Tell again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Store what has changed since it was told, and what would be stale soon."""
        now = time.monotonic()
        news: dict[WalkState, list[int]] = defaultdict(list)
        for chassis, pace in self._paces.items():
            state = WalkState(pace.read, pace.known, pace.waits)
            told, at = self._told[chassis]
            if now - at >= (STALE_SECONDS if state == told else LOOK_SECONDS):
                news[state].append(chassis)
        if not news:
            return
        try:
            await run_in_thread(walk_progress_record, news, seconds=LOOK_SECONDS)
        except Error as error:
            logger.info("how walks proceed was not stored: %s", error)
            return
        for state, chassis_ids in news.items():
            for chassis in self._told.keys() & set(chassis_ids):
                self._told[chassis] = state, now
