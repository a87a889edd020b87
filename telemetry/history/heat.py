"""The temperatures of a drawer's slots over a day: slots by time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from fabric.models import Drawer, Slot
from falconweb.errors import NotFound
from telemetry.history.metrics import METRICS
from telemetry.history.ranges import Span
from telemetry.history.selectors import Missing, history_of

MOST_CELLS: Final = 96  # of a slot: a quarter of an hour each, of a day
# °C: what separates the steps of colour; the last is what accelerators are throttled at.
STEPS: Final = (30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """A slot: the highest temperature and the mean of each bucket, °C, NaN where there is none."""

    slot: Slot
    mean: Floats
    high: Floats

    @property
    def highest(self) -> float:
        """The highest of all, NaN where there is none."""
        return float(np.fmax.reduce(self.high)) if len(self.high) else math.nan


@dataclass(frozen=True)
class HeatMap:
    """Slots of a drawer in the order of their numbers, on buckets of `step` seconds that begin at `at` (Unix s)."""

    drawer: Drawer
    span: Span
    step: float
    at: Floats
    rows: list[Row]
    gaps: list[Missing]


def heat_map(person: User, drawer_id: int, span: Span, *, cells: int = MOST_CELLS) -> HeatMap:
    """Return the temperatures of the slots that the person may see; raises NotFound."""
    drawer = Drawer.objects.visible_to(person).select_related("chassis").filter(pk=drawer_id).first()
    if drawer is None:
        raise NotFound("There is no such drawer.")
    slots = list(Slot.objects.visible_to(person).filter(drawer=drawer, missing_since=None).order_by("number", "uri"))
    refs = [f"slot/{slot.pk}" for slot in slots]
    found = history_of(person, refs, [METRICS["temperature_celsius"]], span, points=cells)
    lines = {line.subject.ref: line for line in found.lines}
    nothing = np.full(len(found.at), math.nan)
    rows = [
        Row(slot, lines[ref].mean, lines[ref].high) if ref in lines else Row(slot, nothing, nothing)
        for slot, ref in zip(slots, refs, strict=True)
    ]
    return HeatMap(drawer, span, found.step, found.at, rows, found.gaps)


def heat_step(celsius: float) -> int | None:
    """Return the step of colour of a temperature, 0 for the coolest; None for no value."""
    return None if math.isnan(celsius) else sum(celsius >= one for one in STEPS)
