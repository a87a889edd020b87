"""The hosts that a chassis is cabled to, as trees of files below a folder, with their view of its devices.

An attached device appears once its host scans the bus; one that the BMC detaches without a removal on the host before
stays as an unresponsive entry. Several chassis share the folder: each manages its own devices and processes.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import time
from pathlib import Path

from simulator.catalog import DeviceModelKind
from simulator.host_state import (
    DeviceProcess,
    HostError,
    HostLoads,
    HostMeters,
    HostState,
    MountRequest,
    ProcessRequest,
    VisibleDevice,
)
from simulator.host_tree import USERS, FileTail, HostTree, PciCard, hang_file, own_cards, replace_file, unhang_file
from simulator.lab import HostLab, Lab
from simulator.physics import Clock
from simulator.state import ChassisState, SimulatedSlot

PERIOD_SECONDS = 0.05
LOADS_SECONDS = 0.25
READINGS_SECONDS = 1.0
# Buses of the slots: 16 per chassis from 0x40 on, then the next PCI domain.
FIRST_BUS, BUSES, CHASSIS_A_DOMAIN = 0x40, 16, 11
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
        self._sites: dict[str, HostState] = {}
        self._next_pid = PIDS * (index + 1)
        self._looked = self._loaded = self._measured = float("-inf")
        self.missed: set[str] = set()
        self.remove_hangs: set[str] = set()
        try:
            self._remove_earlier_start()
            for name in state.cabled_hosts():
                site = self._site(name)
                for slot in self._attached(name):
                    self._plug(site, slot)
        except OSError as error:
            raise HostError(f"the hosts cannot be simulated in {folder}: {error}") from error

    def address(self, slot: SimulatedSlot) -> str:
        """Return the PCI address of a slot on whichever host it is attached to."""
        domain, chassis = divmod(self._index, CHASSIS_A_DOMAIN)
        bus = FIRST_BUS + BUSES * chassis + 8 * (slot.drawer - 1) + slot.number - 1
        return f"{domain:04x}:{bus:02x}:00.0"

    def truth(self) -> dict[str, dict[str, str]]:
        """Return the addresses that each host shows, by the endpoint of the slot."""
        return {
            name: {shown.endpoint: address for address, shown in site.shown.items() if shown.endpoint}
            for name, site in self._sites.items()
        }

    def advance(self, *, at_once: bool = False) -> None:
        """Advance the hosts to the present: process writes to control files, and changes of the chassis.

        They are checked every PERIOD_SECONDS, or `at_once`.
        """
        now = time.monotonic()
        if now - self._looked < PERIOD_SECONDS and not at_once:
            return
        self._looked = now
        for name in self._state.cabled_hosts():
            self._site(name)
        for name, site in self._sites.items():
            attached = {self.address(slot): slot for slot in self._attached(name)}
            self._end_processes(site, now)
            self._apply_driver_files(site)
            self._apply_bus_files(site, attached)
            self._adopt_own_cards(name, site)
            self._follow_links(site, attached)
        if now - self._loaded >= LOADS_SECONDS:
            self._loaded = now
            self._follow_loads()
        if now - self._measured >= READINGS_SECONDS:
            self._measured = now
            self._measure()

    def end(self) -> None:
        """Leave the hosts' own devices to other processes."""
        for site in self._sites.values():
            if site.lock is not None:
                site.lock.close()
                site.lock = None

    # Called by tests.

    def start_process(self, host: str, request: ProcessRequest) -> DeviceProcess:
        """Have a process use a device of a host. Raises HostError where the host has no such device with a driver."""
        site, shown = self._shown(host, request.device)
        if not site.tree.bound(shown.card):
            raise HostError(f"{request.device} has no driver on {host}, so nobody can open it")
        proc = site.tree.folder / "proc"
        while (proc / str(self._next_pid)).exists():
            self._next_pid += 1
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        place = proc / f".new-{pid}"
        (place / "fd").mkdir(parents=True)
        uid = USERS.get(request.owner, 2000 + pid % 1000)
        (place / "comm").write_text(request.command.partition(" ")[0][:15] + "\n")
        (place / "cmdline").write_bytes(request.command.replace(" ", "\0").encode() + b"\0")
        (place / "status").write_text(f"Name:\t{request.command[:15]}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (place / "fd/0").symlink_to("/dev/null")
        (place / "fd/7").symlink_to(shown.card.node)
        if request.owner not in USERS:
            with (site.tree.folder / "etc/passwd").open("a") as file:
                file.write(f"\n{request.owner}:x:{uid}:{uid}::/:/bin/sh\n")
        place.rename(proc / str(pid))
        ends = None if request.seconds is None else time.monotonic() + request.seconds
        process = DeviceProcess(pid, shown.card.address, request, ends)
        site.processes[pid] = process
        return process

    def end_process(self, host: str, pid: int) -> bool:
        """End a simulated process; False where there is none."""
        site = self._known(host)
        if site.processes.pop(pid, None) is None:
            return False
        shutil.rmtree(site.tree.folder / "proc" / str(pid), ignore_errors=True)
        return True

    def mount(self, host: str, request: MountRequest) -> None:
        """Mount a drive on a host."""
        site, shown = self._shown(host, request.device)
        if shown.card.model.kind is not DeviceModelKind.DRIVE:
            raise HostError(f"{request.device} is not a drive")
        site.tree.mount(shown.card, request.path)

    def unmount(self, host: str, device: str) -> None:
        """Unmount a drive of a host."""
        site, shown = self._shown(host, device)
        site.tree.unmount(shown.card)

    def processes(self, host: str) -> list[DeviceProcess]:
        """Return the simulated processes on a host."""
        return list(self._known(host).processes.values())

    def hang_rescan(self, host: str, *, hangs: bool) -> None:
        """Make scans of the bus hang, or return again."""
        (hang_file if hangs else unhang_file)(self._known(host).tree.pci / "rescan")

    def hang_remove(self, host: str, *, hangs: bool) -> None:
        """Make the removal of this chassis's devices hang, or return again."""
        site = self._known(host)
        (self.remove_hangs.add if hangs else self.remove_hangs.discard)(host)
        for address in site.shown:
            (hang_file if hangs else unhang_file)(site.tree.devices / address / "remove")

    def hang_read(self, endpoint: str, *, hangs: bool) -> None:
        """Make reads of a device hang, or return again."""
        for site in self._sites.values():
            for address, shown in site.shown.items():
                if shown.endpoint == endpoint:
                    (hang_file if hangs else unhang_file)(site.tree.devices / address / "config")

    # Behaviour of the hosts.

    def _apply_driver_files(self, site: HostState) -> None:
        for tail in site.unbind.values():
            site.unbinding.update(address for address in tail.lines() if address in site.shown)
        for address in list(site.unbinding):
            if address not in site.shown or self._release_device(site, address):
                site.unbinding.discard(address)
                if address in site.shown:
                    site.tree.unbind(site.shown[address].card)
        for address in site.probe.lines():
            if address in site.shown and site.shown[address].answers:
                site.tree.bind(site.shown[address].card)

    def _apply_bus_files(self, site: HostState, attached: dict[str, SimulatedSlot]) -> None:
        for address, shown in list(site.shown.items()):
            requested = site.tree.removal_requested(address)
            if requested is None:
                del site.shown[address]
            elif requested and self._release_device(site, address):
                del site.shown[address]
                site.tree.unplug(shown.card)
        if site.rescan.lines() or self._hotplug:
            for address, slot in attached.items():
                if address not in site.shown and slot.endpoint not in self.missed:
                    self._plug(site, slot)
            for card in site.local:
                if card.address not in site.shown:
                    self._plug_local(site, card)

    def _follow_links(self, site: HostState, attached: dict[str, SimulatedSlot]) -> None:
        for address, shown in site.shown.items():
            slot = attached.get(address)
            if slot is None:
                if shown.answers and shown.endpoint:
                    shown.answers, shown.link = False, (0, "")
                    site.tree.lose(shown.card)
                continue
            if not shown.answers:
                shown.answers = True
                site.tree.answer_again(shown.card)
            link = (slot.link.lanes, slot.link.generation)
            if link != shown.link:
                shown.link = link
                site.tree.set_link(shown.card, *link)

    def _release_device(self, site: HostState, address: str) -> bool:
        """End the processes that use a removed device; False while one hangs."""
        holding = [process for process in site.processes.values() if process.address == address]
        for process in holding:
            if not process.request.hangs:
                self.end_process(site.tree.name, process.pid)
        return not any(process.request.hangs for process in holding)

    def _end_processes(self, site: HostState, now: float) -> None:
        for process in list(site.processes.values()):
            if process.ends is not None and process.ends <= now:
                self.end_process(site.tree.name, process.pid)

    def _plug(self, site: HostState, slot: SimulatedSlot) -> None:
        if slot.device is None:
            return
        address = self.address(slot)
        card = PciCard(
            address, slot.device.model, slot.device.serial, int(address[5:7], 16) + 256 * int(address[:4], 16)
        )
        link = (slot.link.lanes, slot.link.generation)
        if site.tree.has(address):
            return
        site.tree.plug(card, *link)
        site.shown[address] = VisibleDevice(card, slot.endpoint, link=link)
        if site.tree.name in self.remove_hangs:
            hang_file(site.tree.devices / address / "remove")

    def _attached(self, host: str) -> list[SimulatedSlot]:
        return [
            slot
            for port in self._state.host_ports()
            if port.host == host and port.link.status == "LinkUp"
            for slot in (self._state.drawers[port.drawer].slots[number] for number in port.slots)
            if slot.present is not None and slot.link.status == "LinkUp"
        ]

    def _follow_loads(self) -> None:
        """Apply the loads of runs to the devices of each host; unused devices idle while others have a load."""
        for name, site in self._sites.items():
            site.loads.advance([shown.card for shown in site.shown.values()])
            for slot in self._attached(name):
                if slot.device is not None:
                    used = slot.endpoint in {shown.endpoint for shown in site.shown.values() if shown.answers}
                    slot.device.asked = site.loads.of(self.address(slot)) if used else None
                    slot.device.rests = bool(site.loads.now)
        for slot in self._state.all_slots():
            if slot.device is not None and slot.attached_to is None:
                slot.device.asked, slot.device.rests = None, False

    def _measure(self) -> None:
        """Write the meters of the hosts."""
        slots = {self.address(slot): slot for slot in self._state.all_slots()}
        for site in self._sites.values():
            replace_file(site.tree.folder / "speed", f"{self._clock.speed:g}\n")
            if site.lock is not None:
                site.meters.measure_host(self._clock.now(), list(site.loads.now.values()))
            for address, shown in site.shown.items():
                if shown.card.model.kind is DeviceModelKind.GPU and shown.answers and site.tree.bound(shown.card):
                    site.meters.measure_gpu(shown.card, slots.get(address), site.loads.of(address))

    # The first chassis simulates the host's own devices.

    def _adopt_own_cards(self, name: str, site: HostState) -> None:
        if site.lock is not None:
            return
        lock = (site.tree.folder / ".local").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return
        site.lock = lock
        site.local = own_cards(name, self._lab.hosts.get(name, HostLab()))
        for card in site.local:
            if site.tree.has(card.address):
                # Another chassis simulated them until it ended.
                site.shown[card.address] = VisibleDevice(card, "")
                continue
            self._plug_local(site, card)
            if card.model.kind is DeviceModelKind.DRIVE:
                site.tree.unmount(card)
                site.tree.mount(card, "/")

    def _plug_local(self, site: HostState, card: PciCard) -> None:
        site.tree.plug(card, card.model.lanes, card.model.generation)
        site.shown[card.address] = VisibleDevice(card, "")

    # Folders.

    def _site(self, name: str) -> HostState:
        site = self._sites.get(name)
        if site is None:
            if not _NAME.fullmatch(name):
                raise HostError(f"the host {name!r} cannot be the name of a folder")
            host = self._lab.hosts.get(name, HostLab())
            tree = HostTree(self._folder / name, name, host)
            drivers = {folder.name: FileTail(folder / "unbind") for folder in (tree.pci / "drivers").iterdir()}
            site = HostState(
                tree,
                FileTail(tree.pci / "rescan"),
                FileTail(tree.pci / "drivers_probe"),
                drivers,
                HostLoads(tree),
                HostMeters(tree, host),
            )
            self._sites[name] = site
        return site

    def _known(self, name: str) -> HostState:
        site = self._sites.get(name)
        if site is None:
            raise HostError(f"there is no host {name!r}; there are {', '.join(self._sites)}")
        return site

    def _shown(self, host: str, device: str) -> tuple[HostState, VisibleDevice]:
        site = self._known(host)
        for address, shown in site.shown.items():
            if device and device in (address, shown.endpoint):
                return site, shown
        raise HostError(f"{host} does not see {device!r}")

    def _remove_earlier_start(self) -> None:
        """Remove the files that an earlier process of this chassis left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ours = {self.address(slot) for slot in self._state.all_slots()}
        for host in self._folder.iterdir():
            unhang_file(host / "sys/bus/pci/rescan")
            for address in ours:
                shutil.rmtree(host / "sys/bus/pci/devices" / address, ignore_errors=True)
                shutil.rmtree(host / "proc/driver/nvidia/gpus" / address, ignore_errors=True)
                (host / "gpus" / f"{address}.json").unlink(missing_ok=True)
            for process in (host / "proc").glob("[0-9]*"):
                if int(process.name) // PIDS == self._index + 1:
                    shutil.rmtree(process, ignore_errors=True)
