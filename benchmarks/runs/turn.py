"""A worker's claim on a run: it holds for some seconds, and every write asks whether it still does."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone

from benchmarks.runs.models import Run
from benchmarks.runs.signals import run_changed
from falconweb.errors import FalconWebError
from falconweb.threads import in_thread

# A worker that died is followed by another one after so long; longer than a step takes that renews nothing.
LEASE_SECONDS: Final = 30.0
RENEW_SECONDS: Final = 5.0
State = Run.State


class RunLost(FalconWebError):
    """Another worker has the run: this one writes nothing more."""


class RunFails(FalconWebError):
    """A run ends badly: `trouble` is one of those that benchmarks.runs.models.Run names."""

    def __init__(self, trouble: str, sentence: str) -> None:
        super().__init__(sentence)
        self.trouble = trouble


class Turn:
    """A worker's claim on a run."""

    def __init__(self, run: Run, worker: str) -> None:
        self.run, self.worker = run, worker

    @classmethod
    def claim(cls, run_id: str, worker: str) -> Turn | None:
        """Take a run that is on its way and that nobody is at; None where somebody else was faster."""
        now = timezone.now()
        # Unlike for any other claim of this worker: one that took too long must not write as if it had held on.
        mine = f"{worker}:{secrets.token_hex(4)}"[-100:]
        free = Run.objects.open().exclude(state=State.QUEUED).filter(Q(lease_until=None) | Q(lease_until__lt=now))
        if not free.filter(pk=run_id).update(worker=mine, lease_until=_until(now)):
            return None
        rows = Run.objects.select_related("host", "plan", "plan_back", "requested_by", "tenant")
        run: Run | None = rows.filter(pk=run_id, worker=mine).first()
        return None if run is None else cls(run, mine)

    def write(self, **values: Any) -> None:
        """Keep how far it is, and hold on; raises RunLost."""
        if not self._held().update(**{"lease_until": _until(timezone.now()), **values}):
            raise RunLost("Another worker has the run.")
        for name, value in values.items():
            setattr(self.run, name, value)

    def say(self, sentence: str) -> None:
        """Say what it waits for, or does."""
        if sentence != self.run.sentence:
            self.write(sentence=sentence)

    def turn_to(self, state: Run.State, **values: Any) -> None:
        """Bring it into another state; raises RunLost."""
        self.write(state=state, state_since=timezone.now(), **{"sentence": "", **values})
        transaction.on_commit(partial(run_changed.send, Run, run=self.run), robust=True)

    def ends(self, outcome: Run.State, *, trouble: str = "", sentence: str = "", **values: Any) -> None:
        """Note how it ends; its devices are given back next."""
        run = self.run
        self.turn_to(
            State.RETURNING,
            outcome=outcome,
            trouble=trouble or run.trouble,
            error=sentence or run.error,
            ended_at=run.ended_at or (timezone.now() if run.started_at is not None else None),
            **values,
        )

    def look(self) -> None:
        """Read again what others may have changed: that somebody wants it cancelled."""
        self.run.refresh_from_db(fields=["cancel_requested_at", "cancelled_by_name"])

    def release(self) -> None:
        """Let it go: whoever comes next goes on with it."""
        with contextlib.suppress(DatabaseError):  # the lease runs out
            self._held().update(lease_until=None, worker="")

    @property
    def waits(self) -> float:
        """Seconds in its present state."""
        return (timezone.now() - self.run.state_since).total_seconds()

    @contextlib.asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Hold on while something takes long."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                with contextlib.suppress(DatabaseError):
                    await in_thread(self._renew)

        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()

    def _renew(self) -> None:
        self._held().update(lease_until=_until(timezone.now()))

    def _held(self) -> Any:
        return Run.objects.filter(pk=self.run.pk, worker=self.worker)


def _until(now: datetime) -> datetime:
    return now + timedelta(seconds=LEASE_SECONDS)
