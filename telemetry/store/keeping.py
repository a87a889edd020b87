"""How long readings are kept, and how much room they take.

What is old goes in small portions with pauses between them, so that no writer waits for long. What a rollup has yet to
be made from stays, though no longer than twice its time: where none is made, the disk must not fill up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import IntegrityError, connections
from django.db.models import Count, Exists, Max, Min, OuterRef, ProtectedError, QuerySet, Sum

from fabric.models import Chassis
from telemetry.pipeline import tally
from telemetry.store.models import Catalogue, Chunk, Due, Gap, Tier
from telemetry.store.tiers import ROLLUPS

PORTION = 100  # rows
PAUSE_SECONDS = 0.05
FUTURE_SECONDS = 86400.0  # what is from so long after now was stored while our clock was wrong
SIZE_KEY = "store:size"
SIZE_SECONDS = 60


@dataclass(frozen=True)
class TierSize:
    """How much there is of a tier: rows of readings or buckets, chunks, bytes; from when to when, Unix s."""

    tier: str
    rows: int
    chunks: int
    bytes: int
    oldest: float | None
    newest: float | None


@dataclass(frozen=True)
class StoreSize:
    """How much room the store takes: `on_disk` with all that the database needs around it, bytes."""

    tiers: tuple[TierSize, ...]
    on_disk: int


def clean(*, pause: Callable[[], None] = lambda: time.sleep(PAUSE_SECONDS), seconds: float = 240.0) -> int:
    """Remove what is older than it is kept, what is of chassis that were removed, and what is from the future.

    Returns how many chunks went. It ends after so many seconds; the next one goes on.
    """
    now, end = time.time(), time.monotonic() + seconds
    gone = 0
    for tier in Tier:
        rows = Chunk.objects.filter(tier=tier, until__lt=now - settings.KEEP_SECONDS[tier])
        if tier is not ROLLUPS[-1]:
            needed = Due.objects.filter(
                chassis=OuterRef("chassis"), tier=tier + 1, since__lte=OuterRef("until"), until__gte=OuterRef("since")
            )
            in_time = Chunk.objects.filter(tier=tier, until__lt=now - 2 * settings.KEEP_SECONDS[tier])
            gone += _remove(in_time, pause, end)
            rows = rows.filter(~Exists(needed))
        gone += _remove(rows, pause, end)
        ahead = _remove(Chunk.objects.filter(tier=tier, until__gt=now + FUTURE_SECONDS), pause, end)
        tally.add("chunks_from_the_future", ahead)
        gone += ahead
    _remove(Due.objects.filter(until__lt=now - 2 * settings.KEEP_SECONDS[Tier.MINUTE]), pause, end)
    _remove(Due.objects.filter(since__gt=now + FUTURE_SECONDS), pause, end)
    _remove(Gap.objects.filter(until__lt=now - settings.KEEP_SECONDS[ROLLUPS[-1]]), pause, end)
    gone += _forget_removed(pause, end)
    _forget_catalogues(pause, end)
    return gone


def _remove(rows: QuerySet[Any], pause: Callable[[], None], end: float) -> int:
    """Remove rows in portions, each a transaction of its own."""
    gone = 0
    while time.monotonic() < end:
        some = list(rows.values_list("pk", flat=True)[:PORTION])
        if not some:
            break
        gone += rows.model._base_manager.filter(pk__in=some).delete()[0]  # noqa: SLF001 - Django documents it
        pause()
    return gone


def _forget_removed(pause: Callable[[], None], end: float) -> int:
    """Remove the readings of chassis that the site no longer has."""
    # First those that have readings: one that is added meanwhile is in the second list.
    measured = set(Catalogue.objects.values_list("chassis", flat=True).distinct())
    measured |= set(Gap.objects.values_list("chassis", flat=True).distinct())
    gone = 0
    for chassis in measured - set(Chassis.objects.values_list("pk", flat=True)):
        gone += _remove(Chunk.objects.filter(chassis=chassis), pause, end)
        for model in (Due, Gap):
            _remove(model.objects.filter(chassis=chassis), pause, end)
    return gone


def _forget_catalogues(pause: Callable[[], None], end: float) -> None:
    """Remove catalogues of which no chunk is left, but not a chassis' newest: it may be about to have its first."""
    used = Chunk.objects.filter(catalogue=OuterRef("pk"))
    newest = Catalogue.objects.filter(chassis=OuterRef("chassis"), pk__gt=OuterRef("pk"))
    there = set(Chassis.objects.values_list("pk", flat=True))
    rows = (
        Catalogue.objects.filter(~Exists(used)).annotate(is_old=Exists(newest)).values_list("pk", "chassis", "is_old")
    )
    for pk, chassis, is_old in list(rows):
        if time.monotonic() > end:
            return
        if is_old or chassis not in there:
            # A chunk that was written at this very moment keeps it.
            with contextlib.suppress(ProtectedError, IntegrityError):
                Catalogue.objects.filter(pk=pk).delete()
            pause()


def store_size() -> StoreSize:
    """Return how much there is; counted once a minute at most, and kept for all processes."""
    known = cache.get(SIZE_KEY)
    if known is None:
        known = _count()
        cache.set(SIZE_KEY, known, SIZE_SECONDS)
    size: StoreSize = known
    return size


def _count() -> StoreSize:
    tiers = []
    # Of an index alone: no chunk is touched.
    for tier in Tier:
        found = Chunk.objects.filter(tier=tier).aggregate(
            rows=Sum("rows"), chunks=Count("*"), bytes=Sum("size"), oldest=Min("until"), newest=Max("until")
        )
        tiers.append(
            TierSize(
                tier.label, found["rows"] or 0, found["chunks"], found["bytes"] or 0, found["oldest"], found["newest"]
            )
        )
    return StoreSize(tuple(tiers), store_bytes())


def store_bytes() -> int:
    """Return how much room the tables of readings take, with all that the database needs around them, bytes."""
    connection = connections[settings.READINGS_DATABASE]
    if connection.vendor == "sqlite":
        file = Path(str(connection.settings_dict["NAME"]))
        files = (file, file.with_name(file.name + "-wal"))
        return sum(one.stat().st_size for one in files if one.exists())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name",
            [[model._meta.db_table for model in (Catalogue, Chunk, Due, Gap)]],  # noqa: SLF001 - Django documents it
        )
        (size,) = cursor.fetchone()
    return int(size)
