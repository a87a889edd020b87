"""Prometheus families of readings, and the labels of the chassis, devices and ports that a person may see.

Base units: bytes, seconds, joules, and shares as ratios of 0 to 1. Counters are the totals of the BMC and end with
_total; Prometheus computes rates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from fabric.bmc.series import LINK_STATUSES
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.inventory.selectors import counter_baselines
from telemetry.live.catalogue import SeriesEntry

LINK_UP_VALUE = LINK_STATUSES["LinkUp"]


@dataclass(frozen=True)
class MetricFamily:
    """A metric: name, description, and kind (counter or gauge)."""

    name: str
    words: str
    kind: str = "gauge"

    def header(self) -> str:
        return f"# HELP {self.name} {self.words}\n# TYPE {self.name} {self.kind}\n"


@dataclass(frozen=True)
class MeasuredQuantity:
    """Mapping of a quantity's readings to samples: `label` is the label that distinguishes them, '' for none.

    `is_counted` is whether the value is the byte counter that the live frame has as a rate.
    """

    name: str
    words: str
    kind: str = "gauge"
    factor: float = 1.0
    label: str = "sensor"
    is_counted: bool = False
    is_link_status: bool = False


MEASURED: dict[str, MeasuredQuantity] = {
    "temperature_celsius": MeasuredQuantity("temperature_celsius", "temperature."),
    "fan_rpm": MeasuredQuantity("fan_speed_rpm", "fan speed in revolutions a minute."),
    "fan_percent": MeasuredQuantity("fan_speed_ratio", "fan speed as a share of full speed.", factor=0.01),
    "power_watts": MeasuredQuantity("power_watts", "power consumption."),
    "energy_kilowatt_hours": MeasuredQuantity("energy_joules_total", "energy consumption.", "counter", factor=3.6e6),
    "voltage_volts": MeasuredQuantity("voltage_volts", "voltage."),
    "current_amperes": MeasuredQuantity("current_amperes", "current."),
    "link_status": MeasuredQuantity("link_up", "1 where the link is up.", label="", is_link_status=True),
    "link_width_lanes": MeasuredQuantity("link_lanes", "lanes that the link uses.", label=""),
    "link_speed_gbps": MeasuredQuantity(
        "link_speed_bytes_per_second", "speed of the link one way, all lanes.", factor=1e9 / 8, label=""
    ),
    "rx_bytes_per_second": MeasuredQuantity(
        "receive_bytes_total", "bytes received.", "counter", label="", is_counted=True
    ),
    "tx_bytes_per_second": MeasuredQuantity(
        "transmit_bytes_total", "bytes transmitted.", "counter", label="", is_counted=True
    ),
    "errors": MeasuredQuantity("errors_total", "errors that the port counts, by kind.", "counter", label="error"),
    "utilisation_percent": MeasuredQuantity("utilisation_ratio", "share of time in use.", factor=0.01, label=""),
    "other": MeasuredQuantity("reading", "a reading whose unit the BMC does not report."),
}
OBJECT_WORDS = {"chassis": "Of the chassis", "drawer": "Of a drawer", "device": "Of a device", "port": "Of a port"}
FAMILIES: dict[tuple[str, str], tuple[MetricFamily, MeasuredQuantity]] = {
    (of, quantity): (MetricFamily(f"falconweb_{of}_{one.name}", f"{words}: {one.words}", one.kind), one)
    for of, words in OBJECT_WORDS.items()
    for quantity, one in MEASURED.items()
}


def distinguishing_label(series: SeriesEntry, measured: MeasuredQuantity) -> str:
    """Return the label that distinguishes a series from others of its object, formatted for appending; '' for none."""
    if not measured.label:
        return ""
    text = error_kind(series["key"]) if measured.label == "error" else series["label"]
    return f',{measured.label}="{escape_label(text)}"' if text else ""


def error_kind(key: str) -> str:
    """Return the kind of an error counter: 'port/5/errors/CorrectableErrorCount' as 'correctable'."""
    words = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z][a-z\d]*|[a-z\d]+", key.split("/", 3)[3].partition("/")[0])
    lower = [word.lower() for word in words]
    for last in ("count", "error"):
        if len(lower) > 1 and lower[-1] in {last, f"{last}s"}:
            lower.pop()
    return "_".join(lower)


def escape_label(text: object) -> str:
    """Return a label's value escaped for quotes."""
    return str(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def format_labels(**named: object) -> str:
    """Return labels without braces; those without a value are left out, which is equivalent in Prometheus."""
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in named.items() if value not in {None, ""})


Labels = dict[tuple[str, int], str]
STALE_PERIODS = 10  # inventory periods after which an inventory is stale; refreshes may be up to four periods apart


