"""Reads the newest readings, which are not stored yet, from Redis.

The poller's process writes them there; values are f32, and byte counters are rates already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import redis
from django.conf import settings
from numpy.typing import NDArray

from telemetry.live.catalogue import SeriesEntry
from telemetry.live.frames import RECENT_FRAMES, recent_frames, stored_catalogue
from telemetry.store.chunks import ReadingTable
from telemetry.store.format import Integers, Values
from telemetry.store.rules import ERROR_RATE, derived_series

REDIS_TIMEOUT_SECONDS = 1.0  # then stored readings are shown without the newest ones rather than late
F32_EXACT = 2.0**24  # larger totals are rounded in f32: their steps are no errors
FRAME_MARGIN = 5  # frames read beyond those of the period


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    # One client for all calls: creating one takes longer than a query.
    return redis.Redis.from_url(url, socket_timeout=REDIS_TIMEOUT_SECONDS, socket_connect_timeout=REDIS_TIMEOUT_SECONDS)


def live_tail_rows(
    chassis: int, requested: Sequence[str], since: int, until: int, *, seconds: float
) -> tuple[list[SeriesEntry], ReadingTable] | None:
    """Return entries and readings of the series with the keys `requested` in [`since`, `until`) (ms).

    `seconds` is the age of `since`. Returns None where Redis has no catalogue of the chassis, or does not answer.
    """
    most = min(RECENT_FRAMES, math.ceil(seconds / settings.CONFIG.reading_period) + FRAME_MARGIN)
    try:
        with _client(settings.REDIS_URL).pipeline(transaction=False) as pipe:
            pipe.get(f"live:catalogue:{chassis}")
            pipe.lrange(f"live:recent:{chassis}", -most, -1)
            raw, recent = cast("tuple[bytes | None, list[bytes]]", tuple(pipe.execute()))
    except (redis.RedisError, OSError):
        return None
    catalogue = stored_catalogue(raw)
    if catalogue is None:
        return None
    entries = catalogue.series
    # Frames of an earlier catalogue are stored already, or will be in a moment.
    frames = [
        (round(at * 1000), values)
        for revision, at, values in recent_frames(recent, since=(since - 0.5) / 1000, until=(until - 0.5) / 1000)
        if revision == catalogue.revision and len(values) == len(entries)
    ]
    return _rows(entries, frames, requested)


def _rows(
    entries: list[SeriesEntry], frames: Sequence[tuple[int, NDArray[np.float32]]], requested: Sequence[str]
) -> tuple[list[SeriesEntry], ReadingTable]:
    derived = {one.entry["key"]: one for one in derived_series(entries)}
    series = [derived[key] for key in requested if key in derived]
    at = np.array([moment for moment, _ in frames], dtype=np.int64)
    table = np.array([values for _, values in frames]).reshape(len(frames), len(entries))
    values = table[:, [one.column for one in series]].T.astype(np.float64)
    for place, one in enumerate(series):
        if one.is_rate and one.entry["quantity"] == ERROR_RATE:
            values[place] = _rate(values[place], at)
    order = np.argsort(at, kind="stable")
    places = np.zeros(len(series), dtype=np.int8)
    return [one.entry for one in series], ReadingTable(at[order], values[:, order], places)


def _rate(total: Values, at: Integers) -> Values:
    """Return the rate of a total (1/s); NaN where it is not known."""
    moved, elapsed = np.diff(total), np.diff(at)
    known = (moved >= 0) & (elapsed > 0) & (total[1:] < F32_EXACT)
    rate = np.full(len(total), math.nan)
    rate[1:][known] = moved[known] / elapsed[known] * 1000.0
    return rate
