"""Which kind of resource something is: by its @odata.type, else by who lists it, else by where it lies."""

from __future__ import annotations

import re

from fabric.bmc.values import Body, text

TYPED = re.compile(r"#(?P<namespace>[A-Za-z]\w*)(?:\.v\d+_\d+_\d+)?\.(?P<name>[A-Za-z]\w*)")

# The segment before a resource's own, and what its members are.
MEMBERS = {
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
    "NetworkAdapters": "NetworkAdapter",
    "MetricReports": "MetricReport",
}
# A resource's own segment, where it is always the same.
SINGLE = {
    "Thermal": "Thermal",
    "Power": "Power",
    "PCIeSlots": "PCIeSlots",
    "EventService": "EventService",
    "TelemetryService": "TelemetryService",
    "CompositionService": "CompositionService",
}
# Collections worth one $expand instead of a request a member.
EXPANDABLE = frozenset(MEMBERS) - {"MetricReports"}
# Subtrees without anything of the inventory; only a walk of everything enters them.
BESIDE_THE_INVENTORY = frozenset(
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
        "UpdateService",
        "VirtualMedia",
    }
)


def declared_type(body: Body) -> str:
    """Return the name in a well-formed @odata.type ('Port' of '#Port.v1_18_0.Port'), '' for a corrupted one."""
    match = TYPED.fullmatch(text(body, "@odata.type"))
    return match["name"] if match and match["name"] == match["namespace"] else ""


def place_type(uri: str) -> str:
    """Return what a resource at this path is where services keep to the usual layout, '' where that says nothing."""
    segments = uri.split("?", 1)[0].rstrip("/").split("/")
    if len(segments) < 3:
        return ""
    collection, own = segments[-2], segments[-1]
    if own in SINGLE:
        return SINGLE[own]
    if own == "Metrics" and len(segments) > 3 and segments[-3] == "Ports":
        return "PortMetrics"
    if collection == "Functions" and "PCIeDevices" in segments:
        return "PCIeFunction"
    return MEMBERS.get(collection, "")


def kind_of(uri: str, body: Body, listed_by: str) -> str:
    """Return a resource's type name; `listed_by` is the type name of the collection it is a member of, or ''."""
    declared = declared_type(body)
    if declared:
        return declared
    if listed_by.endswith("Collection"):
        return listed_by.removesuffix("Collection")
    return "" if "Members" in body else place_type(uri)


def is_expandable(uri: str) -> bool:
    """Tell whether a URI looks like a collection that is cheaper to read with $expand."""
    return uri.rsplit("/", 1)[-1] in EXPANDABLE


def is_beside(uri: str) -> bool:
    """Tell whether a URI lies in a subtree that holds nothing of the inventory."""
    return not BESIDE_THE_INVENTORY.isdisjoint(uri.split("/"))
