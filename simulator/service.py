"""One simulated chassis: state, physics, events, tasks, accounts and faults, wired together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from simulator.accounts import Accounts
from simulator.composition import Composer
from simulator.events import EventLog
from simulator.faults import FaultInjector
from simulator.hosts import HostSimulation
from simulator.lab import ChassisLab, Lab
from simulator.odata import V1
from simulator.physics import CAUTION_CELSIUS, CRITICAL_CELSIUS, Clock, Physics
from simulator.power import PowerControl
from simulator.state import COMPOSITION_BLOCKS, SimulatedLink, SimulatedSlot, SwitchPort, build_state, drawer_uri
from simulator.tasks import ABORTED, COMPLETED, BmcTask, Tasks
from simulator.tree import ResourceTree

Dialect = Literal[
    "both",
    "patch",
    "psme-old",
    "pnc",
    "actions",
    "zones",
    "zones-pools",
    "connections",
    "connection-patch",
    "blocks",
    "block-patch",
    "systems",
    "systems-fixed",
    "compose",
    "cxl",
    "none",
]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
# Systems are composed of the blocks of hosts and devices, and decomposed; in other dialects with blocks they last.
POOL_DIALECTS: frozenset[Dialect] = frozenset({"systems", "systems-fixed", "compose"})
BLOCK_DIALECTS: frozenset[Dialect] = POOL_DIALECTS | {"blocks", "block-patch"}
# The client to whose pools the blocks belong that are in use at the start.
CLIENT = "FalconWeb"
# Which answers name the methods of a resource in `Allow`: those of GET and OPTIONS, of OPTIONS alone, or none.
NamedMethods = Literal["all", "options", "none"]


@dataclass(frozen=True)
class ServiceOptions:
    """The features of a service; clients can be tested against a subset."""

    expand: bool = True
    sessions: bool = True
    report: bool = True
    legacy: bool = False
    dialect: Dialect = "both"
    allow: NamedMethods = "all"
    slow_bind: float = 0.0
    bind_by_task: bool = False
    plain_push: bool = False
    dump: bool = True
    seed: int = 1
    lock_after: int = 0


@dataclass
class RequestCounters:
    """Statistics of clients: requests by method, and the largest number that one client had in flight."""

    by_method: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    max_in_flight: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def counted(self, client: str, method: str) -> Iterator[None]:
        """Count a request, which is in flight in the context."""
        self.by_method[method] += 1
        self.in_flight[client] += 1
        self.max_in_flight[client] = max(self.max_in_flight.get(client, 0), self.in_flight[client])
        try:
            yield
        finally:
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
            self._assign_blocks()
        self.physics = Physics(
            self.state, options.seed, link_changed=self._link_changed, temperature_changed=self._temperature_changed
        )
        self.physics.time = float(int(clock.now()))
        self.events = EventLog(lambda: clock.timestamp(self.physics.time))
        self.accounts = Accounts(password, lock_after=options.lock_after)
        self.tasks = Tasks(clock.timestamp, self._task_ended)
        self.composer = Composer(self.state, self.physics, self.events, dialect=options.dialect, blocks=self.blocks)
        self.power = PowerControl(self.state, self.physics, clock)
        self.faults = FaultInjector(self.state, self.physics, self.composer, self.events)
        self.traffic = RequestCounters()
        self.booted = clock.timestamp()
        self.built = self.booted
        self.boots = 1
        self.hosts: HostSimulation | None = None
        self.push_targets: list[str] = []
        self.updating = False
        self.dumps: dict[str, tuple[str, bytes]] = {}  # time and content, by name
        self._later: asyncio.TimerHandle | None = None
        self.tree = ResourceTree()

    @property
    def blocks(self) -> bool:
        """Whether devices are resource blocks of computer systems, in place of endpoints of zones."""
        return self.options.dialect in BLOCK_DIALECTS

    @property
    def pooled(self) -> bool:
        """Whether systems are composed of the blocks of hosts and devices, and decomposed."""
        return self.options.dialect in POOL_DIALECTS

    def _assign_blocks(self) -> None:
        """Put the blocks into the collection of the composition service, and the initial ones into systems."""
        for slot in self.state.all_slots():
            slot.blocks = COMPOSITION_BLOCKS
            slot.client = CLIENT if slot.attached_to else ""
        for port in self.state.host_ports():
            if not self.pooled:
                port.system = port.endpoint
            elif port.slots:
                port.system, port.client = f"{port.endpoint}-1", CLIENT

    def advance(self, *, at_once: bool = False) -> None:
        """Advance the chassis to the simulated present, and its hosts, with a short delay unless `at_once`."""
        self.faults.advance()
        self.physics.advance(self.clock.now())
        if self.hosts is not None:
            self.hosts.advance(at_once=at_once)

    def restart_after(self, seconds: float, restart: Callable[[], None]) -> None:
        """Restart the BMC in a moment, so that its answers and the end of a task come first."""
        self._later = asyncio.get_running_loop().call_later(seconds, restart)

    def reboot(self, *, keeps_sessions: bool = False) -> None:
        """Discard the state that a BMC loses at a restart: sessions unless it keeps them, subscriptions, tasks."""
        if not keeps_sessions:
            self.accounts.sessions.clear()
        self.events.unsubscribe_all()
        self.tasks.kill_all()
        self.boots += 1

    def end(self) -> None:
        """Stop all background work, and leave the hosts' folder to other processes."""
        self.reboot()
        self.power.stop()
        if self._later is not None:
            self._later.cancel()
        if self.hosts is not None:
            self.hosts.end()

    def rebooted(self) -> None:
        """Report that the BMC has restarted."""
        self.booted = self.clock.timestamp()
        self.events.report("H3Falcon.1.0.ManagerRestarted", origin=f"{V1}/Managers/bmc")

    def _link_changed(self, port: SwitchPort) -> None:
        """Create an event for a link that came up or went down."""
        change = "LinkEstablished" if port.link.status == "LinkUp" else "LinkDropped"
        degraded = "Degraded" if port.link.degraded else ""
        message = f"Fabric.1.0.{degraded}{'Upstream' if port.upstream else 'Downstream'}{change}"
        self.events.report(message, port.switch, port.link.port, origin=port.port_uri)

    def _temperature_changed(self, slot: SimulatedSlot, band: str) -> None:
        """Create an event for a temperature that left its range or returned to it."""
        sensor = f"slot{slot.number}_temp"
        origin = f"{drawer_uri(slot.drawer)}/Sensors/{sensor}"
        if band == "normal":
            self.events.report("SensorEvent.1.0.SensorReadingNormalRange", sensor, origin=origin)
            return
        threshold = CRITICAL_CELSIUS if band == "critical" else CAUTION_CELSIUS
        message = f"SensorEvent.1.0.ReadingAboveUpper{band.title()}Threshold"
        reading = f"{slot.temperature:.1f}"
        self.events.report(message, sensor, reading, "Cel", f"{threshold:g}", origin=origin)

    def _task_ended(self, task: BmcTask) -> None:
        self.events.report(COMPLETED if task.state == "Completed" else ABORTED, task.id, origin=task.uri)

    def truth(self) -> dict[str, Any]:
        """Return the true state, for tests."""
        state = self.state
        return {
            "chassis": self.name,
            "boots": self.boots,
            "zones": {port.endpoint: port.attached for port in state.host_ports()},
            "cabling": {port.endpoint: port.host for port in state.host_ports()},
            "hosts": {} if self.hosts is None else self.hosts.truth(),
            "ports": {port.endpoint: _port_state(port.link) for port in state.switch_ports()},
            "off": sorted(state.off),
            "modes": {f"drawer{drawer.number}": drawer.mode for drawer in state.drawers.values()},
            "links": {port.endpoint: _link_state(port.link) for port in state.switch_ports()},
            "devices": {slot.endpoint: slot.device.serial for slot in state.all_slots() if slot.device is not None},
            "present": [slot.endpoint for slot in state.all_slots() if slot.connected],
            "requests": dict(self.traffic.by_method),
            "max_in_flight": dict(self.traffic.max_in_flight),
            "sessions": len(self.accounts.sessions),
            "refused_passwords": dict(self.accounts.refused),
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
