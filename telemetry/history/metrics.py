"""What can be asked for, and how several readings become one line: pure, by the quantities of fabric.bmc.types.

A metric is a quantity of the live catalogue. What has several readings of it (a drawer has eight ports) gets one line
by the metric's rule. Of a sum and of a mean, low and high are bounds: the ports need not have been at their lowest in
the same second. Of the highest, high is exact, mean and low are at least so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Combine = Literal["sum", "mean", "highest", "lowest"]
Floats = NDArray[np.floating[Any]]
Row = NDArray[np.float64]
RATE: Final = "/rate"  # behind the key of an error counter: its rate (1/s), as the store reads it


@dataclass(frozen=True)
class Metric:
    """A metric: of which readings, in which unit, and the rule for several of them.

    `per` is what the readings belong to; those of a port are offered for what has ports. `panel` names the chart that
    it is drawn in; `groups` tells whether it means something of a drawer, a chassis, a host or a tenant.
    """

    name: str
    label: str
    unit: str
    per: Literal["device", "port"]
    combine: Combine
    panel: str
    groups: bool = True
    quantity: str = ""  # of the catalogue, where the metric has another name
    suffix: str = ""  # behind the key


_ALL: Final = (
    Metric("rx_bytes_per_second", "Receive", "B/s", "port", "sum", "Throughput"),
    Metric("tx_bytes_per_second", "Transmit", "B/s", "port", "sum", "Throughput"),
    Metric("temperature_celsius", "Temperature", "°C", "device", "highest", "Temperature"),
    Metric("power_watts", "Power", "W", "device", "sum", "Power"),
    Metric("utilisation_percent", "Utilisation", "%", "device", "mean", "Utilisation"),
    Metric("error_rate", "Errors", "1/s", "port", "sum", "Error rate", quantity="errors", suffix=RATE),
    Metric("errors", "Errors, total", "", "port", "sum", "Errors, total"),
    Metric("link_width_lanes", "Link width", "lanes", "port", "lowest", "Link width", groups=False),
    Metric("link_speed_gbps", "Link speed", "Gb/s", "port", "lowest", "Link speed", groups=False),
    Metric("link_status", "Link", "state", "port", "lowest", "Link", groups=False),
    Metric("energy_kilowatt_hours", "Energy", "kWh", "device", "sum", "Energy"),
    Metric("voltage_volts", "Voltage", "V", "device", "mean", "Voltage", groups=False),
    Metric("current_amperes", "Current", "A", "device", "sum", "Current"),
    Metric("fan_rpm", "Fan speed", "rpm", "device", "lowest", "Fan speed", groups=False),
    Metric("fan_percent", "Fan speed", "%", "device", "lowest", "Fan speed, share", groups=False),
)
METRICS: Final = {metric.name: metric for metric in _ALL}
GROUPS: Final = frozenset({"drawer", "chassis", "host", "tenant"})
WITHOUT_DEVICE: Final = frozenset({"port"})


def is_offered(metric: Metric, kind: str) -> bool:
    """Tell whether a metric means something of a kind of subject ('port' has no temperature)."""
    if kind in WITHOUT_DEVICE:
        return metric.per == "port"
    return metric.groups or kind not in GROUPS


def made_of(metric: Metric, count: int) -> str:
    """Return in words how so many readings become one line; '' for a single one."""
    if count < 2:
        return ""
    counted = "devices" if metric.per == "device" else "device-side ports"
    if metric.name in {"errors", "error_rate"}:
        counted = "error counters"
    words = {"sum": "sum of", "mean": "mean of", "highest": "highest of", "lowest": "lowest of"}[metric.combine]
    return f"{words} {count} {counted}"


def _some(reduce: Callable[..., Any]) -> Callable[[Floats], Floats]:
    """Return a reduction that leaves out what there is no value of, NaN where there is none at all."""

    def reduced(values: Floats) -> Floats:
        here = ~np.isnan(values)
        count = here.sum(axis=0)
        found = reduce(np.where(here, values, 0.0), count)
        return np.where(count > 0, found, np.nan)

    return reduced


_RULES: Final[dict[str, Callable[[Floats], Any]]] = {
    "sum": _some(lambda values, _: values.sum(axis=0)),
    "mean": _some(lambda values, count: values.sum(axis=0) / np.maximum(count, 1)),
    "highest": lambda values: np.fmax.reduce(values, axis=0),
    "lowest": lambda values: np.fmin.reduce(values, axis=0),
}


def combined(rule: str, rows: Sequence[Floats]) -> Row:
    """Return one row (f8) made of several by a rule; what some of them lack is left out, NaN where all do."""
    values = np.array(rows, dtype=np.float64)
    one: Row = values[0] if len(values) == 1 else np.asarray(_RULES[rule](values), dtype=np.float64)
    return one
