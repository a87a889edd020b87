"""Fault injection: kind, target and duration of faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from simulator.composition import Composer
from simulator.events import EventLog
from simulator.hosts import HostSimulation
from simulator.lab import GENERATIONS
from simulator.odata import V1
from simulator.physics import Physics
from simulator.state import ERROR_COUNTERS, ChassisState, SimulatedFan, SimulatedSlot, SwitchPort

FaultKind = Literal[
    "link_downgrade",
    "link_flap",
    "error_burst",
    "overheat",
    "fan_failure",
    "surprise_removal",
    "slow",
    "server_error",
    "hang",
    "reset_connections",
    "half_applied_bind",
    "late_bind",
    "wiping_refusal",
    "foreign_location",
    "no_link_status",
    "bmc_reboot",
    "host_rescan_hangs",
    "host_remove_hangs",
    "host_read_hangs",
    "host_misses_device",
    "event_stream_missing",
    "event_stream_cut",
    "events_without_id",
    "bad_values",
    "repeated_report",
    "late_reports",
    "many_readings",
    "other_unit",
    "firmware_hangs",
    "firmware_keeps_version",
]
HOST_FAULTS = ("host_rescan_hangs", "host_remove_hangs", "host_read_hangs", "host_misses_device")
REPORT_FAULTS = ("bad_values", "repeated_report", "late_reports", "many_readings")
MAX_READINGS = 20_000


class FaultError(ValueError):
    """An impossible fault; the text says why."""


class FaultRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A requested fault.

    `seconds` (wall time) ends the fault; without it, the fault stays until it is deleted. `count` ends a
    fault of requests after this many of them. `path` limits one to URIs that contain it.
    """

    kind: FaultKind
    target: str = ""
    seconds: float | None = None
    count: int | None = None
    path: str = ""
    method: str = ""
    delay: float = 2.0
    status: int = 500
    lanes: int | None = None
    generation: str | None = None
    counter: str = "CorrectableErrorCount"
    rate: float = 50.0
    period: float = 1.0
    answer: Literal["partial", "error"] = "partial"
    value: Literal["nan", "null", "text", "negative"] = "null"
    readings: int = 5000
    # Of bmc_reboot: the ports count from zero afterwards, as with services that store their counts in the BMC.
    forgets_counters: bool = False
    # Of bmc_reboot, as of bmcweb: the next event on a stream is preceded by the whole log with shifted EventIds, and
    # sessions outlive the restart.
    repeats_log: bool = False
    keeps_sessions: bool = False


@dataclass
class Fault:
    """One active fault."""

    id: str
    request: FaultRequest
    ends: float | None
    left: int | None
    undo: Callable[[], None] = field(default=lambda: None)
    step: Callable[[float], None] = field(default=lambda _elapsed: None)


