"""Relations of devices, functions, endpoints and ports: services link them in many ways, all of which are followed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice

from core.text import natural_key
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.values import JsonObject, link, links, objects, paths_above, text

# The links of a resource block, and where each target may link to a resource of a PCIe device in turn.
BLOCK_PARTS = ("Processors", "Drives", "NetworkInterfaces", "EthernetInterfaces", "Storage", "SimpleStorage", "Memory")
# Of devices to the ports of their endpoints, and to their blocks: a few links that many resources share make millions.
MAX_RELATIONS = 500_000
# Types of an endpoint's entity at the host's end of a path.
HOST_ENTITIES = frozenset({"RootComplex", "StorageInitiator"})
# Kinds of resources that represent a PCIe device.
DEVICE_PART_TYPES = (
    "Processor",
    "Drive",
    "NetworkAdapter",
    "Storage",
    "StorageController",
    "FabricAdapter",
    "GraphicsController",
    "Memory",
    "MemoryChunks",
    "MediaController",
)


class ResourceRelations:
    """Links between the resources of a walk, followed in both directions."""

    def __init__(self, found: Mapping[str, CrawledResource]) -> None:
        self._found = found
        self._device_of: dict[str, str] = {}
        self._devices_inside: dict[str, set[str]] = defaultdict(set)  # by chassis
        self._functions: dict[str, set[str]] = defaultdict(set)
        self._faces: dict[str, set[str]] = defaultdict(set)
        self._endpoints_of: dict[str, set[str]] = defaultdict(set)  # by device
        self._ports_of_endpoint: dict[str, set[str]] = defaultdict(set)
        self._endpoints_at: dict[str, set[str]] = defaultdict(set)
        self._devices_at: dict[str, set[str]] = defaultdict(set)
        self._metrics_port: dict[str, str] = {}
        self._ports_labelled: dict[str, set[str]] = defaultdict(set)
        self._zones_of: dict[str, set[str]] = defaultdict(set)
        self._blocks_of: dict[str, set[str]] = defaultdict(set)  # by device
        self._devices_in: dict[str, set[str]] = defaultdict(set)  # by block
        self._device_behind: dict[str, str] = {}  # entities of endpoints
        for each in found.values():
            self._add_device_links(each)
        for each in found.values():
            self._add_fabric_links(each)
        for device, block in islice(self._devices_in_blocks(), MAX_RELATIONS):
            self._blocks_of[device].add(block)
            self._devices_in[block].add(device)
        for endpoint, ports in self._ports_of_endpoint.items():
            for port in ports:
                self._endpoints_at[port].add(endpoint)
        self._port_of: dict[str, str] = {}
        behind = (
            (device, port)
            for device, endpoints in self._endpoints_of.items()
            for endpoint in endpoints
            for port in self._ports_of_endpoint.get(endpoint, ())
        )
        for device, port in islice(behind, MAX_RELATIONS):
            self._devices_at[port].add(device)
        closest: dict[str, tuple[bool, ...]] = {}
        for port, devices in self._devices_at.items():
            closeness = self._closeness(port)
            for device in devices:
                if closeness > closest.get(device, ()):
                    closest[device], self._port_of[device] = closeness, port
        self.endpoints_of = _in_order(self._endpoints_of)  # by device
        self.endpoints_at = _in_order(self._endpoints_at)  # by port
        self.devices_at = _in_order(self._devices_at)  # by port
        self.ports_of_endpoint = _in_order(self._ports_of_endpoint)
        self.zones_of = _in_order(self._zones_of)  # by endpoint
        self.blocks_of = _in_order(self._blocks_of)  # by device
        self.devices_in = _in_order(self._devices_in)  # by block

    def _add_device_links(self, each: CrawledResource) -> None:
        body = each.body
        if each.kind == "PCIeDevice":
            self._device_of[each.uri] = each.uri
            self._devices_inside[each.uri.rpartition("/PCIeDevices/")[0]].add(each.uri)
            for uri in links(body, "Links", "PCIeFunctions"):
                self._assign_to_device(uri, each.uri)
            for face in ("Processors", "Drives", "NetworkAdapters", "StorageControllers"):
                for uri in links(body, "Links", face):
                    self._assign_to_device(uri, each.uri)
        elif each.kind == "PCIeFunction":
            device = link(body, "Links", "PCIeDevice") or self._above(each.uri, "PCIeDevice")
            if device:
                self._assign_to_device(each.uri, device)
                for face in (
                    "Processor",
                    "Processors",
                    "Drives",
                    "StorageControllers",
                    "NetworkDeviceFunctions",
                    "EthernetInterfaces",
                ):
                    for uri in links(body, "Links", face):
                        self._assign_to_device(uri, device)
        elif each.kind in DEVICE_PART_TYPES:
            for uri in self._devices_named_by(each):
                self._assign_to_device(each.uri, uri)

    def _devices_named_by(self, each: CrawledResource) -> Iterable[str]:
        body = each.body
        yield from links(body, "Links", "PCIeDevice")
        yield from links(body, "Links", "PCIeDevices")
        for part in (*links(body, "Links", "PCIeFunctions"), *links(body, "Links", "CXLLogicalDevices")):
            yield self._above(part, "PCIeDevice")
        for controller in (*objects(body, "Controllers"), *objects(body, "StorageControllers")):
            yield from links(controller, "Links", "PCIeDevices")

    def _assign_to_device(self, uri: str, device: str) -> None:
        """Assign a function or representation to a device, unless another device has claimed it."""
        if not device or not self.is_kind(device, "PCIeDevice"):
            return
        self._device_of.setdefault(uri, device)
        found = self._found.get(uri)
        if found is None or self._device_of[uri] != device:
            return
        (self._functions if found.kind == "PCIeFunction" else self._faces)[device].add(uri)

    def _add_fabric_links(self, each: CrawledResource) -> None:
        if each.kind == "Endpoint":
            self._add_endpoint_links(each)
        elif each.kind == "Zone":
            for endpoint in zone_endpoints(each.body):
                self._zones_of[endpoint].add(each.uri)
        elif each.kind == "Port":
            self._add_port_links(each)
        device = self._device_of.get(each.uri)
        if device:
            self._endpoints_of[device].update(links(each.body, "Links", "Endpoints"))

    def _add_endpoint_links(self, each: CrawledResource) -> None:
        self._ports_of_endpoint[each.uri].update(links(each.body, "Links", "ConnectedPorts"))
        self._ports_of_endpoint[each.uri].update(links(each.body, "Links", "Ports"))
        self._zones_of[each.uri].update(links(each.body, "Links", "Zones"))
        for entity in objects(each.body, "ConnectedEntities"):
            self._assign_endpoint(each.uri, link(entity, "EntityLink"))

    def _add_port_links(self, each: CrawledResource) -> None:
        for endpoint in links(each.body, "Links", "AssociatedEndpoints"):
            self._ports_of_endpoint[endpoint].add(each.uri)
        metrics = link(each.body, "Metrics")
        if metrics:
            self._metrics_port.setdefault(metrics, each.uri)
        if self._on_switch(each.uri):
            self._ports_labelled[text(each.body, "Location", "PartLocation", "ServiceLabel")].add(each.uri)
        for device in links(each.body, "Links", "PCIeDevices"):
            if self.is_kind(device, "PCIeDevice"):
                self._devices_at[each.uri].add(device)

    def _devices_in_blocks(self) -> Iterator[tuple[str, str]]:
        """Yield the devices whose processors, drives or adapters a block has, with the block."""
        blocks = (each for each in self._found.values() if each.kind == "ResourceBlock")
        for block, part in (
            (each.uri, part) for each in blocks for name in BLOCK_PARTS for part in links(each.body, name)
        ):
            # A network interface is a view of an adapter, a storage subsystem one of its drives.
            body: JsonObject = self._found[part].body if part in self._found else {}
            for uri in (part, *links(body, "Links", "NetworkAdapter"), *links(body, "Drives")):
                if uri in self._device_of:
                    yield self._device_of[uri], block

    def _assign_endpoint(self, endpoint: str, entity: str) -> None:
        """Assign an endpoint to the device that its entity is, is a part of, or links; a chassis to its only device."""
        if entity not in self._device_behind:
            self._device_behind[entity] = self._find_device_behind(entity)
        if device := self._device_behind[entity]:
            self._endpoints_of[device].add(endpoint)

    def _find_device_behind(self, entity: str) -> str:
        device = next((self._device_of[uri] for uri in paths_above(entity) if uri in self._device_of), "")
        if device or entity not in self._found:
            return device
        inside = (*self._devices_named_by(self._found[entity]), *self._devices_inside.get(entity, ()))
        devices = {self._device_of[uri] for uri in inside if uri in self._device_of}
        return devices.pop() if len(devices) == 1 else ""

    def _closeness(self, port: str) -> tuple[bool, bool]:
        """Return the rank of a port as the one of a device: of a switch, and of no link to another switch.

        Where switches are in cascade, a link between them leads to each device behind it.
        """
        found = self._found.get(port)
        between = found is not None and text(found.body, "PortType") in {"InterswitchPort", "UpstreamPort"}
        return self._on_switch(port), not between

    def _on_switch(self, port: str) -> bool:
        return bool(self._above(port, "Switch"))

    def is_host_end(self, entity: JsonObject) -> bool:
        """Return whether an entity of an endpoint is the host's end, whose role the service may leave out."""
        if role := text(entity, "EntityRole"):
            return role == "Initiator"
        uri = link(entity, "EntityLink")
        is_cpu = self.is_kind(uri, "Processor") and text(self._found[uri].body, "ProcessorType") == "CPU"
        return (
            text(entity, "EntityType") in HOST_ENTITIES
            or self.is_kind(uri, "ComputerSystem")
            or (is_cpu and bool(self._above(uri, "ComputerSystem")))
        )

    def _above(self, uri: str, kind: str) -> str:
        """Return the nearest resource of a kind on the path to this one, '' where there is none."""
        return next((above for above in paths_above(uri.rpartition("/")[0]) if self.is_kind(above, kind)), "")

    def is_kind(self, uri: str, kind: str) -> bool:
        """Return whether a resource was found and is of a kind."""
        return uri in self._found and self._found[uri].kind == kind

    def device_of(self, uri: str) -> str:
        """Return the device that a function, processor, drive or adapter belongs to, or ''."""
        return self._device_of.get(uri, "")

    def functions_of(self, device: str) -> list[CrawledResource]:
        """Return a device's functions in order."""
        return [self._found[uri] for uri in sorted(self._functions[device], key=natural_key)]

    def of_device(self, device: str, kind: str) -> list[CrawledResource]:
        """Return the representations of a device: its processors, drives or adapters."""
        return [self._found[uri] for uri in sorted(self._faces[device], key=natural_key) if self.is_kind(uri, kind)]

    def port_of(self, device: str) -> str:
        """Return the switch port that a device is connected to, or ''."""
        return self._port_of.get(device, "")

    def port_labelled(self, label: str) -> str:
        """Return the one switch port with the same label as a slot, or ''; an empty slot is linked by nothing else."""
        ports = self._ports_labelled.get(label, ()) if label else ()
        return next(iter(ports)) if len(ports) == 1 else ""

    def far_end_of(self, port: CrawledResource) -> str:
        """Return the names of the switch and its port at the other end of a switch port's link, or ''."""
        if not self._on_switch(port.uri):
            return ""
        for name in ("ConnectedSwitchPorts", "ConnectedPorts", "ConnectedSwitches"):
            for uri in links(port.body, "Links", name):
                switch = uri if self.is_kind(uri, "Switch") else self._above(uri, "Switch")
                if switch:
                    bodies = [
                        (end, self._found[end].body) for end in dict.fromkeys((switch, uri)) if end in self._found
                    ]
                    return ", ".join(text(body, "Name") or end.rsplit("/", 1)[-1] for end, body in bodies)
        return ""

    def port_of_metrics(self, metrics: str) -> str:
        """Return the port of these counters, or ''."""
        parent = metrics.rpartition("/")[0]
        return self._metrics_port.get(metrics) or (parent if self.is_kind(parent, "Port") else "")

    @cached_property
    def gpus_below(self) -> Mapping[str, int]:
        """The number of GPUs below each system that are not devices of the fabric."""
        return Counter(
            above
            for each in self._found.values()
            if each.kind == "Processor"
            and text(each.body, "ProcessorType") == "GPU"
            and not self.endpoints_of[self._device_of.get(each.uri, "")]
            for above in paths_above(each.uri)
        )


def _in_order(uris: Mapping[str, Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
    """Return the URIs of each key in their natural order; () for every other key."""
    return defaultdict(tuple, {key: tuple(sorted(found, key=natural_key)) for key, found in uris.items()})


def zone_endpoints(zone: JsonObject) -> tuple[str, ...]:
    """Return the endpoints in a zone's body; older services list them outside Links."""
    return links(zone, "Links", "Endpoints") or links(zone, "Endpoints")
