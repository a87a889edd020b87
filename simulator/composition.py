"""Attaching, detaching and changing modes: the BMC's side of composition, with its refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.errors import RedfishError, conflict
from simulator.events import Events
from simulator.physics import Physics
from simulator.rules import MODES, Mode, refusal
from simulator.state import ChassisState, Drawer, HostPort, Slot

FABRIC = "/redfish/v1/Fabrics/PCIe"


class Composer:
    """Changes who has what; every change is checked whole before anything is switched."""

    def __init__(self, state: ChassisState, physics: Physics, events: Events) -> None:
        self._state = state
        self._physics = physics
        self._events = events

    def slots_of_list(self, port: HostPort, endpoints: Sequence[str]) -> list[Slot]:
        """Return the slots that a zone's new list of endpoint Ids names.

        Refuses a list without the zone's host port (409), with another zone's host port (409),
        an unknown endpoint (400) or one endpoint twice (400).
        """
        if port.endpoint not in endpoints:
            raise conflict(f"The zone {port.endpoint} always holds its host-port endpoint {port.endpoint}.")
        if len(set(endpoints)) != len(endpoints):
            raise RedfishError(400, "PropertyValueConflict", "The list names an endpoint twice.")
        slots = []
        for endpoint in endpoints:
            if endpoint == port.endpoint:
                continue
            if self._state.zone(endpoint) is not None:
                raise conflict(f"The host port {endpoint} has a zone of its own and cannot join {port.endpoint}.")
            slot = self._state.slot_of_endpoint(endpoint)
            if slot is None:
                raise RedfishError(
                    400,
                    "ResourceNotFound",
                    f"The requested resource of type Endpoint named '{endpoint}' was not found.",
                    arguments=("Endpoint", endpoint),
                )
            slots.append(slot)
        return slots

    def check(self, port: HostPort, slots: Sequence[Slot]) -> None:
        """Refuse with 409 what the rules of the drawer forbid; nothing is changed."""
        drawer = self._state.drawers[port.drawer]
        if drawer.changing_to is not None:
            raise conflict(f"The mode of drawer {drawer.number} is being changed; wait for its task to end.")
        for slot in slots:
            if slot.drawer != port.drawer:
                raise conflict(
                    f"The host port {port.name} is cabled to drawer {port.drawer} and cannot reach {slot.endpoint}."
                )
            if slot.attached_to not in (None, port.name):
                owner = drawer.host_ports[str(slot.attached_to)].endpoint
                raise conflict(f"The endpoint {slot.endpoint} belongs to the zone {owner}; detach it there first.")
        wanted = {number: owner for number, owner in drawer.allocation().port_of_slot.items() if owner != port.name}
        wanted.update((slot.number, port.name) for slot in slots)
        reason = refusal(drawer.mode, replace(drawer.allocation(), port_of_slot=wanted))
        if reason:
            raise conflict(reason)

    def apply(self, port: HostPort, slots: Sequence[Slot]) -> None:
        """Make the slots the zone's devices: detach what is not in the list, attach and train what is new."""
        drawer = self._state.drawers[port.drawer]
        kept = {slot.number for slot in slots}
        before = list(port.slots)
        for number in before:
            if number not in kept:
                self._detach(drawer, port, drawer.slots[number])
        for slot in slots:
            if slot.number not in before:
                slot.attached_to = port.name
                if slot.link.enabled:
                    self._physics.train(slot.link, self._physics.time)
        port.slots = [slot.number for slot in slots]
        if port.slots != before:
            port.revision += 1
            self._zone_changed(port)

    def _detach(self, drawer: Drawer, port: HostPort, slot: Slot) -> None:
        was_up = slot.link.status == "LinkUp"
        slot.attached_to = None
        self._physics.drop(slot.link, present=slot.present is not None)
        if was_up:
            self._physics.announce_link(drawer.number, slot.link)

    def lose(self, slot: Slot) -> None:
        """Take a device out without warning: its endpoint goes, and its zone loses it."""
        slot.removed = True
        drawer = self._state.drawers[slot.drawer]
        if slot.attached_to is not None:
            port = drawer.host_ports[slot.attached_to]
            self._detach(drawer, port, slot)
            port.slots.remove(slot.number)
            port.revision += 1
            self._zone_changed(port)
        self._physics.drop(slot.link, present=False)
        uri = f"/redfish/v1/Chassis/drawer{slot.drawer}/PCIeDevices/slot{slot.number}"
        self._events.emit(
            "ResourceEvent.1.3.ResourceRemoved",
            "The resource was removed successfully.",
            severity="Critical",
            origin=uri,
        )

    def restore(self, slot: Slot) -> None:
        """Plug a lost device in again; it comes back unattached."""
        slot.removed = False
        self._physics.drop(slot.link, present=slot.present is not None)
        uri = f"/redfish/v1/Chassis/drawer{slot.drawer}/PCIeDevices/slot{slot.number}"
        self._events.emit("ResourceEvent.1.3.ResourceCreated", "The resource was created successfully.", origin=uri)

    def allowed_modes(self, drawer: Drawer) -> list[Mode]:
        """Return the modes that the drawer's allocation of now fits."""
        return [mode for mode in MODES if refusal(mode, drawer.allocation()) is None]

    def check_mode(self, drawer: Drawer, mode: Mode) -> None:
        """Refuse with 409 a mode that the drawer's allocation breaks."""
        if drawer.changing_to is not None:
            raise conflict(f"The mode of drawer {drawer.number} is already being changed to {drawer.changing_to}.")
        reason = refusal(mode, drawer.allocation())
        if reason:
            raise conflict(reason)

    def set_mode(self, drawer: Drawer, mode: Mode) -> None:
        """Put a drawer into a mode."""
        drawer.mode = mode
        self._events.emit(
            "H3Falcon.1.0.DrawerModeChanged",
            f"Drawer {drawer.number} is in the mode {mode}.",
            str(drawer.number),
            mode,
            origin=f"/redfish/v1/Chassis/drawer{drawer.number}",
        )

    def _zone_changed(self, port: HostPort) -> None:
        self._events.emit(
            "Fabric.1.0.ZoneModified",
            f"Zone '{port.endpoint}' in fabric 'PCIe' has been modified.",
            "PCIe",
            port.endpoint,
            origin=f"{FABRIC}/Zones/{port.endpoint}",
        )
