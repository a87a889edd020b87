"""Reads chunks and catalogues from the database as arrays, and inserts them.

A chart needs about seven rows: building them as ORM instances would take longer than decoding their data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from django.conf import settings
from django.db import connections
from numpy.typing import NDArray

from telemetry.live.catalogue import CLOCK_STEP_SECONDS, SeriesEntry
from telemetry.store.decoder import decode_columns
from telemetry.store.format import ChunkReader, DamagedError, Integers, Values
from telemetry.store.kept_readers import ChunkRow, KeptReaders
from telemetry.store.models import Catalogue
from telemetry.store.rules import (
    RAW_SPAN,
    Buckets,
    DecimalPlaces,
    DerivedSeries,
    OrderedEntries,
    SeriesIdentity,
    SpanMs,
    Tier,
    catalogue_digest,
    combine_places,
    derived_series,
    series_identity,
    storage_order,
    window_start,
)

CACHED_CATALOGUES = 64  # each takes up to 1 MB
CACHED_PLANS = 64
CLOCK_STEP_MS = round(CLOCK_STEP_SECONDS * 1000)
MAX_KEPT_BYTES = 8 * 2**20  # of chunks that stay open in a process: days of five chassis
CHUNK_SQL = (
    "SELECT id, catalogue_id, since, until, before, version, data FROM store_chunk WHERE chassis = %s AND tier = %s"
)


@dataclass(frozen=True)
class ReadingTable:
    """Readings, [series, rows], at ascending moments (ms); `places` are the decimal places of each series."""

    at: Integers
    values: Values
    places: DecimalPlaces


def stored_chunks(chassis: int, tier: Tier, since: int, until: int) -> list[StoredChunk]:
    """Return the chunks that overlap a range (ms), in the order in which they were written."""
    begin = since - RAW_SPAN if tier is Tier.RAW else window_start(tier, since)
    sql = f"{CHUNK_SQL} AND since >= %s AND since < %s AND until >= %s ORDER BY since"
    # By the index, and sorted here: the database would copy the data of all.
    rows = rows_fetch(sql, chassis, tier, begin / 1000, until / 1000, since / 1000)
    return sorted(map(StoredChunk._make, rows), key=itemgetter(0))


@dataclass(frozen=True)
class OpenRollup:
    """A chunk of a rollup; `reader` is None where it is damaged."""

    catalogue: int
    since: float
    until: float
    reader: ChunkReader | None

    @classmethod
    def of(cls, row: ChunkRow, reader: ChunkReader | None) -> OpenRollup:
        _, catalogue, since, until, _, _ = row
        return cls(catalogue, since, until, reader)


SELECT_ROLLUP = "SELECT id, catalogue_id, since, until, version, size"
_kept_readers = KeptReaders(MAX_KEPT_BYTES)


def open_rollups(chassis: int, tier: Tier, since: int, until: int) -> list[OpenRollup]:
    """Return the chunks of a rollup that overlap a range (ms), in no order; those that are kept open are not read."""
    sql = f"{SELECT_ROLLUP} FROM store_chunk WHERE chassis = %s AND tier = %s AND since >= %s AND since < %s"
    begin = window_start(tier, since)
    rows = rows_fetch(f"{sql} AND until >= %s", chassis, tier, begin / 1000, until / 1000, since / 1000)
    kept = [(row, _kept_readers.find(row)) for row in map(tuple, rows)]
    missing = [row[0] for row, reader in kept if reader is None]
    return [*(OpenRollup.of(row, reader) for row, reader in kept if reader is not None), *_opened_rollups(missing)]


def _opened_rollups(ids: Sequence[int]) -> Iterator[OpenRollup]:
    """Yield chunks of rollups as they are now: one may have been made anew since its row was read."""
    if not ids:
        return
    places = ", ".join(["%s"] * len(ids))
    for *columns, data in rows_fetch(f"{SELECT_ROLLUP}, data FROM store_chunk WHERE id IN ({places})", *ids):
        row: Any = tuple(columns)
        reader: ChunkReader | None = None
        with contextlib.suppress(DamagedError):
            reader = ChunkReader(data)
            _kept_readers.add(row, reader)
        yield OpenRollup.of(row, reader)


def preceding_chunks(chassis: int, chunks: Sequence[StoredChunk]) -> list[StoredChunk]:
    """Return the raw chunks directly before some chunks, so that rates start at the first row of these."""
    ends = {chunk.until for chunk in chunks}
    missing = {chunk.before for chunk in chunks if chunk.before is not None} - ends
    if not missing:
        return []
    places = ", ".join(["%s"] * len(missing))
    sql = f"{CHUNK_SQL} AND since >= %s AND since <= %s AND until IN ({places}) ORDER BY id"
    begin = min(missing) - RAW_SPAN / 1000
    return [StoredChunk(*row) for row in rows_fetch(sql, chassis, Tier.RAW, begin, max(missing), *missing)]


@lru_cache(maxsize=CACHED_CATALOGUES)
def catalogue_entries(catalogue: int) -> tuple[SeriesEntry, ...]:
    """Return the entries of a catalogue, whose row never changes."""
    ((data,),) = rows_fetch("SELECT data FROM store_catalogue WHERE id = %s", catalogue)
    return tuple(Catalogue.unpacked(data))


@lru_cache(maxsize=CACHED_CATALOGUES)
def raw_columns(catalogue: int) -> dict[SeriesIdentity, DerivedSeries]:
    """Return the series derived from raw chunks with a catalogue."""
    return {series_identity(one.entry): one for one in derived_series(catalogue_entries(catalogue))}


@dataclass(frozen=True)
class DerivedColumns:
    """The series derived from raw chunks with a catalogue; of each its column, and whether it is the rate of that."""

    entries: OrderedEntries
    columns: NDArray[np.intp]
    rates: NDArray[np.bool_]


@lru_cache(maxsize=CACHED_PLANS)
def derived_columns(catalogue: int) -> DerivedColumns:
    """Return all series derived from raw chunks with a catalogue, as rollups store them."""
    derived = derived_series(catalogue_entries(catalogue))
    derived = [derived[place] for place in storage_order([one.entry for one in derived])]
    return DerivedColumns(
        OrderedEntries(one.entry for one in derived),
        np.array([one.column for one in derived], dtype=np.intp),
        np.array([one.is_rate for one in derived], dtype=bool),
    )


@lru_cache(maxsize=CACHED_CATALOGUES)
def rollup_columns(catalogue: int) -> dict[SeriesIdentity, int]:
    """Return the column of each series in rollups with a catalogue."""
    return {series_identity(entry): column for column, entry in enumerate(catalogue_entries(catalogue))}


def read_raw_chunks(
    chunks: Sequence[StoredChunk],
    requested: Sequence[SeriesIdentity],
    since: int,
    until: int,
    readers: Mapping[int, ChunkReader] | None = None,
) -> tuple[ReadingTable, list[SpanMs]]:
    """Return the readings of series in raw chunks in [`since`, `until`) (ms), and the spans that cannot be read.

    `readers` are those of chunks that were opened before, by their ids.
    """
    plan = _ColumnPlan.of({chunk.catalogue for chunk in chunks}, requested)
    parts: list[tuple[Integers, Values, DecimalPlaces]] = []
    damaged: list[SpanMs] = []
    runs, run, last = [], 0, None
    for chunk in order_by_run(chunks):
        try:
            parts.append(plan.counted(chunk, (readers or {}).get(chunk.pk) or ChunkReader(chunk.data)))
        except (DamagedError, IndexError):
            damaged.append((round(chunk.since * 1000), round(chunk.until * 1000) + 1))
            continue
        run += (chunk.version, chunk.before) != last
        last = chunk.version, chunk.until
        runs.append(np.full(len(parts[-1][0][0]), run))
    if not parts:
        return ReadingTable(
            np.empty(0, np.int64), np.empty((len(requested), 0)), np.zeros(len(requested), np.int8)
        ), damaged
    times, counted = (np.concatenate([part[number] for part in parts], axis=1) for number in (0, 1))
    places = np.where(plan.rates, -1, combine_places([part[2] for part in parts])[plan.source]).astype(np.int8)
    values = np.empty((len(requested), len(times[0])))
    values[~plan.rates] = counted[plan.source[~plan.rates]]
    if plan.rates.any():
        values[plan.rates] = rates_of(counted[plan.source[plan.rates]], times, np.concatenate(runs))
    at = times[0]
    inside = np.flatnonzero((at >= since) & (at < until))
    if len(inside) != len(at) or (np.diff(at) < 0).any():
        inside = inside[np.argsort(at[inside], kind="stable")]
        at, values = at[inside], values[:, inside]
    return ReadingTable(at, values, places), damaged


def order_by_run(chunks: Sequence[StoredChunk]) -> Iterator[StoredChunk]:
    """Yield chunks so that each follows its predecessor, where that exists.

    Two workers may have written at the same time, when one of them had lost its claim without noticing. Chunks of two
    runs may end in the same millisecond, so that a time alone does not identify the predecessor.
    """
    following: dict[tuple[int, float | None], list[StoredChunk]] = {}
    ends = {(chunk.version, chunk.until) for chunk in chunks}
    waiting: list[StoredChunk] = []
    for chunk in sorted(chunks, reverse=True):
        if (chunk.version, chunk.before) not in ends:
            waiting.append(chunk)
        else:
            following.setdefault((chunk.version, chunk.before), []).append(chunk)
    while waiting:
        chunk = waiting.pop()
        yield chunk
        waiting += following.pop((chunk.version, chunk.until), [])


@dataclass(frozen=True)
class _ColumnPlan:
    """Maps series to raw columns: an error counter yields both a total and a rate, and is read once.

    `source[i]` is the index of the i-th series' column among the columns that are read. `columns` has, by catalogue,
    the columns to read: their indices in the catalogue, and their indices among the columns that are read.
    """

    source: NDArray[np.intp]
    rates: NDArray[np.bool_]
    columns: dict[int, tuple[list[int], list[int]]]
    read: int

    @classmethod
    def of(cls, catalogues: Iterable[int], requested: Sequence[SeriesIdentity]) -> _ColumnPlan:
        made = {catalogue: raw_columns(catalogue) for catalogue in catalogues}
        known = {one: found for columns in made.values() for one, found in columns.items()}
        sources = {series_identity(known[one].source): 0 for one in requested if one in known}
        read = {one: place for place, one in enumerate(sources)}
        columns = {}
        for catalogue in made:
            present = [(column, read[one]) for one, column in rollup_columns(catalogue).items() if one in read]
            columns[catalogue] = ([column for column, _ in present], [place for _, place in present])
        return cls(
            np.array([read[series_identity(known[one].source)] for one in requested], dtype=np.intp),
            np.array([known[one].is_rate for one in requested], dtype=bool),
            columns,
            len(read),
        )

    def counted(self, chunk: StoredChunk, reader: ChunkReader) -> tuple[Integers, Values, DecimalPlaces]:
        """Return times, values and decimal places of the columns that are read; raises DamagedError, IndexError."""
        columns, places = self.columns[chunk.catalogue]
        ((stored, decimal),) = reader.fields(columns)
        if places == list(range(self.read)):
            return reader.times, stored, decimal
        values = np.full((self.read, reader.rows), np.nan)
        values[places] = stored
        wide = np.zeros(self.read, np.int8)
        wide[places] = decimal
        return reader.times, values, wide


def rates_of(counted: Values, times: Integers, runs: NDArray[np.intp]) -> Values:
    """Return the rates of counters (1/s) since the previous reading; NaN after a reset and without a previous one."""
    missing = np.isnan(counted).any(axis=1)
    rows = np.arange(counted.shape[1])
    rates = np.empty(counted.shape)
    rates[:, 0] = np.nan
    moved = np.subtract(counted[:, 1:], counted[:, :-1], out=rates[:, 1:])
    reset = moved < 0
    moved *= 1000.0 / _elapsed(times, runs, rows[1:], rows[:-1])
    if reset.any():
        moved[reset] = np.nan
    for number in np.flatnonzero(missing).tolist():
        # Across missing values, from the last present one.
        present = np.flatnonzero(~np.isnan(counted[number]))
        moved = np.diff(counted[number, present])
        elapsed = _elapsed(times, runs, present[1:], present[:-1])
        rates[number, present[1:]] = np.where(moved >= 0, moved / elapsed * 1000.0, np.nan)
    return rates


def _elapsed(times: Integers, runs: NDArray[np.intp], later: NDArray[np.intp], earlier: NDArray[np.intp]) -> Values:
    """Return the ms between rows; NaN where the rows are of different runs, or no time lies between them.

    The BMC's timestamps are used where it reports them, unless its clock was set meanwhile.
    """
    ours, theirs = times[:2, later] - times[:2, earlier]
    by_bmc = (times[1, later] > 0) & (times[1, earlier] > 0) & (theirs > 0) & (np.abs(theirs - ours) <= CLOCK_STEP_MS)
    elapsed = np.where(by_bmc, theirs, ours)
    return np.where((runs[later] == runs[earlier]) & (elapsed > 0), elapsed, np.nan)


def rollup_buckets(run: Sequence[OpenRollup], requested: Sequence[SeriesIdentity], *, band: bool) -> Buckets:
    """Return the buckets of series in chunks of a rollup, in the given order; raises DamagedError.

    The chunks have one catalogue. Without `band` their least and greatest values are not read: the sums take their
    place.
    """
    columns = rollup_columns(run[0].catalogue)
    present = [place for place, one in enumerate(requested) if one in columns]
    numbers = (0, 1, 2, 3) if band else (2, 3)
    readers = [chunk.reader for chunk in run if chunk.reader is not None]
    if len(readers) < len(run):
        raise DamagedError("A chunk has changed since it was written.")
    times, (*lowest, total, count) = decode_columns(readers, [columns[requested[place]] for place in present], numbers)
    low, high = lowest or (total, total)
    return Buckets(times[0], low, high, total, count).spread(present, len(requested))


class StoredChunk(NamedTuple):
    """The columns of a chunk's row that are read."""

    pk: int
    catalogue: int
    since: float
    until: float
    before: float | None
    version: int
    data: bytes | memoryview


