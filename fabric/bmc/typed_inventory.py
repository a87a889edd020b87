"""The typed inventory of a walk: every resource that it found, read into its type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from core.text import natural_key
from fabric.bmc import components, hardware, host_paths, sensors
from fabric.bmc.crawl import ROOT_URI, Crawl, CrawledResource
from fabric.bmc.dialects import DialectProbe
from fabric.bmc.gaps import ProfileGap
from fabric.bmc.hardware import common_properties
from fabric.bmc.managed_parts import read_managed_parts
from fabric.bmc.oem import oem_devices
from fabric.bmc.relations import ResourceRelations
from fabric.bmc.slots import read_slots
from fabric.bmc.types import Inventory, RedfishLogService, RedfishResource, RedfishService
from fabric.bmc.update_service import read_update_service
from fabric.bmc.values import (
    JsonObject,
    boolean,
    integer,
    link,
    links,
    mapping,
    named_texts,
    normalize_uri,
    objects,
    text,
)

AnyResource = TypeVar("AnyResource", bound=RedfishResource)


def build_inventory(crawl: Crawl, probe: DialectProbe, gaps: tuple[ProfileGap, ...] | None = None) -> Inventory:
    """Return the typed inventory of a walk."""
    templates = creation_templates(crawl.found.values())
    found = {uri: each for uri, each in crawl.found.items() if uri not in templates}
    relations = ResourceRelations(found)

    def all_of(kind: str, read: Callable[[CrawledResource], AnyResource]) -> tuple[AnyResource, ...]:
        return sort_by_uri(read(each) for each in found.values() if each.kind == kind)

    slots = sort_by_uri(read_slots(found.values(), relations))
    slot_of = {slot.device_uri: slot.uri for slot in slots if slot.device_uri}
    with_slots = frozenset(slot.chassis_uri for slot in slots)
    chassis = [each for each in found.values() if each.kind == "Chassis"]
    drawers = {each.uri for each in chassis if hardware.is_drawer(each, with_slots)}
    bridges: defaultdict[str, list[CrawledResource]] = defaultdict(list)
    for each in found.values():
        if each.kind == "VirtualPCI2PCIBridge":
            bridges[each.uri.rpartition("/")[0]].append(each)
    return Inventory(
        service=read_service(found),
        dialect=probe.dialect,
        dialect_reason=probe.reason,
        dialect_known=probe.known,
        chassis=sort_by_uri(hardware.read_chassis(each) for each in chassis if each.uri not in drawers),
        drawers=sort_by_uri(hardware.read_drawer(each) for each in chassis if each.uri in drawers),
        slots=slots,
        devices=sort_by_uri(
            [
                *(
                    hardware.read_device(each, relations, slot_of.get(each.uri, ""))
                    for each in found.values()
                    if each.kind == "PCIeDevice" and hardware.is_present(each)
                ),
                *oem_devices(found),
            ]
        ),
        functions=all_of("PCIeFunction", lambda each: hardware.read_function(each, relations)),
        switches=all_of("Switch", hardware.read_switch),
        ports=all_of("Port", lambda each: hardware.read_port(each, relations)),
        port_metrics=all_of("PortMetrics", lambda each: hardware.read_port_metrics(each, relations)),
        zones=all_of("Zone", host_paths.read_zone),
        endpoints=all_of("Endpoint", lambda each: host_paths.read_endpoint(each, relations)),
        connections=all_of("Connection", host_paths.read_connection),
        virtual_switches=all_of("VirtualCXLSwitch", lambda each: host_paths.read_virtual_switch(each, bridges)),
        resource_blocks=all_of("ResourceBlock", lambda each: host_paths.read_resource_block(each, relations)),
        systems=all_of("ComputerSystem", lambda each: hardware.read_system(each, relations)),
        sensors=sort_by_uri(
            sensors.mark_copies(
                sensors.read_sensors(found.values()),
                {each.uri: link(each.body, "Links", "ContainedBy") for each in chassis},
            )
        ),
        fans=sort_by_uri(sensors.read_fans(found.values())),
        components=sort_by_uri(components.read_components(found, relations)),
        metrics=sort_by_uri(components.read_metrics(found)),
        log_services=all_of("LogService", read_log_service),
        managed_parts=sort_by_uri(read_managed_parts(found, relations, drawers)),
        update_service=next(
            (read_update_service(each.body, each.uri) for each in found.values() if each.kind == "UpdateService"), None
        ),
        gaps=gaps,
        problems=tuple(sorted(crawl.problems.values(), key=lambda problem: natural_key(problem.uri))),
    )


def creation_templates(found: Iterable[CrawledResource]) -> set[str]:
    """Return the URIs of what only says how a system, or another member of a collection, is created."""
    return {
        uri
        for each in found
        for capability in objects(each.body, "@Redfish.CollectionCapabilities", "Capabilities")
        for uri in links(capability, "CapabilitiesObject")
    }


def sort_by_uri(resources: Iterable[AnyResource]) -> tuple[AnyResource, ...]:
    """Return resources in order of URI, numbers inside it as numbers."""
    return tuple(sorted(resources, key=lambda resource: natural_key(resource.uri)))


def read_log_service(found: CrawledResource) -> RedfishLogService:
    """Return a log service."""
    return RedfishLogService(
        **common_properties(found.uri, found.body),
        parent_uri=found.uri.rpartition("/LogServices/")[0],
        entries_uri=link(found.body, "Entries"),
        overwrite_policy=text(found.body, "OverWritePolicy"),
        max_records=integer(found.body, "MaxNumberOfRecords"),
    )


def read_service(found: dict[str, CrawledResource]) -> RedfishService:
    """Return the identity and features of a service, from the service root, the first manager and the services."""
    root = found[ROOT_URI].body
    managers = (each for each in found.values() if each.kind == "Manager")
    first = min(managers, key=lambda each: natural_key(each.uri), default=None)
    manager: JsonObject = first.body if first is not None else {}
    features = mapping(root, "ProtocolFeaturesSupported")
    expand = mapping(features, "ExpandQuery")
    streams = [text(each.body, "ServerSentEventUri") for each in found.values() if each.kind == "EventService"]
    return RedfishService(
        **named_texts(root, "Name", "Vendor", "Product", "RedfishVersion", "UUID"),
        firmware_version=text(manager, "FirmwareVersion"),
        manager_model=text(manager, "Model"),
        expand=expand.get("NoLinks") is True or expand.get("ExpandAll") is True,
        select=boolean(features, "SelectQuery") is True,
        filter=boolean(features, "FilterQuery") is True,
        event_stream_uri=next((stream for stream in streams if stream), ""),
        metric_report_uris=tuple(
            sorted((normalize_uri(each.uri) for each in found.values() if each.kind == "MetricReport"), key=natural_key)
        ),
    )
