"""A Celery worker that also reports how long each task waited for the BMC.

The loop's selector records when the task only waited, and the requests in flight show for what. Computation during a
request so counts as the worker's own time.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any

import redis
from celery.signals import task_postrun, task_prerun
from django.conf import settings

from fabric.bmc.kept_connection import RawResponse
from fabric.bmc.transport import Transport
from falconweb.celery import application
from perf.environment import TASK_RESULTS

__all__ = ["application"]


@dataclass
class MeasuredTask:
    """The times of one task in s, with its id argument (`about`) and its waits for the BMC (`spans`)."""

    about: str
    began: float = field(default_factory=time.time)
    ended: float = 0.0
    cpu: float = field(default_factory=time.process_time)
    in_flight: int = 0
    requests: int = 0
    waits: int = 0
    for_bmc: float = 0.0
    spans: list[tuple[float, float]] = field(default_factory=list)
    paused: float = 0.0

    def waited(self, seconds: float, *, in_vain: bool) -> None:
        """Record that the loop was idle until now; `in_vain` where a timer ended the wait."""
        self.waits += 1
        if self.in_flight:
            self.for_bmc += seconds
            now = time.time()
            self.spans.append((now - seconds, now))
        elif in_vain:
            self.paused += seconds

    def report(self) -> str:
        """End the task, and return it as JSON."""
        self.ended, self.cpu = time.time(), time.process_time() - self.cpu
        return json.dumps(asdict(self))


class _CurrentTask(threading.local):
    """The task of this thread."""

    task: MeasuredTask | None = None


current_task = _CurrentTask()


class Selector(selectors.DefaultSelector):
    """Reports its waits to the task of its thread."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the base class does."""
        begin = time.perf_counter()
        found = super().select(timeout)
        if current_task.task is not None:
            current_task.task.waited(time.perf_counter() - begin, in_vain=not found)
        return found


class Policy(asyncio.DefaultEventLoopPolicy):
    """Creates loops with that selector."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new one."""
        return asyncio.SelectorEventLoop(Selector())


Send = Callable[..., Coroutine[Any, Any, RawResponse]]


def counted(send: Send) -> Send:
    """Return a method that sends a request, counted as in flight meanwhile."""

    async def counted_send(self: Transport, *arguments: Any, **more: Any) -> RawResponse:
        task = current_task.task
        if task is None:
            return await send(self, *arguments, **more)
        task.requests += 1
        task.in_flight += 1
        try:
            return await send(self, *arguments, **more)
        finally:
            task.in_flight -= 1

    return counted_send


def begin_task(args: Any = (), **_: Any) -> None:
    """Record the start of a task."""
    current_task.task = MeasuredTask(str(args[0]) if args else "")


def end_task(**_: Any) -> None:
    """Record the end of a task and report it."""
    if current_task.task is not None:
        report, current_task.task = current_task.task.report(), None
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            client.rpush(TASK_RESULTS, report)


asyncio.set_event_loop_policy(Policy())
Transport.send = counted(Transport.send)  # type: ignore[method-assign]
Transport.send_again = counted(Transport.send_again)  # type: ignore[method-assign]
task_prerun.connect(begin_task, weak=False)
task_postrun.connect(end_task, weak=False)
