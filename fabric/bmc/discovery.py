"""Discovery: one walk of a service becomes one typed inventory, however the service answers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from core.text import natural_key
from fabric.bmc import components, hardware, sensors
from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import ROOT_URI, WALK_SECONDS, Crawl, CrawledResource
from fabric.bmc.dialects import DialectProbe, probe_dialect
from fabric.bmc.gaps import GapKind, ProfileGap
from fabric.bmc.hardware import common_properties
from fabric.bmc.interoperability import (
    FABRIC_PROFILE,
    InteropProfile,
    ProfileError,
    fabric_profile,
    profile_gaps,
)
from fabric.bmc.managed_parts import read_managed_parts
from fabric.bmc.oem import OEM_READERS, oem_devices
from fabric.bmc.relations import ResourceRelations, zone_endpoints
from fabric.bmc.types import (
    Dialect,
    Inventory,
    ProblemKind,
    RedfishConnection,
    RedfishEndpoint,
    RedfishLogService,
    RedfishResource,
    RedfishResourceBlock,
    RedfishService,
    RedfishSlot,
    RedfishVirtualSwitch,
    RedfishZone,
)
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
    texts,
)
from fabric.bmc.walk_turns import MemoryShare, WalkPace, WalkTurns

AnyResource = TypeVar("AnyResource", bound=RedfishResource)

# Of turns, of a walk that replaces an inventory, or has no other one after it, s.
WHOLE_WALK_SECONDS = 900.0
NOT_PROBED = DialectProbe(reason="The service has not been read completely yet.", known=False)
# Kinds that change while a chassis is in use, apart from readings; the rest is read when something new appears.
VOLATILE_TYPES = frozenset(
    {
        "Chassis",
        "PCIeDevice",
        "Port",
        "Zone",
        "Connection",
        "Endpoint",
        "ResourceBlock",
        "ComputerSystem",
        "VirtualPCI2PCIBridge",
        *OEM_READERS,
    }
)
# Collections that are read again although they were empty: a device may have been attached by a new member.
CREATED_COLLECTIONS = frozenset({"ZoneCollection", "ConnectionCollection"})


async def discover(bmc: BmcClient, *, everything: bool = False, profile: InteropProfile | None = None) -> Inventory:
    """Return the inventory of a service, with what it lacks of a profile: FalconWeb's own, unless another is given.

    `everything` also enters the subtrees without inventory (accounts, registries, log entries), so that `problems`
    lists every dead link of the service. Raises NotRedfish, SignInRefused and the transport errors of the service root;
    Unreachable or TimedOut also when the BMC becomes unreachable during the walk. No single resource raises.
    """
    return await Discovery(bmc, everything=everything, profile=profile).walk(seconds=WHOLE_WALK_SECONDS)


class Discovery:
    """A walk that can be refreshed with a fraction of its requests.

    `at_a_time` bounds its requests below the client's own limit, so that others can use the same client meanwhile;
    `turns` are shared with the walks of other BMCs. `begun_at` is when the oldest of what a refresh reads was read.
    """

    def __init__(
        self,
        bmc: BmcClient,
        *,
        everything: bool = False,
        at_a_time: int = 0,
        turns: WalkTurns | None = None,
        profile: InteropProfile | None = None,
    ) -> None:
        self._bmc = bmc
        self._profile = profile
        self._everything = everything
        self._at_a_time = at_a_time
        self._turns = turns or WalkTurns()
        self._share = MemoryShare()
        self._crawl = self._new_crawl()
        self._probe = NOT_PROBED
        self.begun_at = datetime.now(UTC)
        self._before: dict[str, CrawledResource] = {}  # what an unfinished refresh reads again, as it was
        # False during a walk: one that was aborted has less than the service has.
        self._whole = False
        # The requests and responses of the last refresh; if they differ, or are unusable, everything is read again.
        self._last_requests: dict[str, int] = {}
        self._found: Inventory | None = None

    def _new_crawl(self) -> Crawl:
        return Crawl(
            self._bmc, everything=self._everything, at_a_time=self._at_a_time, turns=self._turns, share=self._share
        )

    @property
    def pace(self) -> WalkPace:
        """How the walk proceeds."""
        return self._crawl.pace

    @property
    def remains(self) -> bool:
        """Whether the service has resources that the next refresh will read."""
        return self._crawl.remains

    async def walk(self, *, seconds: float = WALK_SECONDS) -> Inventory:
        """Read the whole service again and return its inventory; raises as `discover` does.

        The first inventory of a slow service has what was read within `seconds` of turns, and `refresh` adds the rest.
        A later walk has more time, and one that does not end within it changes nothing.
        """
        if self._whole and self.remains:
            return await self.refresh()
        crawl, found = self._crawl, self._found if self._whole else None
        self._whole, self._last_requests, self._before = False, {}, {}
        self.begun_at = datetime.now(UTC)
        self._crawl = self._new_crawl()
        await self._crawl.read_root()
        await self._crawl.walk(seconds=WHOLE_WALK_SECONDS if found is not None else seconds)
        if self.remains and found is not None:
            self._crawl, self._whole = crawl, True
            return found
        self._probe = NOT_PROBED
        return await self._done()

    async def refresh(self) -> Inventory:
        """Return the inventory with chassis, devices, ports, zones, endpoints, blocks and systems read again.

        New resources are read with all below them, those that their collection no longer lists are removed, and those
        that cannot be read for now stay unchanged, with a problem beside them. With $expand this is one request per
        collection. Walks the whole service where it has not been walked, or where the last walk was aborted. Where
        the responses are those of the previous refresh, byte for byte, the same inventory object is returned, and so
        it is while a slow service is still being read again.
        """
        begun_at = datetime.now(UTC)
        if self._found is not None and self._last_requests and await self._is_unchanged():
            self.begun_at = begun_at
            return self._found
        self._crawl.unpack()
        if not self.remains:
            moving = [each for each in self._crawl.found.values() if each.kind in VOLATILE_TYPES]
            if not (moving and self._whole):
                return await self.walk()
            self.begun_at = begun_at
            self._read_again(moving)
        elif not self._whole:
            return await self.walk()
        self._whole, self._last_requests = False, {}
        await self._crawl.walk()
        if self.remains and self._before and self._found is not None:
            self._whole = True
            return self._found
        was_again = bool(self._before)
        self._restore_unread()
        inventory = await self._done()
        if was_again and self._probe.known and all(self._crawl.digests.values()):
            self._last_requests = self._crawl.digests
        return inventory

    def _read_again(self, moving: list[CrawledResource]) -> None:
        """Queue resources, and the collections that list them, for another read."""
        self._crawl.digests = {}
        listed_now: set[str] = set()
        collections = {each.uri for each in self._crawl.found.values() if each.kind in CREATED_COLLECTIONS}
        for uri in {each.uri.rpartition("/")[0] for each in moving}:
            pages = (uri, *self._crawl.pages_of(uri))
            read = [self._crawl.found[page].body for page in pages if page in self._crawl.found]
            members = [member for body in read for member in links(body, "Members")]
            listed_now.update(members)
            if members:
                collections.add(uri)
        for each in moving:
            if each.uri in listed_now:
                self._crawl.mark_unread(each.uri)
            else:
                # Reached by another link than its collection's: no other resource would lead there again.
                self._crawl.reread(each.uri)
        self._before = {each.uri: each for each in moving} | {
            uri: self._crawl.found[uri] for uri in collections if uri in self._crawl.found
        }
        for uri in sorted(collections):
            self._crawl.reread(uri)

    def _restore_unread(self) -> None:
        """Keep the last state of what could not be read again, beside its problem; drop what is gone."""
        gone: set[str] = set()
        for each in self._before.values():
            if each.uri in self._crawl.found:
                continue
            if self._is_unreadable_now(each.uri) or self._is_unreadable_now(each.uri.rpartition("/")[0]):
                self._crawl.found[each.uri] = each
            else:
                gone.add(each.uri)
        self._crawl.discard_below(gone)
        self._before = {}

    async def _is_unchanged(self) -> bool:
        """Repeat the requests of the last refresh; return whether every response is the same."""
        for uri, digest in self._last_requests.items():
            raw = await self._bmc.fetch("GET", uri)
            if raw.status != 200 or hash(raw.body) != digest:
                return False
        return True

    async def _done(self) -> Inventory:
        crawl = self._crawl
        if self.remains:
            self._probe = NOT_PROBED
        elif not self._probe.known:
            self._probe = await probe_dialect(self._bmc, crawl.found, crawl.problems)
        if self.pace.is_heavy:
            # Seconds of work, beside the readings of others.
            inventory = await asyncio.to_thread(self._built)
        else:
            inventory = self._built()
        self._found, self._whole = inventory, True
        return inventory

    def _built(self) -> Inventory:
        gaps = None if self.remains else _gaps(self._crawl, self._probe, self._profile, everything=self._everything)
        inventory = build_inventory(self._crawl, self._probe, gaps)
        self._crawl.pack()
        return inventory

    def _is_unreadable_now(self, uri: str) -> bool:
        problem = self._crawl.problems.get(uri)
        if problem is None:
            limit = self._crawl.problems.get(ROOT_URI)
            return limit is not None and limit.kind is ProblemKind.INCOMPLETE
        return problem.kind is not ProblemKind.DEAD_LINK


def _gaps(
    crawl: Crawl, probe: DialectProbe, profile: InteropProfile | None, *, everything: bool
) -> tuple[ProfileGap, ...] | None:
    """Return what a walk lacks of a profile; with FalconWeb's own also a way to attach: no profile can ask for one."""
    try:
        profile = profile or fabric_profile()
    except ProfileError:
        return None  # a site that is installed without its documentation
    gaps = profile_gaps(profile, crawl.found, everything=everything)
    if profile.name != FABRIC_PROFILE or probe.dialect is not Dialect.NONE or not probe.known:
        return gaps
    return (*gaps, ProfileGap(purpose="Composing", kind=GapKind.WAY, reason=probe.reason))


