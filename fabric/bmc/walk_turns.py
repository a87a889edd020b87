"""Turns of the walks of one worker: a BMC that is slow, large or silent never keeps another one waiting for long.

Walks take turns of some seconds. Those of BMCs that answer quickly have a lane of their own; those that turned out to
be slow or large share another one. A turn ends by itself: who waits for a BMC that does not answer holds no place. One
that did not answer the last time gets a turn only once it does: however many are dead, the slow ones have their lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

QUICK_WALKS = 4  # at a time
HEAVY_WALKS = 4
TURN_SECONDS = 4.0
FIRST_TURN_SECONDS = 1.0  # of a BMC of which nothing is known yet, until it has answered quickly
FEW_REQUESTS = 4
SLOW_SECONDS = 0.5  # mean time of a request from which a BMC is slow
LARGE_WALK = 3000  # resources
# Bounds on the content of walks in memory, bytes of objects (see `CrawledResource`): each has its own share, and what
# is beyond it comes out of one pool of all.
OWN_BYTES = 8 * 2**20
POOL_BYTES = 128 * 2**20


@dataclass(eq=False)
class WalkPace:
    """How a walk proceeds: what it has `read` of what it knows to be there, in how many requests of how long.

    It outlives a walk and a connection, so that a BMC that did not answer waits among the slow ones the next time.
    """

    read: int = 0
    known: int = 0
    requests: int = 0
    seconds: float = 0.0  # of all requests
    waits: bool = False  # for its turn
    is_known: bool = False  # what a walk found is stored
    is_lost: bool = False  # the BMC could not be reached the last time

    @property
    def is_heavy(self) -> bool:
        """Whether it is slow or large."""
        return self.read > LARGE_WALK or self.seconds > SLOW_SECONDS * max(self.requests, FEW_REQUESTS)

    def age(self) -> None:
        """Let what was count for half: the distant past of a BMC says little of its pace."""
        self.requests, self.seconds = self.requests // 2, self.seconds / 2


class Turn:
    """A place in a lane: free after `seconds`, even if in use."""

    def __init__(self, lane: asyncio.Semaphore, seconds: float) -> None:
        self._lane: asyncio.Semaphore | None = lane
        self.seconds = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def lengthen(self, seconds: float) -> None:
        """Let it last for so long from now on; one that has ended stays so."""
        if self._lane is not None:
            self.seconds = seconds
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Leave the place, once."""
        lane, self._lane = self._lane, None
        self._timer.cancel()
        if lane is not None:
            lane.release()


class MemoryShare:
    """The memory of one BMC's walks, which ends with it: a walk takes that of the one before."""


class WalkTurns:
    """The turns of the walks of one event loop, the writing of what they found, and the memory that they share."""

    def __init__(self, pool: int | None = None) -> None:
        self._pool = POOL_BYTES if pool is None else pool  # bytes
        self._walking = {False: asyncio.Semaphore(QUICK_WALKS), True: asyncio.Semaphore(HEAVY_WALKS)}
        self._storing = {False: asyncio.Semaphore(QUICK_WALKS), True: asyncio.Semaphore(1)}
        self.waiting = 0  # first walks of BMCs that answer quickly that wait for a turn, or to be stored
        self._shares: WeakKeyDictionary[MemoryShare, int] = WeakKeyDictionary()

    @asynccontextmanager
    async def turn(self, pace: WalkPace) -> AsyncIterator[Turn]:
        """Wait for a turn of a walk."""
        lane = self._walking[pace.is_heavy]
        pace.waits = lane.locked()
        try:
            with self._waiting(lane, pace):
                await lane.acquire()
        finally:
            pace.waits = False
        turn = Turn(lane, FIRST_TURN_SECONDS if pace.requests < FEW_REQUESTS else TURN_SECONDS)
        try:
            yield turn
        finally:
            turn.end()

    @asynccontextmanager
    async def storing(self, pace: WalkPace) -> AsyncIterator[None]:
        """Wait until the result of a walk may be stored: one large one at a time, beside those of others."""
        places = self._storing[pace.is_heavy]
        with self._waiting(places, pace):
            await places.acquire()
        try:
            yield
        finally:
            places.release()

    @contextmanager
    def _waiting(self, places: asyncio.Semaphore, pace: WalkPace) -> Iterator[None]:
        """Count a walk that others give way to, where it has to wait."""
        waits = places.locked() and not pace.is_heavy and not pace.is_known
        self.waiting += waits
        try:
            yield
        finally:
            self.waiting -= waits

    def grant(self, owner: MemoryShare, size: int) -> bool:
        """Return whether `owner` may have `size` bytes in memory; its share ends with it."""
        beyond = max(0, size - OWN_BYTES)
        granted = (
            beyond <= self._shares.get(owner, 0)
            or beyond + sum(share for other, share in self._shares.items() if other is not owner) <= self._pool
        )
        if granted and beyond:
            self._shares[owner] = max(beyond, self._shares.get(owner, 0))
        return granted
