"""Which metric of Prometheus a reading is: names, units and types by its conventions.

Base units: bytes, seconds, joules, and shares as ratios of 0 to 1. Counters are totals as the BMC counts them and end
with _total; rates are Prometheus' own work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from fabric.bmc.types import LINK_STATUSES

UP = LINK_STATUSES["LinkUp"]


class Series(msgspec.Struct, gc=False):
    """An entry of a live catalogue, as `telemetry.catalogue.Entry`, quickly decoded."""

    key: str
    object: str
    id: int
    quantity: str
    label: str
    unit: str


@dataclass(frozen=True)
class Family:
    """A metric: its name, what it is, and whether it is a counter or a gauge."""

    name: str
    words: str
    kind: str = "gauge"

    def header(self) -> str:
        """Return its HELP and TYPE."""
        return f"# HELP {self.name} {self.words}\n# TYPE {self.name} {self.kind}\n"


@dataclass(frozen=True)
class Measured:
    """How readings of a quantity become samples: `told` names the label that tells them apart, '' where none does.

    `is_counted` says that the value is the byte counter that the live frame has as a rate.
    """

    name: str
    words: str
    kind: str = "gauge"
    factor: float = 1.0
    told: str = "sensor"
    is_counted: bool = False
    is_link_status: bool = False


MEASURED: dict[str, Measured] = {
    "temperature_celsius": Measured("temperature_celsius", "temperature."),
    "fan_rpm": Measured("fan_speed_rpm", "fan speed in revolutions a minute."),
    "fan_percent": Measured("fan_speed_ratio", "fan speed as a share of full speed.", factor=0.01),
    "power_watts": Measured("power_watts", "power taken."),
    "energy_kilowatt_hours": Measured("energy_joules_total", "energy taken.", "counter", factor=3.6e6),
    "voltage_volts": Measured("voltage_volts", "voltage."),
    "current_amperes": Measured("current_amperes", "current."),
    "link_status": Measured("link_up", "1 where the link is up.", told="", is_link_status=True),
    "link_width_lanes": Measured("link_lanes", "lanes that the link uses.", told=""),
    "link_speed_gbps": Measured(
        "link_speed_bytes_per_second", "speed of the link one way, all lanes.", factor=1e9 / 8, told=""
    ),
    "rx_bytes_per_second": Measured("receive_bytes_total", "bytes received.", "counter", told="", is_counted=True),
    "tx_bytes_per_second": Measured("transmit_bytes_total", "bytes transmitted.", "counter", told="", is_counted=True),
    "errors": Measured("errors_total", "errors that the port counts, by kind.", "counter", told="error"),
    "utilisation_percent": Measured("utilisation_ratio", "share of time in use.", factor=0.01, told=""),
    "other": Measured("reading", "a reading whose unit the BMC does not tell.", told="sensor"),
}
OF = {"chassis": "Of the chassis", "drawer": "Of a drawer", "device": "Of a device", "port": "Of a port"}
FAMILIES: dict[tuple[str, str], tuple[Family, Measured]] = {
    (of, quantity): (
        Family(f"falconweb_{of}_{one.name}", f"{words}: {one.words}", one.kind),
        one,
    )
    for of, words in OF.items()
    for quantity, one in MEASURED.items()
}


def told_of(series: Series, measured: Measured) -> str:
    """Return the label that tells a series from others of its object, ready to be put among labels; '' without one."""
    if not measured.told:
        return ""
    text = error_of(series.key) if measured.told == "error" else series.label
    return f',{measured.told}="{escaped(text)}"' if text else ""


def error_of(key: str) -> str:
    """Return the kind of an error counter: 'port/5/errors/CorrectableErrorCount' as 'correctable'."""
    words = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z][a-z\d]*|[a-z\d]+", key.split("/", 3)[3].partition("/")[0])
    lower = [word.lower() for word in words]
    for last in ("count", "error"):
        if len(lower) > 1 and lower[-1] in {last, f"{last}s"}:
            lower.pop()
    return "_".join(lower)


def escaped(text: object) -> str:
    """Return a label's value as it stands between quotes."""
    return str(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def labels(**named: object) -> str:
    """Return labels without their braces; those without a value are left out, as they mean the same to Prometheus."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in named.items() if value not in {None, ""})
