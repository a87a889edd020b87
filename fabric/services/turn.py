"""A worker's turn at an operation: it holds the lease, keeps the steps as they go, and notices that it is cancelled."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.db import InterfaceError, OperationalError
from django.db.models import QuerySet
from django.utils import timezone

from fabric.bmc.errors import BmcError
from fabric.models import Chassis, Operation
from fabric.services.patience import patiently
from fabric.signals import operation_changed
from falconweb.errors import FalconWebError
from falconweb.threads import in_thread

logger = logging.getLogger(__name__)

# A database that cannot be reached, or has been locked for too long: whoever meets that writes nothing, and waits.
DATABASE_AWAY = (OperationalError, InterfaceError)
LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
CANCEL_LOOK_SECONDS = 0.5

Answered = TypeVar("Answered")


class OperationFailedError(FalconWebError):
    """The operation ends as failed, with this sentence."""


class OperationCancelledError(FalconWebError):
    """The operation ends as cancelled: somebody asked for that while it ran."""


class Turn:
    """One worker's turn at an operation."""

    def __init__(self, operation: Operation, worker: str) -> None:
        self.operation = operation
        self.worker = worker
        self.lost = False  # another worker holds the operation: this one must not write again
        self._looked_at = 0.0

    async def renew(self, turn: asyncio.Task[None]) -> None:
        """Hold the lease until this task is cancelled; cancels `turn` once another worker has the operation."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                held = await in_thread(
                    self.held().update, lease_until=timezone.now() + timedelta(seconds=LEASE_SECONDS)
                )
            except DATABASE_AWAY:
                logger.exception("operation %s: the lease could not be renewed", self.operation.pk)
                continue
            if held != 1:
                if self.operation.is_open:
                    self.lost = True
                    turn.cancel()
                return

    def held(self) -> QuerySet[Operation]:
        """Return the operation's row, if this worker still holds it."""
        return Operation.objects.open().filter(pk=self.operation.pk, worker=self.worker)

    async def save(self, **values: Any) -> None:
        """Keep the steps and these values, and tell everybody; cancels the turn where the operation is another's."""
        for name, value in values.items():
            setattr(self.operation, name, value)
        if await in_thread(self.held().update, steps=self.operation.steps, **values) != 1:
            self.lost = True
            raise asyncio.CancelledError
        await in_thread(operation_changed.send, Operation, operation=self.operation)

    def step(self, name: str) -> Step:
        """Return a step to be entered by `async with`; it is done, or failed, when that is left."""
        return Step(self, name)

    async def skip(self, name: str, sentence: str) -> None:
        """Leave a step out, and say why."""
        next(step for step in self.operation.steps if step["name"] == name).update(state="skipped", sentence=sentence)
        await self.save()

    async def patiently(self, ask: Callable[[], Awaitable[Answered]]) -> Answered:
        """Ask the BMC, and again while it is away, until somebody cancels; the step says meanwhile why it waits."""

        async def pausing(error: BmcError, seconds: float) -> None:
            if error.retry_helps:
                await waits.begin(f"{self.operation.chassis.name} does not answer: it is asked again until it does.")
            await asyncio.sleep(seconds)
            await self.heed()

        async with self.waiting() as waits:
            return await patiently(ask, pausing=pausing)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[Waits]:
        """Let the step that runs say what it waits for, for as long as this lasts."""
        waits = Waits(self)
        try:
            yield waits
        finally:
            waits.end()

    async def heed(self) -> None:
        """Raise OperationCancelledError if somebody asked for that; looks twice a second at most."""
        if time.monotonic() < self._looked_at + CANCEL_LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        asked = self.held().filter(cancel_requested_at__isnull=False)
        if await in_thread(asked.exists):
            raise OperationCancelledError("Cancelled while it was carried out.")

    def close_steps(self, truth: str) -> None:
        """Leave no step of an operation that did not succeed open; the last one tells what was read back, if any."""
        for step in self.operation.steps:
            step["state"] = {"waiting": "skipped", "running": "failed"}.get(step["state"], step["state"])
        last = self.operation.steps[-1]
        if last["state"] != "skipped":
            return
        if truth:
            last.update(state="done", started_at=now_text(), finished_at=now_text(), sentence=truth)
        else:
            name = self.operation.chassis.name
            last["sentence"] = f"{name} could not be read: the next look at it shows how it stands."


class Waits:
    """What the running step of an operation waits for, in words that are kept once there is something to wait for."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._entry: dict[str, Any] | None = None

    async def begin(self, sentence: str) -> None:
        """Say it, once; harmless where no step runs."""
        if self._entry is None:
            self._entry = next((step for step in self._turn.operation.steps if step["state"] == "running"), None)
            if self._entry is not None:
                self._entry["sentence"] = sentence
                await self._turn.save()

    def end(self) -> None:
        """Take it back; that is kept with whatever comes next."""
        if self._entry is not None:
            self._entry["sentence"] = ""


class Step:
    """One step of an operation: its times and outcome are kept as it goes."""

    def __init__(self, turn: Turn, name: str) -> None:
        self._turn = turn
        self._entry: dict[str, Any] = next(step for step in turn.operation.steps if step["name"] == name)

    async def __aenter__(self) -> dict[str, Any]:
        if self._entry is not self._turn.operation.steps[-1]:
            await self._turn.heed()
        self._entry.update(state="running", started_at=self._entry["started_at"] or now_text())
        await self._turn.save()
        return self._entry

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        sentence = self._entry["sentence"]
        if isinstance(error, FalconWebError):
            sentence = without_address(error.sentence, self._turn.operation.chassis)
        # It is kept with what comes next, which is at once: the next step's begin, or the operation's end.
        self._entry.update(state="failed" if error else "done", finished_at=now_text(), sentence=sentence)


def without_address(sentence: str, chassis: Chassis) -> str:
    """Return the sentence with the chassis' name in place of its BMC's address, which is not everybody's to know."""
    origin = urlsplit(chassis.url)
    for address in (chassis.url, origin.netloc, origin.hostname or ""):
        if address:
            sentence = re.sub(rf"(?<![\w.-]){re.escape(address)}(?![\w-])", lambda _: chassis.name, sentence)
    return sentence


def now_text() -> str:
    """Return the moment as it is kept with a step."""
    return timezone.now().isoformat()
