"""Sensors, fans, power supplies and environment metrics of enclosure and drawers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from simulator.odata import Body, identity, link, references
from simulator.physics import CAUTION_CELSIUS, CRITICAL_CELSIUS
from simulator.resources.chassis import FALCON
from simulator.service import Falcon
from simulator.state import POWER_SUPPLIES, SimulatedDrawer, SimulatedFan, SimulatedSlot, drawer_uri

SUPPLY_WATTS = 2000.0
INLET_CAUTION = 38.0
# The alternative unit of a sensor, by its own unit: the unit, the factor and the offset.
ALTERNATIVE_UNITS = {"Cel": ("[degF]", 1.8, 32.0), "W": ("kW", 0.001, 0.0)}


@dataclass(frozen=True)
class SensorPoint:
    """One sensor: its name, its quantity, and the function that reads it (None: absent)."""

    chassis: str
    id: str
    name: str
    kind: str
    units: str
    context: str
    read: Callable[[], float | None]
    caution: float | None = None
    critical: float | None = None
    related: str | None = None

    @property
    def uri(self) -> str:
        """The sensor's resource."""
        return f"{self.chassis}/Sensors/{self.id}"

    def in_other_unit(self) -> SensorPoint:
        """Return the sensor in its alternative unit; unchanged where there is none."""
        if self.units not in ALTERNATIVE_UNITS:
            return self
        units, factor, zero = ALTERNATIVE_UNITS[self.units]

        def other(value: float | None) -> float | None:
            return None if value is None else value * factor + zero

        return replace(
            self, units=units, read=lambda: other(self.read()), caution=other(self.caution),
            critical=other(self.critical),
        )  # fmt: skip


def sensor_points(falcon: Falcon) -> list[SensorPoint]:
    """Return all sensors of a chassis, in the order of the report."""
    state = falcon.state
    points = [
        SensorPoint(FALCON, "inlet_temp", "Inlet temperature", "Temperature", "Cel", "Intake",
                    lambda: state.inlet, INLET_CAUTION, INLET_CAUTION + 7),
        SensorPoint(FALCON, "total_power", "Total power", "Power", "W", "PowerSupply", lambda: state.watts),
        SensorPoint(FALCON, "energy", "Energy", "EnergykWh", "kW.h", "Chassis", lambda: state.joules / 3.6e6),
    ]  # fmt: skip
    points += [_fan_point(fan) for fan in state.fans]
    points += [
        SensorPoint(FALCON, f"psu{supply}_power", f"Power supply {supply} input", "Power", "W", "PowerSupply",
                    lambda: state.watts / POWER_SUPPLIES / 0.94,
                    related=f"{FALCON}/PowerSubsystem/PowerSupplies/psu{supply}")
        for supply in range(1, POWER_SUPPLIES + 1)
    ]  # fmt: skip
    for drawer in state.drawers.values():
        points += _drawer_points(drawer)
        for slot in drawer.slots.values():
            points += _slot_points(slot)
    return points


def _fan_point(fan: SimulatedFan) -> SensorPoint:
    return SensorPoint(FALCON, f"fan{fan.number}_speed", f"Fan {fan.number} speed", "Rotational", "{rev}/min", "Fan",
                       lambda: fan.rpm, related=f"{FALCON}/ThermalSubsystem/Fans/fan{fan.number}")  # fmt: skip


def _drawer_points(drawer: SimulatedDrawer) -> list[SensorPoint]:
    base = drawer_uri(drawer.number)
    return [
        SensorPoint(base, "inlet_temp", f"Drawer {drawer.number} inlet", "Temperature", "Cel", "Intake",
                    lambda: drawer.inlet, INLET_CAUTION, INLET_CAUTION + 7),
        SensorPoint(base, "outlet_temp", f"Drawer {drawer.number} outlet", "Temperature", "Cel", "Exhaust",
                    lambda: drawer.outlet, 65.0, 75.0),
        SensorPoint(base, "power", f"Drawer {drawer.number} power", "Power", "W", "Chassis",
                    lambda: sum(slot.watts for slot in drawer.slots.values())),
    ]  # fmt: skip


def _slot_points(slot: SimulatedSlot) -> list[SensorPoint]:
    base = drawer_uri(slot.drawer)
    place = f"Drawer {slot.drawer} slot {slot.number}"
    return [
        SensorPoint(
            base,
            f"slot{slot.number}_temp",
            f"{place} temperature",
            "Temperature",
            "Cel",
            "SystemBoard",
            lambda: slot.temperature if slot.connected else None,
            CAUTION_CELSIUS,
            CRITICAL_CELSIUS,
            slot.uri,
        ),
        SensorPoint(
            base,
            f"slot{slot.number}_power",
            f"{place} power",
            "Power",
            "W",
            "SystemBoard",
            lambda: slot.watts if slot.connected else None,
            related=slot.uri,
        ),
    ]


def register(falcon: Falcon) -> None:
    """Add sensors and the subsystems that point to them."""
    points = sensor_points(falcon)
    falcon.faults.changeable = {point.uri for point in points if point.units in ALTERNATIVE_UNITS}
    for chassis in dict.fromkeys(point.chassis for point in points):
        _register_chassis(falcon, chassis, [point for point in points if point.chassis == chassis])
    _register_fans(falcon)
    _register_power(falcon)


def _register_chassis(falcon: Falcon, chassis: str, points: list[SensorPoint]) -> None:
    falcon.tree.collection(f"{chassis}/Sensors", "Sensor", "Sensors", lambda: [point.uri for point in points])
    for point in points:
        falcon.tree.resource(point.uri, partial(_sensor, falcon, point))
    falcon.tree.resource(f"{chassis}/EnvironmentMetrics", partial(_environment, falcon, chassis, points))