def pending_rollups(chassis: int, tier: int, since: float, until: float) -> list[tuple[int, float, float]]:
    """Return tier, begin and end of the pending rollups that overlap a range, of a tier and those below."""
    sql = "SELECT tier, since, until FROM store_due WHERE chassis = %s AND tier <= %s AND since < %s AND until > %s"
    return rows_fetch(sql, chassis, tier, until, since)


def last_stored_at(chassis: int, now: float) -> float | None:
    """Return the time of the newest stored raw reading, None without one."""
    sql = "SELECT until FROM store_chunk WHERE chassis = %s AND tier = 0 AND since <= %s ORDER BY since DESC LIMIT 1"
    found = rows_fetch(sql, chassis, now)
    return found[0][0] if found else None


def first_stored_at(chassis: int) -> float | None:
    """Return the time of the oldest stored reading, as precisely as its chunks allow; None without one.

    A rollup's window may begin long before its first reading: a finer window that begins in it is more precise.
    """
    sql = "SELECT since, until FROM store_chunk WHERE chassis = %s AND tier = %s ORDER BY since LIMIT 1"
    found: tuple[float, float] | None = None
    for tier in sorted(Tier, reverse=True):
        for since, until in rows_fetch(sql, chassis, tier.value):
            if found is None or since < found[1]:
                found = (since, until) if found is None else (max(since, found[0]), min(until, found[1]))
    return found[0] if found else None


