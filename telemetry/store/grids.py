"""Which buckets a range is shown in: of rounded width, where that is possible, and no finer than what is kept. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.store.models import Tier
from telemetry.store.spans import Span
from telemetry.store.tiers import ROLLUPS, SHAPES, STEPS, tier_for


@dataclass(frozen=True)
class Grid:
    """`rows` buckets of `step` ms from `begin` on."""

    begin: int
    step: int
    rows: int

    @property
    def span(self) -> Span:
        """What it covers, ms."""
        return self.begin, self.begin + self.rows * self.step

    @property
    def tier(self) -> Tier:
        """The widest tier that its buckets can be made of."""
        return tier_for(self.step)


def grid_of(since: float, until: float, points: int, *, now: float, keep: Sequence[int]) -> Grid:
    """Return the buckets of a range in Unix s; `keep` is how long each tier is kept, s."""
    finest = next((tier for tier in Tier if since >= now - keep[tier]), ROLLUPS[-1])
    least = SHAPES[finest].step if finest in SHAPES else 1000
    begin, end = math.floor(since * 1000), math.ceil(until * 1000)
    for seconds in STEPS:
        step = seconds * 1000
        if step >= least:
            grid = Grid(begin // step * step, step, -(-(end - begin // step * step) // step))
            if grid.rows <= points:
                return grid
    # A few buckets over a seam of all rounded ones, or of many years: as wide as they have to be.
    least = max((SHAPES[tier].step for tier in ROLLUPS if SHAPES[tier].step * points <= end - begin), default=least)
    begin = begin // least * least
    step = -(-(end - begin) // points // least) * least
    return Grid(begin, step, -(-(end - begin) // step))
