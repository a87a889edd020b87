"""Histories as JSON and as CSV, from numpy without a detour: a day of 32 series is 16,000 numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from accounts.sheets import lines, safe
from telemetry.history.heat import HeatMap
from telemetry.history.ranges import iso
from telemetry.history.selectors import History, Line, Missing

DIGITS: Final = 7  # significant ones: readings come in single precision, which is good for no more
WHOLE: Final = 2.0**53  # up to here every whole number is one of its own
STATS: Final = {"mean": ("mean",), "band": ("mean", "low", "high")}


def rounded(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return values with seven significant digits: short where they are written.

    What is whole (a total) stays exact; so do NaN and infinities.
    """
    exact = values.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.floor(np.log10(np.abs(exact)))
        places = np.where(np.isfinite(size), DIGITS - 1 - size, 0.0).clip(-300, 300)
        # By whole powers of ten only, never by 0.001: so the result is the nearest number to its decimals.
        up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
        found = np.where(places >= 0, np.rint(exact * up) / up, np.rint(exact / down) * down)
        as_is = ~np.isfinite(found) | ((exact == np.rint(exact)) & (np.abs(exact) <= WHOLE))
    return np.where(as_is, exact, found)


def as_json(history: History, stats: Sequence[str]) -> bytes:
    """Return a history as JSON; NaN is null. The shape is declared in falconweb.api.telemetry."""
    return msgspec.json.encode(
        {
            "since": history.span.since,
            "until": history.span.until,
            "step": history.step,
            "at": history.at.tolist(),
            "series": _lines(history.lines, stats),
            "gaps": _gaps(history.gaps),
            "left_out": [{"subject": one.subject, "metric": one.metric, "why": one.why} for one in history.left_out],
        }
    )


def _lines(made: Sequence[Line], stats: Sequence[str]) -> list[dict[str, Any]]:
    # All at once: to round line by line would take longer than to read them.
    numbers = {name: rounded(np.array([getattr(line, name) for line in made])).tolist() for name in stats}
    return [
        {
            "subject": line.subject.ref,
            "metric": line.metric,
            "name": line.subject.name,
            "place": line.subject.place,
            "label": line.label,
            "unit": line.unit,
            "made_of": line.made_of,
            "combine": line.combine,
            "parts": [{"chassis_id": one.chassis, "key": one.key} for one in line.parts if one.counts_now],
            **{name: numbers[name][place] for name in stats},
        }
        for place, line in enumerate(made)
    ]


def column_names(line: Line, stats: Sequence[str]) -> list[str]:
    """Return what the columns of a line are called: 'GPU 3, falcon-1: Temperature (°C), mean'."""
    unit = f" ({line.unit})" if line.unit else ""
    name = f"{line.subject.full_name}: {line.label}{unit}"
    return [f"{name}, {stat}" for stat in stats]


def csv_lines(history: History, stats: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table: a row a bucket, its begin first; empty where there is nothing."""
    head = ["time", *(name for line in history.lines for name in column_names(line, stats))]
    yield from lines([safe(name) for name in head], ())
    columns = [rounded(getattr(line, name)) for line in history.lines for name in stats]
    for place, at in enumerate(history.at.tolist()):
        # Numbers and times alone: nothing here could be a formula.
        yield ",".join([iso(at), *(shown(column[place]) for column in columns)]) + "\r\n"


def shown(value: float) -> str:
    """Return a number as a table has it: whole ones without a fraction, nothing for NaN."""
    number = float(value)
    if math.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() and abs(number) <= WHOLE else repr(number)


def heat_json(found: HeatMap) -> bytes:
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
                    "mean": rounded(row.mean).tolist(),
                    "high": rounded(row.high).tolist(),
                }
                for row in found.rows
            ],
            "gaps": _gaps(found.gaps),
        }
    )


def _gaps(gaps: Sequence[Missing]) -> list[dict[str, Any]]:
    return [{"chassis_id": one.chassis, "since": one.since, "until": one.until, "reason": one.reason} for one in gaps]
