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
from typing import Any

import redis
from celery.signals import task_postrun, task_prerun
from django.conf import settings

from fabric.bmc.transport import RawResponse, Transport
from falconweb.celery import application
from perf.environment import TASK_RESULTS

__all__ = ["application"]


class MeasuredTask:
    """The times of one task in s."""

    def __init__(self, about: str) -> None:
        self.about = about
        self.began = time.time()
        self.cpu = time.process_time()
        self.in_flight = 0
        self.requests = 0
        self.waits = 0
        self.for_bmc = 0.0
        self.spans: list[tuple[float, float]] = []
        self.paused = 0.0

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
        """Return it as JSON; `about` is the task's id argument, `spans` are its waits for the BMC."""
        plain: dict[str, Any] = {
            "about": self.about,
            "began": self.began,
            "ended": time.time(),
            "cpu": time.process_time() - self.cpu,
            "requests": self.requests,
            "waits": self.waits,
            "for_bmc": self.for_bmc,
            "spans": self.spans,
            "paused": self.paused,
        }
        return json.dumps(plain)


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


original_send = Transport.send


async def counted_send(self: Transport, *arguments: Any, **more: Any) -> RawResponse:
    """Send a request, counted as in flight meanwhile."""
    task = current_task.task
    if task is None:
        return await original_send(self, *arguments, **more)
    task.requests += 1
    task.in_flight += 1
    try:
        return await original_send(self, *arguments, **more)
    finally:
        task.in_flight -= 1


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
Transport.send = counted_send  # type: ignore[method-assign]
task_prerun.connect(begin_task, weak=False)
task_postrun.connect(end_task, weak=False)
