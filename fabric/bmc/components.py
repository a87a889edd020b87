"""Components that are no PCIe devices, and the readings of metrics resources, typed from the resources of a walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.hardware import common_properties, physical_location
from fabric.bmc.relations import ResourceRelations
from fabric.bmc.types import ComponentKind, RedfishComponent, RedfishMetrics
from fabric.bmc.values import (
    JsonObject,
    bytes_of,
    integer,
    links,
    mapping,
    named_texts,
    normalize_uri,
    number,
    objects,
    paths_above,
    text,
)

KINDS = {
    "PowerSupply": ComponentKind.POWER_SUPPLY,
    "Battery": ComponentKind.BATTERY,
    "Processor": ComponentKind.PROCESSOR,
    "Memory": ComponentKind.MEMORY,
    "MemoryChunks": ComponentKind.MEMORY_CHUNK,
    "Drive": ComponentKind.DRIVE,
    "Cable": ComponentKind.CABLE,
}
# Properties with the variety of a component.
VARIETIES = ("PowerSupplyType", "ProcessorType", "MemoryDeviceType", "AddressRangeType", "MediaType", "CableType")
FREQUENCIES = ("OperatingSpeedMhz", "MaxSpeedMHz", "OperatingSpeedMHz")  # of memory, of processors
LINK_SPEEDS = ("NegotiatedSpeedGbs", "CapableSpeedGbs")
CABLE_ENDS = ("UpstreamPorts", "DownstreamPorts", "UpstreamChassis", "DownstreamChassis", "UpstreamSwitches",
              "DownstreamSwitches")  # fmt: skip


def read_components(found: Mapping[str, CrawledResource], relations: ResourceRelations) -> Iterator[RedfishComponent]:
    """Yield the components of a walk; power supplies of the older Power only where a chassis has no others."""
    modern = {each.uri.partition("/PowerSubsystem/")[0] for each in found.values() if each.kind == "PowerSupply"}
    for each in found.values():
        if each.kind in KINDS:
            yield _component(KINDS[each.kind], each.uri, each.body, relations)
        elif each.kind == "Power" and each.uri.rpartition("/")[0] not in modern:
            for index, member in enumerate(objects(each.body, "PowerSupplies")):
                yield _component(ComponentKind.POWER_SUPPLY, f"{each.uri}#/PowerSupplies/{index}", member, relations)


def _component(kind: ComponentKind, uri: str, body: JsonObject, relations: ResourceRelations) -> RedfishComponent:
    return RedfishComponent(
        **common_properties(uri, body),
        kind=kind,
        holder_uri=_holder_of(uri, relations),
        device_uri=relations.device_of(uri),
        variety=next((said for name in VARIETIES if (said := text(body, name))), ""),
        **named_texts(body, "Manufacturer", "Model", "SerialNumber", "PartNumber", "FirmwareVersion"),
        location=physical_location(body) or text(body, "PhysicalLocation", "PartLocation", "ServiceLabel"),
        capacity_bytes=_capacity(body),
        capacity_watts=number(body, "PowerCapacityWatts"),
        speed_mhz=_first_number(body, FREQUENCIES),
        speed_gbps=_first_number(body, LINK_SPEEDS),
        cores=integer(body, "TotalCores"),
        end_uris=tuple(uri for name in CABLE_ENDS for uri in links(body, "Links", name)),
    )


def _holder_of(uri: str, relations: ResourceRelations) -> str:
    above = paths_above(normalize_uri(uri).rpartition("/")[0])
    return next((at for at in above if relations.is_kind(at, "Chassis") or relations.is_kind(at, "ComputerSystem")), "")


def _capacity(body: JsonObject) -> int | None:
    if (exact := integer(body, "CapacityBytes")) is not None:
        return exact
    return bytes_of(_first_number(body, ("CapacityMiB", "MemoryChunkSizeMiB")))


def _first_number(body: JsonObject, names: Iterable[str]) -> float | None:
    return next((value for name in names if (value := number(body, name)) is not None), None)


# The numbers of each metrics resource that are read, as JSON pointers; an excerpt of a listed sensor is read there.
METRICS: dict[str, tuple[str, ...]] = {
    "EnvironmentMetrics": (
        "TemperatureCelsius/Reading", "PowerWatts/Reading", "EnergykWh/Reading", "EnergyJoules/Reading",
        "HumidityPercent/Reading",
    ),
    "ProcessorMetrics": ("BandwidthPercent", "OperatingSpeedMHz", "TemperatureCelsius", "ConsumedPowerWatt"),
    "MemoryMetrics": (
        "BandwidthPercent", "OperatingSpeedMHz", "CapacityUtilizationPercent", "LifeTime/CorrectableECCErrorCount",
        "LifeTime/UncorrectableECCErrorCount",
    ),
    "PowerSupplyMetrics": (
        "InputPowerWatts/Reading", "OutputPowerWatts/Reading", "InputVoltage/Reading", "TemperatureCelsius/Reading",
        "EnergykWh/Reading",
    ),
    "DriveMetrics": ("NVMeSMART/CompositeTemperatureCelsius",),
}  # fmt: skip


def read_metrics(found: Mapping[str, CrawledResource]) -> Iterator[RedfishMetrics]:
    """Yield the metrics resources of a walk that have a number, or an excerpt of a sensor."""
    for each in found.values():
        if each.kind not in METRICS:
            continue
        pointers: list[str] = []
        sensors: list[str] = []
        for pointer in METRICS[each.kind]:
            steps = pointer.split("/")
            if steps[-1] not in mapping(each.body, *steps[:-1]):
                continue
            source = normalize_uri(text(each.body, steps[0], "DataSourceUri"))
            if source in found:
                sensors.append(source)
            else:
                pointers.append(pointer)
        if pointers or sensors:
            yield RedfishMetrics(
                **_named(each), owner_uri=each.uri.rpartition("/")[0], pointers=tuple(pointers),
                sensor_uris=tuple(sensors),
            )  # fmt: skip


def _named(found: CrawledResource) -> dict[str, Any]:
    return common_properties(found.uri, found.body)
