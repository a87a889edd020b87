"""Drawers, wishes and steps in few letters, and a chassis on paper that carries steps out and breaks at a wrong one.

drawer(ADVANCED, "AB-", "11 2....")   H1 leads to host A, H2 to host B, H3 nowhere; slots 1 and 2 are attached to
                                      H1, slot 3 is empty, slot 4 is attached to H2, the others to nobody
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import get_args

from fabric.bmc.types import DrawerMode
from fabric.operations.rules import (
    DeviceSnapshot,
    DrawerSnapshot,
    DrawerState,
    HostConnection,
    PortSetting,
    PortSnapshot,
    attach_violation,
    mode_violation,
)
from fabric.plans.rules import DesiredState, PlannedSteps, PlanStep
from simulator import rules as chassis_rules

ONE, TWO, ADVANCED, UNKNOWN = (
    DrawerMode.STANDARD_ONE_HOST,
    DrawerMode.STANDARD_TWO_HOSTS,
    DrawerMode.ADVANCED,
    DrawerMode.UNKNOWN,
)


def device(slot: int, *, number: int = 1) -> int:
    """The id of the device in a slot of the drawer of that number."""
    return 1000 * number + slot


def host_port(label: str, *, number: int = 1) -> int:
    """The id of a host port."""
    return 1000 * number + 100 + int(label.removeprefix("H"))


def port(place: str, *, number: int = 1) -> int:
    """The id of the switch port of 'slot 3' or 'H2'."""
    base = 200 if place.startswith("slot") else 300
    return 1000 * number + base + int(place.removeprefix("slot ").removeprefix("H"))


def host(letter: str) -> int | None:
    """The id of a host."""
    return None if letter == "-" else ord(letter)


def drawer(
    mode: DrawerMode, hosts: str, attached: str, *, widths: Mapping[str, int] | None = None, number: int = 1
) -> DrawerSnapshot:
    """A drawer in few letters; `widths` are the lanes of the switch ports of places."""
    return DrawerSnapshot(
        chassis=1,
        id=number,
        name=f"Drawer {number}",
        mode=mode,
        ports=tuple(
            PortSnapshot(
                id=host_port(f"H{index}", number=number),
                label=f"H{index}",
                number=index,
                host=host(letter),
                port=port(f"H{index}", number=number),
            )
            for index, letter in enumerate(hosts, start=1)
        ),
        devices=tuple(
            DeviceSnapshot(
                id=device(slot, number=number),
                name=f"slot {slot}",
                slot=slot,
                attached=_target(letter, number),
                port=port(f"slot {slot}", number=number),
            )
            for slot, letter in enumerate(attached, start=1)
            if letter != " "
        ),
        settings=_settings(widths, number),
    )


def wish(
    attached: str = "",
    *,
    mode: DrawerMode | None = None,
    cables: Mapping[str, str] | None = None,
    widths: Mapping[str, int] | None = None,
    only: Collection[int] = range(1, 9),
    number: int = 1,
) -> DesiredState:
    """What is wanted of a drawer in few letters: of these slots."""
    return DesiredState(
        attachments={
            device(slot, number=number): _target(letter, number)
            for slot, letter in enumerate(attached, start=1)
            if slot in only and letter != " "
        },
        modes={} if mode is None else {number: mode},
        cables={host_port(label, number=number): host(letter) for label, letter in (cables or {}).items()},
        settings=_settings(widths, number),
    )


def _target(letter: str, number: int) -> int | None:
    return None if letter == "." else host_port(f"H{letter}", number=number)


def _settings(widths: Mapping[str, int] | None, number: int) -> dict[int, PortSetting]:
    return {port(place, number=number): PortSetting(configured_width=width) for place, width in (widths or {}).items()}


def step_texts(planned: PlannedSteps) -> list[str]:
    """The steps in few words."""
    return [_step_text(step) for step in planned.steps]


def _step_text(step: PlanStep) -> str:
    match step.kind:
        case "mode":
            return f"mode {step.mode}"
        case "cable":
            return f"cable H{(step.source or 0) % 100} to {chr(step.host) if step.host else 'nobody'}"
        case "port":
            kind, number = divmod((step.port or 0) % 1000, 100)
            setting = step.setting or PortSetting()
            lanes = "off" if setting.port_type == "UnconfiguredPort" else f"x{setting.configured_width}"
            return f"port {'slot ' if kind == 2 else 'H'}{number} {lanes}"
        case "detach":
            return f"detach {(step.device or 0) % 100}"
        case _:
            return f"{step.kind} {(step.device or 0) % 100} to H{(step.target or 0) % 100}"


def carried_out(seen: DrawerSnapshot, steps: Iterable[PlanStep]) -> DrawerSnapshot:
    """Carry steps out on paper, in this order: each as it expects, each allowed by the rules and by the chassis."""
    for step in steps:
        seen = _carried_out(seen, step)
    return seen


def _carried_out(seen: DrawerSnapshot, step: PlanStep) -> DrawerSnapshot:
    at = {one.id: one.attached for one in seen.devices}
    match step.kind:
        case "mode":
            assert step.mode != seen.mode
            assert mode_violation(_state(seen), DrawerMode(step.mode)) == ""
            seen = replace(seen, mode=DrawerMode(step.mode))
        case "cable":
            assert step.source not in at.values(), "a cable is moved only while nothing is attached over it"
            ports = (replace(one, host=step.host) if one.id == step.source else one for one in seen.ports)
            seen = replace(seen, ports=tuple(ports))
        case "port":
            assert step.port is not None
            assert step.setting is not None
            behind = {one.id: one.port for one in seen.ports}
            for one in seen.devices:
                in_use = one.attached is not None and step.port in {one.port, behind[one.attached]}
                assert not in_use, "a port is set only while nothing is attached through it"
            seen = replace(seen, settings={**seen.settings, step.port: step.setting})
        case _:
            moved = next(one for one in seen.devices if one.id == step.device)
            assert moved.attached == step.source
            assert moved.attached != step.target
            assert (
                step.kind
                == {True: "detach", False: "attach" if moved.attached is None else "move"}[step.target is None]
            )
            label = next((one.label for one in seen.ports if one.id == step.target), "")
            assert step.target is None or attach_violation(_state(seen), slot=moved.slot, label=label) == ""
            changed = replace(moved, attached=step.target)
            seen = replace(seen, devices=tuple(changed if one.id == moved.id else one for one in seen.devices))
    assert refusal_of(seen) is None
    return seen


def refusal_of(seen: DrawerSnapshot) -> str | None:
    """Return what the chassis itself would say against a drawer as it is, by the simulator's rules."""
    state = _state(seen)
    mode = next((one for one in get_args(chassis_rules.Mode) if one == seen.mode.value), None)
    if mode is None:
        return None
    hosts = {connection.label: connection.host for connection in state.connections}
    return chassis_rules.refusal(mode, chassis_rules.Allocation(hosts, state.attached))


def _state(seen: DrawerSnapshot) -> DrawerState:
    labels = {one.id: one.label for one in seen.ports}
    return DrawerState(
        mode=seen.mode,
        connections=tuple(
            HostConnection(label=one.label, number=one.number, host=str(one.host or "")) for one in seen.ports
        ),
        attached={one.slot: labels[one.attached] for one in seen.devices if one.attached in labels and one.attached},
    )