class FaultInjector:
    """The active faults of one chassis."""

    def __init__(self, state: ChassisState, physics: Physics, composer: Composer, events: EventLog) -> None:
        self._state = state
        self._physics = physics
        self._composer = composer
        self._events = events
        self._number = 0
        self._stepped = time.monotonic()
        self.active: dict[str, Fault] = {}
        self.reboot: Callable[[float, bool], None] = lambda _seconds, _keeps_sessions: None
        # The metrics of the report by name, and their sensors by URI; empty without a report.
        self.metrics: dict[str, str] = {}
        # URIs of the sensors that support another unit.
        self.changeable: set[str] = set()
        self.changes = 0  # counts the starts and ends of faults
        self.hosts: HostSimulation | None = None

    def add(self, request: FaultRequest) -> Fault:
        """Activate a fault; raises FaultError where its target does not exist."""
        ends = None if request.seconds is None else time.monotonic() + request.seconds
        left = 1 if request.kind in ("half_applied_bind", "late_bind") and request.count is None else request.count
        self._number += 1
        fault = Fault(str(self._number), request, ends, left)
        self._begin(fault)
        self.active[fault.id] = fault
        self.changes += 1
        return fault

    def _begin(self, fault: Fault) -> None:
        begin = {
            **dict.fromkeys(HOST_FAULTS, self._host_fault),
            **dict.fromkeys(REPORT_FAULTS, self._report_fault),
            "bmc_reboot": self._reboot,
            "link_downgrade": self._downgrade,
            "link_flap": self._flap,
            "error_burst": self._burst,
            "overheat": self._overheat,
            "fan_failure": self._fan_failure,
            "other_unit": self._other_unit,
            "surprise_removal": self._removal,
        }.get(fault.request.kind)
        # Faults of requests and events have an effect when one comes.
        if begin is not None:
            begin(fault)

    def _reboot(self, fault: Fault) -> None:
        seconds = 5.0 if fault.request.seconds is None else fault.request.seconds
        fault.ends = time.monotonic() + seconds
        if fault.request.forgets_counters:
            for port in self._state.switch_ports():
                port.link.reset_counters()
        self._events.repeats = fault.request.repeats_log
        self.reboot(seconds, fault.request.keeps_sessions)

    def _overheat(self, fault: Fault) -> None:
        slot = self._slot(fault.request.target)
        slot.overheated = True
        fault.undo = lambda: setattr(slot, "overheated", False)

    def _removal(self, fault: Fault) -> None:
        slot = self._slot(fault.request.target)
        if slot.present is None:
            raise FaultError(f"there is no device in {slot.endpoint}")
        self._composer.lose(slot)
        fault.undo = lambda: self._composer.restore(slot)

    def _report_fault(self, fault: Fault) -> None:
        request = fault.request
        if not self.metrics:
            raise FaultError("there is no report: the simulator was started with --no-report")
        if request.kind == "bad_values" and not any(request.target in name for name in self.metrics):
            raise FaultError(f"no metric's name has {request.target!r} in it; one is {next(iter(self.metrics))}")
        if request.kind == "many_readings" and not 0 < request.readings <= MAX_READINGS:
            raise FaultError(f"a report may have 1 to {MAX_READINGS} readings")

    def _other_unit(self, fault: Fault) -> None:
        sensor = self.metrics.get(fault.request.target, "")
        if not sensor:
            raise FaultError(f"there is no sensor {fault.request.target!r}; one is named like drawer1_slot1_temp")
        if sensor not in self.changeable:
            raise FaultError(f"{fault.request.target} is neither of a temperature nor of a power: it has no other unit")
        if sensor in self._state.other_units:
            raise FaultError(f"{fault.request.target} is in another unit already")

        def change(apply: Callable[[str], None]) -> None:
            apply(sensor)
            self._events.report_change(sensor)

        change(self._state.other_units.add)
        fault.undo = lambda: change(self._state.other_units.discard)

    def _host_fault(self, fault: Fault) -> None:
        hosts, kind, target = self.hosts, fault.request.kind, fault.request.target
        if hosts is None:
            raise FaultError("hosts are not simulated: start the simulator with --hosts-root")
        hang = {
            "host_rescan_hangs": hosts.hang_rescan,
            "host_remove_hangs": hosts.hang_remove,
            "host_read_hangs": hosts.hang_read,
            "host_misses_device": hosts.hide,
        }[kind]
        if kind in ("host_read_hangs", "host_misses_device"):
            target = self._slot(target).endpoint
        hang(target, active=True)
        fault.undo = lambda: hang(target, active=False)

    def _downgrade(self, fault: Fault) -> None:
        port = self._port(fault.request.target)
        link, generation = port.link, fault.request.generation
        if generation is not None and generation not in GENERATIONS:
            raise FaultError(f"there is no PCIe generation {generation!r}")
        lanes = fault.request.lanes
        if lanes is None and generation is None:
            lanes = max(1, (link.lanes or link.max_lanes) // 2)

        def limit(lanes: int | None, generation: str | None) -> None:
            link.cap_lanes, link.cap_generation = lanes, generation
            attached = port.upstream or (isinstance(port, SimulatedSlot) and port.attached_to)
            if link.status in ("LinkUp", "Training") and attached:
                self._physics.train(link)

        limit(lanes, generation)
        fault.undo = lambda: limit(None, None)

    def _flap(self, fault: Fault) -> None:
        port = self._port(fault.request.target)
        link, waited = port.link, fault.request.period

        def step(elapsed: float) -> None:
            nonlocal waited
            waited += elapsed
            if waited < fault.request.period or not port.in_use:
                return
            waited = 0.0
            if link.forced_down:
                undo()
            else:
                link.forced_down = True
                self._physics.drop(port)
                direction = "Upstream" if port.upstream else "Downstream"
                message = f"Fabric.1.0.{direction}LinkFlapDetected"
                self._events.report(message, port.switch, link.port, origin=port.port_uri)

        def undo() -> None:
            if link.forced_down:
                link.forced_down = False
                if port.in_use:
                    self._physics.train(link)

        fault.step, fault.undo = step, undo

    def _burst(self, fault: Fault) -> None:
        link = self._port(fault.request.target).link
        counter, rate = fault.request.counter, fault.request.rate
        if counter not in ERROR_COUNTERS:
            raise FaultError(f"there is no error counter {counter!r}; there are {', '.join(ERROR_COUNTERS)}")
        due = 1.0

        def step(elapsed: float) -> None:
            nonlocal due
            due += rate * elapsed
            link.errors[counter] += int(due)
            due -= int(due)

        fault.step = step

    def _fan_failure(self, fault: Fault) -> None:
        fan = self._fan(fault.request.target)
        name = f"fan{fan.number}"
        origin = f"{V1}/Chassis/falcon/ThermalSubsystem/Fans/{name}"
        fan.failed = True
        self._events.report("Environmental.1.0.FanFailed", name, origin=origin)

        def undo() -> None:
            fan.failed = False
            self._events.report("Environmental.1.0.FanRestored", name, origin=origin)

        fault.undo = undo

    def remove(self, fault_id: str) -> bool:
        """End a fault; False where there is none with this Id."""
        fault = self.active.pop(fault_id, None)
        if fault is None:
            return False
        self.changes += 1
        fault.undo()
        return True

    def advance(self) -> None:
        """Apply the faults, and end the expired ones."""
        now = time.monotonic()
        elapsed, self._stepped = now - self._stepped, now
        for fault in list(self.active.values()):
            if fault.ends is not None and fault.ends <= now:
                self.remove(fault.id)
            else:
                fault.step(elapsed)

    def of_kind(self, kind: FaultKind) -> list[FaultRequest]:
        """Return the active faults of a kind."""
        return [fault.request for fault in self.active.values() if fault.request.kind == kind]

    def is_active(self, kind: FaultKind) -> bool:
        """Return whether a fault of a kind is active."""
        return bool(self.of_kind(kind))

    def take(self, kind: FaultKind, method: str = "", path: str = "") -> FaultRequest | None:
        """Return a fault that applies to a request, and count it; None where there is none."""
        self.advance()
        for fault in list(self.active.values()):
            request = fault.request
            if request.kind == kind and request.path in path and request.method.upper() in ("", method):
                if fault.left is not None:
                    fault.left -= 1
                    if fault.left <= 0:
                        self.active.pop(fault.id)
                return request
        return None

    def _slot(self, target: str) -> SimulatedSlot:
        endpoint = target.replace("/", "")
        for slot in self._state.all_slots():
            if slot.endpoint == endpoint:
                return slot
        raise FaultError(f"there is no slot {target!r}; a slot is named like drawer1slot3")

    def _port(self, target: str) -> SwitchPort:
        for port in self._state.host_ports():
            if target in (port.name, port.endpoint):
                return port
        return self._slot(target)

    def _fan(self, target: str) -> SimulatedFan:
        for fan in self._state.fans:
            if target in (f"fan{fan.number}", str(fan.number)):
                return fan
        raise FaultError(f"there is no fan {target!r}; a fan is named like fan2")
