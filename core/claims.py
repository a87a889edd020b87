"""A worker's claim on a row: one worker at a time acts on it, and another takes over when it dies.

1. `take` claims the row by one UPDATE whose condition is that nobody has claimed it. Of several concurrent workers,
   the database lets one change the row; the others change none, and get None.
2. The worker acts on the row. Queries for rows to act on exclude claimed ones (`unclaimed`).
3. Each `write` stores the progress and renews the claim in one UPDATE, on the condition that the claim is still this
   worker's. `renew` only renews it; `keep_renewed` does so in the background during a long action.
4. Where such an UPDATE changes no row, the claim was released and another worker may have the row, or the row has ended
   or is deleted: `write` raises ClaimLost, and this worker writes nothing more.
5. `release` ends the claim, together with a last write: the row can be claimed immediately.
6. When a worker dies, its claim is no longer renewed: `ClaimWatcher`, which runs in each worker, releases it, and the
   next worker begins at step 1 with the stored state. So each action under a claim must be idempotent, or be
   recognisable as done.

A claim is in a column of times, which says when it is released at the latest. But nobody compares that with the time of
day, since clocks are set and differ: each renewal writes another value, and who sees the same value for the duration of
the claim, by the monotonic clock, knows that the worker is dead.

No transaction and no lock is held between these steps. A subclass names the columns, and adds what its rows need.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.db import DatabaseError, close_old_connections, connection, models
from django.db.models import Q, QuerySet, Value
from django.utils import timezone

from core.errors import FalconWebError
from core.threads import run_in_thread

logger = logging.getLogger(__name__)
Row = TypeVar("Row", bound=models.Model)
LONGEST_WAIT = timedelta(hours=1)  # that a receiver of exports and alerts may ask for
LOOK_SECONDS = 1.0  # between two looks at the claims of all workers
# After a pause this long, of this process or of the database, the workers may have been paused, too.
MAX_LOOK_SECONDS = 5.0


class ClaimLost(FalconWebError):
    """Another worker has the claim, or the row has ended: this worker must write nothing more."""


def unclaimed(until_column: str = "lease_until") -> Q:
    """Return the condition that no worker has a claim on a row."""
    return Q(**{until_column: None})


def wait_is_over(column: str, now: datetime, longest: timedelta) -> Q:
    """Return the condition that no wait is set, or that it is over.

    It is, too, if it would be longer than `longest`: then the clock was set back meanwhile.
    """
    return Q(**{column: None}) | Q(**{f"{column}__lte": now}) | Q(**{f"{column}__gt": now + longest})


@dataclass(frozen=True)
class WatchedClaims:
    """Claims that are released where they are not renewed for some `seconds`; `released` are values set with that."""

    rows: Callable[[], QuerySet[Any]]
    until_column: str
    seconds: float
    released: Mapping[str, Any]


WATCHED: list[WatchedClaims] = []


class ClaimWatcher:
    """Releases the claims of dead workers; a process has one, which looks each LOOK_SECONDS."""

    def __init__(self) -> None:
        # Of each claimed row the present value, and since when this process has seen it, in monotonic seconds.
        self._seen: dict[tuple[int, Any], tuple[datetime, float]] = {}
        self._looked_at = time.monotonic()
        self._statement: tuple[str, tuple[Any, ...]] | None = None

    def look(self) -> int:
        """Look at all claims; returns how many were released."""
        now = time.monotonic()
        known = self._seen if now - self._looked_at <= MAX_LOOK_SECONDS else {}
        seen: dict[tuple[int, Any], tuple[datetime, float]] = {}
        released = 0
        for number, one in enumerate(WATCHED if self._is_any_claimed() else ()):
            claimed = one.rows().exclude(**{one.until_column: None})
            for pk, until in claimed.values_list("pk", one.until_column):
                value, since = known.get((number, pk), (until, now))
                if value != until:
                    since = now
                if now - since < one.seconds:
                    seen[number, pk] = until, since
                else:
                    same = claimed.filter(pk=pk, **{one.until_column: until})
                    released += same.update(**{one.until_column: None, **one.released})
                    logger.warning("%s %s: its claim was not renewed in time", claimed.model.__name__, pk)
        self._seen, self._looked_at = seen, now
        return released

    def _is_any_claimed(self) -> bool:
        """Return whether any row is claimed: hardly one is, and this is one statement that is composed once."""
        if self._statement is None:
            first, *others = (
                one.rows().exclude(**{one.until_column: None}).order_by().values_list(Value(1)) for one in WATCHED
            )
            query = first.union(*others, all=True)
            self._statement = query.query.get_compiler(query.db).as_sql()
        with connection.cursor() as cursor:
            cursor.execute(*self._statement)
            return cursor.fetchone() is not None

    def run(self) -> None:
        """Look again and again; an unreachable database is retried."""
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                self.look()
            except Exception:
                logger.exception("the claims of dead workers are not released for now")
                close_old_connections()


class RowClaim(Generic[Row]):
    """One worker's claim on one row.

    `duration` is longer than any action without a renewal. Without a `worker_column` a loss cannot be detected: that
    suits rows on which acting twice is harmless. Each subclass calls `watch`, or claims of dead workers last for ever.
    """

    duration: ClassVar[timedelta]
    until_column: ClassVar[str] = "lease_until"
    worker_column: ClassVar[str] = "worker"
    related: ClassVar[tuple[str, ...]] = ()  # relations that `take` reads with the row

    def __init__(self, row: Row, worker: str = "") -> None:
        self.row, self.worker = row, worker

    @classmethod
    def watch(cls, rows: Callable[[], QuerySet[Row]]) -> None:
        """Have claims of dead workers on these rows released."""
        WATCHED.append(WatchedClaims(rows, cls.until_column, cls.duration.total_seconds(), cls._columns_of("")))

    @classmethod
    def _columns_of(cls, worker: str) -> dict[str, str]:
        return {cls.worker_column: worker} if cls.worker_column else {}

    @classmethod
    def take(cls, rows: QuerySet[Row], pk: Any, worker: str = "", **values: Any) -> Self | None:
        """Claim the row `pk` if it is one of `rows` and unclaimed, and set these values with the claim; else None."""
        claim = {cls.until_column: timezone.now() + cls.duration}
        mine = cls._columns_of(worker)
        if not rows.filter(unclaimed(cls.until_column), pk=pk).update(**claim, **mine, **values):
            return None
        found = rows.model._default_manager.filter(pk=pk, **mine)  # noqa: SLF001 - documented by Django
        if cls.related:
            found = found.select_related(*cls.related)
        row: Row | None = found.first()
        return None if row is None else cls(row, worker)

    def held(self) -> QuerySet[Row]:
        """Return a query that finds the row while the claim is this worker's."""
        mine = self._columns_of(self.worker)
        rows: QuerySet[Row] = type(self.row)._default_manager.filter(pk=self.row.pk, **mine)  # noqa: SLF001
        return rows

    def write(self, **values: Any) -> None:
        """Set these values, and renew the claim; raises ClaimLost."""
        if not self._update({self.until_column: timezone.now() + self.duration, **values}):
            raise ClaimLost("Another worker has it.")

    def renew(self) -> bool:
        """Renew the claim; return whether it was still this worker's."""
        return self._update({self.until_column: timezone.now() + self.duration})

    def release(self, **values: Any) -> bool:
        """End the claim and set these values; return whether the claim was still this worker's."""
        return self._update({self.until_column: None, **self._columns_of(""), **values})

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
