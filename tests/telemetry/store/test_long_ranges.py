"""Years of hundreds of series in one question: what is held of them meanwhile stays small."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from telemetry.live.catalogue import SeriesEntry
from telemetry.store.chunks import catalogue_get_or_create
from telemetry.store.models import Chunk
from telemetry.store.rollups import SeriesBuckets, one_row
from telemetry.store.rules import TIER_SHAPES, Buckets, Tier, window_start
from telemetry.store.selectors import read_series

pytestmark = pytest.mark.django_db(databases=["default", "readings"])
SERIES, WINDOWS = 200, 46  # half a year


def test_half_a_year_of_hundreds_of_series_in_a_few_points_takes_little_memory() -> None:
    """Whoever holds a chassis' worth of devices can ask for it, and several can at once."""
    shape = TIER_SHAPES[Tier.QUARTER]
    rows = shape.window // shape.step
    entries = tuple(
        SeriesEntry(
            key=f"device/{n}/power_watts", object="device", id=n, quantity="power_watts", label="Power", unit="W"
        )
        for n in range(SERIES)
    )
    catalogue = catalogue_get_or_create(4711, entries)
    end = window_start(Tier.QUARTER, round(time.time() * 1000)) - shape.window
    values = np.arange(SERIES * rows, dtype=np.float64).reshape(SERIES, rows)
    places = np.zeros(SERIES, np.int8)
    for number in range(WINDOWS):
        begin = end - (WINDOWS - number) * shape.window
        at = begin + np.arange(rows) * shape.step
        buckets = Buckets(at, values, values + 1, 900 * values, np.full(values.shape, 900.0))
        made = SeriesBuckets(entries, places, np.arange(SERIES), buckets, one_row(values[:, 0], 900.0))
        Chunk.objects.create(
            chassis=4711, tier=Tier.QUARTER, since=begin / 1000, until=(begin + shape.window) / 1000, rows=rows,
            catalogue_id=catalogue, data=(data := made.encoded()), size=len(data),
        )  # fmt: skip
    since, until = (end - WINDOWS * shape.window) / 1000, end / 1000
    tracemalloc.start()
    found = read_series(4711, [one["key"] for one in entries], since=since, until=until, points=4)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100 * 2**20, f"{most / 2**20:.0f} MiB"
    here = found.count > 0
    assert found.count.sum() == 900 * values.size * WINDOWS
    assert found.low[here].min() == 0.0
    assert (found.low[:, here.any(axis=0)] == values.min(axis=1, keepdims=True)).all()
    assert (found.high[:, here.any(axis=0)] == values.max(axis=1, keepdims=True) + 1).all()
    means = (found.mean.astype(np.float64) * found.count)[here].sum() / found.count.sum()
    assert means == pytest.approx(values.mean(), rel=1e-5)
