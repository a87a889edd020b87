"""Makes rollups and deletes rows that have passed their retention.

Pending rollups are rows (Due), written in the transaction that stores their source and deleted in the one that stores
the rollup: a crash in between, at any moment, leaves no rollup unmade and none made twice. A late reading makes its
buckets due again. Two workers may make the same window: the second detects by its version that it has changed.

Expired rows are deleted in small batches with pauses between them, so that no writer waits for long. Rows that a
pending rollup still needs are kept, but for at most twice their retention: without rollups the disk must not fill up.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, Exists, Max, Min, OuterRef, ProtectedError, QuerySet, Sum

from fabric.inventory.models import Chassis
from telemetry.instrumentation import metrics
from telemetry.live.catalogue import SeriesEntry
from telemetry.store import chunks
from telemetry.store.chunks import (
    INSERT_CHUNK,
    INSERT_DUE,
    StoredChunk,
    catalogue_get_or_create,
    clear_caches,
    rows_change,
    rows_fetch,
)
from telemetry.store.format import DamagedError
from telemetry.store.models import Catalogue, Chunk, Due, Gap
from telemetry.store.rollups import SeriesBuckets, combined, read_readings, read_window
from telemetry.store.rules import ROLLUPS, TIER_SHAPES, OrderedEntries, Tier, window_start

logger = logging.getLogger(__name__)

SETTLE_MS = 90_000  # ms; by then the last chunk of a window is stored


class ChangedMeanwhile(Exception):
    """Another worker has made the same window; its Due rows stay."""


def due_rollups(*, now: float) -> list[tuple[Tier, int]]:
    """Return the tiers and chassis that have enough readings to extend a rollup, lower tiers first."""
    rows = rows_fetch("SELECT tier, chassis, MIN(since) FROM store_due GROUP BY tier, chassis ORDER BY tier, 3")
    due = ((Tier(tier), chassis, first) for tier, chassis, first in rows)
    return [(tier, chassis) for tier, chassis, first in due if first * 1000 < due_until(chassis, tier, now=now)]


def due_until(chassis: int, tier: Tier, *, now: float) -> float:
    """Return the end (ms) of the whole portions that are rolled up at `now`, after a wait for late chunks.

    The wait differs by chassis, so that not all rollups are made at the same time.
    """
    portion = TIER_SHAPES[tier].portion
    wait = SETTLE_MS + portion // 3 * (chassis * 7919 % 60) // 60
    return (now * 1000 - wait) // portion * portion


def chassis_roll_up(chassis: int, tier: Tier, *, now: float | None = None) -> int:
    """Make the due rollups of a tier; `now=inf` for all of them. Returns the number of windows made."""
    ripe = due_until(chassis, tier, now=time.time() if now is None else now) if now != np.inf else np.inf
    sql = "SELECT id, since, until FROM store_due WHERE chassis = %s AND tier = %s"
    due = [row for row in rows_fetch(sql, chassis, tier.value) if row[1] * 1000 < ripe]
    windows: dict[int, list[tuple[int, float, float]]] = {}
    for row in due:
        windows.setdefault(window_start(tier, round(row[1] * 1000)), []).append(row)
    made = 0
    for window, rows in sorted(windows.items()):
        try:
            _make_window(chassis, tier, window, rows)
        except (ChangedMeanwhile, IntegrityError):
            # Another worker stored the window, or the catalogue was removed: the next call makes what is still due.
            clear_caches()
            continue
        made += 1
    return made


def _make_window(chassis: int, tier: Tier, window: int, due: Sequence[tuple[int, float, float]]) -> None:
    step = TIER_SHAPES[tier].step
    since = round(min(row[1] for row in due) * 1000) // step * step
    until = -(-round(max(row[2] for row in due) * 1000) // step) * step
    before = next(iter(chunks.stored_chunks(chassis, tier, window, window + 1)), None)
    existing = SeriesBuckets.none()
    if before is not None:
        try:
            existing = read_window(before)
        except DamagedError:
            # Its source may still be stored: make the whole window again.
            metrics.increment("chunks_damaged", chassis=chassis)
            since, until = window, window + TIER_SHAPES[tier].window
    fresh = _from_raw(chassis, tier, since, until) if tier is ROLLUPS[0] else _from_rollup(chassis, tier, since, until)
    made = combined([existing.without(since, until), fresh]).tidy()
    # Without a source (past its retention, or damaged) the existing window stays.
    has_source = fresh.rows > 0
    catalogue = _window_catalogue(chassis, made.entries, before) if has_source else 0
    with transaction.atomic(using=settings.READINGS_DATABASE):
        if has_source:
            _save_window(Chunk(chassis=chassis, tier=tier, since=window / 1000, catalogue_id=catalogue), made, before)
        rows_change("DELETE FROM store_due WHERE id = %s", [(row[0],) for row in due])
        if has_source and tier is not ROLLUPS[-1]:
            following = ROLLUPS[ROLLUPS.index(tier) + 1]
            rows_change(INSERT_DUE, [(chassis, following.value, since / 1000, until / 1000)])


def _from_raw(chassis: int, tier: Tier, since: int, until: int) -> SeriesBuckets:
    rows = chunks.stored_chunks(chassis, Tier.RAW, since, until)
    readings, damaged = read_readings([*rows, *chunks.preceding_chunks(chassis, rows)], since, until)
    metrics.increment("chunks_damaged", len(damaged), chassis=chassis)
    return readings.group_by_step(TIER_SHAPES[tier].step)


def _from_rollup(chassis: int, tier: Tier, since: int, until: int) -> SeriesBuckets:
    parts = []
    for row in chunks.stored_chunks(chassis, ROLLUPS[ROLLUPS.index(tier) - 1], since, until):
        try:
            parts.append(read_window(row).between(since, until))
        except DamagedError:
            metrics.increment("chunks_damaged", chassis=chassis)
    return combined(parts).group_by_step(TIER_SHAPES[tier].step)


def _window_catalogue(chassis: int, entries: tuple[SeriesEntry, ...], before: StoredChunk | None) -> int:
    """Return the catalogue of a window, mostly the existing one; a new one is written in its own transaction."""
    if before is not None and entries == chunks.catalogue_entries(before.catalogue):
        return before.catalogue
    digest = entries.digest if isinstance(entries, OrderedEntries) else ""
    return catalogue_get_or_create(chassis, entries, digest) if entries else 0


def _save_window(row: Chunk, made: SeriesBuckets, before: StoredChunk | None) -> None:
    """Insert a window, or replace its existing row; raises ChangedMeanwhile."""
    existing = (
        Chunk.objects.filter(pk=before.pk, version=before.version) if before is not None else Chunk.objects.none()
    )
    if not made.entries:
        if before is not None and not existing.delete()[0]:
            raise ChangedMeanwhile
        return
    row.data = made.encoded()
    row.rows, row.size = len(made.buckets.at), len(row.data)
    row.until = (int(made.buckets.at[-1]) + TIER_SHAPES[Tier(row.tier)].step) / 1000
    if before is None:
        inserted = (row.catalogue_id, row.since, row.until, None, 0, row.rows, row.size, row.data)
        rows_change(INSERT_CHUNK, [(row.chassis, int(row.tier), *inserted)])
        return
    values = {name: getattr(row, name) for name in ("catalogue_id", "until", "rows", "size", "data")}
    if not existing.update(version=before.version + 1, **values):
        raise ChangedMeanwhile


def roll_up_all(*, seconds: float = 50.0, before_each: Callable[[], object] = lambda: None) -> int:
    """Make the due rollups of all chassis within `seconds`, each after `before_each`; returns the number of windows."""
    end = time.monotonic() + seconds
    made, tried = 0, set[tuple[Tier, int]]()
    # What one tier gets may be enough for the next one.
    while due := [one for one in due_rollups(now=time.time()) if one not in tried]:
        tried.update(due)
        for tier, chassis in due:
            if time.monotonic() > end:
                return made
            before_each()
            try:
                made += chassis_roll_up(chassis, tier)
            except DatabaseError:
                raise
            except Exception:
                # What one chassis has reported must not cost the others their rollups.
                logger.exception("readings of chassis %s cannot be rolled up", chassis)
    return made


DELETE_BATCH = 100  # rows
PAUSE_SECONDS = 0.05
FUTURE_SECONDS = 86400.0  # rows further ahead than this were stored while our clock was wrong
SIZE_KEY = "store:size:3"  # with the version of StoreSize
SIZE_SECONDS = 60


@dataclass(frozen=True)
class TierSize:
    """Size of a tier: rows of readings or buckets, chunks, bytes; first and last time, Unix s."""

    tier: str
    rows: int
    chunks: int
    bytes: int
    oldest: float | None
    newest: float | None


@dataclass(frozen=True)
class StoreSize:
    """Size of the store; `on_disk` is in bytes, indexes and the database's overhead included."""

    tiers: tuple[TierSize, ...]
    on_disk: int


