"""A worker's claim on a row: one worker at a time acts on it, and another takes over when it dies.

1. `take` claims the row until a deadline, by one UPDATE whose condition is that no other claim is valid. Of several
   concurrent workers, the database lets one change the row; the others change none, and get None.
2. The worker acts on the row. Queries for rows to act on exclude claimed ones (`unclaimed`).
3. Each `write` stores the progress and extends the claim in one UPDATE, on the condition that the claim is still this
   worker's. `renew` only extends it; `keep_renewed` does so in the background during a long action.
4. Where such an UPDATE changes no row, the claim has expired and another worker has the row, or the row has ended or is
   deleted: `write` raises ClaimLost, and this worker writes nothing more.
5. `release` ends the claim, together with a last write: the row can be claimed immediately.
6. When a worker dies, its claim expires, and the next worker begins at step 1 with the stored state. So each action
   under a claim must be idempotent, or be recognisable as done.

No transaction and no lock is held between these steps. A subclass names the columns, and adds what its rows need.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.db import DatabaseError, models
from django.db.models import Q, QuerySet
from django.utils import timezone

from core.errors import FalconWebError
from core.threads import run_in_thread

Row = TypeVar("Row", bound=models.Model)


class ClaimLost(FalconWebError):
    """Another worker has the claim, or the row has ended: this worker must write nothing more."""


def unclaimed(now: datetime, until_column: str = "lease_until") -> Q:
    """Return the condition that no worker has a valid claim on a row."""
    return Q(**{until_column: None}) | Q(**{f"{until_column}__lt": now})


class RowClaim(Generic[Row]):
    """One worker's claim on one row.

    `duration` is longer than any action without a renewal. Without a `worker_column` a loss cannot be detected: that
    suits rows on which acting twice is harmless.
    """

    duration: ClassVar[timedelta]
    until_column: ClassVar[str] = "lease_until"
    worker_column: ClassVar[str] = "worker"
    related: ClassVar[tuple[str, ...]] = ()  # relations that `take` reads with the row

    def __init__(self, row: Row, worker: str = "") -> None:
        self.row, self.worker = row, worker

    @classmethod
    def take(cls, rows: QuerySet[Row], pk: Any, worker: str = "", **values: Any) -> Self | None:
        """Claim the row `pk` if it is one of `rows` and unclaimed, and set these values with the claim; else None."""
        now = timezone.now()
        claim = {cls.until_column: now + cls.duration}
        mine = {cls.worker_column: worker} if cls.worker_column else {}
        if not rows.filter(unclaimed(now, cls.until_column), pk=pk).update(**claim, **mine, **values):
            return None
        found = rows.model._default_manager.filter(pk=pk, **mine)  # noqa: SLF001 - documented by Django
        if cls.related:
            found = found.select_related(*cls.related)
        row: Row | None = found.first()
        return None if row is None else cls(row, worker)

    def held(self) -> QuerySet[Row]:
        """Return a query that finds the row while the claim is this worker's."""
        mine = {self.worker_column: self.worker} if self.worker_column else {}
        rows: QuerySet[Row] = type(self.row)._default_manager.filter(pk=self.row.pk, **mine)  # noqa: SLF001
        return rows

    def write(self, **values: Any) -> None:
        """Set these values, and extend the claim; raises ClaimLost."""
        if not self._update({self.until_column: timezone.now() + self.duration, **values}):
            raise ClaimLost("Another worker has it.")

    def renew(self) -> bool:
        """Extend the claim; return whether it was still this worker's."""
        return self._update({self.until_column: timezone.now() + self.duration})

    def release(self, **values: Any) -> bool:
        """End the claim and set these values; return whether the claim was still this worker's."""
        mine = {self.worker_column: ""} if self.worker_column else {}
        return self._update({self.until_column: None, **mine, **values})

    @contextlib.asynccontextmanager
    async def keep_renewed(self, seconds: float) -> AsyncIterator[None]:
        """Renew the claim every `seconds` during a long action; the next `write` detects a loss."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(seconds)
                with contextlib.suppress(DatabaseError):
                    await run_in_thread(self.renew)

        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()

    def _update(self, values: dict[str, Any]) -> bool:
        if not self.held().update(**values):
            return False
        for name, value in values.items():
            setattr(self.row, name, value)
        return True
