"""What an allocation file may look like, as JSON Schema: published as it is, and what `shape` checks by."""

from __future__ import annotations

from typing import Any, Final

from fabric.bmc.types import DrawerMode

FORMAT: Final = "falconweb-allocation"
VERSION: Final = 1
SCOPES: Final = ("everything", "chassis", "tenant")
KINDS: Final = ("gpu", "nvme", "nic", "custom")
MOST_LANES: Final = 64


def _text(longest: int, description: str, *, shortest: int = 0, nullable: bool = False) -> dict[str, Any]:
    least = {"minLength": shortest} if shortest else {}
    kind = ["string", "null"] if nullable else "string"
    return {"type": kind, **least, "maxLength": longest, "description": description}


def _object(description: str, required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _list(of: str, description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/$defs/{of}"}, "description": description}


PORT: Final = {
    "port_type": _text(50, "What the port is, in Redfish's words; null or left out: stays as it is", nullable=True),
    "lanes": {
        "type": ["integer", "null"],
        "minimum": 1,
        "maximum": MOST_LANES,
        "description": "How many lanes the port shall use at most; null or left out: stays as it is",
    },
    "tenant": _text(100, "Who holds it; told to administrators, and changed by no import", nullable=True),
}
DEVICE: Final = _object(
    "What is in the slot; without it, the slot alone says which device is meant",
    (),
    name=_text(200, "Its name"),
    kind={"enum": list(KINDS), "description": "What it is"},
    manufacturer=_text(200, "Who made it"),
    model=_text(200, "Its model"),
    serial_number=_text(200, "Its serial number; '' where it has none, or one that others have too"),
)
SLOT: Final = _object(
    "A device, and the host port that it is attached to",
    ("slot",),
    slot={
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": 2**31 - 1,
        "description": "The number of its slot; null for a device in none",
    },
    device={"$ref": "#/$defs/device"},
    attached_to=_text(
        60, "Label of the host port; null: attached to no host; left out: stays as it is", shortest=1, nullable=True
    ),
    **PORT,
)
HOST: Final = _object(
    "A host, told by its identity, else by its name",
    ("name",),
    name=_text(200, "Its name"),
    identity=_text(200, "Its UUID, else its manufacturer and serial number, else another thing that is its own"),
)
HOST_PORT: Final = _object(
    "A host port",
    ("label",),
    label=_text(60, "Its label", shortest=1),
    host={
        "anyOf": [{"$ref": "#/$defs/host"}, {"type": "null"}],
        "description": "The host that its cable leads to; null: no cable; left out: stays as it is",
    },
    **PORT,
)
DRAWER: Final = _object(
    "A drawer; without number and name, what is in no drawer",
    (),
    number={
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": 2**31 - 1,
        "description": "Its number; null or left out: it is told by its name",
    },
    name=_text(220, "Its name"),
    mode={"enum": [mode.value for mode in DrawerMode], "description": "How host ports share its slots"},
    host_ports=_list("host_port", "The host ports that are cabled to it"),
    slots=_list("slot", "Its slots that have a device"),
)
CHASSIS: Final = _object(
    "A chassis, told by its UUID, else its serial number, else its name",
    ("name",),
    name=_text(100, "Its name on the site that wrote the file", shortest=1),
    uuid=_text(64, "Its UUID"),
    manufacturer=_text(200, "Who made it"),
    model=_text(200, "Its model"),
    serial_number=_text(200, "Its serial number"),
    drawers=_list("drawer", "Its drawers"),
)
SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": f"FalconWeb allocation file, version {VERSION}",
    **_object(
        "Which devices are attached to which host ports, the modes of drawers, cables, and how ports are configured. "
        "What a file does not name stays as it is.",
        ("format", "version", "chassis"),
        format={"const": FORMAT, "description": "What tells an allocation file from others"},
        version={"const": VERSION, "description": "The version of the format"},
        made_by=_text(200, "Who or what wrote the file: for people"),
        made_at=_text(40, "When it was written: for people"),
        note=_text(2000, "Anything: for people"),
        scope=_object(
            "What was exported: for people",
            ("kind",),
            kind={"enum": list(SCOPES)},
            name=_text(100, "Of which chassis or tenant"),
        ),
        chassis=_list("chassis", "The chassis"),
    ),
    "$defs": {
        "chassis": CHASSIS,
        "drawer": DRAWER,
        "host_port": HOST_PORT,
        "host": HOST,
        "slot": SLOT,
        "device": DEVICE,
    },
}
