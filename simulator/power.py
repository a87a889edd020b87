"""Power of drawers, hosts and devices: what an off or a restart does to their links; attachments stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from simulator.physics import Clock, Physics
from simulator.state import ChassisState, SimulatedDrawer, SimulatedSlot, SwitchPort

CYCLE_SECONDS = 2.0
SHUTDOWN_SECONDS = 3.0
OFF = ("ForceOff", "GracefulShutdown")
RESTARTS = ("PowerCycle", "ForceRestart", "GracefulRestart")
CHASSIS_RESETS = ["On", "ForceOff", "PowerCycle"]
SYSTEM_RESETS = ["On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle"]
DEVICE_RESETS = ["ForceRestart"]


class PowerControl:
    """The power of one chassis, by the names of its drawers ('drawer1') and of hosts."""

    def __init__(self, state: ChassisState, physics: Physics, clock: Clock) -> None:
        self._state = state
        self._physics = physics
        self._clock = clock
        self._pending: dict[str, asyncio.Task[None]] = {}
        self.reset_at: dict[str, str] = {}  # LastResetTime of hosts

    def state_of(self, *names: str) -> str:
        """Return the PowerState of the whole of these: 'Off' where all of them are."""
        return "Off" if names and self._state.off.issuperset(names) else "On"

    def drawers(self, drawers: Iterable[SimulatedDrawer], kind: str) -> None:
        """Reset drawers."""
        for drawer in drawers:
            self._reset(f"drawer{drawer.number}", drawer.switch_ports, kind)

    def host(self, name: str, kind: str) -> None:
        """Reset a host: the links of its host ports go with it."""
        self._reset(name, lambda: [port for port in self._state.host_ports() if port.host == name], kind)

    def device(self, slot: SimulatedSlot) -> None:
        """Reset a device: its link trains again."""
        if slot.in_use and slot.connected:
            self._physics.drop(slot)
            self._physics.train(slot.link)

    def stop(self) -> None:
        """Forget what is still to come."""
        for task in self._pending.values():
            task.cancel()

    def _reset(self, name: str, ports: Callable[[], list[SwitchPort]], kind: str) -> None:
        if (pending := self._pending.pop(name, None)) is not None:
            pending.cancel()
        self._pending[name] = asyncio.create_task(self._run(name, ports, kind))

    async def _run(self, name: str, ports: Callable[[], list[SwitchPort]], kind: str) -> None:
        if kind.startswith("Graceful"):
            await asyncio.sleep(SHUTDOWN_SECONDS / self._clock.speed)
        if kind in OFF + RESTARTS:
            self._switch(name, ports(), on=False)
        if kind in RESTARTS:
            await asyncio.sleep(CYCLE_SECONDS / self._clock.speed)
            self.reset_at[name] = self._clock.timestamp()
        if kind not in OFF:
            self._switch(name, ports(), on=True)

    def _switch(self, name: str, ports: list[SwitchPort], *, on: bool) -> None:
        off = self._state.off
        if on is (name not in off):
            return
        (off.discard if on else off.add)(name)
        for port in ports:
            port.link.powered = self._state.has_power(port)
            if on and port.connected and port.in_use:
                self._physics.train(port.link)
            elif not on and port.link.status != "NoLink":
                self._physics.drop(port)
                self._physics.link_changed(port)
