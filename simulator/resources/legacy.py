"""The deprecated Thermal and Power of the enclosure, for clients that know no sensors."""

from __future__ import annotations

from simulator.odata import Body, identity, references
from simulator.resources.chassis import FALCON
from simulator.resources.thermal import SUPPLY_WATTS, sensor_points
from simulator.service import Falcon
from simulator.state import POWER_SUPPLIES

THERMAL, POWER = f"{FALCON}/Thermal", f"{FALCON}/Power"


def register(falcon: Falcon) -> None:
    """Add both, if the service has them."""
    if not falcon.options.legacy:
        return
    inlet = next(point for point in sensor_points(falcon) if point.chassis == FALCON and point.id == "inlet_temp")

    def thermal() -> Body:
        return {
            **identity(THERMAL, "Thermal", "Thermal"),
            "Temperatures": [
                {
                    **_member(f"{THERMAL}#/Temperatures/0", inlet.name),
                    "ReadingCelsius": round(falcon.state.inlet, 3),
                    "UpperThresholdNonCritical": inlet.caution,
                    "UpperThresholdCritical": inlet.critical,
                    "PhysicalContext": inlet.context,
                }
            ],
            "Fans": [
                {
                    **_member(f"{THERMAL}#/Fans/{number}", f"Fan {fan.number}", failed=fan.failed),
                    "Reading": round(fan.rpm),
                    "ReadingUnits": "RPM",
                }
                for number, fan in enumerate(falcon.state.fans)
            ],
        }

    def power() -> Body:
        return {
            **identity(POWER, "Power", "Power"),
            "PowerControl": [
                {
                    **_member(f"{POWER}#/PowerControl/0", "Total power"),
                    "PowerConsumedWatts": round(falcon.state.watts, 3),
                    "PowerCapacityWatts": SUPPLY_WATTS * (POWER_SUPPLIES - 1),
                    **references(RelatedItem=[FALCON]),
                }
            ],
        }

    falcon.tree.resource(THERMAL, thermal)
    falcon.tree.resource(POWER, power)


def _member(uri: str, name: str, *, failed: bool = False) -> Body:
    return {
        "@odata.id": uri,
        "MemberId": uri.rpartition("/")[2],
        "Name": name,
        "Status": {"State": "Enabled", "Health": "Critical" if failed else "OK"},
    }