def delete_expired(*, pause: Callable[[], None] = lambda: time.sleep(PAUSE_SECONDS), seconds: float = 240.0) -> int:
    """Delete rows past their retention, rows of removed chassis, and rows from the future.

    Returns the number of deleted chunks. It stops after `seconds`; the next call continues.
    """
    now, end = time.time(), time.monotonic() + seconds
    deleted = 0
    for tier in Tier:
        rows = Chunk.objects.filter(tier=tier, until__lt=now - settings.KEEP_SECONDS[tier])
        if tier is not ROLLUPS[-1]:
            needed = Due.objects.filter(
                chassis=OuterRef("chassis"), tier=tier + 1, since__lte=OuterRef("until"), until__gte=OuterRef("since")
            )
            in_time = Chunk.objects.filter(tier=tier, until__lt=now - 2 * settings.KEEP_SECONDS[tier])
            deleted += _delete_in_batches(in_time, pause, end)
            rows = rows.filter(~Exists(needed))
        deleted += _delete_in_batches(rows, pause, end)
        ahead = _delete_in_batches(Chunk.objects.filter(tier=tier, until__gt=now + FUTURE_SECONDS), pause, end)
        metrics.increment("chunks_from_the_future", ahead)
        deleted += ahead
    _delete_in_batches(Due.objects.filter(until__lt=now - 2 * settings.KEEP_SECONDS[Tier.MINUTE]), pause, end)
    _delete_in_batches(Due.objects.filter(since__gt=now + FUTURE_SECONDS), pause, end)
    _delete_in_batches(Gap.objects.filter(until__lt=now - settings.KEEP_SECONDS[ROLLUPS[-1]]), pause, end)
    deleted += _delete_removed_chassis(pause, end)
    _delete_unused_catalogues(pause, end)
    return deleted


