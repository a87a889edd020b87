"""Sequences of values of a run: written in pieces as they come, read whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from django.db import transaction
from django.db.models import F, Q
from numpy.typing import ArrayLike, NDArray

from benchmarks.runs.models import Chunk, Run, Series
from falconweb.errors import Invalid

Floats = NDArray[np.float64]
VALUES_A_CHUNK: Final = 512  # a chunk grows to so many values, then another one begins
STORED: Final = np.dtype("<f8")


@dataclass
class Column:
    """Values that a series gets: `at` are Unix seconds, NaN is no value. `interval`: seconds that each is over."""

    unit: str = ""
    source: str = ""
    interval: float = 0.0
    at: ArrayLike = ()
    values: ArrayLike = ()


def series_append(
    run: Run,
    key: str,
    *,
    at: ArrayLike,
    values: ArrayLike,
    unit: str = "",
    source: str = "",
    interval: float = 0.0,
) -> None:
    """Add values to a series of a run; see `series_append_all`."""
    series_append_all(run, {key: Column(unit, source, interval, at, values)})


def series_append_all(run: Run, columns: Mapping[str, Column]) -> None:
    """Add values to series of a run, by key, those made that are new; five queries, however many series they are.

    Nothing keeps two from adding the same twice: callers do so in the transaction that notes how far they are. Raises
    Invalid where there are not as many times as values.
    """
    added = {key: (_column(one.at), _column(one.values)) for key, one in columns.items()}
    for key, (at, values) in added.items():
        if at.shape != values.shape:
            raise Invalid(f"The series '{key}' has {len(at)} times and {len(values)} values.")
    with transaction.atomic():
        rows = _made(run, columns)
        # All chunks but the last are full: where that begins follows from the count.
        is_last = Q(first=F("series__count") - F("series__count") % VALUES_A_CHUNK)
        last = {row.series_id: row for row in Chunk.objects.filter(is_last, series__in=rows.values())}
        chunks: list[Chunk] = []
        for key, (at, values) in added.items():
            series, before = rows[key], last.get(rows[key].pk)
            begin = series.count if before is None else before.first
            whole_at, whole = at.tobytes(), values.tobytes()
            if before is not None:
                whole_at, whole = bytes(before.at) + whole_at, bytes(before.values) + whole
            size = VALUES_A_CHUNK * STORED.itemsize
            series.count = begin + len(whole) // STORED.itemsize
            chunks += [
                Chunk(
                    series=series,
                    first=begin + place // STORED.itemsize,
                    at=whole_at[place : place + size],
                    values=whole[place : place + size],
                )
                for place in range(0, len(whole), size)
            ]
        Chunk.objects.bulk_create(
            chunks, update_conflicts=True, unique_fields=["series", "first"], update_fields=["at", "values"]
        )
        Series.objects.bulk_update(rows.values(), ["count"])


def _made(run: Run, columns: Mapping[str, Column]) -> dict[str, Series]:
    """Return the series of these keys, those made that there were not."""
    rows = {row.key: row for row in Series.objects.filter(run=run, key__in=columns)}
    new = [
        Series(run=run, key=key, unit=one.unit, source=one.source, interval=one.interval)
        for key, one in columns.items()
        if key not in rows
    ]
    return rows | {row.key: row for row in Series.objects.bulk_create(new)}


def series_read(run: Run, key: str) -> tuple[Floats, Floats]:
    """Return the times (Unix s) and values of a series, float64, in the order of writing; empty where there is none."""
    return values_of(run, [key]).get(key, (np.zeros(0), np.zeros(0)))


def series_of(run: Run) -> list[Series]:
    """Return what was recorded of a run, by key, without its values."""
    return list(Series.objects.filter(run=run).order_by("key"))


def values_of(run: Run, keys: Sequence[str] | None = None) -> dict[str, tuple[Floats, Floats]]:
    """Return times and values of several series of a run, or of all, by key; one query."""
    rows = Chunk.objects.filter(series__run=run).order_by("series", "first")
    if keys is not None:
        rows = rows.filter(series__key__in=keys)
    parts: dict[str, list[tuple[bytes, bytes]]] = {}
    for key, at, values in rows.values_list("series__key", "at", "values"):
        parts.setdefault(key, []).append((bytes(at), bytes(values)))
    return {
        key: (_whole(at for at, _ in pieces), _whole(values for _, values in pieces)) for key, pieces in parts.items()
    }


def thinned(at: Floats, values: Floats, points: int) -> tuple[Floats, Floats]:
    """Return at most `points` of a series, evenly over its length, its last one among them."""
    if len(at) <= points:
        return at, values
    chosen = np.unique(np.linspace(0, len(at) - 1, points).round().astype(np.intp))
    return at[chosen], values[chosen]


def _column(values: ArrayLike) -> NDArray[np.float64]:
    return np.atleast_1d(np.asarray(values, dtype=STORED))


def _whole(pieces: Iterator[bytes]) -> Floats:
    return np.frombuffer(b"".join(pieces), dtype=STORED).astype(np.float64)
