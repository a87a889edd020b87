"""The state of one chassis: devices, attachments, links and measured values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from simulator.lab import (
    GENERATIONS,
    LANE_GBPS,
    ChassisLab,
    DeviceModel,
    HostLab,
    Lab,
    stable_serial,
    stable_uuid,
)
from simulator.odata import V1
from simulator.rules import Allocation, Mode, ModelRules, load_rules, port_number

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
COMPOSITION_BLOCKS = f"{V1}/CompositionService/ResourceBlocks"
ROOT_BLOCKS = f"{V1}/ResourceBlocks"
SWITCHES = f"{V1}/Fabrics/PCIe/Switches"
POWER_SUPPLIES = 4
BMC_FIRMWARE = "2.14.0-falcon"
SWITCH_FIRMWARE = "4.2.1.186"


@dataclass
class SimulatedLink:
    """One link of a switch port: configured and negotiated width and speed, counters, and its next change."""

    port: str
    max_lanes: int = SLOT_LANES
    max_generation: str = SLOT_GENERATION
    status: LinkStatus = "NoLink"
    enabled: bool = True
    # False while its drawer, or the host at its other end, is off.
    powered: bool = True
    # False: an UnconfiguredPort, over which nothing can be attached.
    configured: bool = True
    lanes: int = 0
    generation: str = "Gen1"
    configured_lanes: int = SLOT_LANES
    # The simulated second at which training ends; None while not training.
    trains_until: float | None = None
    # Kept down by a fault until it ends.
    forced_down: bool = False
    cap_lanes: int | None = None
    cap_generation: str | None = None
    received_bytes: float = 0.0
    transmitted_bytes: float = 0.0
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ERROR_COUNTERS, 0))

    def reset_counters(self) -> None:
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
        return self.enabled and self.configured and self.powered

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
    memory_busy: float | None = None  # share of time with access to its memory


@dataclass
class SimulatedDevice:
    """A device in a slot, with its load (0 to 1) and the two numbers that shape its load profile.

    With `requested` it has the load of runs. An `unused` one has none, while other devices of its host have.
    """

    model: DeviceModel
    serial: str
    uuid: str
    firmware: str
    load: float = 0.0
    phase: float = 0.0
    period: float = 30.0
    requested: RequestedLoad | None = None
    unused: bool = False
    carried: tuple[float, float] = (0.0, 0.0)  # bytes to and from it in the last second


def drawer_uri(number: int) -> str:
    """Return the URI of a drawer."""
    return f"{V1}/Chassis/drawer{number}"


@dataclass(kw_only=True)
class SwitchPortBase:
    """A port of a drawer's switch; an upstream port leads to a host, a downstream port to a slot."""

    drawer: int
    link: SimulatedLink
    # The client to whose pools the resource block of the host or device belongs; "" is no client.
    client: str = ""
    upstream: ClassVar[bool]

    @property
    def switch(self) -> str:
        """The Id of the switch."""
        return f"drawer{self.drawer}_switch"

    @property
    def port_uri(self) -> str:
        """The URI of the port."""
        return f"{SWITCHES}/{self.switch}/Ports/{self.link.port}"


@dataclass(kw_only=True)
class SimulatedSlot(SwitchPortBase):
    """A slot of a drawer; `device` is kept while it is `removed` by a fault, so that it can be reinserted."""

    upstream: ClassVar[bool] = False
    number: int
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
    def uri(self) -> str:
        """The URI of the slot's PCIeDevice."""
        return f"{drawer_uri(self.drawer)}/PCIeDevices/slot{self.number}"

    @property
    def block_uri(self) -> str:
        """The URI of the slot's resource block."""
        return f"{self.blocks}/{self.endpoint}"

    @property
    def gpu_uri(self) -> str:
        """The URI of the Processor of a GPU, which is in the slot's resource block."""
        return f"{self.block_uri}/Processors/gpu{self.number}"

    @property
    def present(self) -> SimulatedDevice | None:
        """The device that the chassis sees in the slot."""
        return None if self.removed else self.device

    @property
    def connected(self) -> bool:
        """Whether the chassis sees a device in the slot."""
        return self.present is not None

    @property
    def in_use(self) -> bool:
        """Whether the slot's link should be up: it is attached, and its port may train."""
        return self.attached_to is not None and self.link.usable


