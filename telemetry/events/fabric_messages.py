"""Messages about links, switches, sensors and the machine around them."""

from __future__ import annotations

from telemetry.events.words import CRITICAL, OK, WARNING, Words

RESEAT = "Look at the cable or card of that port; seat it again, or put another one in."
LINKS = "Open the port: its link and error counters show since when."
COOLING = "Look at the fans, at the air in front of the chassis, and at the load of its devices."


def _both(name: str, words: Words) -> dict[str, Words]:
    """Return a message of links for both directions that the Fabric registry tells apart."""
    severity, sentence, advice = words
    return {
        f"Upstream{name}": (severity, f"{sentence} It is a link towards a host.", advice),
        f"Downstream{name}": (severity, f"{sentence} It is a link towards a device.", advice),
        f"Interswitch{name}": (severity, f"{sentence} It is a link between two switches.", advice),
    }


FABRIC: dict[str, Words] = {
    **_both("LinkEstablished", (OK, "A link came up.", "")),
    **_both("LinkDropped", (CRITICAL, "A link went down.", RESEAT)),
    **_both("LinkDegraded", (WARNING, "A link is up with less width or speed than both of its ends can do.", RESEAT)),
    **_both("LinkFlapDetected", (WARNING, "A link goes down and comes up again, time after time.", RESEAT)),
    **_both("LinkFlapDisabled", (CRITICAL, "A link went down so often that it was switched off.", RESEAT)),
    "MaxFrameSizeExceeded": (WARNING, "A port received a frame larger than it takes; it was dropped.", ""),
    "PortManuallyEnabled": (OK, "Somebody enabled a port.", ""),
    "PortManuallyDisabled": (WARNING, "Somebody disabled a port.", "Enable it again where it shall be used."),
    "PortAutomaticallyEnabled": (OK, "A port was enabled by itself.", ""),
    "PortAutomaticallyDisabled": (CRITICAL, "A port was disabled by itself, as after too many errors.", LINKS),
    "PortDown": (CRITICAL, "A port is down.", LINKS),
    "PortDegraded": (WARNING, "A port works worse than it should.", LINKS),
    "PortReset": (OK, "A port was reset.", ""),
    "CableInserted": (OK, "A cable was put into a port.", ""),
    "CableRemoved": (WARNING, "A cable was pulled out of a port, or no longer makes contact.", RESEAT),
    "CableFailed": (CRITICAL, "A cable has failed.", "Put another cable in."),
    "SwitchInsertionDetected": (OK, "A switch appeared in the fabric.", ""),
    "SwitchRemovalDetected": (CRITICAL, "A switch is no longer in the fabric.", "Look at its power and seat."),
    "MediaControllerAdded": (OK, "A media controller appeared in the fabric.", ""),
    "MediaControllerModified": (OK, "A media controller was changed.", ""),
    "MediaControllerRemoved": (WARNING, "A media controller is no longer in the fabric.", ""),
    "AddressPoolAdded": (OK, "An address pool was added to the fabric.", ""),
    "AddressPoolModified": (OK, "An address pool of the fabric was changed.", ""),
    "AddressPoolRemoved": (OK, "An address pool was removed from the fabric.", ""),
    "ZoneAdded": (OK, "A zone was added: a group of endpoints that reach each other.", ""),
    "ZoneModified": (OK, "The members of a zone changed: a device was attached to a host port or detached.", ""),
    "ZoneRemoved": (OK, "A zone was removed.", ""),
    "EndpointAdded": (OK, "An endpoint appeared: a host port or a device of the fabric.", ""),
    "EndpointModified": (OK, "An endpoint of the fabric was changed.", ""),
    "EndpointRemoved": (WARNING, "An endpoint is no longer in the fabric.", ""),
    "ConnectionAdded": (OK, "A connection between endpoints was added.", ""),
    "ConnectionModified": (OK, "A connection between endpoints was changed.", ""),
    "ConnectionRemoved": (OK, "A connection between endpoints was removed.", ""),
    "DegradedDownstreamLinkEstablished": (WARNING, "A link to a device came up below what both ends can do.", RESEAT),
    "DegradedUpstreamLinkEstablished": (WARNING, "A link to a host came up below what both ends can do.", RESEAT),
    "DegradedInterswitchLinkEstablished": (WARNING, "A link between switches came up below its best.", RESEAT),
    "UpstreamLinkDegradedOnHost": (WARNING, "A link towards a host is below its best.", RESEAT),
}

