"""The quantity of each property of a reading, and the object of the inventory that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabric.bmc.sensors import unit_conversion
from fabric.bmc.types import Inventory, RedfishSensor
from fabric.bmc.values import paths_above

Floats = NDArray[np.float64]


class Quantity(StrEnum):
    """The quantity of a series; the value names the unit it is stored in."""

    TEMPERATURE = "temperature_celsius"
    FAN_RPM = "fan_rpm"
    FAN_PERCENT = "fan_percent"
    POWER = "power_watts"
    ENERGY = "energy_kilowatt_hours"
    VOLTAGE = "voltage_volts"
    CURRENT = "current_amperes"
    RX_BYTES = "rx_bytes"  # counters, as the port sees them
    TX_BYTES = "tx_bytes"
    LINK_STATUS = "link_status"  # LINK_STATUSES gives the numbers
    LINK_WIDTH = "link_width_lanes"
    LINK_SPEED = "link_speed_gbps"
    ERRORS = "errors"  # a PCIeErrors counter; Series.detail names which
    UTILISATION = "utilisation_percent"
    OTHER = "other"


LINK_STATUSES: dict[str, float] = {"NoLink": 0.0, "LinkDown": 1.0, "Starting": 2.0, "Training": 3.0, "LinkUp": 4.0}


class ReadingSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a chassis: its source, its quantity, and its inventory object."""

    property: str  # resource URI + '#/' + JSON pointer: its identity
    owner_uri: str  # uri of the port, device, sensor, fan, drawer or chassis it describes
    quantity: Quantity
    unit: str = ""
    detail: str = ""  # for ERRORS: the PCIeErrors property; for OTHER: the property's name
    # Conversion to its unit: `factor` times the BMC's value, plus `zero`.
    factor: float = 1.0
    zero: float = 0.0


@dataclass(kw_only=True, eq=False, slots=True)  # frozen ones take thrice as long to make
class ChassisReading:
    """One poll, as the BMC reports it: `values[i]` belongs to the plan's `series[i]`; NaN where the BMC gave none."""

    at: float  # Unix time at which the answer arrived, s
    values: Floats | Sequence[float]  # not changed any more
    measured_at: float = 0.0  # when the BMC took the values, by its own clock, s; 0 if unreported


# The last step of a property's JSON pointer, where that alone determines the quantity.
BY_PROPERTY = {
    "RXBytes": (Quantity.RX_BYTES, "B"),
    "TXBytes": (Quantity.TX_BYTES, "B"),
    "LinkStatus": (Quantity.LINK_STATUS, ""),
    "ActiveWidth": (Quantity.LINK_WIDTH, "lanes"),
    "CurrentSpeedGbps": (Quantity.LINK_SPEED, "Gb/s"),
    "BandwidthPercent": (Quantity.UTILISATION, "%"),
    "ReadingCelsius": (Quantity.TEMPERATURE, "Cel"),
    "PowerConsumedWatts": (Quantity.POWER, "W"),
    "PowerWatts": (Quantity.POWER, "W"),
    "TemperatureCelsius": (Quantity.TEMPERATURE, "Cel"),
    "EnergykWh": (Quantity.ENERGY, "kW.h"),
    "EnergyJoules": (Quantity.ENERGY, "J"),
    "ConsumedPowerWatt": (Quantity.POWER, "W"),
    "InputPowerWatts": (Quantity.POWER, "W"),
    "OutputPowerWatts": (Quantity.POWER, "W"),
    "InputVoltage": (Quantity.VOLTAGE, "V"),
    "CompositeTemperatureCelsius": (Quantity.TEMPERATURE, "Cel"),
    "HumidityPercent": (Quantity.OTHER, "%"),
    "OperatingSpeedMHz": (Quantity.OTHER, "MHz"),
    "CapacityUtilizationPercent": (Quantity.OTHER, "%"),
    "ReadingVolts": (Quantity.VOLTAGE, "V"),
    "SpeedRPM": (Quantity.FAN_RPM, "{rev}/min"),
    "SpeedPercent": (Quantity.FAN_PERCENT, "%"),
}
BY_UNIT = {
    "cel": Quantity.TEMPERATURE,
    "w": Quantity.POWER,
    "kw.h": Quantity.ENERGY,
    "v": Quantity.VOLTAGE,
    "a": Quantity.CURRENT,
    "{rev}/min": Quantity.FAN_RPM,
    "rpm": Quantity.FAN_RPM,
}
BY_READING_TYPE = {
    "Temperature": Quantity.TEMPERATURE,
    "Power": Quantity.POWER,
    "EnergykWh": Quantity.ENERGY,
    "Voltage": Quantity.VOLTAGE,
    "Current": Quantity.CURRENT,
    "Rotational": Quantity.FAN_RPM,
}