@dataclass(kw_only=True)
class SimulatedHostPort(SwitchPortBase):
    """A host port; `host` is at the other end of its cable, `slots` are attached in the order of their attachment."""

    upstream: ClassVar[bool] = True
    name: str
    host: str | None
    slots: list[int] = field(default_factory=list)
    revision: int = 1
    # The slots at the bridges of its virtual CXL switch, by the bridges' numbers.
    bridges: dict[int, int] = field(default_factory=dict)
    # The Id of the system that is composed of its host and devices; "" is none.
    system: str = ""

    @property
    def endpoint(self) -> str:
        """The Id of the port's endpoint and of its zone or system, such as hostport1_H1."""
        return f"hostport{self.drawer}_{self.name}"

    @property
    def block_uri(self) -> str:
        """The URI of the resource block of the host, in a service whose systems are composed of hosts and devices."""
        return f"{COMPOSITION_BLOCKS}/{self.endpoint}"

    @property
    def attached(self) -> list[str]:
        """The Ids of the endpoints of the attached slots."""
        return [f"drawer{self.drawer}slot{number}" for number in self.slots]

    @property
    def connected(self) -> bool:
        """Whether a host is cabled to the port."""
        return self.host is not None

    @property
    def in_use(self) -> bool:
        """Whether the port's link should be up: it is cabled, and may train."""
        return self.connected and self.link.usable


SwitchPort = SimulatedSlot | SimulatedHostPort


def virtual_switch_uri(port: SimulatedHostPort) -> str:
    """Return the URI of the virtual CXL switch of a host port."""
    return f"{SWITCHES}/{port.switch}/VCSs/{port.name}"


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

    def switch_ports(self) -> list[SwitchPort]:
        """Return the host ports, then the slots, behind the ports of the drawer's switch."""
        return [*self.host_ports.values(), *self.slots.values()]

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
    rules: ModelRules
    inlet: float = 24.0
    watts: float = 0.0
    joules: float = 0.0
    identify: bool = False
    # URIs of other parts whose location LED is lit.
    lit: set[str] = field(default_factory=set)
    # Versions that updates have changed: of 'bmc', and of switches by their Id.
    versions: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    # URIs of sensors that use another unit than their own, due to a fault.
    other_units: set[str] = field(default_factory=set)
    # Names of the drawers ('drawer1') and hosts that are off.
    off: set[str] = field(default_factory=set)

    def has_power(self, port: SwitchPort) -> bool:
        """Return whether the drawer of a port is on, and the host at its other end, if there is one."""
        host = port.host if isinstance(port, SimulatedHostPort) else None
        return self.off.isdisjoint({f"drawer{port.drawer}", host or ""})

    def version(self, name: str) -> str:
        """Return the version of the firmware of the BMC, of a switch, or of the device in a slot."""
        if name in self.versions:
            return self.versions[name]
        slot = self.slot_of_endpoint(name)
        present = slot.present if slot is not None else None
        return present.firmware if present is not None else BMC_FIRMWARE if name == "bmc" else SWITCH_FIRMWARE

    def zone(self, zone_id: str) -> SimulatedHostPort | None:
        """Return the host port of a zone, or None where there is no such zone."""
        return next((port for port in self.host_ports() if port.endpoint == zone_id), None)

    def slot_of_endpoint(self, endpoint_id: str) -> SimulatedSlot | None:
        """Return the slot of a device's endpoint, or None where no device is visible there."""
        return next((slot for slot in self.all_slots() if slot.endpoint == endpoint_id and slot.connected), None)

    def all_slots(self) -> list[SimulatedSlot]:
        """Return all slots, first drawer first."""
        return [slot for drawer in self.drawers.values() for slot in drawer.slots.values()]

    def host_ports(self) -> list[SimulatedHostPort]:
        """Return all host ports, first drawer first."""
        return [port for drawer in self.drawers.values() for port in drawer.host_ports.values()]

    def switch_ports(self) -> list[SwitchPort]:
        """Return all slots, then all host ports."""
        return [*self.all_slots(), *self.host_ports()]

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
    rules = load_rules(chassis.profile)
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
        for place in range(1, rules.slots + 1):
            wired = SimulatedLink(port=f"slot{place}", max_lanes=rules.lanes, configured_lanes=rules.lanes)
            slot = SimulatedSlot(drawer=number, number=place, link=wired)
            content = description.slots.get(place)
            if content is not None:
                slot.device = SimulatedDevice(
                    model=lab.device_model(content.device),
                    serial=content.serial or stable_serial("", identity, slot.endpoint, content.device),
                    uuid=stable_uuid(identity, slot.endpoint, content.device),
                    firmware=lab.device_model(content.device).firmware,
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
        model=chassis.model or rules.model,
        rules=rules,
        hosts=dict(lab.hosts),
        drawers=drawers,
        fans=[SimulatedFan(number) for number in range(1, FANS + 1)],
    )


def _link_up(link: SimulatedLink, device: DeviceModel | None = None) -> SimulatedLink:
    link.lanes, link.generation = negotiated(link, device)
    link.status = "LinkUp"
    return link
