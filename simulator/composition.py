"""Attaching, detaching, modes, ports and cables: the BMC's part of composition, with its refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from simulator.errors import RedfishError, conflict, referenced_not_found
from simulator.events import Actor, EventLog
from simulator.odata import V1, Body, references
from simulator.physics import Physics
from simulator.rules import Allocation, Mode, ModelRules, refusal
from simulator.state import (
    SWITCHES,
    ChassisState,
    SimulatedDrawer,
    SimulatedHostPort,
    SimulatedSlot,
    SwitchPort,
    virtual_switch_uri,
)

FABRIC = f"{V1}/Fabrics/PCIe"
ZONES = f"{FABRIC}/Zones"
ENDPOINTS = f"{FABRIC}/Endpoints"
CONNECTIONS = f"{FABRIC}/Connections"
SYSTEMS = f"{V1}/Systems"


class Holder(NamedTuple):
    """What has the devices of a host port in a dialect: its collection, its name, and the name of what it has."""

    collection: str
    name: str
    member: str


# By dialect; the zones of host ports in all others without resource blocks.
HOLDERS = {
    "zones": Holder(ENDPOINTS, "host port", "endpoint"),
    "zones-pools": Holder(ENDPOINTS, "host port", "endpoint"),
    "connections": Holder(ENDPOINTS, "host port", "endpoint"),
    "connection-patch": Holder(CONNECTIONS, "connection", "endpoint"),
    "cxl": Holder(SWITCHES, "virtual switch", "port"),
}


class Composer:
    """Changes attachments; each change is validated completely before anything is switched.

    With `blocks` the devices of a host port are the resource blocks of its computer system, else what has them depends
    on the `dialect`. `by` is the origin of the request, for the log.
    """

    def __init__(self, state: ChassisState, physics: Physics, events: EventLog, *, dialect: str, blocks: bool) -> None:
        self._state = state
        self._physics = physics
        self._events = events
        self._dialect, self._blocks = dialect, blocks
        self._collection, self._holder, self._member = HOLDERS.get(dialect, Holder(ZONES, "zone", "endpoint"))
        self._kind = "Endpoint"
        if blocks:
            self._collection, self._holder, self._member = SYSTEMS, "system", "resource block"
            self._kind = "ResourceBlock"

    def holder_uri(self, port: SimulatedHostPort) -> str:
        """Return the resource that contains a host port's devices, such as its zone or its computer system.

        Where no system is composed, it is the resource block of the host.
        """
        if self._blocks:
            return f"{SYSTEMS}/{port.system}" if port.system else port.block_uri
        if self._dialect == "cxl":
            return virtual_switch_uri(port)
        return f"{self._collection}/{port.endpoint}"

    @staticmethod
    def pair_id(port: SimulatedHostPort, slot: SimulatedSlot) -> str:
        """Return the Id of the zone or connection of one attached device."""
        return f"{port.endpoint}_{slot.endpoint}"

    def fabric_links(self, port: SimulatedHostPort, slot: SimulatedSlot | None = None) -> Body:
        """Return the links of a host port, or of a device at it, to the zones or connections that it is in."""
        slots = [self._state.drawers[port.drawer].slots[number] for number in port.slots] if slot is None else [slot]
        if self._blocks or self._dialect == "cxl":
            return {}
        match self._dialect:
            case "connection-patch":
                return references(Connections=[self.holder_uri(port)])
            case "connections":
                return references(Connections=[f"{CONNECTIONS}/{self.pair_id(port, one)}" for one in slots])
            case "zones" | "zones-pools":
                return references(Zones=[f"{ZONES}/{self.pair_id(port, one)}" for one in slots])
        return references(Zones=[self.holder_uri(port)])

    def slots_of_list(self, port: SimulatedHostPort, endpoints: Sequence[str]) -> list[SimulatedSlot]:
        """Return the slots that the new list of a zone, or of a system's blocks, names by the Ids of their endpoints.

        Refuses a list without the holder's host port (409), with another's host port (409),
        an unknown endpoint (400) or one endpoint twice (400).
        """
        if port.endpoint not in endpoints:
            raise conflict(
                f"The {self._holder} {port.endpoint} always holds its host-port {self._member} {port.endpoint}."
            )
        if len(set(endpoints)) != len(endpoints):
            raise RedfishError(400, "PropertyValueConflict", f"The list names a {self._member} twice.")
        slots = []
        for endpoint in endpoints:
            if endpoint == port.endpoint:
                continue
            if self._state.zone(endpoint) is not None:
                raise conflict(
                    f"The host port {endpoint} has a {self._holder} of its own and cannot join {port.endpoint}."
                )
            slot = self._state.slot_of_endpoint(endpoint)
            if slot is None:
                raise referenced_not_found(self._kind, endpoint)
            slots.append(slot)
        return slots

    def slots_with(self, port: SimulatedHostPort, name: str, *, add: bool) -> list[SimulatedSlot]:
        """Return the slots of a host port as they are now, with one more or one less, named as its endpoint is.

        Refuses to remove a missing one (404), and refuses as `slots_of_list` does.
        """
        listed = [port.endpoint, *port.attached]
        if add and name not in listed:
            listed.append(name)
        elif not add:
            if name not in listed:
                sentence = f"The {self._member} {name} is not in the {self._holder} {port.endpoint}."
                raise RedfishError(404, "ResourceNotFound", sentence, arguments=(self._member, name))
            listed.remove(name)
        return self.slots_of_list(port, listed)

    def check(self, port: SimulatedHostPort, slots: Sequence[SimulatedSlot]) -> None:
        """Refuse with 409 the devices of a host port that the rules of its drawer forbid; nothing is changed."""
        self.check_together([(port, slots)])

    def check_together(self, desired: Sequence[tuple[SimulatedHostPort, Sequence[SimulatedSlot]]]) -> None:
        """Refuse with 409 the devices of several host ports, also where each alone would be allowed."""
        changed = {port.name for port, _ in desired}
        owners: dict[int, dict[int, str]] = {}
        for port, slots in desired:
            drawer = self._unchanging_drawer(port)
            kept = {at: owner for at, owner in drawer.allocation().port_of_slot.items() if owner not in changed}
            held = owners.setdefault(drawer.number, kept)
            self._check_slots(drawer, port, slots)
            for slot in slots:
                if held.setdefault(slot.number, port.name) != port.name:
                    raise conflict(f"The {self._member} {slot.endpoint} is wanted by {held[slot.number]}, too.")
        for number, port_of_slot in owners.items():
            drawer = self._state.drawers[number]
            _check_rule(drawer.mode, replace(drawer.allocation(), port_of_slot=port_of_slot), self._state.rules)

    def _check_slots(self, drawer: SimulatedDrawer, port: SimulatedHostPort, slots: Sequence[SimulatedSlot]) -> None:
        for slot in slots:
            if slot.drawer != port.drawer:
                raise conflict(
                    f"The host port {port.name} is cabled to drawer {port.drawer} and cannot reach {slot.endpoint}."
                )
            if slot.attached_to not in (None, port.name):
                owner = drawer.host_ports[str(slot.attached_to)].endpoint
                raise conflict(
                    f"The {self._member} {slot.endpoint} belongs to the {self._holder} {owner}; detach it there first."
                )
            if slot.attached_to is None:
                self._check_ports(port, slot)

    def _unchanging_drawer(self, port: SwitchPort) -> SimulatedDrawer:
        drawer = self._state.drawers[port.drawer]
        if drawer.changing_to is not None:
            raise conflict(f"The mode of drawer {drawer.number} is being changed; wait for its task to end.")
        return drawer

    @staticmethod
    def _check_ports(port: SimulatedHostPort, slot: SimulatedSlot) -> None:
        if not slot.link.configured:
            raise conflict(
                f"The port {slot.link.port} of drawer {slot.drawer} is an UnconfiguredPort; "
                f"make it a DownstreamPort before {slot.endpoint} is attached."
            )
        if not port.link.configured:
            raise conflict(
                f"The host port {port.name} is an UnconfiguredPort; "
                "make it an UpstreamPort before devices are attached."
            )

    def apply(self, port: SimulatedHostPort, slots: Sequence[SimulatedSlot], by: Actor | None = None) -> None:
        """Set the devices of a zone: detach those not in the list, attach and train the new ones."""
        drawer = self._state.drawers[port.drawer]
        kept = {slot.number for slot in slots}
        before = list(port.slots)
        for number in before:
            if number not in kept:
                self._detach(drawer.slots[number])
        for slot in slots:
            if slot.number not in before:
                slot.attached_to = port.name
                if slot.in_use:
                    self._physics.train(slot.link)
        port.slots = [slot.number for slot in slots]
        if port.slots != before:
            port.revision += 1
            self._holder_changed(port, by)

    def _detach(self, slot: SimulatedSlot) -> None:
        was_up = slot.link.status == "LinkUp"
        slot.attached_to = None
        self._physics.drop(slot)
        if was_up:
            self._physics.link_changed(slot)

    def lose(self, slot: SimulatedSlot) -> None:
        """Remove a device by surprise: its endpoint disappears, and its zone loses it."""
        slot.removed = True
        if slot.attached_to is not None:
            port = self._state.drawers[slot.drawer].host_ports[slot.attached_to]
            self._detach(slot)
            port.slots.remove(slot.number)
            port.revision += 1
            self._holder_changed(port)
        self._physics.drop(slot)
        self._events.report("ResourceEvent.1.3.ResourceRemoved", origin=slot.uri)

    def restore(self, slot: SimulatedSlot) -> None:
        """Reinsert a removed device; it is unattached."""
        slot.removed = False
        self._physics.drop(slot)
        self._events.report("ResourceEvent.1.3.ResourceCreated", origin=slot.uri)

    def allowed_modes(self, drawer: SimulatedDrawer) -> list[Mode]:
        """Return the modes that the drawer's present allocation satisfies."""
        rules = self._state.rules
        return [mode for mode in rules.modes if refusal(mode, drawer.allocation(), rules) is None]

    def check_mode(self, drawer: SimulatedDrawer, mode: Mode) -> None:
        """Refuse with 409 a mode that the drawer's allocation breaks."""
        if drawer.changing_to is not None:
            raise conflict(f"The mode of drawer {drawer.number} is already being changed to {drawer.changing_to}.")
        _check_rule(mode, drawer.allocation(), self._state.rules)

    def set_mode(self, drawer: SimulatedDrawer, mode: Mode, by: Actor | None = None) -> None:
        """Set the mode of a drawer."""
        drawer.mode = mode
        origin = f"{V1}/Chassis/drawer{drawer.number}"
        self._events.report("H3Falcon.1.0.DrawerModeChanged", str(drawer.number), mode, origin=origin, by=by)

    def check_port_type(self, port: SwitchPort) -> None:
        """Refuse with 409 to change the type of a port with an attachment."""
        drawer = self._unchanging_drawer(port)
        if isinstance(port, SimulatedSlot) and port.attached_to is not None:
            owner = drawer.host_ports[port.attached_to].endpoint
            raise conflict(
                f"{port.endpoint} is attached in the {self._holder} {owner}; "
                f"detach it before the type of its port {port.link.port} is changed."
            )
        if isinstance(port, SimulatedHostPort) and port.slots:
            raise conflict(
                f"The {self._holder} {port.endpoint} has devices; "
                f"detach them before the type of the host port {port.name} is changed."
            )

    def set_port(
        self,
        port: SwitchPort,
        *,
        configured: bool,
        lanes: int,
        enabled: bool,
        by: Actor | None = None,
    ) -> None:
        """Configure a port; its link retrains where that changes its limits."""
        link = port.link
        before = (link.configured, link.configured_lanes, link.enabled)
        if before == (configured, lanes, enabled):
            return
        was_up = link.status == "LinkUp"
        link.configured, link.configured_lanes, link.enabled = configured, lanes, enabled
        if port.in_use:
            self._physics.train(link)
        elif link.status in ("LinkUp", "Starting", "Training"):
            self._physics.drop(port)
            if was_up:
                self._physics.link_changed(port)
        if enabled != before[2]:
            message = f"Fabric.1.0.PortManually{'Enabled' if enabled else 'Disabled'}"
            self._events.report(message, port.switch, link.port, origin=port.port_uri, by=by)
        if (configured, lanes) != before[:2]:
            self._events.report_change(port.port_uri, by=by)

    def recable(self, port: SimulatedHostPort, host: str | None) -> None:
        """Move the cable of a host port manually: to another host, or out (None).

        The upstream link goes down immediately and trains with the new host. Attached devices stay attached: their
        links get the hot reset that a switch sends downstream when its upstream link is lost, and retrain; no host
        reaches the devices until the upstream link is up again.
        """
        if port.host == host:
            return
        was_up, was_cabled = port.link.status == "LinkUp", port.host is not None
        port.host = None
        self._physics.drop(port)
        port.host = host
        port.link.powered = self._state.has_power(port)
        port.revision += 1
        if was_cabled:
            self._events.report("Fabric.1.0.CableRemoved", port.switch, port.name, origin=port.port_uri)
        if was_up:
            self._physics.link_changed(port)
        for number in port.slots:
            below = self._state.drawers[port.drawer].slots[number].link
            if below.status == "LinkUp":
                self._physics.train(below)
        if host is not None:
            self._events.report("Fabric.1.0.CableInserted", port.switch, port.name, origin=port.port_uri)
            if port.in_use:
                self._physics.train(port.link)
        origin = f"{FABRIC}/Endpoints/{port.endpoint}"
        self._events.report("Fabric.1.0.EndpointModified", port.endpoint, "PCIe", origin=origin)

    def _holder_changed(self, port: SimulatedHostPort, by: Actor | None = None) -> None:
        origin = self.holder_uri(port)
        if self._collection != ZONES:
            self._events.report_change(origin, by=by)
        else:
            self._events.report("Fabric.1.0.ZoneModified", port.endpoint, "PCIe", origin=origin, by=by)


def _check_rule(mode: Mode, allocation: Allocation, rules: ModelRules) -> None:
    reason = refusal(mode, allocation, rules)
    if reason:
        raise conflict(reason)