def build_inventory(crawl: Crawl, probe: DialectProbe, gaps: tuple[ProfileGap, ...] | None = None) -> Inventory:
    """Return the typed inventory of a walk."""
    templates = creation_templates(crawl.found.values())
    found = {uri: each for uri, each in crawl.found.items() if uri not in templates}
    relations = ResourceRelations(found)

    def all_of(kind: str, read: Callable[[CrawledResource], AnyResource]) -> tuple[AnyResource, ...]:
        return sort_by_uri(read(each) for each in found.values() if each.kind == kind)

    slots = read_slots(found.values(), relations)
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
        zones=all_of("Zone", read_zone),
        endpoints=all_of("Endpoint", lambda each: read_endpoint(each, relations)),
        connections=all_of("Connection", read_connection),
        virtual_switches=all_of("VirtualCXLSwitch", lambda each: read_virtual_switch(each, bridges)),
        resource_blocks=all_of("ResourceBlock", lambda each: read_resource_block(each, relations)),
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


def read_slots(found: Iterable[CrawledResource], relations: ResourceRelations) -> tuple[RedfishSlot, ...]:
    """Return every slot once: as described by its PCIeDevice, else from the deprecated PCIeSlots."""
    everything = list(found)
    slots = [
        hardware.read_slot(each, relations) for each in everything if each.kind == "PCIeDevice" and "Slot" in each.body
    ]
    devices = {slot.uri.removesuffix("#/Slot") for slot in slots}
    described: dict[tuple[str, int], list[str]] = defaultdict(list)
    for slot in slots:
        described[slot.chassis_uri, slot.number].append(slot.name)
    for each in everything:
        if each.kind == "PCIeSlots":
            for index, member in enumerate(objects(each.body, "Slots")):
                slot = hardware.read_legacy_slot(each, index, member, relations)
                named = described.get((slot.chassis_uri, slot.number), ())
                if slot.device_uri not in devices and all(are_other_places(slot.name, name) for name in named):
                    slots.append(slot)
    # A number that two slots of a chassis share names neither: their labels do.
    count = Counter((slot.chassis_uri, slot.number) for slot in slots)
    return sort_by_uri(
        slot if count[slot.chassis_uri, slot.number] == 1 else msgspec.structs.replace(slot, number=0) for slot in slots
    )


