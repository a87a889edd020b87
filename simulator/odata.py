"""Bodies of resources in the format of the specification, and the versions of their schemas."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]
V1 = "/redfish/v1"
# The standard schemas that the service uses, with their implemented versions.
STANDARD_SCHEMAS = {
    "AccountService": "v1_18_1",
    "Certificate": "v1_11_0",
    "CertificateService": "v1_2_1",
    "Chassis": "v1_28_0",
    "CompositionService": "v1_2_3",
    "ComputerSystem": "v1_27_0",
    "Drive": "v1_22_0",
    "Endpoint": "v1_8_2",
    "EnvironmentMetrics": "v1_5_0",
    "Event": "v1_13_0",
    "EventDestination": "v1_16_0",
    "EventService": "v1_12_0",
    "Fabric": "v1_4_0",
    "Fan": "v1_6_0",
    "LogEntry": "v1_21_0",
    "LogService": "v1_9_0",
    "Manager": "v1_24_0",
    "ManagerAccount": "v1_14_1",
    "ManagerNetworkProtocol": "v1_12_0",
    "Message": "v1_3_0",
    "MessageRegistry": "v1_7_0",
    "MessageRegistryFile": "v1_1_5",
    "MetricReport": "v1_5_2",
    "MetricReportDefinition": "v1_4_7",
    "NetworkAdapter": "v1_14_0",
    "NetworkInterface": "v1_2_3",
    "PCIeDevice": "v1_21_0",
    "PCIeFunction": "v1_7_0",
    "Port": "v1_18_0",
    "PortMetrics": "v1_8_1",
    "PowerSubsystem": "v1_1_3",
    "PowerSupply": "v1_6_0",
    "Processor": "v1_22_0",
    "ProcessorMetrics": "v1_7_0",
    "Resource": "",
    "ResourceBlock": "v1_4_3",
    "Role": "v1_3_3",
    "Sensor": "v1_12_0",
    "ServiceRoot": "v1_20_0",
    "Session": "v1_8_0",
    "SessionService": "v1_2_0",
    "Switch": "v1_11_0",
    "Task": "v1_7_4",
    "TaskService": "v1_3_0",
    "TelemetryService": "v1_4_1",
    "ThermalSubsystem": "v1_5_0",
    "Zone": "v1_6_3",
}


def odata_type(kind: str) -> str:
    """Return the type of a resource, such as `#Sensor.v1_12_0.Sensor`."""
    return f"#{kind}.{STANDARD_SCHEMAS[kind]}.{kind}"


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
