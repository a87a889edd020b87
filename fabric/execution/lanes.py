"""What a worker keeps between operations of one chassis that follow one another, and for a while after the last one.

The first requests of a new client (a handshake, the service root, a session) take longer than all rows of an operation.
A lane that is kept is used by the next operation of its chassis, in whatever thread of the worker that runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Any

from django.db import close_old_connections, connections

from core.threads import in_thread_of, run_in_pool, run_in_thread, unwaited
from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import REQUEST_SECONDS, BmcClient
from fabric.execution.claims import OperationClaim
from fabric.inventory.access import chassis_client
from fabric.inventory.models import Chassis

logger = logging.getLogger(__name__)

IDLE_SECONDS = 30.0  # a person who attaches one device after the other asks again within
MOST_KEPT = 8  # each has a connection to the database, of which a server allows some hundred to all processes
CLOSE_SECONDS = 1.0  # that the end of a process waits for BMCs, beside all else that it ends
PUT_OFF_SECONDS = 0.05  # by when an operation waits for its first write, of a BMC that answers fast
STORED_SETTLE_STEP = 0.01  # s; pages show tenths


class OperationLane:
    """A loop, a thread with a connection to the database, a session with the BMC; for one thread at a time."""

    def __init__(self) -> None:
        self.claim: OperationClaim | None = None  # of the operation that is carried out
        self._bmc: BmcClient | None = None  # signed in, of the operation before
        # Its address, and its password as it is stored, which a client compares before it signs in.
        self._made_for: tuple[BmcAddress, str] | None = None
        self._thread = ThreadPoolExecutor(1, "database")
        self._is_in_use = False
        self._put_off: Callable[[], None] | None = None
        self._runner = asyncio.Runner()

    @property
    def is_warm(self) -> bool:
        """Whether the next operation need not sign in."""
        return self._bmc is not None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Do the work of the enclosed block with its thread."""
        with in_thread_of(self._thread):
            self._is_in_use = True
            try:
                yield
            finally:
                self._is_in_use = False
                self.catch_up()
                close_old_connections()

    def run(self, work: Callable[[], Any]) -> None:
        """Run a coroutine function in the loop, in a task of its own context, as that of the caller is."""
        if self._put_off is not None:
            self._runner.get_loop().call_later(PUT_OFF_SECONDS, self.catch_up)
        self._runner.run(work(), context=copy_context())

    async def put_off(self, work: Callable[[], object]) -> None:
        """Have database work done that nobody waits for, in PUT_OFF_SECONDS of the next operation or at `catch_up`.

        The thread is free for what the next operation waits for until then. A lane that is not in use waits for it.
        """
        self.catch_up()
        if self._is_in_use:
            self._put_off = unwaited(work)
        else:
            await run_in_pool(unwaited(work))

    def catch_up(self) -> None:
        """Begin what was put off."""
        work, self._put_off = self._put_off, None
        if work is not None:
            self._thread.submit(work)

    def rest(self) -> None:
        """Hold nothing that others wait for."""
        self.run(self._rest)

    async def _rest(self) -> None:
        if self._bmc is not None:
            await self._bmc.rest()

    def end_session(self) -> None:
        """End the session with the BMC; the next operation begins one."""
        self.run(self.sign_out)

    def close(self) -> None:
        """End the session, and close everything."""
        try:
            self.end_session()
        finally:
            self._thread.submit(connections.close_all)
            self._thread.shutdown()
            self._runner.close()

    @asynccontextmanager
    async def bmc(self, chassis: Chassis, timeout: float = REQUEST_SECONDS) -> AsyncIterator[BmcClient]:
        """Yield a client of a chassis, that of the operation before where it is of the same BMC.

        It is not used again after an error, when what it knows of the BMC may be wrong, nor with another timeout.
        """
        made_for = (chassis.address(), chassis.password_encrypted)
        if self._made_for != made_for:
            await self.sign_out()
        bmc, self._bmc = self._bmc, None
        if bmc is None:
            bmc = chassis_client(chassis, made_for[0], timeout=timeout, before_write=self._check_held)
        bmc.settle_seconds = known = chassis.settle_seconds
        await bmc.start()
        try:
            yield bmc
            if timeout == REQUEST_SECONDS:
                self._bmc, self._made_for = bmc, made_for
        finally:
            if self._bmc is None:
                await bmc.close()
            seen = bmc.settle_seconds
            if seen != known and (seen is None or known is None or abs(seen - known) > STORED_SETTLE_STEP):
                chassis.settle_seconds = seen
                await run_in_thread(Chassis.objects.filter(pk=chassis.pk).update, settle_seconds=seen)

    async def _check_held(self) -> None:
        if self.claim is not None:
            await self.claim.check_held()

    async def sign_out(self) -> None:
        """End the session with the BMC."""
        bmc, self._bmc = self._bmc, None
        if bmc is not None:
            await bmc.close()


class WarmLanes:
    """The lanes of a process whose last operation has just ended, one a chassis; closed at first, then each is new."""

    def __init__(self) -> None:
        self._guard = threading.Condition()
        self._kept: dict[int, tuple[OperationLane, float]] = {}  # by chassis, each with the end of its time
        self._is_open = False
        self._tending: threading.Thread | None = None

    def open(self) -> None:
        """Keep lanes from now on."""
        with self._guard:
            if not self._is_open:
                self._is_open = True
                self._tending = threading.Thread(target=self._tend, name="lanes", daemon=True)
                self._tending.start()

    def close(self) -> None:
        """Keep no lanes any more, and have those that are kept closed, within CLOSE_SECONDS where their BMCs answer."""
        with self._guard:
            self._is_open = False
            self._guard.notify_all()
        if self._tending is not None:
            self._tending.join(CLOSE_SECONDS)

    @contextmanager
    def lane(self, chassis: int) -> Iterator[OperationLane]:
        """Yield a lane for operations of a chassis, the kept one where there is one; after an error it is closed."""
        with self._guard:
            kept, _ = self._kept.pop(chassis, (None, 0.0))
        lane = kept or OperationLane()
        is_kept = False
        try:
            with lane.in_use():
                yield lane
                if self._is_open and lane.is_warm:
                    lane.rest()
                    is_kept = self._keep(chassis, lane)
        finally:
            if not is_kept:
                lane.close()

    def _keep(self, chassis: int, lane: OperationLane) -> bool:
        with self._guard:
            is_free = self._is_open and chassis not in self._kept and len(self._kept) < MOST_KEPT
            if is_free:
                self._kept[chassis] = (lane, time.monotonic() + IDLE_SECONDS)
                self._guard.notify_all()
            return is_free

    def _tend(self) -> None:
        """Close lanes that nobody has used for a while, and in the end all."""
        while True:
            with self._guard:
                now = time.monotonic()
                over = [one for one, (_, end) in self._kept.items() if end <= now or not self._is_open]
                lanes = [self._kept.pop(one)[0] for one in over]
                if not lanes and not self._is_open:
                    return
                if not lanes:
                    ends = [end for _, end in self._kept.values()]
                    self._guard.wait(min(ends) - now if ends else None)
            for lane in lanes:
                try:
                    lane.close()
                except Exception:
                    logger.exception("a session with a BMC was not ended")


warm_lanes = WarmLanes()