def are_other_places(one: str, other: str) -> bool:
    """Return whether two labels of one form have different numbers, as 'D1-S1' and 'D2-S1'."""
    (form, numbers), (other_form, other_numbers) = _split_label(one), _split_label(other)
    return form == other_form and numbers != other_numbers


def _split_label(label: str) -> tuple[str, list[str]]:
    folded = label.casefold()
    return re.sub(r"\d+", "0", folded), [digits.lstrip("0") for digits in re.findall(r"\d+", folded)]


def read_zone(found: CrawledResource) -> RedfishZone:
    """Return a zone."""
    return RedfishZone(
        **common_properties(found.uri, found.body),
        fabric_uri=found.uri.rpartition("/Zones/")[0],
        zone_type=text(found.body, "ZoneType"),
        etag=found.etag,
        endpoint_uris=zone_endpoints(found.body),
    )


def read_endpoint(found: CrawledResource, relations: ResourceRelations) -> RedfishEndpoint:
    """Return an endpoint with its entities, ports and zones."""
    entities = objects(found.body, "ConnectedEntities")
    host = next((entity for entity in entities if relations.is_host_end(entity)), None)
    first: JsonObject = host or (entities[0] if entities else {})
    return RedfishEndpoint(
        **common_properties(found.uri, found.body),
        fabric_uri=found.uri.rpartition("/Endpoints/")[0],
        etag=found.etag,
        protocol=text(found.body, "EndpointProtocol"),
        role="Initiator" if host is not None else text(first, "EntityRole"),
        entity_type=text(first, "EntityType"),
        entity_uris=tuple(uri for entity in entities if (uri := link(entity, "EntityLink"))),
        port_uris=relations.ports_of_endpoint[found.uri],
        zone_uris=relations.zones_of[found.uri],
    )


