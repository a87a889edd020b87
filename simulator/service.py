"""One simulated chassis: state, physics, events, tasks, accounts and faults, wired together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from simulator.accounts import Accounts
from simulator.composition import Composer
from simulator.events import EventLog
from simulator.faults import FaultInjector
from simulator.hosts import HostSimulation
from simulator.lab import ChassisLab, Lab
from simulator.physics import CAUTION_CELSIUS, CRITICAL_CELSIUS, Clock, Physics
from simulator.state import COMPOSITION_BLOCKS, SimulatedLink, SimulatedSlot, build_state
from simulator.tasks import BmcTask, Tasks
from simulator.tree import ResourceTree

Dialect = Literal["both", "patch", "psme-old", "actions", "blocks", "none"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


@dataclass(frozen=True)
class ServiceOptions:
    """The features of a service; clients can be tested against a subset."""

    expand: bool = True
    sessions: bool = True
    report: bool = True
    dialect: Dialect = "both"
    slow_bind: float = 0.0
    bind_by_task: bool = False
    seed: int = 1


@dataclass
class RequestCounters:
    """Statistics of clients: requests by method, and the largest number that one client had in flight."""

    by_method: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    max_in_flight: dict[str, int] = field(default_factory=dict)

    def enter(self, client: str, method: str) -> None:
        """Count a request that arrived."""
        self.by_method[method] += 1
        self.in_flight[client] += 1
        self.max_in_flight[client] = max(self.max_in_flight.get(client, 0), self.in_flight[client])

    def leave(self, client: str) -> None:
        """Count a completed or aborted request."""
        self.in_flight[client] -= 1


class Falcon:
    """A chassis with its BMC, without the network."""

    def __init__(
        self,
        lab: Lab,
        name: str,
        chassis: ChassisLab,
        *,
        password: str,
        clock: Clock,
        options: ServiceOptions,
        alias: str | None = None,
    ) -> None:
        self.options = options
        self.clock = clock
        self.certificate_pem = ""
        self.replace_certificate: Callable[[str], str] = _no_certificate
        self.state = build_state(lab, name, chassis, alias)
        self.name = self.state.name
        if self.blocks:
            for slot in self.state.all_slots():
                slot.blocks = COMPOSITION_BLOCKS
        self.physics = Physics(self.state, options.seed, self)
        self.physics.time = float(int(clock.now()))
        self.events = EventLog(lambda: clock.timestamp(self.physics.time))
        self.accounts = Accounts(password)
        self.tasks = Tasks(clock.timestamp, self._task_ended)
        self.composer = Composer(self.state, self.physics, self.events, blocks=self.blocks)
        self.faults = FaultInjector(self.state, self.physics, self.composer, self.events)
        self.traffic = RequestCounters()
        self.booted = clock.timestamp()
        self.boots = 1
        self.hosts: HostSimulation | None = None
        self.tree = ResourceTree()

    @property
    def blocks(self) -> bool:
        """Whether devices are resource blocks of computer systems, in place of endpoints of zones."""
        return self.options.dialect == "blocks"

    def attach_hosts(self, hosts: HostSimulation) -> None:
        """Connect the hosts to the chassis."""
        self.hosts = self.faults.hosts = hosts

    def advance(self, *, at_once: bool = False) -> None:
        """Advance the chassis to the simulated present, and its hosts, with a short delay unless `at_once`."""
        self.faults.advance()
        self.physics.advance(self.clock.now())
        if self.hosts is not None:
            self.hosts.advance(at_once=at_once)

    def reboot(self) -> None:
        """Discard the state that a BMC loses at a restart: sessions, subscriptions, running tasks."""
        self.accounts.sessions.clear()
        self.events.unsubscribe_all()
        self.tasks.kill_all()
        self.boots += 1

    def end(self) -> None:
        """Stop all background work, and leave the hosts' folder to other processes."""
        self.reboot()
        if self.hosts is not None:
            self.hosts.end()

    def rebooted(self) -> None:
        """Report that the BMC has restarted."""
        self.booted = self.clock.timestamp()
        self.events.emit(
            "H3Falcon.1.0.ManagerRestarted",
            "The BMC has restarted.",
            severity="Warning",
            origin="/redfish/v1/Managers/bmc",
        )

    def link_changed(self, drawer: int, link: SimulatedLink, *, upstream: bool) -> None:
        """Create an event for a link that came up or went down."""
        direction = "Upstream" if upstream else "Downstream"
        switch = f"drawer{drawer}_switch"
        if link.status == "LinkUp":
            key, severity = ("Degraded", "Warning") if link.degraded else ("", "OK")
            text = f"Switch '{switch}' {direction.lower()} link is established on port '{link.port}'"
            text += ", but is running in a degraded state." if link.degraded else "."
            message = f"Fabric.1.0.{key}{direction}LinkEstablished"
        else:
            severity = "Warning"
            text = f"Switch '{switch}' {direction.lower()} link has gone down on port '{link.port}'."
            message = f"Fabric.1.0.{direction}LinkDropped"
        origin = f"/redfish/v1/Fabrics/PCIe/Switches/{switch}/Ports/{link.port}"
        self.events.emit(message, text, switch, link.port, severity=severity, origin=origin)

    def temperature_band(self, slot: SimulatedSlot, band: str) -> None:
        """Create an event for a temperature that left its range or returned to it."""
        sensor = f"slot{slot.number}_temp"
        origin = f"/redfish/v1/Chassis/drawer{slot.drawer}/Sensors/{sensor}"
        if band == "normal":
            self.events.emit(
                "SensorEvent.1.0.SensorReadingNormalRange",
                f"Sensor '{sensor}' reading is within normal operating range.",
                sensor,
                origin=origin,
            )
            return
        threshold, word, severity = (
            (CRITICAL_CELSIUS, "Critical", "Critical")
            if band == "critical"
            else (CAUTION_CELSIUS, "Caution", "Warning")
        )
        reading = f"{slot.temperature:.1f}"
        self.events.emit(
            f"SensorEvent.1.0.ReadingAboveUpper{word}Threshold",
            f"Sensor '{sensor}' reading of {reading} (Cel) is above the {threshold:g} upper {word.lower()} threshold.",
            sensor,
            reading,
            "Cel",
            f"{threshold:g}",
            severity=severity,
            origin=origin,
        )

    def _task_ended(self, task: BmcTask) -> None:
        if task.state == "Completed":
            self.events.emit(
                "TaskEvent.1.0.TaskCompletedOK",
                f"The task with Id '{task.id}' has completed.",
                task.id,
                origin=task.uri,
            )
        else:
            self.events.emit(
                "TaskEvent.1.0.TaskAborted",
                f"The task with Id '{task.id}' has completed with errors.",
                task.id,
                severity="Critical",
                origin=task.uri,
            )

    def truth(self) -> dict[str, Any]:
        """Return the true state, for tests."""
        state = self.state
        return {
            "chassis": self.name,
            "boots": self.boots,
            "zones": {
                port.endpoint: [f"drawer{port.drawer}slot{number}" for number in port.slots]
                for port in state.host_ports()
            },
            "cabling": {port.endpoint: port.host for port in state.host_ports()},
            "hosts": {} if self.hosts is None else self.hosts.truth(),
            "ports": {
                **{slot.endpoint: _port_state(slot.link) for slot in state.all_slots()},
                **{port.endpoint: _port_state(port.link) for port in state.host_ports()},
            },
            "modes": {f"drawer{drawer.number}": drawer.mode for drawer in state.drawers.values()},
            "links": {
                **{slot.endpoint: _link_state(slot.link) for slot in state.all_slots()},
                **{port.endpoint: _link_state(port.link) for port in state.host_ports()},
            },
            "devices": {slot.endpoint: slot.device.serial for slot in state.all_slots() if slot.device is not None},
            "present": [slot.endpoint for slot in state.all_slots() if slot.present is not None],
            "requests": dict(self.traffic.by_method),
            "max_in_flight": dict(self.traffic.max_in_flight),
            "sessions": len(self.accounts.sessions),
            "streams": self.events.streams,
            "subscriptions": len(self.events.subscriptions),
            "log_entries": len(self.events.entries),
            "simulated_seconds": self.clock.now(),
        }


def _no_certificate(_pem: str) -> str:
    raise ValueError("this service has no certificate")


def _port_state(link: SimulatedLink) -> dict[str, Any]:
    return {"configured": link.configured, "configured_lanes": link.configured_lanes, "enabled": link.enabled}


def _link_state(link: SimulatedLink) -> dict[str, Any]:
    return {"status": link.status, "lanes": link.lanes, "generation": link.generation, "gbps": link.gbps}
