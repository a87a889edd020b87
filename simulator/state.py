"""The state of one chassis: devices, attachments, links and measured values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.catalog import GENERATIONS, LANE_GBPS, DeviceModel
from simulator.lab import SLOTS_PER_DRAWER, ChassisLab, HostLab, Lab, stable_serial, stable_uuid
from simulator.rules import Allocation, Mode, port_number

LinkStatus = Literal["LinkUp", "Starting", "Training", "LinkDown", "NoLink"]
ERROR_COUNTERS = (
    "CorrectableErrorCount",
    "NonFatalErrorCount",
    "FatalErrorCount",
    "L0ToRecoveryCount",
    "ReplayCount",
    "ReplayRolloverCount",
    "NAKSentCount",
    "NAKReceivedCount",
    "UnsupportedRequestCount",
    "BadTLPCount",
    "BadDLLPCount",
    "FlowControlTimeoutErrors",
)
SLOT_GENERATION = "Gen4"
SLOT_LANES = 16
FANS = 8
# The collection of resource blocks of a service that composes them itself, and of one that does not.
COMPOSITION_BLOCKS = "/redfish/v1/CompositionService/ResourceBlocks"
ROOT_BLOCKS = "/redfish/v1/ResourceBlocks"
POWER_SUPPLIES = 4


@dataclass
class SimulatedLink:
    """One link of a switch port: configured and negotiated width and speed, counters, and its next change."""

    port: str
    max_lanes: int = SLOT_LANES
    max_generation: str = SLOT_GENERATION
    status: LinkStatus = "NoLink"
    enabled: bool = True
    # False: an UnconfiguredPort, over which nothing can be attached.
    configured: bool = True
    lanes: int = 0
    generation: str = "Gen1"
    configured_lanes: int = SLOT_LANES
    # The simulated second at which training ends; None while not training.
    trains_until: float | None = None
    # Kept down by a fault until it ends.
    held_down: bool = False
    cap_lanes: int | None = None
    cap_generation: str | None = None
    received_bytes: float = 0.0
    transmitted_bytes: float = 0.0
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ERROR_COUNTERS, 0))

    def forget_counters(self) -> None:
        """Reset the counters."""
        self.errors = dict.fromkeys(ERROR_COUNTERS, 0)
        self.received_bytes = self.transmitted_bytes = 0.0

    @property
    def gbps(self) -> float:
        """The negotiated speed of the whole link one way in Gbit/s; 0 while it is not up."""
        return LANE_GBPS[self.generation] * self.lanes if self.status == "LinkUp" else 0.0

    @property
    def max_gbps(self) -> float:
        """The highest speed of the whole link one way in Gbit/s."""
        return LANE_GBPS[self.max_generation] * self.max_lanes

    @property
    def usable(self) -> bool:
        """Whether the port may train at all."""
        return self.enabled and self.configured

    @property
    def degraded(self) -> bool:
        """Whether the link is up, but below the capabilities of device and slot."""
        return self.status == "LinkUp" and (self.cap_lanes is not None or self.cap_generation is not None)


@dataclass(frozen=True)
class RequestedLoad:
    """The load of runs on a device: shares of compute and memory, bytes per second over its link.

    `peer_share` of the bytes are between devices of one drawer, and do not pass the host port.
    """

    share: float
    memory_share: float
    to_device: float
    from_device: float
    peer_share: float = 0.0


@dataclass
class SimulatedDevice:
    """A device in a slot, with its load (0 to 1) and the two numbers that shape its load profile.

    With `asked` it has the load of runs. One that `rests` is not used by the runs of its host.
    """

    model: DeviceModel
    serial: str
    uuid: str
    load: float = 0.0
    phase: float = 0.0
    period: float = 30.0
    asked: RequestedLoad | None = None
    rests: bool = False
    carried: tuple[float, float] = (0.0, 0.0)  # bytes to and from it in the last second


@dataclass
class SimulatedSlot:
    """A slot of a drawer; `device` is kept while it is `removed` by a fault, so that it can be reinserted."""

    drawer: int
    number: int
    link: SimulatedLink
    device: SimulatedDevice | None = None
    removed: bool = False
    attached_to: str | None = None
    temperature: float = 28.0
    watts: float = 0.0
    overheated: bool = False
    identify: bool = False
    # The last event of the temperature: normal, caution or critical.
    band: str = "normal"
    # The collection that lists the slot's resource block.
    blocks: str = ROOT_BLOCKS

    @property
    def endpoint(self) -> str:
        """The Id of the slot's endpoint, such as drawer1slot3."""
        return f"drawer{self.drawer}slot{self.number}"

    @property
    def present(self) -> SimulatedDevice | None:
        """The device that the chassis sees in the slot."""
        return None if self.removed else self.device

    @property
    def in_use(self) -> bool:
        """Whether the slot's link should be up: it is attached, and its port may train."""
        return self.attached_to is not None and self.link.usable


@dataclass
class SimulatedHostPort:
    """A host port; `host` is at the other end of its cable, `slots` are attached in the order of their attachment."""

    name: str
    drawer: int
    host: str | None
    link: SimulatedLink
    slots: list[int] = field(default_factory=list)
    revision: int = 1

    @property
    def endpoint(self) -> str:
        """The Id of the port's endpoint and of its zone or system, such as hostport1_H1."""
        return f"hostport{self.drawer}_{self.name}"

    @property
    def in_use(self) -> bool:
        """Whether the port's link should be up: it is cabled, and may train."""
        return self.host is not None and self.link.usable