def read_connection(found: CrawledResource) -> RedfishConnection:
    """Return a connection of a fabric."""
    return RedfishConnection(
        **common_properties(found.uri, found.body),
        fabric_uri=found.uri.rpartition("/Connections/")[0],
        connection_type=text(found.body, "ConnectionType"),
        initiator_uris=links(found.body, "Links", "InitiatorEndpoints"),
        target_uris=links(found.body, "Links", "TargetEndpoints"),
    )


def read_virtual_switch(
    each: CrawledResource, bridges: Mapping[str, Iterable[CrawledResource]]
) -> RedfishVirtualSwitch:
    """Return a virtual CXL switch with the ports at its bridges, which are given by their collection."""
    bridges_uri = link(each.body, "VPPBs")
    found = sorted(bridges.get(bridges_uri, ()), key=lambda one: natural_key(one.uri))
    ports = (link(one.body, "Links", "Port") for one in found)
    return RedfishVirtualSwitch(
        **common_properties(each.uri, each.body),
        port_uri=link(each.body, "Links", "Port"),
        bridges_uri=bridges_uri,
        endpoint_uris=links(each.body, "Links", "Endpoints"),
        bound_uris=tuple(dict.fromkeys(port for port in ports if port)),
    )


def read_resource_block(found: CrawledResource, relations: ResourceRelations) -> RedfishResourceBlock:
    """Return a resource block."""
    return RedfishResourceBlock(
        **common_properties(found.uri, found.body),
        block_types=texts(found.body, "ResourceBlockType"),
        composition_state=text(found.body, "CompositionStatus", "CompositionState"),
        system_uris=links(found.body, "Links", "ComputerSystems"),
        own_system_uris=links(found.body, "ComputerSystems"),
        zone_uris=links(found.body, "Links", "Zones"),
        device_uris=relations.devices_in[found.uri],
    )


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
    root = found["/redfish/v1"].body
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
