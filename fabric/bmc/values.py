"""Properties and types of Redfish resources read with tolerance: null, absent and wrong types become '' or None."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

# Decoded JSON is a dict, and is looked for as that: to look for any Mapping takes four times as long.
JsonObject = Mapping[str, Any]

# Gb/s per lane by generation, as Redfish counts them (raw rate of the link, one way).
LANE_GBPS = {"Gen1": 2.5, "Gen2": 5.0, "Gen3": 8.0, "Gen4": 16.0, "Gen5": 32.0, "Gen6": 64.0}
BINARY_GIGA_FACTOR = 2**30 / 1e9
MAX_URI_LENGTH = 2000
MAX_URI_STEPS = 50
MAX_POSITION_DIGITS = 9  # a database refuses larger numbers


def value_at(body: JsonObject, *path: str) -> Any:
    """Return the value at a path of property names, None where any step is missing."""
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def mapping(body: JsonObject, *path: str) -> JsonObject:
    """Return the object at a path, {} where there is none."""
    value = value_at(body, *path)
    return value if isinstance(value, dict) else {}


def objects(body: JsonObject, *path: str) -> list[JsonObject]:
    """Return the objects of the list at a path; other members are left out."""
    value = value_at(body, *path)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text(body: JsonObject, *path: str) -> str:
    """Return text exactly as given; a number in place of a text (a serial number) is converted."""
    value = value_at(body, *path)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def texts(body: JsonObject, *path: str) -> tuple[str, ...]:
    """Return the strings of the list at a path."""
    value = value_at(body, *path)
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


@cache
def _field_name(property_name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", property_name).lower()


def named_texts(body: JsonObject, *names: str) -> dict[str, Any]:
    """Return the texts of these properties as fields: that of SerialNumber is named serial_number."""
    return {_field_name(name): text(body, name) for name in names}


def number(body: JsonObject, *path: str) -> float | None:
    """Return a finite number; text, null and booleans are None, never zero."""
    value = value_at(body, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # more than 308 digits
        return None


def integer(body: JsonObject, *path: str) -> int | None:
    """Return a whole number; anything else is None."""
    value = value_at(body, *path)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def bytes_of(mebibytes: float | None) -> int | None:
    """Return a size in bytes; None where it is unknown, negative, or more than 64 bits can count."""
    return int(mebibytes * 2**20) if mebibytes is not None and 0 <= mebibytes < 2**43 else None


def boolean(body: JsonObject, *path: str) -> bool | None:
    """Return True or False; anything else is None."""
    value = value_at(body, *path)
    return value if isinstance(value, bool) else None


def normalize_uri(link: str) -> str:
    """Return a link as a key: without fragment and trailing slash."""
    return link.split("#", 1)[0].rstrip("/")


def is_bounded(uri: str) -> bool:
    """Return whether a URI is short enough to be looked at: work on the steps of a path grows with their square."""
    return len(uri) <= MAX_URI_LENGTH and uri.count("/") <= MAX_URI_STEPS


def paths_above(uri: str) -> Iterator[str]:
    """Yield a resource and those above it on its path, nearest first; nothing for a URI beyond the bounds."""
    while is_bounded(uri) and uri.count("/") > 3:
        yield uri
        uri = uri.rpartition("/")[0]


def link(body: JsonObject, *path: str) -> str:
    """Return the target of the reference at a path, '' where there is none, or one that is too long for any."""
    value = value_at(body, *path, "@odata.id")
    return normalize_uri(value) if isinstance(value, str) and is_bounded(value) else ""


def links(body: JsonObject, *path: str) -> tuple[str, ...]:
    """Return the targets of the references of the list (or the one reference) at a path, each once."""
    value = value_at(body, *path)
    if not value:
        return ()
    entries = value if isinstance(value, list) else [value]
    found = (link(entry) for entry in entries if isinstance(entry, dict))
    return tuple(dict.fromkeys(uri for uri in found if uri))


def iter_links(value: Any) -> Iterator[Any]:
    """Yield every @odata.id and nextLink anywhere below a value, whatever its type."""
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            for name, child in current.items():
                if name == "@odata.id" or name.endswith("@odata.nextLink"):
                    yield child
                elif isinstance(child, dict | list):
                    stack.append(child)
        elif isinstance(current, list):
            stack.extend(current)


def trailing_number(label: str) -> int | None:
    """Return the number at the end of a label such as 'slot3' or 'Slot 3', None where it has too many digits."""
    plain = label.rstrip()
    digits = plain[len(plain.rstrip("0123456789")) :]
    return int(digits) if 0 < len(digits) <= MAX_POSITION_DIGITS else None


def corrected_link_speed(gbps: float | None, lanes: Iterable[int | None]) -> float | None:
    """Return Gb/s of a PCIe link, corrected where a service divided bits by 2^30.

    It is corrected only if the corrected value, and not the given one, is a generation's rate times one of `lanes`.
    """
    if gbps is None:
        return None
    true = [rate * count for count in lanes if count for rate in LANE_GBPS.values()]
    if any(math.isclose(gbps, value, rel_tol=1e-6) for value in true):
        return gbps
    corrected = gbps * BINARY_GIGA_FACTOR
    return next((value for value in true if math.isclose(corrected, value, rel_tol=2e-3)), gbps)


def is_uuid_set(uuid: str) -> bool:
    """Return whether a UUID is meaningful: on a board where it was never set, all digits are the same."""
    return len(set(uuid.replace("-", ""))) > 1


ODATA_TYPE = re.compile(r"#(?P<namespace>[A-Za-z]\w*)(?:\.v\d+_\d+_\d+)?\.(?P<name>[A-Za-z]\w*)")

# The path segment before a resource's own, and the type of its members.
MEMBER_TYPES = {
    "Chassis": "Chassis",
    "PCIeDevices": "PCIeDevice",
    "PCIeFunctions": "PCIeFunction",
    "Switches": "Switch",
    "Ports": "Port",
    "NetworkPorts": "Port",
    "Zones": "Zone",
    "ResourceZones": "Zone",
    "Endpoints": "Endpoint",
    "Connections": "Connection",
    "ResourceBlocks": "ResourceBlock",
    "Systems": "ComputerSystem",
    "Sensors": "Sensor",
    "Fans": "Fan",
    "LogServices": "LogService",
    "Fabrics": "Fabric",
    "Managers": "Manager",
    "Processors": "Processor",
    "Drives": "Drive",
    "Memory": "Memory",
    "MemoryChunks": "MemoryChunks",
    "PowerSupplies": "PowerSupply",
    "Batteries": "Battery",
    "Cables": "Cable",
    "NetworkAdapters": "NetworkAdapter",
    "MetricReports": "MetricReport",
    "FirmwareInventory": "SoftwareInventory",
}
# Resources whose own path segment is always the same.
SINGLETON_TYPES = {
    "Thermal": "Thermal",
    "Power": "Power",
    "PCIeSlots": "PCIeSlots",
    "EventService": "EventService",
    "TelemetryService": "TelemetryService",
    "CompositionService": "CompositionService",
    "EnvironmentMetrics": "EnvironmentMetrics",
    "ProcessorMetrics": "ProcessorMetrics",
    "MemoryMetrics": "MemoryMetrics",
    "UpdateService": "UpdateService",
}
# Collections where one $expand is cheaper than a request per member.
EXPANDABLE_COLLECTIONS = frozenset(MEMBER_TYPES) - {"MetricReports"}
# Where one answer has what is below the members, too: levels of $expand. Only where that is little, and of known size.
EXPANDABLE_LEVELS = {"PCIeDevices": 3, "Ports": 2, "Processors": 2, "ResourceBlocks": 3}
# Subtrees without inventory; only a walk of everything enters them.
NON_INVENTORY_SEGMENTS = frozenset(
    {
        "AccountService",
        "ActionInfo",
        "Assembly",
        "Bios",
        "Certificates",
        "CertificateService",
        "ComponentIntegrity",
        "Entries",
        "JsonSchemas",
        "KeyService",
        "LicenseService",
        "MetricDefinitions",
        "MetricReportDefinitions",
        "Registries",
        "SecureBoot",
        "SessionService",
        "Sessions",
        "Subscriptions",
        "TaskService",
        "Triggers",
        "VirtualMedia",
    }
)


def declared_type(body: JsonObject) -> str:
    """Return the name in a well-formed @odata.type ('Port' of '#Port.v1_18_0.Port'), '' for a corrupted one."""
    match = ODATA_TYPE.fullmatch(text(body, "@odata.type"))
    return match["name"] if match and match["name"] == match["namespace"] else ""


def type_by_path(uri: str) -> str:
    """Return the type of a resource by its path, in the usual layout of services, '' if that is inconclusive."""
    segments = uri.split("?", 1)[0].rstrip("/").split("/")
    if len(segments) < 3:
        return ""
    collection, own = segments[-2], segments[-1]
    if own in SINGLETON_TYPES:
        return SINGLETON_TYPES[own]
    if own == "Metrics" and len(segments) > 3 and segments[-3] == "Ports":
        return "PortMetrics"
    if collection == "Functions" and "PCIeDevices" in segments:
        return "PCIeFunction"
    return MEMBER_TYPES.get(collection, "")


def resource_type(uri: str, body: JsonObject, listed_by: str) -> str:
    """Return a resource's type name; `listed_by` is the type name of the collection it is a member of, or ''."""
    declared = declared_type(body)
    if declared:
        return declared
    if listed_by.endswith("Collection"):
        return listed_by.removesuffix("Collection")
    return "" if "Members" in body else type_by_path(uri)


def is_expandable(uri: str) -> bool:
    """Return whether a URI looks like a collection that is cheaper to read with $expand."""
    return uri.rsplit("/", 1)[-1] in EXPANDABLE_COLLECTIONS


def expandable_levels(uri: str) -> int:
    """Return how many levels of $expand a collection is read with: its members, and what is below them."""
    return EXPANDABLE_LEVELS.get(uri.rsplit("/", 1)[-1], 1)
