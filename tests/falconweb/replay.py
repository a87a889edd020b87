"""Chassis on paper: what was accepted is done there one after the other, by the rules, in the order of the ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DrawerState, HostConnection, attach_violation, mode_violation

Truth = dict[str, Any]
# How an operation that did not succeed tells what it left.
LEFT = re.compile(r"It is attached to (?P<port>H\d+|no host)\.|The drawer is in mode (?P<mode>\w+)\.")
TOUCHES = {"Detach", "Attach", "Change mode"}


@dataclass
class Drawer:
    """A drawer on paper: `attached` is slot number to the label of a host port."""

    mode: str
    connections: tuple[HostConnection, ...]
    attached: dict[int, str]

    @property
    def state(self) -> DrawerState:
        """The drawer as the rules see it."""
        return DrawerState(mode=DrawerMode(self.mode), connections=self.connections, attached=dict(self.attached))


@dataclass(frozen=True)
class Places:
    """What the ids of an administrator's API name: devices and drawers by chassis and numbers, host ports by label."""

    devices: dict[int, tuple[str, int, int]]
    drawers: dict[int, tuple[str, int]]
    ports: dict[int, str]


def places_of(chassis: list[dict[str, Any]]) -> Places:
    """Return what the ids name."""
    drawers = {drawer["id"]: (one["name"], drawer["number"]) for one in chassis for drawer in one["drawers"]}
    return Places(
        devices={
            slot["device"]["id"]: (one["name"], drawer["number"], slot["number"])
            for one in chassis
            for drawer in one["drawers"]
            for slot in drawer["slots"]
            if slot["device"]
        },
        drawers=drawers,
        ports={port["id"]: port["label"] for one in chassis for port in one["host_ports"]},
    )


class Paper:
    """All drawers of some chassis, from the truth at their control addresses, by name and number."""

    def __init__(self, truths: dict[str, Truth]) -> None:
        self.drawers = {
            (name, int(drawer.removeprefix("drawer"))): _drawer(truth, drawer)
            for name, truth in truths.items()
            for drawer in truth["modes"]
        }

    def state(self) -> dict[tuple[str, int], tuple[str, dict[int, str]]]:
        """Return modes and attachments, to be compared."""
        return {place: (drawer.mode, drawer.attached) for place, drawer in self.drawers.items()}

    def replay(self, operations: Iterable[dict[str, Any]], places: Places) -> None:
        """Do operations of the API again, in their order; asserts that each was possible, and broke no rule."""
        for operation in operations:
            drawer = self.drawers[places.drawers[operation["drawer_id"]]]
            if operation["kind"] == "mode":
                self._change_mode(drawer, operation)
            else:
                self._compose(drawer, operation, places)

    def _change_mode(self, drawer: Drawer, operation: dict[str, Any]) -> None:
        wanted = operation["mode"] if operation["state"] == "done" else left_by(operation, drawer.mode)
        if wanted is not None and wanted != drawer.mode:
            assert not (reason := mode_violation(drawer.state, DrawerMode(wanted))), (operation, reason)
            drawer.mode = wanted

    def _compose(self, drawer: Drawer, operation: dict[str, Any], places: Places) -> None:
        slot = places.devices[operation["device_id"]][2]
        held = drawer.attached.pop(slot, None)
        target = places.ports.get(operation["target_host_port_id"])
        if operation["state"] == "done":
            # It looks first: where one before it failed, a part of its work may be done, or not be needed.
            source = places.ports.get(operation["source_host_port_id"])
            assert held in {source, target, None}, (operation, held)
        else:
            # What failed at its first look found that an operation before it had not done what it counted on.
            target = left_by(operation, held)
        if target is not None:
            if target != held:
                assert not (reason := attach_violation(drawer.state, slot=slot, label=target)), (operation, reason)
            drawer.attached[slot] = target


def left_by(operation: dict[str, Any], before: str | None) -> str | None:
    """Return what an operation that was cancelled or failed has left: by its own words, once it began to change it."""
    if not any(step["name"] in TOUCHES and step["started_at"] for step in operation["steps"]):
        return before
    found = LEFT.search(operation["steps"][-1]["sentence"])
    assert found, operation
    if found["mode"]:
        return found["mode"]
    return None if found["port"] == "no host" else found["port"]


def _drawer(truth: Truth, name: str) -> Drawer:
    """Return a drawer; a cable that is cut and who else is behind a host do not come up here."""
    attached, connections = {}, []
    number = name.removeprefix("drawer")
    for zone, members in truth["zones"].items():
        port = zone.rpartition("_")[2]
        if zone.startswith(f"hostport{number}_"):
            connections.append(HostConnection(label=port, number=int(port[1:]), host=truth["cabling"][zone] or ""))
        for member in members:
            if member.startswith(name):
                attached[int(member.removeprefix(f"{name}slot"))] = port
    return Drawer(mode=truth["modes"][name], connections=tuple(connections), attached=attached)
