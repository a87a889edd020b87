"""Chunks as arrays: raw readings with counters as rates, and the buckets of rollups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from telemetry.catalogue import Entry
from telemetry.store.buckets import Buckets, Places, together
from telemetry.store.format import Chunk as Decoded
from telemetry.store.format import DamagedError, Values, Whole, encode
from telemetry.store.models import Catalogue, Tier
from telemetry.store.queries import Stored, chunks_between, chunks_that_end
from telemetry.store.series import Identity, Shown, identity, shown
from telemetry.store.tiers import RAW_SPAN, window_of

ROLLUP_BLOCK = 64  # columns, of four fields each
KNOWN_CATALOGUES = 64  # each takes up to 1 MB
CLOCKS_AGREE = 5_000  # ms; a BMC's clock that moved otherwise than ours was set


@dataclass(frozen=True)
class Rows:
    """Readings, [series, rows], at ascending moments (ms); `places` are the decimal places of each series."""

    at: Whole
    values: Values
    places: Places


@dataclass(frozen=True)
class Damage:
    """A stored chunk that cannot be read."""

    since: int
    until: int


def stored(chassis: int, tier: Tier, since: int, until: int) -> list[Stored]:
    """Return the chunks that reach into a range (ms), in the order in which they were written."""
    begin = since - RAW_SPAN if tier is Tier.RAW else window_of(tier, since)
    return chunks_between(chassis, tier, begin / 1000, since / 1000, until / 1000)


def before_them(chassis: int, chunks: Sequence[Stored]) -> list[Stored]:
    """Return the raw chunks that come right before some, so that there is a rate from their first row on."""
    there = {chunk.until for chunk in chunks}
    wanted = {chunk.before for chunk in chunks if chunk.before is not None} - there
    return chunks_that_end(chassis, Tier.RAW, min(wanted) - RAW_SPAN / 1000, wanted) if wanted else []


@lru_cache(maxsize=KNOWN_CATALOGUES)
def entries_of(catalogue: int) -> tuple[Entry, ...]:
    """Return what the columns of chunks with a catalogue are of: a row that never changes."""
    return tuple(Catalogue.objects.get(pk=catalogue).entries)


@lru_cache(maxsize=KNOWN_CATALOGUES)
def raw_columns(catalogue: int) -> dict[Identity, Shown]:
    """Return the series made of raw chunks with a catalogue."""
    return {identity(one.entry): one for one in shown(entries_of(catalogue))}


@lru_cache(maxsize=KNOWN_CATALOGUES)
def rollup_columns(catalogue: int) -> dict[Identity, int]:
    """Return the series of rollups with a catalogue, and which column each is."""
    return {identity(entry): column for column, entry in enumerate(entries_of(catalogue))}


def raw_rows(chunks: Sequence[Stored], wanted: Sequence[Identity], since: int, until: int) -> tuple[Rows, list[Damage]]:
    """Return what raw chunks hold of series from `since` on and before `until` (ms), and what cannot be read of it."""
    plan = _Plan.of({chunk.catalogue for chunk in chunks}, wanted)
    parts: list[tuple[Whole, Values, Places]] = []
    damaged: list[Damage] = []
    runs, run, last = [], 0, None
    for chunk in _in_runs(chunks):
        try:
            parts.append(plan.counted(chunk))
        except (DamagedError, IndexError):
            damaged.append(Damage(round(chunk.since * 1000), round(chunk.until * 1000) + 1))
            continue
        run += (chunk.version, chunk.before) != last
        last = chunk.version, chunk.until
        runs.append(np.full(len(parts[-1][0][0]), run))
    if not parts:
        return Rows(np.empty(0, np.int64), np.empty((len(wanted), 0)), np.zeros(len(wanted), np.int8)), damaged
    times, counted = (np.concatenate([part[number] for part in parts], axis=1) for number in (0, 1))
    places = np.where(plan.rates, -1, together([part[2] for part in parts])[plan.source]).astype(np.int8)
    values = np.empty((len(wanted), len(times[0])))
    values[~plan.rates] = counted[plan.source[~plan.rates]]
    if plan.rates.any():
        values[plan.rates] = _rates(counted[plan.source[plan.rates]], times, np.concatenate(runs))
    at = times[0]
    inside = np.flatnonzero((at >= since) & (at < until))
    if len(inside) != len(at) or (np.diff(at) < 0).any():
        inside = inside[np.argsort(at[inside], kind="stable")]
        at, values = at[inside], values[:, inside]
    return Rows(at, values, places), damaged


def _in_runs(chunks: Sequence[Stored]) -> Iterator[Stored]:
    """Yield chunks so that each follows the one right before it, where that is there.

    Two workers may have written at once, when one of them had lost its lease without knowing it. Chunks of two runs may
    end in the same millisecond, so that a moment alone does not tell which one is meant.
    """
    following: dict[tuple[int, float | None], list[Stored]] = {}
    ends = {(chunk.version, chunk.until) for chunk in chunks}
    waiting: list[Stored] = []
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
class _Plan:
    """How series are made of raw columns: an error counter is both a total and a rate, and read once.

    `source[i]` is which of the columns that are read the i-th series is made of, `columns` by catalogue which these
    are: their places there, and among those that are read.
    """

    source: NDArray[np.intp]
    rates: NDArray[np.bool_]
    columns: dict[int, tuple[list[int], list[int]]]
    read: int

    @classmethod
    def of(cls, catalogues: Iterable[int], wanted: Sequence[Identity]) -> _Plan:
        """Return the plan for chunks of some catalogues."""
        made = {catalogue: raw_columns(catalogue) for catalogue in catalogues}
        known = {one: found for columns in made.values() for one, found in columns.items()}
        sources = {identity(known[one].source): 0 for one in wanted if one in known}
        read = {one: place for place, one in enumerate(sources)}
        columns = {}
        for catalogue in made:
            there = [(column, read[one]) for one, column in rollup_columns(catalogue).items() if one in read]
            columns[catalogue] = ([column for column, _ in there], [place for _, place in there])
        return cls(
            np.array([read[identity(known[one].source)] for one in wanted], dtype=np.intp),
            np.array([known[one].is_rate for one in wanted], dtype=bool),
            columns,
            len(read),
        )

    def counted(self, chunk: Stored) -> tuple[Whole, Values, Places]:
        """Return times, values and decimal places of the columns that are read; raises DamagedError, IndexError."""
        decoded = Decoded(chunk.data)
        columns, places = self.columns[chunk.catalogue]
        ((some, decimal),) = decoded.scaled_fields(columns)
        if places == list(range(self.read)):
            return decoded.times, some, decimal
        values = np.full((self.read, decoded.rows), np.nan)
        values[places] = some
        wide = np.zeros(self.read, np.int8)
        wide[places] = decimal
        return decoded.times, values, wide


def _rates(counted: Values, times: Whole, runs: NDArray[np.intp]) -> Values:
    """Return what counters rise by in a second, since the reading before; NaN where one was reset or there is none."""
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
        # Over what is missing, from the last one that is there.
        there = np.flatnonzero(~np.isnan(counted[number]))
        moved = np.diff(counted[number, there])
        elapsed = _elapsed(times, runs, there[1:], there[:-1])
        rates[number, there[1:]] = np.where(moved >= 0, moved / elapsed * 1000.0, np.nan)
    return rates


def _elapsed(times: Whole, runs: NDArray[np.intp], later: NDArray[np.intp], earlier: NDArray[np.intp]) -> Values:
    """Return how many ms lie between rows of one run; NaN where they are not, or none do.

    Time is the BMC's own where it says when it measured, unless its clock was set meanwhile.
    """
    ours, theirs = times[:2, later] - times[:2, earlier]
    told = (times[1, later] > 0) & (times[1, earlier] > 0) & (theirs > 0) & (np.abs(theirs - ours) <= CLOCKS_AGREE)
    elapsed = np.where(told, theirs, ours)
    return np.where((runs[later] == runs[earlier]) & (elapsed > 0), elapsed, np.nan)


def rollup_buckets(chunk: Stored, wanted: Sequence[Identity]) -> tuple[Buckets, Places]:
    """Return what a rollup's chunk holds of series; raises DamagedError."""
    columns = rollup_columns(chunk.catalogue)
    there = [place for place, one in enumerate(wanted) if one in columns]
    decoded = Decoded(chunk.data)
    try:
        fields = decoded.scaled_fields([columns[wanted[place]] for place in there])
    except IndexError as error:
        raise DamagedError("A chunk has other columns than its catalogue.") from error
    if len(fields) != 4:
        raise DamagedError("A chunk of a rollup has other fields.")
    low, high, total, count = (values for values, _ in fields)
    buckets = Buckets(decoded.times[0], low, high, total, count)
    places = together([decimal for _, decimal in fields[:3]])
    if len(there) == len(wanted):
        return buckets, places
    wide = np.zeros(len(wanted), np.int8)
    wide[there] = places
    return buckets.spread(there, len(wanted)), wide


def rollup_bytes(buckets: Buckets, places: Places) -> bytes:
    """Return buckets as a chunk."""
    kept = buckets.rounded(places)
    return encode(kept.at[None], [kept.low, kept.high, kept.total, kept.count], block=ROLLUP_BLOCK)
