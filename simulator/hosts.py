"""The hosts that a chassis is cabled to, as trees of files below a folder, with their view of its devices.

An attached device appears once its host scans the bus; one that the BMC detaches without a removal on the host before
stays as an unresponsive entry. Several chassis share the folder: each manages its own devices and processes.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from simulator.host_state import DeviceProcess, HostError, HostState, MountRequest, ProcessRequest, VisibleDevice
from simulator.host_tree import USERS, FileTail, PciCard, own_cards, replace_file, set_hanging
from simulator.lab import DeviceModelKind, HostLab, Lab
from simulator.physics import Clock
from simulator.state import ChassisState, SimulatedSlot

PERIOD_SECONDS = 0.05
# While nothing was written to a host or its chassis for some seconds: looking takes most of what a simulator takes.
REST_PERIOD_SECONDS, REST_AFTER_SECONDS = 0.4, 5.0
LOADS_SECONDS = 0.25
READINGS_SECONDS = 1.0
# Buses of the slots: 16 per chassis from 0x40 on, then the next PCI domain; where 16 are too few, a domain of its own.
FIRST_BUS, BUSES, CHASSIS_A_DOMAIN, OWN_DOMAINS = 0x40, 16, 11, 0x100
PIDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class HostSimulation:
    """The hosts of one chassis. `index` distinguishes the chassis from others in the same folder."""

    def __init__(
        self, state: ChassisState, lab: Lab, folder: Path, clock: Clock, *, index: int, hotplug: bool = False
    ) -> None:
        self._state = state
        self._clock = clock
        self._lab = lab
        self._folder = folder.resolve()
        self._index = index
        self._hotplug = hotplug
        self._hosts: dict[str, HostState] = {}
        slots = state.all_slots()
        self._domain, self._place = divmod(index, CHASSIS_A_DOMAIN)
        if len(slots) > BUSES:
            self._domain, self._place = OWN_DOMAINS + index, 0
        first = FIRST_BUS + BUSES * self._place
        self._buses = range(first, first + max(BUSES, len(slots)))
        self._addresses = {
            slot.endpoint: f"{self._domain:04x}:{bus:02x}:00.0" for slot, bus in zip(slots, self._buses, strict=False)
        }
        self._next_pid = PIDS * (index + 1)
        self._checked = self._loaded = self._measured = float("-inf")
        self._moved = time.monotonic()  # when something was written
        self._hidden: set[str] = set()
        self._remove_hangs: set[str] = set()
        try:
            self._remove_earlier_start()
            for name, attached in sorted(self._attached().items()):
                host = self._host(name)
                for slot in attached.values():
                    self._plug_slot(host, slot)
        except OSError as error:
            raise HostError(f"the hosts cannot be simulated in {folder}: {error}") from error

    def address(self, slot: SimulatedSlot) -> str:
        """Return the PCI address of a slot on whichever host it is attached to."""
        return self._addresses[slot.endpoint]

    def truth(self) -> dict[str, dict[str, str]]:
        """Return the addresses that each host shows, by the endpoint of the slot."""
        return {
            name: {shown.endpoint: address for address, shown in host.shown.items() if shown.endpoint}
            for name, host in self._hosts.items()
        }

    def advance(self, *, at_once: bool = False) -> None:
        """Advance the hosts to the present: process writes to control files, and changes of the chassis.

        They are checked every PERIOD_SECONDS, REST_PERIOD_SECONDS at rest, or `at_once`.
        """
        now = time.monotonic()
        is_at_rest = now - self._moved > REST_AFTER_SECONDS
        if now - self._checked < (REST_PERIOD_SECONDS if is_at_rest else PERIOD_SECONDS) and not at_once:
            return
        self._checked = now
        if at_once:
            self.expect_writes()
        reached = self._attached()
        for name in sorted(reached.keys() - self._hosts.keys()):
            self._host(name)
        is_load_due = now - self._loaded >= LOADS_SECONDS
        for name, host in self._hosts.items():
            attached = reached.get(name, {})
            self._end_processes(host, now)
            self._apply_driver_files(host)
            self._apply_bus_files(host, attached)
            if host.lock is None and (is_load_due or at_once):
                self._adopt_own_cards(name, host)
            self._follow_links(host, attached)
        if is_load_due:
            self._loaded = now
            self._follow_loads(reached)
            if any(host.loads.now for host in self._hosts.values()):
                self.expect_writes()
        if now - self._measured >= READINGS_SECONDS:
            self._measured = now
            self._measure()

    def expect_writes(self) -> None:
        """Look at the hosts often for some seconds: something was written."""
        self._moved = time.monotonic()

    def end(self) -> None:
        """Leave the hosts' own devices to other processes."""
        for host in self._hosts.values():
            if host.lock is not None:
                host.lock.close()
                host.lock = None

    def start_process(self, name: str, request: ProcessRequest) -> DeviceProcess:
        """Have a process use a device of a host. Raises HostError where the host has no such device with a driver."""
        host, shown = self._shown(name, request.device)
        if not host.tree.bound(shown.card):
            raise HostError(f"{request.device} has no driver on {name}, so nobody can open it")
        while (host.tree.folder / "proc" / str(self._next_pid)).exists():
            self._next_pid += 1
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        uid = USERS.get(request.owner, 2000 + pid % 1000)
        if request.owner not in USERS:
            with (host.tree.folder / "etc/passwd").open("a") as file:
                file.write(f"\n{request.owner}:x:{uid}:{uid}::/:/bin/sh\n")
        host.tree.add_process(pid, request.command, uid, {0: "/dev/null", 7: shown.card.node})
        ends = None if request.seconds is None else time.monotonic() + request.seconds
        host.processes[pid] = DeviceProcess(pid, shown.card.address, request, ends)
        return host.processes[pid]

    def end_process(self, name: str, pid: int) -> bool:
        """End a simulated process; False where there is none."""
        host = self._known(name)
        if host.processes.pop(pid, None) is None:
            return False
        host.tree.remove_process(pid)
        return True

    def mount(self, name: str, request: MountRequest) -> None:
        """Mount a drive on a host."""
        host, shown = self._shown(name, request.device)
        if shown.card.model.kind is not DeviceModelKind.DRIVE:
            raise HostError(f"{request.device} is not a drive")
        host.tree.mount(shown.card, request.path)

    def unmount(self, name: str, device: str) -> None:
        """Unmount a drive of a host."""
        host, shown = self._shown(name, device)
        host.tree.unmount(shown.card)

    def processes(self, name: str) -> list[DeviceProcess]:
        """Return the simulated processes on a host."""
        return list(self._known(name).processes.values())

    def hang_rescan(self, name: str, *, active: bool) -> None:
        """Make scans of the bus hang, or return again."""
        set_hanging(self._known(name).tree.pci / "rescan", hanging=active)

    def hang_remove(self, name: str, *, active: bool) -> None:
        """Make the removal of this chassis's devices hang, or return again."""
        host = self._known(name)
        (self._remove_hangs.add if active else self._remove_hangs.discard)(name)
        for address in host.shown:
            set_hanging(host.tree.devices / address / "remove", hanging=active)

    def hang_read(self, endpoint: str, *, active: bool) -> None:
        """Make reads of a device hang, or return again."""
        for host in self._hosts.values():
            for address, shown in host.shown.items():
                if shown.endpoint == endpoint:
                    set_hanging(host.tree.devices / address / "config", hanging=active)

    def hide(self, endpoint: str, *, active: bool) -> None:
        """Make scans of the bus miss a device, or find it again."""
        (self._hidden.add if active else self._hidden.discard)(endpoint)

    def _lines(self, tail: FileTail) -> list[str]:
        if lines := tail.lines():
            self.expect_writes()
        return lines

    def _apply_driver_files(self, host: HostState) -> None:
        for tail in host.unbind:
            host.unbinding.update(address for address in self._lines(tail) if address in host.shown)
        for address in list(host.unbinding):
            if address not in host.shown or self._release_device(host, address):
                host.unbinding.discard(address)
                if address in host.shown:
                    host.tree.unbind(host.shown[address].card)
        for address in self._lines(host.probe):
            if address in host.shown and host.shown[address].answers:
                host.tree.bind(host.shown[address].card)

    def _apply_bus_files(self, host: HostState, attached: dict[str, SimulatedSlot]) -> None:
        for address, shown in list(host.shown.items()):
            requested = host.tree.removal_requested(address)
            if requested is None:
                del host.shown[address]
            elif requested and self._release_device(host, address):
                self.expect_writes()
                del host.shown[address]
                host.tree.unplug(shown.card)
        if self._lines(host.rescan) or self._hotplug:
            for address, slot in attached.items():
                if address not in host.shown and slot.endpoint not in self._hidden:
                    self._plug_slot(host, slot)
            for card in host.local:
                if card.address not in host.shown:
                    _plug(host, card, card.model.lanes, card.model.generation)

    def _follow_links(self, host: HostState, attached: dict[str, SimulatedSlot]) -> None:
        for address, shown in host.shown.items():
            slot = attached.get(address)
            if slot is None:
                if shown.answers and shown.endpoint:
                    shown.answers, shown.link = False, (0, "")
                    host.tree.lose(shown.card)
                continue
            if not shown.answers:
                shown.answers = True
                host.tree.restore(shown.card)
            link = (slot.link.lanes, slot.link.generation)
            if link != shown.link:
                shown.link = link
                host.tree.set_link(shown.card, *link)

    def _release_device(self, host: HostState, address: str) -> bool:
        """End the processes that use a removed device; False while one hangs."""
        users = [process for process in host.processes.values() if process.address == address]
        for process in users:
            if not process.request.hangs:
                self.end_process(host.tree.name, process.pid)
        return not any(process.request.hangs for process in users)

    def _end_processes(self, host: HostState, now: float) -> None:
        for process in list(host.processes.values()):
            if process.ends is not None and process.ends <= now:
                self.end_process(host.tree.name, process.pid)

    def _plug_slot(self, host: HostState, slot: SimulatedSlot) -> None:
        address = self.address(slot)
        if slot.device is None or host.tree.has(address):
            return
        number = int(address[5:7], 16) + 256 * int(address[:4], 16)
        card = PciCard(address, slot.device.model, slot.device.serial, number)
        _plug(host, card, slot.link.lanes, slot.link.generation, slot.endpoint)
        if host.tree.name in self._remove_hangs:
            set_hanging(host.tree.devices / address / "remove", hanging=True)

    def _attached(self) -> dict[str, dict[str, SimulatedSlot]]:
        """Return the slots that each cabled host reaches over links that are up, by their addresses there."""
        found: dict[str, dict[str, SimulatedSlot]] = {}
        for drawer in self._state.drawers.values():
            for port in drawer.host_ports.values():
                if port.host is None:
                    continue
                slots = found.setdefault(port.host, {})
                for slot in (drawer.slots[number] for number in port.slots if port.link.status == "LinkUp"):
                    if slot.present is not None and slot.link.status == "LinkUp":
                        slots[self.address(slot)] = slot
        return found

    def _follow_loads(self, reached: Mapping[str, Mapping[str, SimulatedSlot]]) -> None:
        """Apply the loads of runs to the devices of each host; unused devices idle while others have a load."""
        for name, host in self._hosts.items():
            host.loads.advance([shown.card for shown in host.shown.values()])
            used = {shown.endpoint for shown in host.shown.values() if shown.answers}
            for address, slot in reached.get(name, {}).items():
                if slot.device is not None:
                    slot.device.requested = host.loads.of(address) if slot.endpoint in used else None
                    slot.device.unused = bool(host.loads.now)
        for slot in self._state.all_slots():
            if slot.device is not None and slot.attached_to is None:
                slot.device.requested, slot.device.unused = None, False

    def _measure(self) -> None:
        """Write the meters of the hosts."""
        slots = {self.address(slot): slot for slot in self._state.all_slots()}
        for host in self._hosts.values():
            replace_file(f"{host.tree.folder}/speed", f"{self._clock.speed:g}\n")
            if host.lock is not None:
                host.meters.measure_host(self._clock.now(), list(host.loads.now.values()))
            for address, shown in host.shown.items():
                if shown.card.model.kind is DeviceModelKind.GPU and shown.answers and host.tree.bound(shown.card):
                    host.meters.measure_gpu(shown.card, slots.get(address), host.loads.of(address))

    def _adopt_own_cards(self, name: str, host: HostState) -> None:
        """Simulate the host's own devices, unless another chassis does."""
        lock = (host.tree.folder / ".local").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return
        host.lock = lock
        host.local = own_cards(name, self._lab.hosts.get(name, HostLab()))
        for card in host.local:
            if host.tree.has(card.address):
                # Another chassis simulated them until it ended.
                host.shown[card.address] = VisibleDevice(card, "")
                continue
            _plug(host, card, card.model.lanes, card.model.generation)
            if card.model.kind is DeviceModelKind.DRIVE:
                host.tree.unmount(card)
                host.tree.mount(card, "/")

    def _host(self, name: str) -> HostState:
        host = self._hosts.get(name)
        if host is None:
            if not _NAME.fullmatch(name):
                raise HostError(f"the host {name!r} cannot be the name of a folder")
            host = HostState(self._folder / name, name, self._lab.hosts.get(name, HostLab()))
            self._hosts[name] = host
            port = f"{self._domain:04x}:00:{2 + self._place:02x}.0"
            host.tree.add_root_port(port, self._buses[0], self._buses[-1])
        return host

    def _known(self, name: str) -> HostState:
        host = self._hosts.get(name)
        if host is None:
            raise HostError(f"there is no host {name!r}; there are {', '.join(self._hosts)}")
        return host

    def _shown(self, name: str, device: str) -> tuple[HostState, VisibleDevice]:
        host = self._known(name)
        for address, shown in host.shown.items():
            if device and device in (address, shown.endpoint):
                return host, shown
        raise HostError(f"{name} does not see {device!r}")

    def _remove_earlier_start(self) -> None:
        """Remove the files that an earlier process of this chassis left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ours = {self.address(slot) for slot in self._state.all_slots()}
        for host in self._folder.iterdir():
            set_hanging(host / "sys/bus/pci/rescan", hanging=False)
            for address in ours:
                shutil.rmtree(host / "sys/bus/pci/devices" / address, ignore_errors=True)
                shutil.rmtree(host / "proc/driver/nvidia/gpus" / address, ignore_errors=True)
                (host / "gpus" / f"{address}.json").unlink(missing_ok=True)
            for process in (host / "proc").glob("[0-9]*"):
                if int(process.name) // PIDS == self._index + 1:
                    shutil.rmtree(process, ignore_errors=True)


def _plug(host: HostState, card: PciCard, lanes: int, generation: str, endpoint: str = "") -> None:
    """Show a card, of the slot with an endpoint Id or of the host's own."""
    host.tree.plug(card, lanes, generation)
    host.shown[card.address] = VisibleDevice(card, endpoint, link=(lanes, generation))