PLATFORM: dict[str, Words] = {
    "PCIeLinkDown": (CRITICAL, "A PCIe link is down.", RESEAT),
    "PCIeLinkEstablished": (OK, "A PCIe link is up.", ""),
    "PCIeIncorrectLinkWidth": (WARNING, "A PCIe link uses fewer lanes than its ends have.", RESEAT),
    "PCIeIncorrectLinkSpeed": (WARNING, "A PCIe link is slower than its ends can be.", RESEAT),
    "PCIeCorrectableError": (WARNING, "PCIe errors were corrected; many of them slow a link down.", LINKS),
    "PCIeUncorrectableError": (CRITICAL, "A PCIe error could not be corrected; data of a device may be lost.", LINKS),
    "PCIeFatalError": (CRITICAL, "A PCIe error stopped a link.", LINKS),
    "PlatformError": (CRITICAL, "The machine reports an error.", "Look in its own log."),
    "PlatformErrorAtLocation": (CRITICAL, "The machine reports an error of a part.", "Look at that part."),
    "UnhandledExceptionDetectedWithNoDetails": (CRITICAL, "A processor met an error that nothing handled.", ""),
    "UnhandledExceptionDetected": (CRITICAL, "A processor met an error that nothing handled.", ""),
    "OperatingSystemCrashed": (CRITICAL, "The operating system of a host stopped with an error.", ""),
}

SENSOR: dict[str, Words] = {
    "ReadingAboveUpperCautionThreshold": (WARNING, "A reading is above its upper caution threshold.", COOLING),
    "ReadingAboveUpperCriticalThreshold": (CRITICAL, "A reading is above its upper critical threshold.", COOLING),
    "ReadingAboveUpperFatalThreshold": (
        CRITICAL, "A reading is so high that parts may be destroyed; the chassis may switch off.", COOLING,
    ),
    "ReadingBelowLowerCautionThreshold": (WARNING, "A reading is below its lower caution threshold.", ""),
    "ReadingBelowLowerCriticalThreshold": (CRITICAL, "A reading is below its lower critical threshold.", ""),
    "ReadingBelowLowerFatalThreshold": (CRITICAL, "A reading is so low that the part may not work.", ""),
    "ReadingBelowUpperCautionThreshold": (OK, "A reading is no longer above its upper caution threshold.", ""),
    "ReadingBelowUpperCriticalThreshold": (WARNING, "A reading is no longer critical, but still high.", ""),
    "ReadingBelowUpperFatalThreshold": (CRITICAL, "A reading is no longer fatal, but still critical.", COOLING),
    "ReadingAboveLowerCautionThreshold": (OK, "A reading is no longer below its lower caution threshold.", ""),
    "ReadingAboveLowerCriticalThreshold": (WARNING, "A reading is no longer critical, but still low.", ""),
    "ReadingAboveLowerFatalThreshold": (CRITICAL, "A reading is no longer fatal, but still critical.", ""),
    "SensorReadingNormalRange": (OK, "A reading is within its normal range.", ""),
    "SensorRestored": (OK, "A sensor works again.", ""),
    "SensorFailure": (WARNING, "A sensor has failed: what it measured is not known.", "Have the part looked at."),
    "InvalidSensorReading": (WARNING, "A sensor gives readings that cannot be right.", ""),
    "ReadingCritical": (CRITICAL, "A reading is in its critical range.", COOLING),
    "ReadingWarning": (WARNING, "A reading is outside of its normal range.", COOLING),
    "ReadingNoLongerCritical": (OK, "A reading is no longer critical.", ""),
    "ReadingRemoved": (WARNING, "A reading is no longer offered.", ""),
}  # fmt: skip

