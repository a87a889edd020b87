"""Messages of fabrics: DMTF's Fabric registry, OCP's AcceleratorFabric, and which of the latter are the same events.

Names and severities of DMTF's are those of Fabric 1.1.0 (DSP8011, release 2026.1), beside a few names of BMCs. Those of
OCP's are of AcceleratorFabric 1.0.0 (ocp-hm-system-gpu-management, docs/Redfish_Scale_Up_Fabric_Registry.md).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from core.language import gettext_noop as _  # translated where a reader asks for it

SeverityName = Literal["OK", "Warning", "Critical"]
# Severity, explanation, advice.
MessageText = tuple[SeverityName, str, str]

OK: Final[SeverityName] = "OK"
WARNING: Final[SeverityName] = "Warning"
CRITICAL: Final[SeverityName] = "Critical"

RESEAT = _("Check the cable or card of that port; reseat it, or replace it.")
LINKS = _("Open the port: its link and error counters show since when.")


def _both_directions(
    name: str, severity: SeverityName, sentences: tuple[str, str, str], advice: str
) -> dict[str, MessageText]:
    """Return a message of links for each direction that the Fabric registry distinguishes: host, device, switches."""
    directions = ("Upstream", "Downstream", "Interswitch")
    return {
        f"{direction}{name}": (severity, sentence, advice)
        for direction, sentence in zip(directions, sentences, strict=True)
    }


FABRIC: dict[str, MessageText] = {
    **_both_directions(
        "LinkEstablished",
        OK,
        (
            _("A link came up. It is a link towards a host."),
            _("A link came up. It is a link towards a device."),
            _("A link came up. It is a link between two switches."),
        ),
        "",
    ),
    **_both_directions(
        "LinkDropped",
        WARNING,
        (
            _("A link went down. It is a link towards a host."),
            _("A link went down. It is a link towards a device."),
            _("A link went down. It is a link between two switches."),
        ),
        RESEAT,
    ),
    **_both_directions(
        "LinkDegraded",
        WARNING,
        (
            _("A link is up with less width or speed than both of its ends support. It is a link towards a host."),
            _("A link is up with less width or speed than both of its ends support. It is a link towards a device."),
            _(
                "A link is up with less width or speed than both of its ends support. "
                "It is a link between two switches."
            ),
        ),
        RESEAT,
    ),
    **_both_directions(
        "LinkFlapDetected",
        WARNING,
        (
            _("A link goes down and up repeatedly. It is a link towards a host."),
            _("A link goes down and up repeatedly. It is a link towards a device."),
            _("A link goes down and up repeatedly. It is a link between two switches."),
        ),
        RESEAT,
    ),
    **_both_directions(
        "LinkFlapDisabled",
        CRITICAL,
        (
            _("A link went down so often that it was switched off. It is a link towards a host."),
            _("A link went down so often that it was switched off. It is a link towards a device."),
            _("A link went down so often that it was switched off. It is a link between two switches."),
        ),
        RESEAT,
    ),
    "MaxFrameSizeExceeded": (WARNING, _("A port received a frame larger than its limit and dropped it."), ""),
    "PortManuallyEnabled": (OK, _("A port was enabled manually."), ""),
    "PortManuallyDisabled": (OK, _("A port was disabled manually."), _("Enable it again where it is needed.")),
    "PortAutomaticallyEnabled": (OK, _("A port was enabled automatically."), ""),
    "PortAutomaticallyDisabled": (
        CRITICAL,
        _("A port was disabled automatically, such as after too many errors."),
        LINKS,
    ),
    "PortFailed": (CRITICAL, _("A port has failed."), LINKS),
    "PortOK": (OK, _("A port works again."), ""),
    "PortDown": (CRITICAL, _("A port is down."), LINKS),
    "PortDegraded": (WARNING, _("A port works worse than it should."), LINKS),
    "PortReset": (OK, _("A port was reset."), ""),
    "CableInserted": (OK, _("A cable was inserted into a port."), ""),
    "CableOK": (OK, _("A cable works again."), ""),
    "CableRemoved": (WARNING, _("A cable was removed from a port, or has no contact."), RESEAT),
    "CableFailed": (WARNING, _("A cable has failed."), _("Replace the cable.")),
    "SwitchFailed": (CRITICAL, _("A switch has failed."), _("Check its power and seat.")),
    "SwitchDegraded": (WARNING, _("A switch works worse than it should."), ""),
    "SwitchOK": (OK, _("A switch works again."), ""),
    "SwitchInsertionDetected": (OK, _("A switch appeared in the fabric."), ""),
    "SwitchRemovalDetected": (CRITICAL, _("A switch is no longer in the fabric."), _("Check its power and seat.")),
    "MediaControllerAdded": (OK, _("A media controller appeared in the fabric."), ""),
    "MediaControllerModified": (OK, _("A media controller was changed."), ""),
    "MediaControllerRemoved": (WARNING, _("A media controller is no longer in the fabric."), ""),
    "AddressPoolCreated": (OK, _("An address pool was added to the fabric."), ""),
    "AddressPoolModified": (OK, _("An address pool of the fabric was changed."), ""),
    "AddressPoolRemoved": (OK, _("An address pool was removed from the fabric."), ""),
    "ZoneCreated": (OK, _("A zone was added: a group of endpoints that reach each other."), ""),
    "ZoneModified": (OK, _("The members of a zone changed: a device was attached to a host port or detached."), ""),
    "ZoneRemoved": (OK, _("A zone was removed."), ""),
    "EndpointCreated": (OK, _("An endpoint appeared: a host port or a device of the fabric."), ""),
    "EndpointModified": (OK, _("An endpoint of the fabric was changed."), ""),
    "EndpointRemoved": (WARNING, _("An endpoint is no longer in the fabric."), ""),
    "ConnectionCreated": (OK, _("A connection between endpoints was added."), ""),
    "ConnectionModified": (OK, _("A connection between endpoints was changed."), ""),
    "ConnectionRemoved": (OK, _("A connection between endpoints was removed."), ""),
    "DegradedDownstreamLinkEstablished": (
        WARNING,
        _("A link to a device came up below what both ends support."),
        RESEAT,
    ),
    "DegradedUpstreamLinkEstablished": (WARNING, _("A link to a host came up below what both ends support."), RESEAT),
    "DegradedInterswitchLinkEstablished": (WARNING, _("A link between switches came up below its best."), RESEAT),
    "UpstreamLinkDegradedOnHost": (WARNING, _("A link towards a host is below its best."), RESEAT),
}


def _rate(name: str, sentences: tuple[str, str, str]) -> dict[str, MessageText]:
    """Return the three messages of a rate of a port: above either threshold, and below the lower one again."""
    return {
        f"{name}RateAboveCautionThreshold": (WARNING, sentences[0], LINKS),
        f"{name}RateAboveCriticalThreshold": (CRITICAL, sentences[1], LINKS),
        f"{name}RateCautionThresholdCleared": (OK, sentences[2], ""),
    }


# Those without a counterpart in DMTF's registry.
ACCELERATOR_FABRIC: dict[str, MessageText] = {
    "LinkTrainingStarted": (OK, _("A link of an accelerator began to train."), ""),
    "LinkTrainingSucceeded": (OK, _("A link of an accelerator has trained."), ""),
    "LinkTrainingFailed": (CRITICAL, _("A link of an accelerator could not train: it stays down."), RESEAT),
    "LinkRetrained": (OK, _("A link of an accelerator trained again."), ""),
    "PortCongestionDetected": (WARNING, _("A port of an accelerator has more to send than its link carries."), LINKS),
    "PortCongestionCleared": (OK, _("A port of an accelerator is no longer congested."), ""),
    **_rate(
        "PacketDrop",
        (
            _("A port of an accelerator drops more packets than its caution threshold allows."),
            _("A port of an accelerator drops more packets than its critical threshold allows."),
            _("A port of an accelerator drops few packets again."),
        ),
    ),
    **_rate(
        "Retry",
        (
            _("A port of an accelerator sends more packets again than its caution threshold allows."),
            _("A port of an accelerator sends more packets again than its critical threshold allows."),
            _("A port of an accelerator sends few packets again."),
        ),
    ),
    **_rate(
        "ErrorCorrection",
        (
            _("A port of an accelerator corrects more errors than its caution threshold allows."),
            _("A port of an accelerator corrects more errors than its critical threshold allows."),
            _("A port of an accelerator corrects few errors again."),
        ),
    ),
    "PortConfigChanged": (OK, _("The configuration of a port of an accelerator changed."), ""),
}


class SameEvent(NamedTuple):
    """The message of another registry for the same event, and the severity that the event's own registry gives it."""

    name: str
    own_severity: SeverityName


# The link of an accelerator is one towards a device: the fabric's downstream.
SAME_EVENTS: dict[str, SameEvent] = {
    f"AcceleratorFabric.{own}": SameEvent(f"Fabric.{name}", severity)
    for own, name, severity in (
        ("CableInserted", "CableInserted", OK),
        ("CableRemoved", "CableRemoved", OK),
        ("ConnectionDropped", "DownstreamLinkDropped", OK),
        ("ConnectionEstablished", "DownstreamLinkEstablished", OK),
        ("ConnectionSpeedLow", "DownstreamLinkDegraded", WARNING),
        ("DegradedConnectionEstablished", "DegradedDownstreamLinkEstablished", WARNING),
        ("LinkFlapDetected", "DownstreamLinkFlapDetected", WARNING),
    )
}