def _delete_in_batches(rows: QuerySet[Any], pause: Callable[[], None], end: float) -> int:
    """Delete rows in batches, each in its own transaction."""
    deleted = 0
    while time.monotonic() < end:
        some = list(rows.values_list("pk", flat=True)[:DELETE_BATCH])
        if not some:
            break
        deleted += rows.model._base_manager.filter(pk__in=some).delete()[0]  # noqa: SLF001 - Django documents it
        pause()
    return deleted


def _delete_removed_chassis(pause: Callable[[], None], end: float) -> int:
    """Remove the readings of chassis that the site no longer has."""
    # Read the chassis with readings first: one that is added meanwhile is in the second query.
    measured = set(Catalogue.objects.values_list("chassis", flat=True).distinct())
    measured |= set(Gap.objects.values_list("chassis", flat=True).distinct())
    deleted = 0
    for chassis in measured - set(Chassis.objects.values_list("pk", flat=True)):
        deleted += _delete_in_batches(Chunk.objects.filter(chassis=chassis), pause, end)
        for model in (Due, Gap):
            _delete_in_batches(model.objects.filter(chassis=chassis), pause, end)
    return deleted


def _delete_unused_catalogues(pause: Callable[[], None], end: float) -> None:
    """Delete catalogues without chunks, except a chassis' newest: its first chunk may be about to be written."""
    used = Chunk.objects.filter(catalogue=OuterRef("pk"))
    newest = Catalogue.objects.filter(chassis=OuterRef("chassis"), pk__gt=OuterRef("pk"))
    existing = set(Chassis.objects.values_list("pk", flat=True))
    rows = (
        Catalogue.objects.filter(~Exists(used)).annotate(is_old=Exists(newest)).values_list("pk", "chassis", "is_old")
    )
    for pk, chassis, is_old in list(rows):
        if time.monotonic() > end:
            return
        if is_old or chassis not in existing:
            # A chunk that was written meanwhile protects it.
            with contextlib.suppress(ProtectedError, IntegrityError):
                Catalogue.objects.filter(pk=pk).delete()
            pause()


def store_size() -> StoreSize:
    """Return the size of the store; measured at most once a minute, and cached for all processes."""
    try:
        return msgspec.convert(cache.get(SIZE_KEY), StoreSize)
    except msgspec.ValidationError:
        size = _measure_tiers()
        cache.set(SIZE_KEY, msgspec.to_builtins(size), SIZE_SECONDS)
        return size


def _measure_tiers() -> StoreSize:
    # Answered from an index alone, without reading chunks.
    sizes = {"rows": Sum("rows", default=0), "chunks": Count("*"), "bytes": Sum("size", default=0)}
    times = {"oldest": Min("until"), "newest": Max("until")}
    tiers = (TierSize(tier.label, **Chunk.objects.filter(tier=tier).aggregate(**sizes, **times)) for tier in Tier)
    return StoreSize(tuple(tiers), store_bytes())


def store_bytes() -> int:
    """Return the size of the tables of readings in bytes, indexes and the database's overhead included."""
    connection = connections[settings.READINGS_DATABASE]
    if connection.vendor == "sqlite":
        return sqlite_bytes(connection)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name",
            [[model._meta.db_table for model in (Catalogue, Chunk, Due, Gap)]],  # noqa: SLF001 - Django documents it
        )
        (size,) = cursor.fetchone()
    return int(size)


def sqlite_bytes(connection: BaseDatabaseWrapper) -> int:
    """Return the size of an SQLite database in bytes, its journal included."""
    file = Path(str(connection.settings_dict["NAME"]))
    return sum(one.stat().st_size for one in (file, file.with_name(f"{file.name}-wal")) if one.exists())
