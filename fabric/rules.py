"""The rules of the three drawer modes, pure: no database, no BMC.

Source of the rules: the vendor's description of the Falcon 4016, as design notes summarise it. Standard with one host:
one connection reaches all 8 slots. Standard with two hosts: two connections, each reaches one half. Advanced: up to
three hosts share the 8 slots in any split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fabric.bmc.types import DrawerMode

ABOUT_MODES = {
    DrawerMode.STANDARD_ONE_HOST: "One connection reaches all 8 slots.",
    DrawerMode.STANDARD_TWO_HOSTS: "Two connections, each reaches one half: slots 1 to 4, and 5 to 8.",
    DrawerMode.ADVANCED: "Up to three hosts share the 8 slots in any split.",
}
SLOTS_OF_A_DRAWER = 8
HALF = SLOTS_OF_A_DRAWER // 2
MOST_HOSTS = 3


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A host port of the drawer; `host` names the host behind it, '' where nobody is cabled."""

    label: str
    number: int
    host: str


@dataclass(frozen=True, kw_only=True)
class DrawerState:
    """A drawer as the rules see it: its mode, its host ports, and which port each occupied slot is attached to."""

    mode: DrawerMode
    connections: tuple[Connection, ...]
    attached: dict[int, str]  # slot number (1-based) -> label of the host port

    def connection(self, label: str) -> Connection | None:
        """Return the host port of that label."""
        return next((connection for connection in self.connections if connection.label == label), None)


def why_not_attach(drawer: DrawerState, *, slot: int, label: str) -> str:
    """Return '' if the slot's device may be attached to the host port, else the sentence that says why not.

    The device's present attachment does not count: it is detached first.
    """
    target = drawer.connection(label)
    if target is None:
        return f"Host port {label} is not cabled to this drawer."
    if not target.host:
        return f"No host is cabled to host port {label}."
    ordered = sorted(drawer.connections, key=lambda connection: connection.number)
    match drawer.mode:
        case DrawerMode.STANDARD_ONE_HOST:
            return _one_host(drawer, ordered, slot=slot, target=target)
        case DrawerMode.STANDARD_TWO_HOSTS:
            return _two_hosts(ordered, slot=slot, target=target)
        case DrawerMode.ADVANCED:
            return _advanced(drawer, slot=slot, target=target)
        case DrawerMode.UNKNOWN:
            return ""  # a BMC that does not say its mode judges by itself


def _one_host(drawer: DrawerState, ordered: list[Connection], *, slot: int, target: Connection) -> str:
    others = {label for number, label in drawer.attached.items() if number != slot and label != target.label}
    if others:
        return (
            f"The drawer is in standard mode for one host, and {_listed(others)} is the port in use: "
            f"only one host port reaches its slots at a time."
        )
    return ""


def _two_hosts(ordered: list[Connection], *, slot: int, target: Connection) -> str:
    pair = ordered[:2]
    if target not in pair:
        return (
            f"The drawer is in standard mode for two hosts: only {_listed(c.label for c in pair)} reach its slots, "
            f"{target.label} does not."
        )
    reaches_first_half = target == pair[0]
    if reaches_first_half != (slot <= HALF):
        half = f"1 to {HALF}" if reaches_first_half else f"{HALF + 1} to {SLOTS_OF_A_DRAWER}"
        return (
            f"The drawer is in standard mode for two hosts: {target.label} reaches slots {half}, not slot {slot}. "
            f"Choose a device of its half, or change the drawer to advanced mode."
        )
    return ""


def _advanced(drawer: DrawerState, *, slot: int, target: Connection) -> str:
    hosts = {
        connection.host
        for number, label in drawer.attached.items()
        if number != slot and (connection := drawer.connection(label)) is not None
    } | {target.host}
    if len(hosts) > MOST_HOSTS:
        return f"A drawer in advanced mode serves at most {MOST_HOSTS} hosts, and this would be the {len(hosts)}th."
    return ""


def why_not_mode(drawer: DrawerState, mode: DrawerMode) -> str:
    """Return '' if the drawer may change to `mode` with its attachments as they are, else what stands in its way."""
    after = DrawerState(mode=mode, connections=drawer.connections, attached=drawer.attached)
    reasons = {
        slot: reason
        for slot, label in sorted(drawer.attached.items())
        if (reason := why_not_attach(after, slot=slot, label=label))
    }
    if not reasons:
        return ""
    if mode is DrawerMode.STANDARD_ONE_HOST:
        held = {
            label: _slots(slot for slot, other in drawer.attached.items() if other == label)
            for label in sorted(set(drawer.attached.values()))
        }
        users = _listed(f"{label} ({slots})" for label, slots in held.items())
        return f"In this mode one host port at a time has devices, and {users} have some. Detach all but one's first."
    their, them = ("its", "it") if len(reasons) == 1 else ("their", "them")
    if mode is DrawerMode.STANDARD_TWO_HOSTS:
        first, second = f"slots 1 to {HALF}", f"slots {HALF + 1} to {SLOTS_OF_A_DRAWER}"
        pair = sorted(drawer.connections, key=lambda connection: connection.number)[:2]
        reach = " and ".join(f"{port.label} reaches {half}" for port, half in zip(pair, (first, second), strict=False))
        return f"{_slots(reasons).capitalize()} would lose {their} host: in this mode {reach}. Detach {them} first."
    return next(iter(reasons.values()))


def _slots(numbers: Iterable[int]) -> str:
    """Return 'slot 3' or 'slots 1, 2 and 5'."""
    known = sorted(numbers)
    return f"slot{'' if len(known) == 1 else 's'} {_in_words([str(number) for number in known])}"


def _listed(words: Iterable[str]) -> str:
    return _in_words(sorted(words))


def _in_words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