class SeriesFactory:
    """Turns a property (resource URI + '#/' + JSON pointer) into a series, using an inventory."""

    def __init__(self, inventory: Inventory) -> None:
        self._sensors = {sensor.uri: sensor for sensor in inventory.sensors}
        self._fans = {fan.uri: fan for fan in inventory.fans}
        self._fan_of_sensor = {fan.sensor_uri: fan for fan in inventory.fans if fan.sensor_uri}
        self._ports = {port.uri for port in inventory.ports}
        self._port_of_metrics = {metrics.uri: metrics.port_uri for metrics in inventory.port_metrics}
        self._components = {component.uri for component in inventory.components}
        self._device_of = {
            component.uri: component.device_uri for component in inventory.components if component.device_uri
        } | {device.uri: device.uri for device in inventory.devices}
        for device in inventory.devices:
            for uri in (*device.processor_uris, *device.function_uris):
                self._device_of[uri] = device.uri
        # Of sensors that do not say what they measure: the device in whose metrics their value is an excerpt.
        self._excerpts = {
            sensor: self._device_of[metrics.owner_uri]
            for metrics in inventory.metrics
            for sensor in metrics.sensor_uris
            if metrics.owner_uri in self._device_of
        }

    def series(self, name: str) -> ReadingSeries:
        """Return the series of a property; its quantity is OTHER if it is unknown."""
        uri, _, pointer = name.partition("#")
        uri = uri.rstrip("/")
        steps = [step for step in pointer.split("/") if step]
        last = steps[-1] if steps else ""
        sensor = self._sensors.get(uri) or self._sensors.get(f"{uri}#/" + "/".join(steps[:-1]))
        if sensor is not None and last.startswith("Reading"):
            return self._of_sensor(name, sensor)
        if "PCIeErrors" in steps:
            return ReadingSeries(property=name, owner_uri=self._owner(uri), quantity=Quantity.ERRORS, detail=last)
        # Objects such as SpeedPercent and PowerWatts have their number one level further down.
        known = BY_PROPERTY.get(last) or (BY_PROPERTY.get(steps[-2]) if last == "Reading" and len(steps) > 1 else None)
        quantity, unit = known or (Quantity.OTHER, "")
        fan = self._fans.get(f"{uri}#/" + "/".join(steps[:-1]))
        if fan is not None and last == "Reading":
            is_percent = fan.speed_percent is not None
            quantity, unit = (Quantity.FAN_PERCENT, "%") if is_percent else (Quantity.FAN_RPM, "{rev}/min")
        conversion = unit_conversion(unit)
        # Objects such as HumidityPercent have their number one level further down.
        detail = steps[-2] if last == "Reading" and len(steps) > 1 else last
        return ReadingSeries(
            property=name,
            owner_uri=fan.uri if fan is not None else self._owner(uri),
            quantity=quantity,
            unit=conversion.unit,
            detail=detail if quantity is Quantity.OTHER else "",
            factor=conversion.factor,
            zero=conversion.zero,
        )

    def _of_sensor(self, name: str, sensor: RedfishSensor) -> ReadingSeries:
        fan = self._fan_of_sensor.get(sensor.uri)
        quantity = BY_UNIT.get(sensor.units.lower()) or BY_READING_TYPE.get(sensor.reading_type, Quantity.OTHER)
        if quantity is Quantity.OTHER and sensor.units == "%" and (fan or sensor.physical_context == "Fan"):
            quantity = Quantity.FAN_PERCENT
        devices = {self._device_of[uri] for uri in sensor.related_uris if uri in self._device_of}
        owner = fan.uri if fan else devices.pop() if len(devices) == 1 else self._excerpts.get(sensor.uri, sensor.uri)
        return ReadingSeries(
            property=name,
            owner_uri=owner,
            quantity=quantity,
            unit=sensor.units,
            factor=sensor.factor,
            zero=sensor.zero,
            detail=sensor.name if quantity is Quantity.OTHER else "",
        )

    def _owner(self, uri: str) -> str:
        """Return the inventory object of a resource: the nearest known one above it."""
        for above in paths_above(uri):
            known = self._port_of_metrics.get(above) or self._device_of.get(above)
            if known:
                return known
            if above in self._ports or above in self._fans or above in self._sensors or above in self._components:
                return above
        return uri.removesuffix("/EnvironmentMetrics")


def counter_label(name: str) -> str:
    """Return a property's name in words: 'CorrectableErrorCount' as 'Correctable error count'."""
    words = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z][a-z\d]*|[a-z\d]+", name)
    return " ".join(word if not place or word.isupper() else word.lower() for place, word in enumerate(words))