def gaps_between(chassis: int, since: float, until: float) -> list[tuple[float, float | None, str]]:
    """Return begin, end and reason of the gaps in a range."""
    sql = "SELECT since, until, reason FROM store_gap WHERE chassis = %s AND since < %s"
    return rows_fetch(f"{sql} AND (until IS NULL OR until > %s)", chassis, until, since)


def rows_fetch(sql: str, *parameters: Any) -> list[Any]:
    """Return rows of the readings' database."""
    with connections[settings.READINGS_DATABASE].cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


# Rows of the models take longer to build than to insert.
INSERT_CHUNK = (
    "INSERT INTO store_chunk (chassis, tier, catalogue_id, since, until, before, version, rows, size, data) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
INSERT_DUE = "INSERT INTO store_due (chassis, tier, since, until) VALUES (%s, %s, %s, %s)"
INSERT_CATALOGUE = "INSERT INTO store_catalogue (chassis, digest, data) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
StoredValue = int | float | str | bytes | None


def rows_change(sql: str, rows: Sequence[tuple[StoredValue, ...]]) -> None:
    with connections[settings.READINGS_DATABASE].cursor() as cursor:
        cursor.executemany(sql, rows)


MAX_CACHED_IDS = 10_000

_lock = Lock()
_catalogue_ids: dict[tuple[int, str], int] = {}


def catalogue_get_or_create(chassis: int, entries: Sequence[SeriesEntry], digest: str = "") -> int:
    """Return the id of the catalogue with these entries, created where missing; `digest` is theirs, where known."""
    name = (chassis, digest or catalogue_digest(entries))
    with _lock:
        known: int = _catalogue_ids.get(name, 0)
    if known:
        return known
    sql = "SELECT id FROM store_catalogue WHERE chassis = %s AND digest = %s"
    found = rows_fetch(sql, *name)
    if not found:
        rows_change(INSERT_CATALOGUE, [(*name, Catalogue.packed(entries))])
        found = rows_fetch(sql, *name)
    ((known,),) = found
    with _lock:
        if len(_catalogue_ids) >= MAX_CACHED_IDS:
            _catalogue_ids.clear()
        _catalogue_ids[name] = known
    return known


def clear_caches() -> None:
    """Drop all cached catalogues: a transaction was rolled back, or a catalogue without chunks was removed."""
    with _lock:
        _catalogue_ids.clear()
    _kept_readers.clear()
    for cached in (catalogue_entries, raw_columns, rollup_columns, derived_columns):
        cached.cache_clear()
