"""Bodies of resources in the format of the specification, and the versions of their schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

Body = dict[str, Any]
V1 = "/redfish/v1"
DMTF = "http://redfish.dmtf.org/schemas/v1"
SCHEMA_FOLDER = Path(__file__).with_name("schemas")


class StandardVersions(msgspec.Struct, frozen=True):
    """The standard schemas, collections and message registries that the service uses, in their implemented versions."""

    schemas: dict[str, str]
    collections: tuple[str, ...]
    registries: dict[str, str]


STANDARD = msgspec.json.decode((SCHEMA_FOLDER / "standard.json").read_bytes(), type=StandardVersions)


def odata_type(kind: str) -> str:
    """Return the type of a resource, such as `#Sensor.v1_12_0.Sensor`."""
    return f"#{kind}.{STANDARD.schemas[kind]}.{kind}"


def identity(uri: str, kind: str, name: str) -> Body:
    """Return the properties with which each resource begins; its Id is the last segment of its URI."""
    return {"@odata.id": uri, "@odata.type": odata_type(kind), "Id": uri.rpartition("/")[2], "Name": name}


def link(uri: str) -> Body:
    """Return a reference to a resource."""
    return {"@odata.id": uri}


def links(uris: list[str]) -> list[Body]:
    """Return references to resources."""
    return [{"@odata.id": uri} for uri in uris]


def references(**arrays: list[str]) -> Body:
    """Return arrays of references, each with its count."""
    body: Body = {}
    for name, uris in arrays.items():
        body[name] = links(uris)
        body[f"{name}@odata.count"] = len(uris)
    return body


def collection(uri: str, kind: str, name: str, members: list[str]) -> Body:
    """Return a collection resource of a kind, such as `Chassis`."""
    return {
        "@odata.id": uri,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": name,
        **references(Members=members),
    }
