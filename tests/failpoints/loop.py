"""An event loop with a time of its own and several processes in it: chance draws who goes on, hangs and dies."""

from __future__ import annotations

import asyncio
import gc
import heapq
import random
from asyncio import Future, Handle, TimerHandle
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

THREAD_SECONDS = 0.02  # the longest that work in a thread, which is of the database, waits for its turn


class Process:
    """What stands for a process: its callbacks wait while it hangs, and never run once it is dead."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hangs_until = 0.0
        self.is_dead = False


class ProcessDied(BaseException):
    """Unwinds the callback in which a process dies; no Exception, so that nothing on the way goes on."""


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def in_no_loop(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work as a thread of its own does: without a running loop, so that it has the test's own connection."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return work(*arguments)
    finally:
        asyncio._set_running_loop(loop)


class Standstill(Exception):
    """Whoever is waited for waits for ever."""


class SeededLoop(asyncio.BaseEventLoop):
    """A loop whose time passes only when nothing is ready, and which draws the process whose next callback runs.

    The callbacks of one process keep their order, as asyncio promises. Work for threads is done by the loop itself.
    """

    _ready: deque[Handle]
    _scheduled: list[TimerHandle]
    _timer_cancelled_count: int

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.seconds = 0.0
        self._chance = chance
        self._held = 0
        # Of dead processes: a coroutine that is garbage would be closed, and run what it does in the end.
        self._dead: list[object] = []
        self.set_exception_handler(lambda *_: None)  # of processes that died

    def time(self) -> float:
        """Return the time of this loop, s."""
        return self.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Future[Any]:  # type: ignore[override]
        """Do work for a thread after a moment; nothing else happens meanwhile."""
        future: Future[Any] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(in_no_loop(func, *args))
            except ProcessDied:
                self._dead.append(future)
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to who waits
                future.set_exception(error)

        self.call_later(self._chance.uniform(0.0, THREAD_SECONDS), work)
        return future

    def _run_once(self) -> None:
        while self._scheduled and (not self._ready or self._scheduled[0].when() <= self.seconds):
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer.cancelled():
                self._timer_cancelled_count -= 1
                continue
            self.seconds = max(self.seconds, timer.when())
            self._ready.append(timer)
        if not self._ready:
            raise Standstill("nothing will ever happen again")
        owners = {handle._context.get(PROCESS): handle for handle in reversed(self._ready)}  # type: ignore[attr-defined]
        process, handle = self._chance.choice(list(reversed(owners.items())))
        self._ready.remove(handle)
        if process is not None and process.is_dead:
            self._dead.append(handle)
            return
        if handle.cancelled():
            return
        if process is not None and process.hangs_until > self.seconds:
            self._held += 1
            at = process.hangs_until + self._held * 1e-9  # in their order
            again = handle._context.copy()  # type: ignore[attr-defined]  # nobody enters one context twice
            self.call_at(at, lambda: None if handle.cancelled() else handle._run(), context=again)
            return
        handle._run()

    def forget(self) -> None:
        """Let everything go that never ran, where nobody notices what it does in the end."""
        copy_context().run(self._forget)

    def _forget(self) -> None:
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for waiting in (self._dead, self._ready, self._scheduled):
            waiting.clear()
        gc.collect()

    def _write_to_self(self) -> None:
        """Wake nobody: there is no other thread."""

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""
