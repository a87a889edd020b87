"""Sensors and fans, from the present resources and from the older Thermal and Power.

Units are written as Redfish does, by the Unified Code for Units of Measure (UCUM 2.1, tables 2 to 4 and prefixes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.hardware import common_properties, physical_location
from fabric.bmc.types import RedfishFan, RedfishSensor, Thresholds
from fabric.bmc.values import JsonObject, links, normalize_uri, number, objects, text

# Property of Thermal or Power, its reading, reading type and unit.
LEGACY_READINGS = (
    ("Temperatures", "ReadingCelsius", "Temperature", "Cel"),
    ("Voltages", "ReadingVolts", "Voltage", "V"),
    ("PowerControl", "PowerConsumedWatts", "Power", "W"),
)
# What one sensor has wherever it is listed.
SENSOR_IDENTITY = ("name", "reading_type", "units", "physical_context", "thresholds", "related_uris")
LEGACY_TYPES = ("Thermal", "Power")
MAX_NESTING = 16  # chassis inside each other, of which a sensor may be listed again
LEGACY_LEVELS = {"fatal": "Fatal", "critical": "Critical", "caution": "NonCritical"}


def read_sensors(found: Collection[CrawledResource]) -> list[RedfishSensor]:
    """Return the sensors, and of Thermal and Power what none of the chassis tells: many BMCs have both.

    Power is of the whole in Power, and often only of parts in sensors: it is read in any case.
    """
    sensors = [read_sensor(each) for each in found if each.kind == "Sensor"]
    told = {(sensor.chassis_uri, sensor.reading_type) for sensor in sensors if sensor.reading_type != "Power"}
    old = (sensor for each in found if each.kind in LEGACY_TYPES for sensor in _legacy_sensors(each))
    return sensors + [sensor for sensor in old if (sensor.chassis_uri, sensor.reading_type) not in told]


def read_fans(found: Collection[CrawledResource]) -> list[RedfishFan]:
    """Return the fans, and those of a Thermal where its chassis has no others."""
    fans = [_read_fan(each) for each in found if each.kind == "Fan"]
    told = {fan.chassis_uri for fan in fans}
    old = (fan for each in found if each.kind in LEGACY_TYPES for fan in _legacy_fans(each))
    return fans + [fan for fan in old if fan.chassis_uri not in told]


def read_sensor(found: CrawledResource) -> RedfishSensor:
    """Return a Sensor, in the common unit of its quantity."""
    body = found.body
    conversion = unit_conversion(text(body, "ReadingUnits"))
    return RedfishSensor(
        **common_properties(found.uri, body),
        chassis_uri=found.uri.rpartition("/Sensors/")[0],
        reading_type=text(body, "ReadingType"),
        reading=conversion.of(number(body, "Reading")),
        units=conversion.unit,
        factor=conversion.factor,
        zero=conversion.zero,
        physical_context=text(body, "PhysicalContext"),
        related_uris=links(body, "RelatedItem"),
        thresholds=_thresholds(body, conversion),
    )


def _thresholds(body: JsonObject, conversion: UnitConversion) -> Thresholds:
    levels: dict[str, Any] = {
        f"{side}_{level}": conversion.of(
            number(body, "Thresholds", f"{side.capitalize()}{level.capitalize()}", "Reading")
        )
        for side in ("lower", "upper")
        for level in ("fatal", "critical", "caution")
    }
    return Thresholds(**levels)


def _legacy_sensors(found: CrawledResource) -> Iterator[RedfishSensor]:
    """Yield the readings inside a Thermal or Power resource; each is named by a JSON pointer into it."""
    for group, reading, kind, unit in LEGACY_READINGS:
        for index, member in enumerate(objects(found.body, group)):
            yield RedfishSensor(
                **common_properties(f"{found.uri}#/{group}/{index}", member),
                chassis_uri=found.uri.rpartition("/")[0],
                reading_type=kind,
                reading=number(member, reading),
                units=unit,
                physical_context=text(member, "PhysicalContext"),
                related_uris=links(member, "RelatedItem"),
                thresholds=Thresholds(
                    **{
                        f"{side.lower()}_{level}": number(member, f"{side}Threshold{name}")
                        for side in ("Lower", "Upper")
                        for level, name in LEGACY_LEVELS.items()
                    }
                ),
            )


def mark_copies(sensors: Sequence[RedfishSensor], container: Mapping[str, str]) -> Iterator[RedfishSensor]:
    """Yield the sensors; one that a chassis lists again of a part inside it, as a drawer, says whose copy it is.

    `container` has the chassis around each (URIs). A chassis lists the sensors of a part again if it has all of them,
    by Id and properties, and no other part claims one of the same Id: sensors of two parts may have one name.
    """
    of_chassis: dict[str, dict[str, RedfishSensor]] = defaultdict(dict)
    for sensor in sensors:
        if "#" not in sensor.uri:
            of_chassis[sensor.chassis_uri][sensor.uri.rpartition("/")[2]] = sensor
    claims: dict[str, list[str]] = defaultdict(list)  # URIs of sensors to those of the parts' own, inner ones first
    inward = sorted(of_chassis, key=lambda part: len(_around(part, container)), reverse=True)
    for part in inward:
        own = of_chassis[part]
        for around in _around(part, container):
            listed = of_chassis.get(around, {})
            if all(name in listed and _is_same(one, listed[name]) for name, one in own.items()):
                for name, one in own.items():
                    claims[listed[name].uri].append(one.uri)
    for sensor in sensors:
        parts = [uri.rpartition("/Sensors/")[0] for uri in claims[sensor.uri]]
        # Parts beside one another have sensors of their own.
        is_copy = bool(parts) and set(parts) <= {parts[0], *_around(parts[0], container)}
        yield msgspec.structs.replace(sensor, copy_of=claims[sensor.uri][0]) if is_copy else sensor


def _around(part: str, container: Mapping[str, str]) -> list[str]:
    """Return the chassis around a part, the nearest first."""
    found: list[str] = []
    while (part := container.get(part, "")) and part not in found and len(found) < MAX_NESTING:
        found.append(part)
    return found


def _is_same(one: RedfishSensor, other: RedfishSensor) -> bool:
    """Return whether two resources have the properties of one sensor; readings of two moments differ."""
    return all(getattr(one, name) == getattr(other, name) for name in SENSOR_IDENTITY)


def _read_fan(found: CrawledResource) -> RedfishFan:
    """Return a Fan of a ThermalSubsystem."""
    body = found.body
    return RedfishFan(
        **common_properties(found.uri, body),
        chassis_uri=found.uri.rpartition("/ThermalSubsystem/")[0],
        speed_percent=number(body, "SpeedPercent", "Reading"),
        speed_rpm=number(body, "SpeedPercent", "SpeedRPM"),
        sensor_uri=normalize_uri(text(body, "SpeedPercent", "DataSourceUri")),
        location=physical_location(body),
    )


def _legacy_fans(found: CrawledResource) -> Iterator[RedfishFan]:
    """Yield the fans inside a Thermal resource."""
    for index, member in enumerate(objects(found.body, "Fans")):
        uri = f"{found.uri}#/Fans/{index}"
        named = common_properties(uri, member)
        if not text(member, "Name"):
            named["name"] = text(member, "FanName") or named["name"]
        units = text(member, "ReadingUnits")
        reading = number(member, "Reading")
        yield RedfishFan(
            **named,
            chassis_uri=found.uri.rpartition("/")[0],
            speed_percent=reading if units == "Percent" else None,
            speed_rpm=reading if units != "Percent" else None,
            location=text(member, "PhysicalContext"),
        )


class UnitConversion(NamedTuple):
    """A linear conversion: `factor` times the BMC's value, plus `zero`, in `unit`."""

    unit: str
    factor: float = 1.0
    zero: float = 0.0

    def of(self, value: float | None) -> float | None:
        """Return a reading, or a threshold, in the common unit; None of None."""
        return value if value is None or (self.factor, self.zero) == (1.0, 0.0) else value * self.factor + self.zero


UNIT_CONVERSIONS = {
    "[degF]": UnitConversion("Cel", 5 / 9, -160 / 9),
    "K": UnitConversion("Cel", 1.0, -273.15),
    "mW": UnitConversion("W", 1e-3),
    "kW": UnitConversion("W", 1e3),
    "J": UnitConversion("kW.h", 1 / 3.6e6),
    "kJ": UnitConversion("kW.h", 1 / 3.6e3),
    "W.h": UnitConversion("kW.h", 1e-3),
    "mV": UnitConversion("V", 1e-3),
    "mA": UnitConversion("A", 1e-3),
}


def unit_conversion(unit: str) -> UnitConversion:
    """Return the conversion of a unit to the common one; the identity where it is common, or unknown."""
    return UNIT_CONVERSIONS.get(unit) or UnitConversion(unit)
