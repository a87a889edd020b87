"""Sensors and fans, from the present resources and from the older Thermal and Power."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fabric.bmc.crawl import Found
from fabric.bmc.hardware import listed, place
from fabric.bmc.types import Fan, Sensor, Thresholds
from fabric.bmc.units import Conversion, conversion_of
from fabric.bmc.values import Body, links, number, objects, plain_uri, text

# Property of Thermal or Power, its reading, reading type and unit.
OLD_READINGS = (
    ("Temperatures", "ReadingCelsius", "Temperature", "Cel"),
    ("Voltages", "ReadingVolts", "Voltage", "V"),
    ("PowerControl", "PowerConsumedWatts", "Power", "W"),
)


def read_sensor(found: Found) -> Sensor:
    """Return a Sensor, in the usual unit of what it measures."""
    body = found.body
    conversion = conversion_of(text(body, "ReadingUnits"))
    return Sensor(
        **listed(found.uri, body),
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


def _thresholds(body: Body, conversion: Conversion) -> Thresholds:
    levels: dict[str, Any] = {
        f"{side}_{level}": conversion.of(
            number(body, "Thresholds", f"{side.capitalize()}{level.capitalize()}", "Reading")
        )
        for side in ("lower", "upper")
        for level in ("fatal", "critical", "caution")
    }
    return Thresholds(**levels)


def old_sensors(found: Found) -> Iterator[Sensor]:
    """Yield the readings inside a Thermal or Power resource; each is named by a JSON pointer into it."""
    for group, reading, kind, unit in OLD_READINGS:
        for index, member in enumerate(objects(found.body, group)):
            yield Sensor(
                **listed(f"{found.uri}#/{group}/{index}", member),
                chassis_uri=found.uri.rpartition("/")[0],
                reading_type=kind,
                reading=number(member, reading),
                units=unit,
                physical_context=text(member, "PhysicalContext"),
                related_uris=links(member, "RelatedItem"),
                thresholds=Thresholds(
                    lower_fatal=number(member, "LowerThresholdFatal"),
                    lower_critical=number(member, "LowerThresholdCritical"),
                    lower_caution=number(member, "LowerThresholdNonCritical"),
                    upper_caution=number(member, "UpperThresholdNonCritical"),
                    upper_critical=number(member, "UpperThresholdCritical"),
                    upper_fatal=number(member, "UpperThresholdFatal"),
                ),
            )


def read_fan(found: Found) -> Fan:
    """Return a Fan of a ThermalSubsystem."""
    body = found.body
    return Fan(
        **listed(found.uri, body),
        chassis_uri=found.uri.rpartition("/ThermalSubsystem/")[0],
        speed_percent=number(body, "SpeedPercent", "Reading"),
        speed_rpm=number(body, "SpeedPercent", "SpeedRPM"),
        sensor_uri=plain_uri(text(body, "SpeedPercent", "DataSourceUri")),
        location=place(body),
    )


def old_fans(found: Found) -> Iterator[Fan]:
    """Yield the fans inside a Thermal resource."""
    for index, member in enumerate(objects(found.body, "Fans")):
        uri = f"{found.uri}#/Fans/{index}"
        named = listed(uri, member)
        if not text(member, "Name"):
            named["name"] = text(member, "FanName") or named["name"]
        units = text(member, "ReadingUnits")
        reading = number(member, "Reading")
        yield Fan(
            **named,
            chassis_uri=found.uri.rpartition("/")[0],
            speed_percent=reading if units == "Percent" else None,
            speed_rpm=reading if units != "Percent" else None,
            location=text(member, "PhysicalContext"),
        )
