"""The found and the approved state of a part, and the result of an operation, in the format of a drift.

A host port's or host's id, '' for none; a mode; 'type/lanes' of a port. None is unreported by the BMC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import F
from django.db.models.functions import Coalesce

from core.language import english
from fabric.drift.models import Drift
from fabric.inventory.labels import host_port_name, slot_label
from fabric.inventory.models import Approvable, Device, Drawer, Host, HostPort, Port
from fabric.operations.models import Operation

Kind = Drift.Kind
UNKNOWN_MODE = "Unknown"
KIND_OF_PART: dict[type[Approvable], Drift.Kind] = {
    Device: Kind.ATTACHMENT,
    Drawer: Kind.MODE,
    HostPort: Kind.CABLE,
    Port: Kind.PORT,
}


# The columns of the found and of the approved state; a port has two of each.
STATE_COLUMNS: dict[type[Approvable], tuple[str, str]] = {
    Device: ("host_port_id", "approved_host_port_id"),
    Drawer: ("mode", "approved_mode"),
    HostPort: ("host_id", "approved_host_id"),
}


# What the columns of an approved state have where the found state is approved.
FOUND_COLUMNS: dict[type[Approvable], dict[str, Any]] = {
    **{part: {approved: F(found)} for part, (found, approved) in STATE_COLUMNS.items()},
    Port: {"approved_type": F("port_type"), "approved_width": Coalesce("configured_width", "approved_width")},
}


def found_state(part: Approvable) -> str | None:
    """Return the found state of a part, in the format of `Drift.found`; None where the BMC does not report it."""
    if isinstance(part, Port):
        width = part.approved_width if part.configured_width is None else part.configured_width
        return f"{part.port_type}/{width or ''}" if part.port_type else None
    found = str(getattr(part, STATE_COLUMNS[type(part)][0]) or "")
    return None if isinstance(part, Drawer) and found in {"", UNKNOWN_MODE} else found


def approved_state_of(part: Approvable) -> str:
    """Return the approved state of a part, in the format of `Drift.expected`."""
    if isinstance(part, Port):
        width = part.configured_width if part.approved_width is None else part.approved_width
        return f"{part.approved_type}/{width or ''}"
    return str(getattr(part, STATE_COLUMNS[type(part)][1]) or "")


def approve_state(part: Approvable, found: str, at: datetime) -> list[str]:
    """Set a part's approved state to `found`; returns the names of the columns to save."""
    values: dict[str, Any] = {"approved_at": at}
    if isinstance(part, Port):
        values["approved_type"], _, width = found.partition("/")
        values["approved_width"] = int(width) if width else None
    elif isinstance(part, Drawer):
        values["approved_mode"] = found
    else:
        values[STATE_COLUMNS[type(part)][1]] = int(found) if found else None
    for name, value in values.items():
        setattr(part, name, value)
    return list(values)


def operation_result(operation: Operation) -> str:
    """Return the state after a successful operation, in the format of `Drift.found`."""
    match operation.kind:
        case Operation.Kind.MODE:
            return operation.mode
        case Operation.Kind.CABLE:
            return str(operation.host_id or "")
        case Operation.Kind.PORT:
            port, setting = operation.port, operation.setting
            kind = setting.get("port_type") or (port.port_type if port is not None else "")
            width = setting.get("configured_width") or (port.configured_width if port is not None else None)
            return f"{kind}/{width or ''}"
        case Operation.Kind.TRIAL:
            return ""
    return str(operation.target_id or "")


def drift_relations(part: Approvable) -> dict[str, Any]:
    """Return the relations of a drift to a part; for a port also to the part on it, whose tenant may see the drift."""
    match part:
        case Device():
            return {"device": part}
        case Drawer():
            return {"drawer": part}
        case HostPort():
            return {"host_port": part}
        case Port():
            return {
                "port": part,
                "device": Device.objects.filter(slot__port=part).first(),
                "host_port": HostPort.objects.filter(port=part).first(),
            }
    return {}


def part_description(part: Approvable) -> str:
    """Return the label of a part, for everybody who may see it."""
    match part:
        case Device():
            place = slot_label(part)
            return f"{part.name} ({place})" if place else part.name
        case HostPort():
            return f"Host port {part.label}"
    return part.name


def state_label(part: Approvable, state: str) -> str:
    """Return the label of a state of `Drift.found`."""
    match part:
        case Device():
            port = HostPort.objects.select_related("host").filter(pk=int(state)).first() if state else None
            return english(host_port_name(port))
        case HostPort():
            host = Host.objects.filter(pk=int(state)).first() if state else None
            return host.name if host is not None else "no host"
    return state
