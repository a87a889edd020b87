"""The present state, the desired state and the steps between them, as frozen values: pure, no database, no BMC.

Within a drawer devices are detached before others are attached; mode, cables and ports change in between. Drawers do
not wait for each other. No step breaks a rule of its drawer's mode. Devices that need not move are not touched; a
device that blocks a change, or that a change would disconnect, is detached first and attached later; every other one
moves in a single step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from core.language import _, _n, join_words
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import (
    UNCONFIGURED_PORT,
    DeviceSnapshot,
    DrawerSnapshot,
    PortSetting,
    attach_violation,
    attachment_violation,
    drawer_ports,
    mode_violation,
)

StepKind = Literal["attach", "detach", "move", "mode", "port", "cable"]


@dataclass(frozen=True, kw_only=True)
class DesiredState:
    """The desired state, by ids; objects that it does not name stay unchanged.

    `attachments` device to host port (None: no host), `modes` drawer to mode, `cables` host port to host (None: no
    cable), `settings` switch port to its type and lanes.
    """

    attachments: Mapping[int, int | None] = field(default_factory=dict)
    modes: Mapping[int, DrawerMode] = field(default_factory=dict)
    cables: Mapping[int, int | None] = field(default_factory=dict)
    settings: Mapping[int, PortSetting] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, ids as strings."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> DesiredState:
        """Read what `as_json` returned; raises msgspec.ValidationError for anything else."""
        return msgspec.convert(plain, cls, strict=False)

    def with_interrupted(self, steps: Iterable[PlanStep]) -> DesiredState:
        """Return it with the host ports of devices that the steps only interrupt.

        After some of the steps a new plan must reattach those devices too, which by then are detached.
        """
        back = {step.device: step.target for step in steps if step.interrupts and step.device and step.kind == "attach"}
        return replace(self, attachments={**back, **self.attachments})


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """One operation of a plan; `after` are the positions of the steps that must be done before it.

    `interrupts` marks a device that is detached and reattached so that something else can change.
    """

    position: int
    kind: StepKind
    chassis: int
    drawer: int | None
    device: int | None = None
    source: int | None = None
    target: int | None = None
    mode: str = ""
    port: int | None = None
    setting: PortSetting | None = None
    host: int | None = None
    after: tuple[int, ...] = ()
    interrupts: bool = False


@dataclass(frozen=True, kw_only=True)
class Objection:
    """Why a desired state is not possible: a sentence, and the objects that it is about."""

    sentence: str
    drawer: int | None = None
    device: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedSteps:
    """The steps in a permitted order, or the objections and no steps."""

    steps: tuple[PlanStep, ...] = ()
    objections: tuple[Objection, ...] = ()


def projected_after(drawer: DrawerSnapshot, desired: DesiredState) -> DrawerSnapshot:
    return replace(
        drawer,
        mode=drawer.mode if drawer.id is None else desired.modes.get(drawer.id, drawer.mode),
        ports=tuple(replace(port, host=desired.cables.get(port.id, port.host)) for port in drawer.ports),
        devices=tuple(
            replace(device, attached=desired.attachments.get(device.id, device.attached)) for device in drawer.devices
        ),
        settings={
            **drawer.settings,
            **{
                port: merged_setting(drawer.settings.get(port, PortSetting()), desired.settings[port])
                for port in drawer_ports(drawer) & set(desired.settings)
            },
        },
    )


def merged_setting(now: PortSetting, desired: PortSetting) -> PortSetting:
    return PortSetting(
        port_type=desired.port_type or now.port_type,
        configured_width=desired.configured_width or now.configured_width,
    )


def plan_steps(drawers: Iterable[DrawerSnapshot], desired: DesiredState) -> PlannedSteps:
    """Return the steps from the present state of the drawers to the desired state.

    Every device, drawer and port that changes must be in `drawers`; raises KeyError for one that is not. A host port
    outside the drawer of the device that it is desired for is an objection. Steps are numbered from 0, drawer by
    drawer; no step waits for a step of another drawer. Any order that respects the dependencies breaks no rule.
    """
    seen = list(drawers)
    _check_known(seen, desired)
    steps: list[PlanStep] = []
    objections: list[Objection] = []
    for drawer in seen:
        planned = _DrawerPlan(drawer, desired, first=len(steps)).planned()
        steps += planned.steps
        objections += planned.objections
    return PlannedSteps(objections=tuple(objections)) if objections else PlannedSteps(steps=tuple(steps))


def _check_known(drawers: list[DrawerSnapshot], desired: DesiredState) -> None:
    devices = {device.id for drawer in drawers for device in drawer.devices}
    host_ports = {port.id for drawer in drawers for port in drawer.ports}
    ports = set[int]().union(*(drawer_ports(drawer) for drawer in drawers))
    known = (
        (desired.attachments, devices),
        (desired.modes, {drawer.id for drawer in drawers if drawer.id is not None}),
        (desired.cables, host_ports),
        (desired.settings, ports),
    )
    for asked, there in known:
        for one in asked:
            if one not in there:
                raise KeyError(one)


class _DrawerRules:
    """The rules of a drawer with a given mode and cables."""

    def __init__(self, drawer: DrawerSnapshot) -> None:
        self.hold = drawer.id is not None  # devices outside drawers have no mode
        self.labels = {port.id: port.label for port in drawer.ports}
        self.state = drawer.state(is_empty=True)
        # The unit that the mode counts: a port that has a device, or a host that has one.
        counts_ports = bool(self.state.limits.host_ports)
        self.users = {port.id: port.id if counts_ports else port.host for port in drawer.ports}

    def allow(self, device: DeviceSnapshot, target: int | None, others: Iterable[int | None]) -> bool:
        """Return whether a device may use a host port while the other devices use these host ports."""
        if target is None or not self.hold or target not in self.labels:
            return True
        return not attachment_violation(
            self.state, slot=device.slot, label=self.labels[target], others=self.labels_of(others)
        )

    def labels_of(self, held: Iterable[int | None]) -> set[str]:
        """Return the labels of host ports; one that is not in the drawer has none."""
        return {self.labels[port] for port in held if port in self.labels}

    def user(self, port: int | None) -> int | None:
        """Return the unit that the mode counts for a device at this host port."""
        return self.users.get(port) if port is not None else None


class _DrawerPlan:
    """The steps within one drawer, in waves, each of which waits for the previous one.

    The steps of a wave may run in any order, also in parallel.
    """

    def __init__(self, drawer: DrawerSnapshot, desired: DesiredState, *, first: int) -> None:
        self.now = drawer
        self.then = projected_after(drawer, desired)
        self.first = first
        self.steps: list[PlanStep] = []
        self.last_wave: tuple[int, ...] = ()
        self.devices = {device.id: device for device in sorted(drawer.devices, key=lambda one: (one.slot, one.id))}
        self.at = {device: seen.attached for device, seen in self.devices.items()}
        self.goal = {device.id: device.attached for device in self.then.devices}
        self.changes_mode = self.then.mode is not self.now.mode
        self.recabled = {
            before.id: after.host
            for before, after in zip(drawer.ports, self.then.ports, strict=True)
            if before.host != after.host
        }
        self.reset = {
            port: setting
            for port, setting in self.then.settings.items()
            if setting != drawer.settings.get(port, PortSetting())
        }
        self.changed_ports = {port.id for port in drawer.ports if port.id in self.recabled or port.port in self.reset}

    def planned(self) -> PlannedSteps:
        if objections := self._objections():
            return PlannedSteps(objections=tuple(objections))
        if self.changes_mode or self.recabled or self.reset:
            self._move_all(
                _DrawerRules(self.now), [device for device in self.at if self._may_move_before(device)], insist=False
            )
            self._wave(self._move_step(device, None) for device in self._devices_blocking_change())
            self._wave(
                [
                    *({"kind": "cable", "source": port, "host": host} for port, host in sorted(self.recabled.items())),
                    *({"kind": "port", "port": port, "setting": new} for port, new in sorted(self.reset.items())),
                ]
            )
            self._wave([{"kind": "mode", "mode": self.then.mode.value}] if self.changes_mode else [])
        self._move_all(
            _DrawerRules(self.then), [device for device, held in self.at.items() if held != self.goal[device]]
        )
        return PlannedSteps(steps=tuple(self.steps))

    def _objections(self) -> list[Objection]:
        rules = _DrawerRules(self.then)
        found = []
        if self.changes_mode and (reason := mode_violation(rules.state, self.then.mode, planned=True)):
            found.append(Objection(sentence=reason, drawer=self.now.id))
        found += [
            Objection(sentence=reason, drawer=self.now.id, device=device.id)
            for device in self.then.devices
            if (reason := self._why_not(rules, device))
        ]
        first: dict[str, Objection] = {}
        for one in found:
            first.setdefault(one.sentence, one)  # a rule that all devices of a drawer break is reported once
        return list(first.values())

    def _why_not(self, rules: _DrawerRules, device: DeviceSnapshot) -> str:
        """Return why a device cannot have its desired host port, '' if it can; only changes of the plan are checked."""
        target = device.attached
        if target is None:
            return ""
        is_new = self.at[device.id] != target or self._is_cut(device.id)
        if target not in rules.labels:
            sentence = _("{device} and its host port in this plan are not in the same drawer.", device=device.name)
            return sentence if is_new else ""
        through = {device.port, next(port.port for port in self.then.ports if port.id == target)}
        # A BMC may permit existing attachments that the rules do not: only new ones are checked.
        if (self.at[device.id] != target or through & set(self.reset)) and any(
            setting.port_type == UNCONFIGURED_PORT for port, setting in self.then.settings.items() if port in through
        ):
            return _("{device} cannot be attached through a port that is not configured.", device=device.name)
        if not rules.hold or not (is_new or self.changes_mode or self.recabled):
            return ""
        others = rules.labels_of(held for other, held in self.goal.items() if other != device.id)
        if self.recabled.get(target, target) is None:
            return self._unplug_objection(target, rules.labels[target])
        judge = attach_violation if is_new else attachment_violation
        return judge(rules.state, slot=device.slot, label=rules.labels[target], others=others, planned=True)

    def _unplug_objection(self, port: int, label: str) -> str:
        """Return the objection to unplugging the cable of a host port that has devices."""
        names = [
            _("{device} (slot {slot})", device=device.name, slot=device.slot) if device.slot else device.name
            for device in self.devices.values()
            if self.goal[device.id] == port
        ]
        return _n(
            "Without the cable of {port}, {devices} would be attached to no host: detach it in the same plan, "
            "or move it.",
            "Without the cable of {port}, {devices} would be attached to no host: detach them in the same plan, "
            "or move them.",
            len(names),
            port=label,
            devices=join_words(names),
        )

    def _is_cut(self, device: int) -> bool:
        """Return whether a change of a cable or a port interrupts a device's present attachment."""
        held = self.at[device]
        return held is not None and (held in self.changed_ports or self.devices[device].port in self.reset)

    def _may_move_before(self, device: int) -> bool:
        """Return whether a device could be detached or moved before the drawer changes."""
        held, goal = self.at[device], self.goal[device]
        if held is None or held == goal:
            return False
        return goal is None or (goal not in self.changed_ports and self.devices[device].port not in self.reset)

    def _devices_blocking_change(self) -> list[int]:
        """Return the devices that must be detached while the drawer changes."""
        out = {device for device in self.at if self._is_cut(device)}
        if self.changes_mode:
            rules = _DrawerRules(self.then)
            kept = [self.at[device] for device, goal in self.goal.items() if self.at[device] == goal]
            for device in (one for one in self.at if self.at[one] != self.goal[one] and one not in out):
                if rules.allow(self.devices[device], self.at[device], kept):
                    kept.append(self.at[device])
                else:
                    out.add(device)
        return [device for device in self.at if device in out]

    def _move_all(self, rules: _DrawerRules, pending: list[int], *, insist: bool = True) -> None:
        """Move devices to their desired host ports; blocked ones stay unless `insist` detaches others for them."""
        kept = {rules.user(goal) for goal in self.goal.values()}
        while pending:
            # Detaching frees capacity, then moves that empty a host or port; attaching uses it.
            pending.sort(
                key=lambda one: (self.goal[one] is not None, self.at[one] is None, rules.user(self.at[one]) in kept)
            )
            ready = self._movable_together(rules, pending) or self._movable_alone(rules, pending)
            if ready:
                self._wave([self._move_step(device, self.goal[device]) for device in ready])
                pending = [device for device in pending if device not in ready]
            elif insist:
                self._wave([self._move_step(device, None) for device in self._devices_making_room(rules, pending)])
            else:
                return

    def _movable_together(self, rules: _DrawerRules, pending: list[int]) -> list[int]:
        """Return devices that may move in any order: each while all others are at their old or new port."""
        held = set(self.at.values())
        ready = []
        for device in pending:
            if rules.allow(self.devices[device], self.goal[device], held):
                ready.append(device)
                held.add(self.goal[device])
        return ready

    def _movable_alone(self, rules: _DrawerRules, pending: list[int]) -> list[int]:
        """Return the first device that may move while no other one does."""
        for device in pending:
            others = {held for other, held in self.at.items() if other != device}
            if rules.allow(self.devices[device], self.goal[device], others):
                return [device]
        return []

    def _devices_making_room(self, rules: _DrawerRules, pending: list[int]) -> list[int]:
        """Return the devices to detach: all of one host or port, of one that no other device keeps, of the fewest.

        There are some: with only attachments left, all present ones are part of the desired state, which is permitted.
        """
        kept = {rules.user(goal) for goal in self.goal.values()}
        groups: dict[int | None, list[int]] = {}
        for device in pending:
            if self.at[device] is not None:
                groups.setdefault(rules.user(self.at[device]), []).append(device)
        user = min(groups, key=lambda one: (one in kept, len(groups[one])))
        return groups[user]

    def _move_step(self, device: int, target: int | None) -> dict[str, Any]:
        """Return the step that attaches a device to a host port, or detaches it."""
        source, self.at[device] = self.at[device], target
        kind: StepKind = "detach" if target is None else "attach" if source is None else "move"
        stays = self.devices[device].attached == self.goal[device]
        return {"kind": kind, "device": device, "source": source, "target": target, "interrupts": stays}

    def _wave(self, steps: Iterable[dict[str, Any]]) -> None:
        """Add steps that wait for the previous wave."""
        begin = len(self.steps)
        for position, values in enumerate(steps, self.first + begin):
            self.steps.append(
                PlanStep(
                    position=position, chassis=self.now.chassis, drawer=self.now.id, after=self.last_wave, **values
                )
            )
        self.last_wave = tuple(step.position for step in self.steps[begin:]) or self.last_wave