def current_sensor(falcon: Falcon, point: SensorPoint) -> SensorPoint:
    """Return a sensor in its present unit: its own, or due to a fault another."""
    return point.in_other_unit() if point.uri in falcon.state.other_units else point


def _sensor(falcon: Falcon, sensor: SensorPoint) -> Body:
    point = current_sensor(falcon, sensor)
    reading = point.read()
    body: Body = {
        **identity(point.uri, "Sensor", point.name),
        "ReadingType": point.kind,
        "ReadingUnits": point.units,
        "Reading": None if reading is None else round(reading, 3),
        "PhysicalContext": point.context,
    }
    health = "OK"
    if point.caution is not None and point.critical is not None:
        body["Thresholds"] = {
            "UpperCaution": {"Reading": point.caution},
            "UpperCritical": {"Reading": point.critical},
        }
        if reading is not None and reading >= point.critical:
            health = "Critical"
        elif reading is not None and reading >= point.caution:
            health = "Warning"
    body["Status"] = {"State": "Absent"} if reading is None else {"State": "Enabled", "Health": health}
    if point.related is not None:
        body |= references(RelatedItem=[point.related])
    return body


def _excerpt(point: SensorPoint) -> Body:
    reading = point.read()
    return {"DataSourceUri": point.uri, "Reading": None if reading is None else round(reading, 3)}


def _environment(falcon: Falcon, chassis: str, points: list[SensorPoint]) -> Body:
    own = {point.id: current_sensor(falcon, point) for point in points}
    body: Body = {
        **identity(f"{chassis}/EnvironmentMetrics", "EnvironmentMetrics", "Environment Metrics"),
        "TemperatureCelsius": _excerpt(own["inlet_temp"]),
        "PowerWatts": _excerpt(own["total_power" if "total_power" in own else "power"]),
    }
    if "energy" in own:
        body["EnergykWh"] = _excerpt(own["energy"])
    return body


def _register_fans(falcon: Falcon) -> None:
    tree, fans = falcon.tree, falcon.state.fans
    uri = f"{FALCON}/ThermalSubsystem"

    def subsystem() -> Body:
        failed = sum(fan.failed for fan in fans)
        health = "OK" if not failed else "Warning" if failed == 1 else "Critical"
        return {
            **identity(uri, "ThermalSubsystem", "Thermal Subsystem"),
            "Fans": link(f"{uri}/Fans"),
            "ThermalMetrics": link(f"{uri}/ThermalMetrics"),
            "Status": {"State": "Enabled", "Health": health},
        }

    def metrics() -> Body:
        temperatures = [point for point in sensor_points(falcon) if point.kind == "Temperature"]
        return {
            **identity(f"{uri}/ThermalMetrics", "ThermalMetrics", "Temperatures"),
            "TemperatureReadingsCelsius": [
                {**_excerpt(point), "DeviceName": point.name} for point in temperatures if point.chassis == FALCON
            ],
        }

    tree.resource(uri, subsystem)
    tree.resource(f"{uri}/ThermalMetrics", metrics)
    tree.collection(f"{uri}/Fans", "Fan", "Fans", lambda: [f"{uri}/Fans/fan{fan.number}" for fan in fans])
    for fan in fans:
        fan_uri = f"{uri}/Fans/fan{fan.number}"
        tree.resource(fan_uri, partial(_fan, fan_uri, fan))


def _fan(uri: str, fan: SimulatedFan) -> Body:
    return {
        **identity(uri, "Fan", f"Fan {fan.number}"),
        "HotPluggable": True,
        "PhysicalContext": "Chassis",
        "SpeedPercent": {
            "DataSourceUri": f"{FALCON}/Sensors/fan{fan.number}_speed",
            "Reading": round(fan.percent, 1),
            "SpeedRPM": round(fan.rpm),
        },
        "Location": {
            "PartLocation": {
                "ServiceLabel": f"Fan {fan.number}",
                "LocationType": "Bay",
                "LocationOrdinalValue": fan.number,
            }
        },
        "Status": {"State": "Enabled", "Health": "Critical" if fan.failed else "OK"},
    }


def _register_power(falcon: Falcon) -> None:
    tree, serial = falcon.tree, falcon.state.serial
    uri = f"{FALCON}/PowerSubsystem"
    supplies = {number: f"{uri}/PowerSupplies/psu{number}" for number in range(1, POWER_SUPPLIES + 1)}

    def subsystem() -> Body:
        return {
            **identity(uri, "PowerSubsystem", "Power Subsystem"),
            "CapacityWatts": SUPPLY_WATTS * (POWER_SUPPLIES - 1),
            "PowerSupplies": link(f"{uri}/PowerSupplies"),
            "Status": {"State": "Enabled", "Health": "OK"},
        }

    def render(number: int) -> Body:
        return {
            **identity(supplies[number], "PowerSupply", f"Power supply {number}"),
            "PowerSupplyType": "AC",
            "Manufacturer": falcon.state.rules.manufacturer,
            "Model": "CRPS-2000",
            "SerialNumber": f"{serial}-P{number}",
            "PowerCapacityWatts": SUPPLY_WATTS,
            "HotPluggable": True,
            "LineInputStatus": "Normal",
            "Status": {"State": "Enabled", "Health": "OK"},
        }

    tree.resource(uri, subsystem)
    tree.collection(f"{uri}/PowerSupplies", "PowerSupply", "Power Supplies", lambda: [*supplies.values()])
    for number, supply in supplies.items():
        tree.resource(supply, partial(render, number))
