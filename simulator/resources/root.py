"""The service root, the metadata document, the vendor's own schemas, and the message registries."""

from __future__ import annotations

from functools import cache, partial

import msgspec

from simulator.odata import DMTF, SCHEMA_FOLDER, STANDARD, V1, Body, identity, link, odata_type
from simulator.query import MAX_LEVELS
from simulator.service import Falcon
from simulator.tree import RawReply, ResourceNode

SERVICES = {
    "Systems": "Systems",
    "Chassis": "Chassis",
    "Managers": "Managers",
    "Fabrics": "Fabrics",
    "ResourceBlocks": "ResourceBlocks",
    "CompositionService": "CompositionService",
    "SessionService": "SessionService",
    "AccountService": "AccountService",
    "EventService": "EventService",
    "Tasks": "TaskService",
    "Registries": "Registries",
    "CertificateService": "CertificateService",
    "TelemetryService": "TelemetryService",
    "UpdateService": "UpdateService",
}
VENDOR_SCHEMAS = {"H3Drawer": "v1_0_0"}


def register(falcon: Falcon) -> None:
    """Add the service root, and the documents that describe the service."""
    _register_root(falcon)
    _register_schemas(falcon)


def _register_root(falcon: Falcon) -> None:
    absent = {"ResourceBlocks"} if falcon.blocks else {"CompositionService"}
    if not falcon.options.report:
        absent.add("TelemetryService")
    services = {name: f"{V1}/{path}" for name, path in SERVICES.items() if name not in absent}
    expand = falcon.options.expand

    def render() -> Body:
        return {
            "@odata.id": f"{V1}/",
            "@odata.type": odata_type("ServiceRoot"),
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": "1.23.0",
            "UUID": falcon.state.uuid,
            "Product": f"{falcon.state.model} (simulated)",
            "Vendor": falcon.state.rules.manufacturer,
            "ServiceIdentification": falcon.name,
            "ProtocolFeaturesSupported": {
                "ExpandQuery": {
                    **dict.fromkeys(("ExpandAll", "Levels", "Links", "NoLinks"), expand),
                    **({"MaxLevels": MAX_LEVELS} if expand else {}),
                },
                "SelectQuery": True,
                "TopSkipQuery": True,
                "OnlyMemberQuery": True,
                "FilterQuery": False,
                "ExcerptQuery": False,
                "IncludeOriginOfConditionQuery": False,
                "DeepOperations": {"DeepPATCH": False, "DeepPOST": False},
            },
            "Links": {
                "Sessions": link(f"{V1}/SessionService/Sessions"),
                "ManagerProvidingService": link(f"{V1}/Managers/bmc"),
            },
            **{name: link(uri) for name, uri in services.items()},
        }

    def document() -> Body:
        values = [
            {"name": name, "kind": "Singleton", "url": uri} for name, uri in {"Service": f"{V1}/", **services}.items()
        ]
        return {"@odata.context": f"{V1}/$metadata", "value": values}

    falcon.tree.add(ResourceNode("/redfish", lambda: {"v1": f"{V1}/"}, public=True))
    falcon.tree.add(ResourceNode(V1, render, public=True))
    falcon.tree.add(ResourceNode(f"{V1}/odata", document, public=True))


def _register_schemas(falcon: Falcon) -> None:
    tree = falcon.tree
    tree.add(ResourceNode(f"{V1}/$metadata", raw=lambda: RawReply(_metadata(), "application/xml"), public=True))
    for name in VENDOR_SCHEMAS:
        tree.add(ResourceNode(f"{V1}/schema/{name}_v1.xml", raw=partial(_raw_schema, name), public=True))
    names = [f"{name}.{version}" for name, version in STANDARD.registries.items()] + ["H3Falcon.1.0.0"]
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


@cache
def _vendor_registry() -> Body:
    return msgspec.json.decode((SCHEMA_FOLDER / "H3Falcon.1.0.0.json").read_bytes(), type=Body)


@cache
def _raw_schema(name: str) -> RawReply:
    return RawReply((SCHEMA_FOLDER / f"{name}_v1.xml").read_bytes(), "application/xml")


@cache
def _metadata() -> bytes:
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">',
    ]
    for name, version in sorted(STANDARD.schemas.items()):
        includes = [name] + ([f"{name}.{version}"] if version else [])
        if name == "Resource":
            includes.append("Resource.v1_0_0")
        parts += _reference(f"{DMTF}/{name}_v1.xml", includes)
    for name in STANDARD.collections:
        parts += _reference(f"{DMTF}/{name}Collection_v1.xml", [f"{name}Collection"])
    parts += _reference(f"{DMTF}/RedfishExtensions_v1.xml", ["RedfishExtensions.v1_0_0"], alias="Redfish")
    for name, version in VENDOR_SCHEMAS.items():
        parts += _reference(f"{V1}/schema/{name}_v1.xml", [name, f"{name}.{version}"])
    service_root = f"ServiceRoot.{STANDARD.schemas['ServiceRoot']}"
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
