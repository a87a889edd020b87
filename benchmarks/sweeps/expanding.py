"""A grid drawn out for a person: its points in the order in which they run, each predicted, and what that comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from accounts.models import User
from benchmarks.sweeps.grid import Expansion, Grid, GridPoint, expand
from benchmarks.sweeps.order import Cost, cost_of, order_of
from benchmarks.sweeps.pool import Pool
from benchmarks.sweeps.seen import A_COMPOSITION, Judge, Predicted, attached_now, pool_of


@dataclass(frozen=True, kw_only=True)
class DrawnPoint:
    """A point with what is predicted of it; None where nothing is."""

    point: GridPoint
    predicted: Predicted | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What is predicted, as JSON; {} for nothing."""
        if self.predicted is None:
            return {}
        one = self.predicted
        return {
            "step_seconds": one.step_seconds, "low": one.low, "high": one.high,
            "samples_per_second": one.samples_per_second, "basis": one.basis,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """All points in their order, what composing costs, and how long it takes: `seconds`, of `predicted_count` points.

    `as_given` is what composing would cost in the order of the grid.
    """

    points: tuple[DrawnPoint, ...]
    expansion: Expansion
    cost: Cost
    as_given: Cost
    seconds: float
    predicted_count: int

    @property
    def words_of_time(self) -> str:
        """How long it takes, as people say it."""
        return duration_words(self.seconds)


def duration_words(seconds: float) -> str:
    """Return a duration as precisely as it is known: '40 s', '12 min', '3.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def drawn_of(person: User, grid: Grid, pool: Pool | None = None) -> Drawn:
    """Return what a checked grid comes to, on the fabric as it is now. Raises Invalid for too many points."""
    judge = Judge()
    expansion = expand(grid, pool if pool is not None else pool_of(person), judge.refuse)
    wanted = [one.composition.devices for one in expansion.points]
    now = attached_now({device: None for places in wanted for device in places})
    order = order_of(wanted, now)
    points = tuple(
        DrawnPoint(point=one, predicted=judge.predicted(one.spec, one.composition))
        for one in (expansion.points[number] for number in order)
    )
    cost = cost_of([one.point.composition.devices for one in points], now)
    known = [one for one in points if one.predicted is not None]
    return Drawn(
        points=points,
        expansion=expansion,
        cost=cost,
        as_given=cost_of(wanted, now),
        seconds=_seconds(known) + A_COMPOSITION * cost.moves,
        predicted_count=len(known),
    )


def _seconds(points: Iterable[DrawnPoint]) -> float:
    """Return what points take together, those of one host after each other and those of several at the same time."""
    hosts: dict[int, float] = {}
    for one in points:
        if one.predicted is not None:
            host = one.point.composition.host
            hosts[host] = hosts.get(host, 0.0) + one.predicted.seconds_of(one.point.spec)
    return max(hosts.values(), default=0.0)