@dataclass
class SimulatedDrawer:
    """One drawer with its slots and host ports."""

    number: int
    mode: Mode
    serial: str
    slots: dict[int, SimulatedSlot]
    host_ports: dict[str, SimulatedHostPort]
    inlet: float = 24.0
    outlet: float = 29.0
    identify: bool = False
    changing_to: Mode | None = None

    def allocation(self) -> Allocation:
        """Return the present allocation, for the rules."""
        return Allocation(
            host_of_port={port.name: port.host or "" for port in self.host_ports.values()},
            port_of_slot={slot.number: slot.attached_to for slot in self.slots.values() if slot.attached_to},
        )


@dataclass
class SimulatedFan:
    """A fan with its speed; a failed one has stopped."""

    number: int
    rpm: float = 6000.0
    percent: float = 40.0
    failed: bool = False


@dataclass
class ChassisState:
    """The whole chassis; changed only by composition, physics and faults. `hosts` are all possible ends of cables."""

    name: str
    serial: str
    uuid: str
    model: str
    hosts: dict[str, HostLab]
    drawers: dict[int, SimulatedDrawer]
    fans: list[SimulatedFan]
    inlet: float = 24.0
    watts: float = 0.0
    joules: float = 0.0
    identify: bool = False
    steps: int = 0
    # URIs of sensors that use another unit than their own, due to a fault.
    other_units: set[str] = field(default_factory=set)

    def zone(self, zone_id: str) -> SimulatedHostPort | None:
        """Return the host port of a zone, or None where there is no such zone."""
        for drawer in self.drawers.values():
            for port in drawer.host_ports.values():
                if port.endpoint == zone_id:
                    return port
        return None

    def slot_of_endpoint(self, endpoint_id: str) -> SimulatedSlot | None:
        """Return the slot of a device's endpoint, or None where no device is visible there."""
        for slot in self.all_slots():
            if slot.endpoint == endpoint_id and slot.present is not None:
                return slot
        return None

    def all_slots(self) -> list[SimulatedSlot]:
        """Return all slots, first drawer first."""
        return [slot for drawer in self.drawers.values() for slot in drawer.slots.values()]

    def host_ports(self) -> list[SimulatedHostPort]:
        """Return all host ports, first drawer first."""
        return [port for drawer in self.drawers.values() for port in drawer.host_ports.values()]

    def cabled_hosts(self) -> list[str]:
        """Return the names of the cabled hosts, sorted."""
        return sorted({port.host for port in self.host_ports() if port.host is not None})


def negotiated(link: SimulatedLink, device: DeviceModel | None) -> tuple[int, str]:
    """Return lanes and generation that both ends and all limits of a link agree on."""
    lanes = min(link.max_lanes, link.configured_lanes, device.lanes if device else link.max_lanes)
    generation = _lower(link.max_generation, device.generation if device else link.max_generation)
    if link.cap_lanes is not None:
        lanes = min(lanes, link.cap_lanes)
    if link.cap_generation is not None:
        generation = _lower(generation, link.cap_generation)
    return lanes, generation


def _lower(first: str, second: str) -> str:
    return min(first, second, key=GENERATIONS.index)


def build_state(lab: Lab, name: str, chassis: ChassisLab, alias: str | None = None) -> ChassisState:
    """Build the state of a chassis from a lab, with all attached links up.

    `alias` gives a copy of the chassis distinct serial numbers.
    """
    identity = alias or name
    serial = chassis.serial if chassis.serial and alias is None else stable_serial("H3F", identity)
    drawers: dict[int, SimulatedDrawer] = {}
    for number, description in enumerate(chassis.drawers, start=1):
        ports = {
            port: SimulatedHostPort(
                name=port,
                drawer=number,
                host=host,
                link=_link_up(SimulatedLink(port=port)) if host else SimulatedLink(port=port),
            )
            for port, host in sorted(description.host_ports.items(), key=lambda item: port_number(item[0]))
        }
        slots: dict[int, SimulatedSlot] = {}
        for place in range(1, SLOTS_PER_DRAWER + 1):
            slot = SimulatedSlot(drawer=number, number=place, link=SimulatedLink(port=f"slot{place}"))
            content = description.slots.get(place)
            if content is not None:
                slot.device = SimulatedDevice(
                    model=lab.device_model(content.device),
                    serial=content.serial or stable_serial("", identity, slot.endpoint, content.device),
                    uuid=stable_uuid(identity, slot.endpoint, content.device),
                )
                slot.link.status = "LinkDown"
                if content.attached_to is not None:
                    slot.attached_to = content.attached_to
                    ports[content.attached_to].slots.append(place)
                    _link_up(slot.link, slot.device.model)
            slots[place] = slot
        drawers[number] = SimulatedDrawer(
            number=number,
            mode=description.mode,
            serial=f"{serial}-D{number}",
            slots=slots,
            host_ports=ports,
        )
    return ChassisState(
        name=identity,
        serial=serial,
        uuid=stable_uuid(identity),
        model=chassis.model,
        hosts=dict(lab.hosts),
        drawers=drawers,
        fans=[SimulatedFan(number) for number in range(1, FANS + 1)],
    )


def _link_up(link: SimulatedLink, device: DeviceModel | None = None) -> SimulatedLink:
    link.lanes, link.generation = negotiated(link, device)
    link.status = "LinkUp"
    return link
