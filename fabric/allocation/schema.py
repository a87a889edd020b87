"""The JSON Schema of an allocation file: published, and used by `check_schema`."""

from __future__ import annotations

from typing import Any, Final

from core.documents import DocumentNode, DocumentProblems, json_type, member_path, quoted, unknown_name_sentence
from core.language import _, gettext_noop, joined
from fabric.bmc.types import DeviceKind, DrawerMode

FORMAT: Final = "falconweb-allocation"
VERSION: Final = 1
SCOPES: Final = ("everything", "chassis", "tenant")
KINDS: Final = tuple(kind.value for kind in DeviceKind)
MAX_LANES: Final = 64


def _text(longest: int, description: str, *, shortest: int = 0, nullable: bool = False) -> dict[str, Any]:
    least = {"minLength": shortest} if shortest else {}
    kind = ["string", "null"] if nullable else "string"
    return {"type": kind, **least, "maxLength": longest, "description": description}


def _integer(description: str, *, least: int = 0, most: int = 2**31 - 1) -> dict[str, Any]:
    return {"type": ["integer", "null"], "minimum": least, "maximum": most, "description": description}


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
    "lanes": _integer(
        "How many lanes the port shall use at most; null or left out: stays as it is", least=1, most=MAX_LANES
    ),
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
    slot=_integer("The number of its slot; null for a device in none"),
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
    number=_integer("Its number; null or left out: it is told by its name"),
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

TYPE_LABELS = {
    "string": gettext_noop("text"),
    "integer": gettext_noop("a whole number"),
    "object": gettext_noop("an object"),
    "array": gettext_noop("a list"),
    "null": "null",
}


def check_schema(root: DocumentNode, problems: DocumentProblems) -> None:
    """Report every value that violates the schema."""
    _check_node(root, SCHEMA, "", _("The file"), problems)


def _check_node(node: DocumentNode, schema: dict[str, Any], path: str, name: str, problems: DocumentProblems) -> None:
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        # Where the schema also permits null, other values are checked against the other choice.
        if node.value is None:
            return
        schema = SCHEMA["$defs"][schema["anyOf"][0]["$ref"].rpartition("/")[2]]
    if reason := _mismatch_reason(node, schema, name):
        problems.add(reason, path, node.offset)
    elif isinstance(node.value, dict):
        for missing in schema["required"]:
            if missing not in node.value:
                problems.add(_("{name} has no '{missing}'.", name=name, missing=missing), path, node.offset)
        known = schema["properties"]
        for word, value in node.value.items():
            inner = member_path(path, word)
            if word in known:
                _check_node(value, known[word], inner, f"'{word}'", problems)
            else:
                problems.add(unknown_name_sentence(word, known), inner, node.keys[word])
    elif isinstance(node.value, list):
        for place, item in enumerate(node.value):
            _check_node(item, schema["items"], f"{path}[{place}]", f"{name}[{place}]", problems)


def _mismatch_reason(node: DocumentNode, schema: dict[str, Any], name: str) -> str:
    """Return '' if a value itself matches its schema, members aside, else the sentence that says why not."""
    value, found = node.value, json_type(node.value)
    allowed = schema.get("type", found)
    allowed = [allowed] if isinstance(allowed, str) else allowed
    if "const" in schema and (value != schema["const"] or found == "boolean"):
        wanted = _display_value(schema["const"])
        return _("{name} must be {wanted}, not {found}.", name=name, wanted=wanted, found=_display_value(value))
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(schema["enum"])
        return _(
            "{name} must be one of {choices}, not {found}.", name=name, choices=choices, found=_display_value(value)
        )
    if found not in allowed:
        wanted = joined((_(TYPE_LABELS[one]) for one in allowed), _(" or "))
        sentence = _("{name} must be {wanted}, not {found}.", name=name, wanted=wanted, found=_display_value(value))
        is_unquoted = found in {"integer", "number", "boolean"} and "string" in allowed
        return joined([sentence, _("Put it in quotes.")]) if is_unquoted else sentence
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return _("{name} must not be empty.", name=name)
        if len(value) > schema.get("maxLength", len(value)):
            return _(
                "{name} has {count} characters: at most {largest} are allowed.",
                name=name,
                count=len(value),
                largest=schema["maxLength"],
            )
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        smallest, largest = schema["minimum"], schema["maximum"]
        return _(
            "{name} must be from {smallest} to {largest}, not {found}.",
            name=name,
            smallest=smallest,
            largest=largest,
            found=value,
        )
    return ""


def _display_value(value: object) -> str:
    kind = json_type(value)
    if kind == "null":
        return "null"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if kind in {"boolean", "integer", "number"} else _(TYPE_LABELS[kind])
