"""The questions that each chart asks the database, in SQL that SQLite and PostgreSQL share.

A chart needs some seven of them: put together anew by the ORM, they would take longer than all that is decoded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connections

from telemetry.store.models import Tier

CHUNKS = (
    "SELECT id, catalogue_id, since, until, before, version, data FROM store_chunk WHERE chassis = %s AND tier = %s"
)


class Stored(NamedTuple):
    """What is read of a chunk's row."""

    pk: int
    catalogue: int
    since: float
    until: float
    before: float | None
    version: int
    data: bytes | memoryview


def chunks_between(chassis: int, tier: int, begin: float, since: float, until: float) -> list[Stored]:
    """Return chunks that begin from `begin` on and reach into a range, in the order in which they were written."""
    sql = f"{CHUNKS} AND since >= %s AND since < %s AND until >= %s ORDER BY id"
    return [Stored(*row) for row in _rows(sql, chassis, tier, begin, until, since)]


def chunks_that_end(chassis: int, tier: int, begin: float, ends: Collection[float]) -> list[Stored]:
    """Return chunks that begin from `begin` on and end at some moments, in the order in which they were written."""
    places = ", ".join(["%s"] * len(ends))
    sql = f"{CHUNKS} AND since >= %s AND since <= %s AND until IN ({places}) ORDER BY id"
    return [Stored(*row) for row in _rows(sql, chassis, tier, begin, max(ends), *ends)]


def due_between(chassis: int, tier: int, since: float, until: float) -> list[tuple[int, float, float]]:
    """Return tier, begin and end of what is not rolled up in a range, of a tier and those below."""
    sql = "SELECT tier, since, until FROM store_due WHERE chassis = %s AND tier <= %s AND since < %s AND until > %s"
    return _rows(sql, chassis, tier, until, since)


def last_stored(chassis: int, now: float) -> float | None:
    """Return when the newest stored raw reading was taken; None where there is none."""
    sql = "SELECT until FROM store_chunk WHERE chassis = %s AND tier = 0 AND since <= %s ORDER BY since DESC LIMIT 1"
    found = _rows(sql, chassis, now)
    return found[0][0] if found else None


def first_stored(chassis: int) -> float | None:
    """Return when the oldest reading that is kept was taken, as near as its chunks tell; None where there is none.

    A window of a rollup may begin long before the first reading in it: a finer one that begins in it tells better.
    """
    sql = "SELECT since, until FROM store_chunk WHERE chassis = %s AND tier = %s ORDER BY since LIMIT 1"
    found: tuple[float, float] | None = None
    for tier in sorted(Tier, reverse=True):
        for since, until in _rows(sql, chassis, tier.value):
            if found is None or since < found[1]:
                found = (since, until) if found is None else (max(since, found[0]), min(until, found[1]))
    return found[0] if found else None


def gaps_between(chassis: int, since: float, until: float) -> list[tuple[float, float | None, str]]:
    """Return begin, end and reason of the gaps in a range."""
    sql = (
        "SELECT since, until, reason FROM store_gap WHERE chassis = %s AND since < %s AND (until IS NULL OR until > %s)"
    )
    return _rows(sql, chassis, until, since)


def _rows(sql: str, *parameters: Any) -> list[Any]:
    with connections[settings.READINGS_DATABASE].cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())