@dataclass
class ChassisLabels:
    """Labels of one chassis: of its measured objects, and of the info metrics of devices and ports."""

    name: str
    is_answering: bool  # according to its inventory refreshes
    about: str = ""  # labels of the chassis' own info
    objects: Labels = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)  # labels of each device's info
    lanes: list[tuple[str, int]] = field(default_factory=list)  # labels of a port, and its expected lanes
    counted: dict[str, int] = field(default_factory=dict)  # by key: baseline of a counter, from before the lease


def chassis_labels(person: User, ids: Sequence[int]) -> dict[int, ChassisLabels]:
    """Return the labels of chassis; persons other than administrators see only their own devices and ports."""
    rows = Chassis.objects.visible_to(person).filter(pk__in=ids, enabled=True)
    labels: dict[int, ChassisLabels] = {}
    now, inventory_period = timezone.now(), timedelta(seconds=settings.CONFIG.inventory_period)
    for row in rows.only("pk", "name", "model", "serial_number", "firmware_version", "last_error", "inventory_at"):
        is_fresh = row.inventory_at is not None and now - row.inventory_at < STALE_PERIODS * inventory_period
        one = labels[row.pk] = ChassisLabels(row.name, is_fresh and not row.last_error)
        name = format_labels(chassis=row.name)
        one.about = format_labels(
            chassis=row.name, model=row.model, serial=row.serial_number, firmware=row.firmware_version
        )  # fmt: skip
        if person.is_administrator:
            one.objects["chassis", 0] = name
    if person.is_administrator:
        for pk, chassis, number in Drawer.objects.filter(chassis__in=labels).values_list("pk", "chassis", "number"):
            labels[chassis].objects["drawer", pk] = format_labels(chassis=labels[chassis].name, drawer=number)
    _add_ports(person, labels)
    _add_devices(person, labels)
    before = counter_baselines(person, list(labels))
    for pk, chassis in Port.objects.filter(pk__in=before).values_list("pk", "chassis"):
        labels[chassis].counted |= {f"port/{pk}/errors/{name}": count for name, count in before[pk].now.items()}
    return labels


def _add_ports(person: User, labels: Mapping[int, ChassisLabels]) -> None:
    rows = Port.objects.visible_to(person).filter(chassis__in=labels, missing_since=None)
    fields = ("pk", "chassis", "name", "switch__drawer__number", "slot__drawer__number", "slot__number",
              "host_port__label", "host_port__drawer__number", "width", "configured_width",
              "slot__device__max_lanes")  # fmt: skip
    for pk, chassis, name, by_switch, by_slot, slot, host_port, by_host, width, configured, most in rows.values_list(
        *fields
    ):
        drawer = next((one for one in (by_slot, by_host, by_switch) if one is not None), None)
        one = labels[chassis]
        text = format_labels(chassis=one.name, drawer=drawer, slot=slot, port=name, host_port=host_port)
        one.objects["port", pk] = text
        # A port without a device or host port has no expected width.
        if most or host_port:
            wide = min((known for known in (width, configured, most) if known), default=0)
            if wide:
                one.lanes.append((text, wide))


def _add_devices(person: User, labels: Mapping[int, ChassisLabels]) -> None:
    seen = dict(HostPort.objects.visible_to(person).filter(chassis__in=labels).values_list("pk", "label"))
    rows = Device.objects.visible_to(person).filter(chassis__in=labels, missing_since=None)
    fields = ("pk", "chassis", "name", "kind", "model", "slot__drawer__number", "slot__number", "serial_number",
              "firmware_version", "pcie_type", "max_pcie_type", "host_port", "host_port__host__name",
              "tenant__name")  # fmt: skip
    for (pk, chassis, name, kind, model, drawer, slot, serial, firmware, pcie, most_pcie, host_port, host,
         tenant) in rows.values_list(*fields):  # fmt: skip
        one = labels[chassis]
        text = format_labels(chassis=one.name, drawer=drawer, slot=slot, device=name, kind=kind, model=model)
        one.objects["device", pk] = text
        more = format_labels(
            serial=serial, firmware=firmware, pcie=pcie, max_pcie=most_pcie, host_port=seen.get(host_port),
            host=host if host_port in seen else None, tenant=tenant,
        )  # fmt: skip
        one.devices.append(f"{text},{more}" if more else text)


def unique_labels(texts: Sequence[tuple[int, str, str]]) -> list[str]:
    """Return label texts that are unique within their family: `texts` has family, labels and key of each."""
    numbers = Counter((family, text) for family, text, _ in texts)
    return [
        text if numbers[family, text] == 1 else f"{text},{format_labels(series=key)}" for family, text, key in texts
    ]
