"""The rules of drawer modes, pure: no database, no BMC.

The limits are those of the chassis' profile (fabric.bmc.chassis_profiles). A Falcon 4016's: standard with one host: one
connection reaches all 8 slots. Standard with two hosts: two connections, each reaches one half; both may lead to one
host. Advanced: up to three hosts share the 8 slots in any split. Each drawer is configured on its own, so that both may
go to one host: 16 devices. A chassis of which nothing is published has no limits here: its BMC enforces them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from core.language import _, _n, gettext_noop, join_words
from fabric.bmc.chassis_profiles import ChassisProfile, ModeLimits, profile
from fabric.bmc.types import DrawerMode

MODE_LABELS = {
    DrawerMode.STANDARD_ONE_HOST: gettext_noop("Standard, one host"),
    DrawerMode.STANDARD_TWO_HOSTS: gettext_noop("Standard, two hosts"),
    DrawerMode.ADVANCED: gettext_noop("Advanced"),
    DrawerMode.UNKNOWN: gettext_noop("Mode not reported"),
}
FALCON_4016 = profile("h3-falcon-4016")  # the model of drawers of no chassis: those of studies, and of pools in files


@dataclass(frozen=True, kw_only=True)
class HostConnection:
    """A host port of the drawer; `host` names the host behind it, '' where no host is cabled."""

    label: str
    number: int
    host: str


@dataclass(frozen=True, kw_only=True)
class DrawerState:
    """A drawer as the rules see it: its mode, its host ports, and the port of each occupied slot."""

    mode: DrawerMode
    connections: tuple[HostConnection, ...]
    attached: dict[int, str]  # slot number (1-based) -> label of the host port
    profile: ChassisProfile = FALCON_4016

    @property
    def limits(self) -> ModeLimits:
        """The known limits of its mode."""
        return self.profile.limits(self.mode)

    def connection(self, label: str) -> HostConnection | None:
        """Return the host port of that label."""
        return next((connection for connection in self.connections if connection.label == label), None)


def mode_description(known: ChassisProfile, mode: DrawerMode) -> str:
    """Return how host ports share the slots of a drawer in a mode, as far as that is known of the chassis."""
    limits, slots = known.limits(mode), known.slots
    if limits.host_ports and slots:
        return _("One connection reaches all {slots} slots.", slots=slots)
    if limits.halves and slots:
        half = slots // 2
        return _(
            "Two connections, each reaches one half: slots 1 to {half}, and {next} to {slots}.",
            half=half, next=half + 1, slots=slots,
        )  # fmt: skip
    if limits.hosts:
        return _("Up to {hosts} hosts share the slots in any split.", hosts=limits.hosts)
    return _("Its limits are not known here: the BMC decides.")


def attach_violation(
    drawer: DrawerState, *, slot: int, label: str, others: Collection[str] | None = None, planned: bool = False
) -> str:
    """Return '' if the slot's device may be attached to the host port, else the sentence that says why not.

    The device's present attachment does not count: it is detached first. `slot` counts from 1; 0 is an unknown slot
    number, whose half is unknown. `others` are the labels of the ports that have the drawer's other devices, by default
    those of `drawer.attached`. `planned`: sentences describe the drawer as it would be, not as it is.
    """
    target = drawer.connection(label)
    if target is None:
        return _("Host port {label} is not cabled to this drawer.", label=label)
    if not target.host:
        return _("No host is cabled to host port {label}.", label=label)
    return attachment_violation(drawer, slot=slot, label=label, others=others, planned=planned)


def attachment_violation(
    drawer: DrawerState, *, slot: int, label: str, others: Collection[str] | None = None, planned: bool = False
) -> str:
    """Return '' if the drawer's mode lets the slot's device have the host port, cabled or not, else why not.

    It also checks present attachments; the arguments are those of `attach_violation`.
    """
    limits, last = drawer.limits, drawer.profile.slots
    if drawer.mode is DrawerMode.UNKNOWN and not limits.hosts:
        return ""  # a BMC that does not report its mode enforces its own rules
    if last and slot > last:
        return _("A drawer has slots 1 to {last}: there is no slot {slot}.", last=last, slot=slot)
    if others is None:
        others = {used for number, used in drawer.attached.items() if number != slot}
    if limits.host_ports and (reason := _one_host(others, label=label, planned=planned)):
        return reason
    if limits.halves and (reason := _two_hosts(drawer, slot=slot, label=label, planned=planned)):
        return reason
    return _shared(drawer, others, label=label, planned=planned) if limits.hosts else ""


def _one_host(others: Collection[str], *, label: str, planned: bool) -> str:
    in_use = set(others) - {label}
    if in_use and planned:
        return _(
            "In mode ‘{mode}’ only one host port reaches its slots at a time, and {ports} would have devices: leave "
            "them to one.",
            mode=_(MODE_LABELS[DrawerMode.STANDARD_ONE_HOST]), ports=_join_sorted(in_use | {label}),
        )  # fmt: skip
    if in_use:
        return _n(
            "The drawer is in standard mode for one host, and {ports} is the port in use: only one host port reaches "
            "its slots at a time.",
            "The drawer is in standard mode for one host, and {ports} are the ports in use: only one host port reaches "
            "its slots at a time.",
            len(in_use),
            ports=_join_sorted(in_use),
        )
    return ""


def _two_hosts(drawer: DrawerState, *, slot: int, label: str, planned: bool) -> str:
    mode = _(MODE_LABELS[DrawerMode.STANDARD_TWO_HOSTS])
    pair = _host_port_pair(drawer)
    if label not in pair:
        reach = (
            _n("only {ports} reaches its slots", "only {ports} reach its slots", len(pair), ports=_join_sorted(pair))
            if pair
            else _("no host port reaches its slots")
        )
        if planned:
            return _("In mode ‘{mode}’ {reach}, {label} does not.", mode=mode, reach=reach, label=label)
        return _("The drawer is in standard mode for two hosts: {reach}, {label} does not.", reach=reach, label=label)
    reaches_first_half = label == pair[0]
    half, whole = drawer.profile.slots // 2, drawer.profile.slots
    if slot > 0 and half and reaches_first_half != (slot <= half):
        first, last = (1, half) if reaches_first_half else (half + 1, whole)
        if planned:
            return _(
                "In mode ‘{mode}’ {label} reaches slots {first} to {last}, not slot {slot}. Choose a device of its "
                "half, or advanced mode.",
                mode=mode, label=label, first=first, last=last, slot=slot,
            )  # fmt: skip
        return _(
            "The drawer is in standard mode for two hosts: {label} reaches slots {first} to {last}, not slot {slot}. "
            "Choose a device of its half, or change the drawer to advanced mode.",
            label=label, first=first, last=last, slot=slot,
        )  # fmt: skip
    return ""


def _shared(drawer: DrawerState, others: Collection[str], *, label: str, planned: bool) -> str:
    # A host that two ports lead to is one, and a port that leads nowhere has none.
    hosts = {connection.host for connection in drawer.connections if connection.label in {*others, label}} - {""}
    most = drawer.limits.hosts
    if len(hosts) > most and drawer.mode is not DrawerMode.ADVANCED:
        return _("{name} serves at most {most} hosts, and it would be {count}.", name=drawer.profile.name, most=most,
                 count=len(hosts))  # fmt: skip
    if len(hosts) > most and planned:
        return _(
            "In mode ‘{mode}’ a drawer serves at most {most} hosts, and it would be {count}.",
            mode=_(MODE_LABELS[DrawerMode.ADVANCED]), most=most, count=len(hosts),
        )  # fmt: skip
    if len(hosts) > most:
        return _(
            "A drawer in advanced mode serves at most {most} hosts, and this would be the {count}th.",
            most=most,
            count=len(hosts),
        )
    return ""


def _host_port_pair(drawer: DrawerState) -> list[str]:
    """Return the labels of the host ports that reach the first and the second half in standard mode for two hosts."""
    ordered = sorted(drawer.connections, key=lambda connection: connection.number)
    return [connection.label for connection in ordered[:2]]


def mode_violation(drawer: DrawerState, mode: DrawerMode, *, planned: bool = False) -> str:
    """Return '' if the drawer may change to `mode` with its present attachments, else the obstacle.

    `planned`: the sentence names the mode, for readers of several drawers.
    """
    if mode is DrawerMode.UNKNOWN:
        return _("A drawer cannot be changed to an unknown mode.")
    after = replace(drawer, mode=mode)
    pair = _host_port_pair(drawer)
    if after.limits.halves and len(pair) < 2:
        there = _("only {label}", label=pair[0]) if pair else _("no host port")
        if planned:
            return _(
                "In mode ‘{mode}’ each of two host ports reaches one half, and this drawer has {there}.",
                mode=_(MODE_LABELS[mode]),
                there=there,
            )
        return _("In this mode each of two host ports reaches one half, and this drawer has {there}.", there=there)
    reasons = {
        slot: reason
        for slot, label in sorted(drawer.attached.items())
        if (reason := attachment_violation(after, slot=slot, label=label))
    }
    if not reasons:
        return ""
    if after.limits.host_ports:
        held = {
            label: _slots_label(slot for slot, other in drawer.attached.items() if other == label)
            for label in sorted(set(drawer.attached.values()))
        }
        users = _join_sorted(f"{label} ({slots})" for label, slots in held.items())
        return _(
            "In this mode one host port at a time has devices, and {users} have some. Detach all but one's first.",
            users=users,
        )
    half = drawer.profile.slots // 2
    if after.limits.halves and half:
        return _n(
            "{slots} would lose its host: in this mode {one} reaches slots 1 to {half} and {other} reaches slots "
            "{next} to {last}. Detach it first.",
            "{slots} would lose their host: in this mode {one} reaches slots 1 to {half} and {other} reaches slots "
            "{next} to {last}. Detach them first.",
            len(reasons),
            slots=_first_slots_label(reasons), one=pair[0], other=pair[1], half=half,
            next=half + 1, last=drawer.profile.slots,
        )  # fmt: skip
    return next(iter(reasons.values()))


def _slots_label(numbers: Iterable[int]) -> str:
    """Return 'slot 3' or 'slots 1, 2 and 5'."""
    known = [str(number) for number in sorted(numbers)]
    return _n("slot {numbers}", "slots {numbers}", len(known), numbers=join_words(known))


def _first_slots_label(numbers: Iterable[int]) -> str:
    """Return it where it begins a sentence."""
    known = [str(number) for number in sorted(numbers)]
    return _n("Slot {numbers}", "Slots {numbers}", len(known), numbers=join_words(known))


def _join_sorted(words: Iterable[str]) -> str:
    return join_words(sorted(words))


UNCONFIGURED_PORT = "UnconfiguredPort"
PORT_TYPE_LABELS = {
    "UpstreamPort": gettext_noop("upstream, towards a host"),
    "DownstreamPort": gettext_noop("downstream, towards a device"),
    "InterswitchPort": gettext_noop("between switches"),
    "ManagementPort": gettext_noop("management"),
    "BidirectionalPort": gettext_noop("either way"),
    UNCONFIGURED_PORT: gettext_noop("not configured"),
}
# The types that a port can be configured as; others that a service reports are shown, but cannot be requested.
PORT_TYPES = ("DownstreamPort", "UpstreamPort", UNCONFIGURED_PORT)
LANE_COUNTS = (1, 2, 4, 8, 16)


def allowed_port_types(*, of_host: bool) -> tuple[str, ...]:
    """Return the types that a port towards a host, or else a slot, can have: its wiring permits no others."""
    return ("UpstreamPort" if of_host else "DownstreamPort", UNCONFIGURED_PORT)


@dataclass(frozen=True, kw_only=True)
class PortSnapshot:
    """A host port: its id, the id of the switch port behind it, and the host that its cable leads to."""

    id: int
    label: str
    number: int
    host: int | None
    port: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceSnapshot:
    """A device in a slot: where it is attached (a host port's id, None: nowhere), and the id of its slot's port.

    `identity` distinguishes it from a replacement in the slot.
    """

    id: int
    name: str
    slot: int
    attached: int | None
    port: int | None = None
    identity: str = ""


@dataclass(frozen=True, kw_only=True)
class PortSetting:
    """The requested setting of a port: '' and None leave its type and its lanes unchanged."""

    port_type: str = ""
    configured_width: int | None = None

    @property
    def words(self) -> str:
        """The requested values, as the BMC names them: 'DownstreamPort x8'."""
        lanes = f"x{self.configured_width}" if self.configured_width else ""
        return " ".join(one for one in (self.port_type, lanes) if one)


@dataclass(frozen=True, kw_only=True)
class DrawerSnapshot:
    """A drawer (id None: parts outside drawers) of a chassis as it will be after all open operations."""

    chassis: int
    id: int | None
    name: str
    mode: DrawerMode
    ports: tuple[PortSnapshot, ...]
    devices: tuple[DeviceSnapshot, ...]
    # Settings by ids of ports: only the known ones.
    settings: Mapping[int, PortSetting] = field(default_factory=dict)
    profile: ChassisProfile = FALCON_4016

    def state(self, *, is_empty: bool = False) -> DrawerState:
        """Return the drawer as the rules see it; `is_empty`: without attachments."""
        labels = {} if is_empty else {port.id: port.label for port in self.ports}
        return DrawerState(
            mode=self.mode,
            connections=tuple(
                HostConnection(label=port.label, number=port.number, host="" if port.host is None else str(port.host))
                for port in self.ports
            ),
            attached={one.slot: labels[one.attached] for one in self.devices if one.attached in labels and one.slot},
            profile=self.profile,
        )


def drawer_ports(drawer: DrawerSnapshot) -> set[int]:
    """Return the ids of the ports of a drawer, of slots and of host ports."""
    slots = {device.port for device in drawer.devices if device.port is not None}
    return slots | {port.port for port in drawer.ports if port.port is not None} | set(drawer.settings)


# The ways of a reset (Resource.ResetType), without those that only help whoever debugs a part.
RESET_LABELS = {
    "On": gettext_noop("Switch on"),
    "ForceOn": gettext_noop("Switch on at once"),
    "GracefulShutdown": gettext_noop("Shut down"),
    "ForceOff": gettext_noop("Switch off at once"),
    "GracefulRestart": gettext_noop("Restart"),
    "ForceRestart": gettext_noop("Restart at once"),
    "PowerCycle": gettext_noop("Power cycle"),
    "FullPowerCycle": gettext_noop("Power cycle, standby power included"),
}
TURNS_ON = frozenset({"On", "ForceOn"})
TURNS_OFF = frozenset({"GracefulShutdown", "ForceOff"})


@dataclass(frozen=True, kw_only=True)
class ResetSetting:
    """A requested reset; what its check found before, and whether it was sent, for a worker that takes over.

    `last_reset` is the LastResetTime of the resource, '' where it has none.
    """

    reset_type: str
    last_reset: str = ""
    power_state: str = ""
    sent: bool = False

    @property
    def power_after(self) -> str:
        """The PowerState in which it ends."""
        return "Off" if self.reset_type in TURNS_OFF else "On"


@dataclass(frozen=True, kw_only=True)
class FirmwareSetting:
    """A requested update: an image's URI, or an uploaded image (id and name), and the version that it should lead to.

    `wanted` is '' where any other version than `before` is right. `sent` and `task`, the address of its monitor, are
    for a worker that takes over.
    """

    image_uri: str = ""
    image: int | None = None
    image_name: str = ""
    wanted: str = ""
    before: str = ""
    sent: bool = False
    task: str = ""

    def is_reached(self, version: str) -> bool:
        """Whether a version is the one that was wanted."""
        return version == self.wanted if self.wanted else version not in {"", self.before}


def reset_label(reset_type: str) -> str:
    """Return the label of a ResetType."""
    return _(RESET_LABELS.get(reset_type, reset_type))


CABLE_SECONDS = 600.0  # time for a person to walk to the chassis and move a cable
MODE_VALUE_LABELS = {mode.value: name for mode, name in MODE_LABELS.items()}


def port_type_label(port_type: str) -> str:
    """Return the label of a port's PortType."""
    return _(PORT_TYPE_LABELS.get(port_type, port_type)) or _("not given")
