"""A worker's claim on a row: one worker at a time acts on it, and one that dies is followed by another.

1. `take` sets the row's claim, until a moment, by one UPDATE whose condition is that nobody else's is valid. Of several
   workers that try at once, the database lets one change the row; the others change none, and get None.
2. The worker acts on the row. Whoever looks for rows to act on leaves out those that are claimed (`unclaimed`).
3. Each `write` keeps what was done and extends the claim in one UPDATE, on the condition that the claim is still this
   worker's. `renew` extends it alone; `keep_renewed` does so in the background while one thing takes long.
4. Where such an UPDATE changes no row, the claim has expired and another worker has the row, or the row has ended or is
   gone: `write` raises ClaimLost, and this worker writes nothing more.
5. `release` ends the claim, together with a last write: the row can be claimed at once.
6. A worker that dies does none of this: its claim expires, and the next worker begins at step 1 with what is stored. So
   each thing that is done under a claim must bear being done twice, or be found done.

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
    """The claim is another worker's by now, or the row has ended: whoever lost it writes nothing more."""


def unclaimed(now: datetime, until_column: str = "lease_until") -> Q:
    """Return the condition that nobody has a valid claim on a row."""
    return Q(**{until_column: None}) | Q(**{f"{until_column}__lt": now})


class RowClaim(Generic[Row]):
    """One worker's claim on one row.

    `duration` is longer than anything that is done without a renewal. Without a `worker_column` a loss cannot be
    noticed: that suits rows that are harmless to act on twice.
    """

    duration: ClassVar[timedelta]
    until_column: ClassVar[str] = "lease_until"
    worker_column: ClassVar[str] = "worker"
    related: ClassVar[tuple[str, ...]] = ()  # what `take` reads with the row

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
        found = rows.model._default_manager.filter(pk=pk, **mine)  # noqa: SLF001 - public, for all its name
        if cls.related:
            found = found.select_related(*cls.related)
        row: Row | None = found.first()
        return None if row is None else cls(row, worker)

    def held(self) -> QuerySet[Row]:
        """Return the row as a query that finds it as long as the claim is this worker's."""
        mine = {self.worker_column: self.worker} if self.worker_column else {}
        rows: QuerySet[Row] = type(self.row)._default_manager.filter(pk=self.row.pk, **mine)  # noqa: SLF001 - public
        return rows

    def write(self, **values: Any) -> None:
        """Set these values, and extend the claim; raises ClaimLost."""
        if not self._update({self.until_column: timezone.now() + self.duration, **values}):
            raise ClaimLost("Another worker has it.")

    def renew(self) -> bool:
        """Extend the claim; tell whether it was still this worker's."""
        return self._update({self.until_column: timezone.now() + self.duration})

    def release(self, **values: Any) -> bool:
        """End the claim, and set these values with it; tell whether it was still this worker's."""
        mine = {self.worker_column: ""} if self.worker_column else {}
        return self._update({self.until_column: None, **mine, **values})

    @contextlib.asynccontextmanager
    async def keep_renewed(self, seconds: float) -> AsyncIterator[None]:
        """Renew the claim every so many seconds while one thing takes long; the next `write` notices a loss."""

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
