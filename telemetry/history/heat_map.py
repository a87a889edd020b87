"""Heat map of the temperatures of a drawer's slots over a day: data, drawing and table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from accounts.visibility import visible_or_404
from core.language import _, gettext_noop
from core.zones import local_words
from fabric.inventory.models import Drawer, Slot
from telemetry.history.encoding import round_significant, worded_gaps
from telemetry.history.rules import HOUR, METRICS, TimeRange
from telemetry.history.selectors import HistoryGap, read_history

MAX_CELLS: Final = 96  # of a slot: quarters of an hour of a day
LONGEST_DAY_CELLS: Final = MAX_CELLS + 4  # the clocks were set back
# °C; limits between the steps of colour; accelerators are throttled at the last.
COLOUR_STEPS: Final = (30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeatMapRow:
    """A slot: highest and mean temperature of each bucket, °C, NaN for none."""

    slot: Slot
    mean: Floats
    high: Floats


@dataclass(frozen=True)
class HeatMap:
    """Slots of a drawer in the order of their numbers, on buckets of `step` seconds that start at `at` (Unix s)."""

    drawer: Drawer
    span: TimeRange
    step: float
    at: Floats
    rows: list[HeatMapRow]
    gaps: list[HistoryGap]


def heat_map(person: User, drawer_id: int, span: TimeRange, *, cells: int = MAX_CELLS) -> HeatMap:
    """Return the temperatures of the slots that the person may see; raises NotFound."""
    drawer: Drawer = visible_or_404(Drawer.objects.select_related("chassis"), person, drawer_id, gettext_noop("drawer"))
    slots = list(Slot.objects.visible_to(person).filter(drawer=drawer, missing_since=None).order_by("number", "uri"))
    refs = [f"slot/{slot.pk}" for slot in slots]
    found = read_history(person, refs, [METRICS["temperature_celsius"]], span, points=cells)
    lines = {line.subject.ref: line for line in found.lines}
    nothing = np.full(len(found.at), math.nan)
    rows = [
        HeatMapRow(slot, lines[ref].mean, lines[ref].high) if ref in lines else HeatMapRow(slot, nothing, nothing)
        for slot, ref in zip(slots, refs, strict=True)
    ]
    return HeatMap(drawer, span, found.step, found.at, rows, found.gaps)


WIDTH, ROW_HEIGHT = 960, 26  # of the picture, in its own units
NAMES, LEFT, TOP = 50, 18, 4  # the names are a separate picture, which stays visible when the other is scrolled
LABEL_HOURS: Final = 3  # hours between labels below


def draw_heat_map(found: HeatMap) -> dict[str, Any]:
    """Return the picture of a heat map, as the templates read it: its size, rows with cells, and labels of hours."""
    seconds = found.span.seconds
    rows = []
    for place, row in enumerate(found.rows):
        cells = []
        for at, high, mean in zip(found.at.tolist(), row.high.tolist(), row.mean.tolist(), strict=True):
            if math.isnan(high):
                continue
            step = sum(high >= limit for limit in COLOUR_STEPS)
            x = LEFT + (max(at, found.span.since) - found.span.since) / seconds * WIDTH
            words = _(
                "{slot}, {time}: highest {high:.1f} °C, mean {mean:.1f} °C",
                slot=row.slot.name, time=time_of_day(at), high=high, mean=mean,
            )  # fmt: skip
            cells.append({"x": x, "width": found.step / seconds * WIDTH, "step": step, "words": words})
        name = _("Slot {number}", number=row.slot.number) if row.slot.number else row.slot.name
        rows.append({"name": name, "whole": row.slot.name, "y": TOP + place * ROW_HEIGHT, "cells": cells})
    foot = TOP + len(rows) * ROW_HEIGHT
    count = hour_count(found)
    hours = [
        (LEFT + hour / count * WIDTH, time_of_day(found.span.since + hour * HOUR) if hour < count else "24:00")
        for hour in range(0, count + 1, LABEL_HOURS)
    ]
    return {"names": NAMES, "width": LEFT + WIDTH + 24, "height": foot + 24, "rows": rows, "hours": hours,
            "text_y": foot + 16}  # fmt: skip


def time_of_day(at: float) -> str:
    """Return a Unix time as the time of day in the person's zone."""
    return local_words(datetime.fromtimestamp(at, UTC), "%H:%M")


def hour_count(found: HeatMap) -> int:
    """Return how many hours a heat map has: a day on which the clocks change has 23 or 25."""
    return round(found.span.seconds / HOUR)


def hourly_highs(found: HeatMap) -> list[dict[str, Any]]:
    """Return the heat map as a table: the highest temperature of each slot, and of each of its hours, '' for none."""
    count = hour_count(found)
    places = ((found.at - found.span.since) // HOUR).astype(int)
    table = []
    for row in found.rows:
        highest = np.full(count, math.nan)
        inside = (places >= 0) & (places < count)
        np.fmax.at(highest, places[inside], row.high[inside])
        hours = [_degrees_label(one) for one in highest.tolist()]
        of_day = float(np.fmax.reduce(row.high, initial=math.nan))
        table.append({"slot": row.slot, "highest": _degrees_label(of_day), "hours": hours})
    return table


def _degrees_label(celsius: float) -> str:
    return "" if math.isnan(celsius) else f"{celsius:.0f}"


def heat_map_json(found: HeatMap) -> bytes:
    """Return a heat map as JSON; NaN is null."""
    return msgspec.json.encode(
        {
            "drawer_id": found.drawer.pk,
            "since": found.span.since,
            "until": found.span.until,
            "step": found.step,
            "at": found.at.tolist(),
            "slots": [
                {
                    "slot_id": row.slot.pk,
                    "number": row.slot.number,
                    "name": row.slot.name,
                    "mean": round_significant(row.mean).tolist(),
                    "high": round_significant(row.high).tolist(),
                }
                for row in found.rows
            ],
            "gaps": worded_gaps(found.gaps),
        }
    )