ENVIRONMENTAL: dict[str, Words] = {
    "FanInserted": (OK, "A fan was put in.", ""),
    "FanRemoved": (CRITICAL, "A fan was taken out.", "Put it in again: the others must cool alone."),
    "FanFailed": (CRITICAL, "A fan has failed.", "Replace it; until then the others must cool alone."),
    "FanDegraded": (WARNING, "A fan works worse than it should.", "Replace it soon."),
    "FanRestored": (OK, "A fan works again.", ""),
    "FanGroupCritical": (CRITICAL, "A group of fans no longer cools as it must.", COOLING),
    "FanGroupWarning": (WARNING, "A group of fans cools less than it should.", COOLING),
    "FanGroupNormal": (OK, "A group of fans works as it should.", ""),
    "TemperatureAboveUpperCautionThreshold": (WARNING, "A temperature is above its caution threshold.", COOLING),
    "TemperatureAboveUpperCriticalThreshold": (CRITICAL, "A temperature is above its critical threshold.", COOLING),
    "TemperatureAboveUpperFatalThreshold": (CRITICAL, "A temperature is so high that parts may be destroyed.", COOLING),
    "TemperatureBelowLowerCautionThreshold": (WARNING, "A temperature is below its caution threshold.", ""),
    "TemperatureBelowLowerCriticalThreshold": (CRITICAL, "A temperature is below its critical threshold.", ""),
    "TemperatureNoLongerCritical": (OK, "A temperature is no longer critical.", ""),
    "TemperatureNormal": (OK, "A temperature is within its normal range.", ""),
    "TemperatureWarning": (WARNING, "A temperature is outside of its normal range.", COOLING),
    "TemperatureCritical": (CRITICAL, "A temperature is in its critical range.", COOLING),
}

POWER: dict[str, Words] = {
    "PowerSupplyInserted": (OK, "A power supply was put in.", ""),
    "PowerSupplyRemoved": (
        WARNING,
        "A power supply was taken out.",
        "Put it in again: nothing stands in for it.",
    ),
    "PowerSupplyFailed": (CRITICAL, "A power supply has failed.", "Replace it: nothing stands in for it."),
    "PowerSupplyPredictiveFailure": (WARNING, "A power supply will fail soon.", "Replace it."),
    "PowerSupplyWarning": (WARNING, "A power supply works worse than it should.", "Replace it soon."),
    "PowerSupplyCritical": (CRITICAL, "A power supply is in a critical state.", "Replace it."),
    "PowerSupplyRestored": (OK, "A power supply works again.", ""),
    "PowerSupplyPowerGood": (OK, "A power supply gives power.", ""),
    "PowerSupplyPowerLost": (CRITICAL, "A power supply gets no power.", "Look at its cable and the circuit."),
    "PowerSupplyPowerRestored": (OK, "A power supply gets power again.", ""),
    "CircuitPoweredOff": (WARNING, "A circuit was switched off.", ""),
    "CircuitPoweredOn": (OK, "A circuit was switched on.", ""),
    "PowerConsumptionAboveLimit": (WARNING, "More power is used than the limit allows.", ""),
}

# A Falcon's own.
FALCON: dict[str, Words] = {
    "ManagerRestarted": (WARNING, "The BMC restarted. Attachments stay; readings have a gap.", ""),
    "DrawerModeChanged": (OK, "A drawer is in another mode: how its host ports share its slots changed.", ""),
}

REGISTRIES: dict[str, dict[str, Words]] = {
    "Fabric": FABRIC,
    "Platform": PLATFORM,
    "SensorEvent": SENSOR,
    "Sensor": SENSOR,
    "Environmental": ENVIRONMENTAL,
    "Power": POWER,
    "H3Falcon": FALCON,
}
