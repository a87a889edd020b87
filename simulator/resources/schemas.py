"""The metadata document, the vendor's own schemas, and the message registries."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

from simulator.odata import STANDARD_SCHEMAS, V1, Body, identity, odata_type
from simulator.service import Falcon
from simulator.tree import RawReply, ResourceNode

SCHEMA_FOLDER = Path(__file__).parent.parent / "schemas"
DMTF = "http://redfish.dmtf.org/schemas/v1"
COLLECTIONS = (
    "Certificate", "Chassis", "ComputerSystem", "Drive", "Endpoint", "EventDestination", "Fabric", "Fan", "LogEntry",
    "LogService", "Manager", "ManagerAccount", "MessageRegistryFile", "MetricReport", "MetricReportDefinition",
    "NetworkAdapter", "PCIeDevice", "PCIeFunction", "Port", "PowerSupply", "Processor", "ResourceBlock", "Role",
    "Sensor", "Session", "Switch", "Task", "Zone",
)  # fmt: skip
VENDOR_SCHEMAS = {"H3Drawer": "v1_0_0"}
REGISTRIES = {
    "Base": "1.19.0",
    "Environmental": "1.0.1",
    "Fabric": "1.0.2",
    "ResourceEvent": "1.3.0",
    "SensorEvent": "1.0.1",
    "TaskEvent": "1.0.4",
}
VENDOR_MESSAGES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "CompositionRefused": (
        "A composition that a rule of the chassis forbids was refused.", "%1", "Warning", ("The rule.",),
    ),
    "DrawerModeChanged": (
        "The mode of a drawer has changed.", "Drawer %1 is in the mode %2.", "OK", ("The drawer.", "The mode."),
    ),
    "ManagerRestarted": ("The BMC has restarted.", "The BMC has restarted.", "Warning", ()),
}  # fmt: skip


def register(falcon: Falcon) -> None:
    """Add $metadata, the own schemas and the registries."""
    tree = falcon.tree
    tree.add(ResourceNode(f"{V1}/$metadata", raw=lambda: RawReply(_metadata(), "application/xml"), public=True))
    for name in VENDOR_SCHEMAS:
        tree.add(ResourceNode(f"{V1}/schema/{name}_v1.xml", raw=partial(_raw_schema, name), public=True))
    names = [f"{name}.{version}" for name, version in REGISTRIES.items()] + ["H3Falcon.1.0.0"]
    uris = [f"{V1}/Registries/{name}" for name in names]
    tree.collection(f"{V1}/Registries", "MessageRegistryFile", "Message Registry Files", lambda: uris)
    for name in names:
        tree.resource(f"{V1}/Registries/{name}", partial(_registry_file, name))
    tree.resource(f"{V1}/Registries/H3Falcon.1.0.0/H3Falcon.1.0.0.json", _vendor_registry)


def _registry_file(name: str) -> Body:
    uri, (prefix, _, version) = f"{V1}/Registries/{name}", name.partition(".")
    location = (
        {"Uri": f"{uri}/{name}.json"}
        if prefix == "H3Falcon"
        else {"PublicationUri": f"http://redfish.dmtf.org/registries/{name}.json"}
    )
    return {
        **identity(uri, "MessageRegistryFile", f"{prefix} Message Registry File"),
        "Registry": f"{prefix}.{version.rpartition('.')[0]}",
        "Languages": ["en"],
        "Location": [{"Language": "en", **location}],
    }


def _vendor_registry() -> Body:
    messages: dict[str, Any] = {}
    for key, (description, message, severity, arguments) in VENDOR_MESSAGES.items():
        messages[key] = {
            "Description": description,
            "Message": message,
            "MessageSeverity": severity,
            "NumberOfArgs": len(arguments),
            "Resolution": "None.",
        }
        if arguments:
            messages[key]["ParamTypes"] = ["string"] * len(arguments)
            messages[key]["ArgDescriptions"] = list(arguments)
    return {
        "@odata.id": f"{V1}/Registries/H3Falcon.1.0.0/H3Falcon.1.0.0.json",
        "@odata.type": odata_type("MessageRegistry"),
        "Id": "H3Falcon.1.0.0",
        "Name": "H3 Falcon Message Registry",
        "Language": "en",
        "Description": "The messages of the simulated Falcon 4016.",
        "RegistryPrefix": "H3Falcon",
        "RegistryVersion": "1.0.0",
        "OwningEntity": "FalconWeb",
        "Messages": messages,
    }


@cache
def _raw_schema(name: str) -> RawReply:
    return RawReply((SCHEMA_FOLDER / f"{name}_v1.xml").read_bytes(), "application/xml")


@cache
def _metadata() -> bytes:
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">',
    ]
    for name, version in sorted(STANDARD_SCHEMAS.items()):
        includes = [name] + ([f"{name}.{version}"] if version else [])
        if name == "Resource":
            includes.append("Resource.v1_0_0")
        parts += _reference(f"{DMTF}/{name}_v1.xml", includes)
    for name in COLLECTIONS:
        parts += _reference(f"{DMTF}/{name}Collection_v1.xml", [f"{name}Collection"])
    parts += _reference(f"{DMTF}/RedfishExtensions_v1.xml", ["RedfishExtensions.v1_0_0"], alias="Redfish")
    for name, version in VENDOR_SCHEMAS.items():
        parts += _reference(f"{V1}/schema/{name}_v1.xml", [name, f"{name}.{version}"])
    service_root = f"ServiceRoot.{STANDARD_SCHEMAS['ServiceRoot']}"
    parts += [
        "  <edmx:DataServices>",
        '    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">',
        f'      <EntityContainer Name="Service" Extends="{service_root}.ServiceContainer"/>',
        "    </Schema>",
        "  </edmx:DataServices>",
        "</edmx:Edmx>",
        "",
    ]
    return "\n".join(parts).encode()


def _reference(uri: str, namespaces: list[str], alias: str = "") -> list[str]:
    extra = f' Alias="{alias}"' if alias else ""
    lines = [f'    <edmx:Include Namespace="{name}"{extra}/>' for name in namespaces]
    return [f'  <edmx:Reference Uri="{uri}">', *lines, "  </edmx:Reference>"]
