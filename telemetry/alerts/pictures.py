"""What chassis measured in the last hour, a picture for each quantity: so that a rule's metric is chosen by sight."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from core.errors import Invalid
from core.language import _
from fabric.bmc.series import Quantity
from fabric.inventory.models import Chassis
from telemetry.alerts.checks import ERROR_RATE, RATE
from telemetry.alerts.rules import value_label
from telemetry.store.selectors import known_series, read_series

HOUR: Final = 3600.0
POINTS: Final = 60
MAX_SERIES: Final = 4  # of a quantity; one picture is of them all
CHASSIS_TRIED: Final = 3
WIDTH, HEIGHT, MARGIN = 120.0, 24.0, 2.0


@dataclass(frozen=True)
class MetricPicture:
    """A quantity, its least and greatest value of the last hour in words, and a drawing of WIDTH times HEIGHT.

    `bands` are points of polygons from the least to the greatest of some series; without values there are none.
    """

    quantity: str
    label: str
    range: str
    bands: tuple[str, ...]


def metric_pictures(person: User, labels: Mapping[str, str]) -> tuple[list[MetricPicture], str]:
    """Return a picture of each quantity of `labels`, empty ones last, and the name of the chassis that they are of.

    It is one that the person may see and that was read in the last hour; without one, there are no drawings.
    """
    until = time.time()
    rows = Chassis.objects.visible_to(person).filter(enabled=True).order_by("name").values_list("pk", "name")
    for pk, name in rows[:CHASSIS_TRIED]:
        keys: defaultdict[str, list[str]] = defaultdict(list)
        units = {}
        for entry in known_series(pk, since=until - HOUR, until=until):
            # Rates are listed beside their counters.
            is_rate = entry["key"].endswith(RATE)
            quantity = ERROR_RATE if is_rate else entry["quantity"]
            if quantity in labels and (is_rate or quantity != Quantity.ERRORS) and len(keys[quantity]) < MAX_SERIES:
                keys[quantity].append(entry["key"])
                units[quantity] = entry["unit"] or ("1/s" if is_rate else "")
        if keys:
            return _drawn(pk, labels, keys, units, until), name
    return [MetricPicture(quantity, label, "", ()) for quantity, label in labels.items()], ""


def _drawn(
    chassis: int, labels: Mapping[str, str], keys: Mapping[str, Sequence[str]], units: Mapping[str, str], until: float
) -> list[MetricPicture]:
    wanted = [key for some in keys.values() for key in some]
    try:
        extract = read_series(chassis, wanted, since=until - HOUR, until=until, points=POINTS)
    except Invalid:
        return [MetricPicture(quantity, label, "", ()) for quantity, label in labels.items()]
    places = {entry["key"]: place for place, entry in enumerate(extract.series)}
    pictures = []
    for quantity, label in labels.items():
        found = [places[key] for key in keys.get(quantity, ()) if key in places]
        low = np.fmin.reduce(extract.low[found].astype(np.float64), axis=0) if found else np.array([])
        high = np.fmax.reduce(extract.high[found].astype(np.float64), axis=0) if found else np.array([])
        if not np.isfinite(low).any():
            pictures.append(MetricPicture(quantity, label, "", ()))
            continue
        least, most, unit = float(np.nanmin(low)), float(np.nanmax(high)), units[quantity]
        low_words, high_words = value_label(least, unit), value_label(most, unit)
        words = low_words
        if low_words != high_words:
            words = _("{least} to {most}", least=low_words, most=high_words)
        pictures.append(MetricPicture(quantity, label, words, tuple(_bands(low, high, least, most))))
    return sorted(pictures, key=lambda one: not one.bands)


def _bands(low: NDArray[np.float64], high: NDArray[np.float64], least: float, most: float) -> list[str]:
    """Return a polygon for each run of values: a gap is a gap."""
    height = (most - least) or 1.0
    step = WIDTH / max(1, len(low) - 1)

    def y(value: float) -> float:
        return round(MARGIN + (1 - (value - least) / height) * (HEIGHT - 2 * MARGIN), 1)

    present = np.flatnonzero(np.isfinite(low))
    bands = []
    for run in np.split(present, np.flatnonzero(np.diff(present) > 1) + 1):
        upper = [f"{round(place * step, 1)},{y(high[place])}" for place in run]
        # At least a pixel high, so that a constant value is a line.
        lower = [f"{round(place * step, 1)},{max(y(low[place]), y(high[place]) + 1.5)}" for place in reversed(run)]
        bands.append(" ".join(upper + lower))
    return bands
