"""Files of a simulated host as Linux has them: PCIe devices, processes, mounts.

Control files (`rescan`, `remove`, `unbind`, `drivers_probe`) are plain files, to which the agent appends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from simulator.lab import (
    DEVICE_MODELS,
    LANE_GBPS,
    DeviceModel,
    DeviceModelKind,
    HostLab,
    stable_serial,
    stable_uuid,
)

DRIVERS = {
    DeviceModelKind.GPU: "nvidia",
    DeviceModelKind.DRIVE: "nvme",
    DeviceModelKind.NETWORK: "mlx5_core",
    DeviceModelKind.CUSTOM: "xocl",
}
ABSENT_CONFIG = b"\xff" * 256
NVME_MAJOR, VERBS_MAJOR, DRM_MAJOR = 259, 231, 226
USERS = {"root": 0, "maria": 1001, "viktor": 1002, "svc-train": 990}
KERNEL = "6.1.0-simulated"
OWN_BUSES = (1, 0x3F)  # below the root port of the host's own devices
BOOT = 1_760_000_000  # of the kernel of each host, Unix seconds
_MOUNTS_OF_EVERY_HOST = ("22 27 0:21 / /proc rw - proc proc rw", "23 27 0:22 / /sys rw - sysfs sysfs rw")


@dataclass(frozen=True)
class PciCard:
    """A device as its host sees it; `number` distinguishes its device files from those of others of its kind."""

    address: str
    model: DeviceModel
    serial: str
    number: int

    @property
    def node(self) -> str:
        """The device file that a process opens to use it."""
        return {
            DeviceModelKind.GPU: f"/dev/nvidia{self.number}",
            DeviceModelKind.DRIVE: f"/dev/nvme{self.number}n1",
            DeviceModelKind.NETWORK: f"/dev/infiniband/uverbs{self.number}",
            DeviceModelKind.CUSTOM: f"/dev/dri/renderD{128 + self.number}",
        }[self.model.kind]


class HostTree:
    """The folder of one host; several chassis that it is cabled to write to it concurrently."""

    def __init__(self, folder: Path, name: str, host: HostLab) -> None:
        self.folder = folder
        self.name = name
        self.pci = folder / "sys/bus/pci"
        self.devices = self.pci / "devices"
        self._removals: dict[str, ControlFile] = {}  # by the addresses of devices
        self._iommu = host.iommu
        self._window = host.pci_window_gib * 2**30
        self._make(host)

    def _make(self, host: HostLab) -> None:
        places = "sys/bus/pci/devices", "sys/class/dmi/id", "proc/sys/kernel/random", "proc/1/fd", "dev", "etc", "gpus"
        for place in places:
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        for driver in {*host.drivers, "xocl", "ixgbe"}:
            (self.pci / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (self.pci / "drivers" / driver / "unbind").touch()
        for control in ("rescan", "drivers_probe"):
            if not (self.pci / control).exists():
                (self.pci / control).touch()
        texts = {
            "sys/class/dmi/id/product_uuid": host.uuid or stable_uuid(self.name),
            "sys/class/dmi/id/product_serial": host.serial or stable_serial("S", self.name),
            "sys/class/dmi/id/product_name": host.model,
            "proc/sys/kernel/hostname": self.name,
            "proc/sys/kernel/osrelease": KERNEL,
            "proc/sys/kernel/random/boot_id": stable_uuid(self.name, "boot"),
            "proc/swaps": "Filename\tType\tSize\tUsed\tPriority",
            "proc/1/comm": "systemd",
            "proc/1/status": "Name:\tsystemd\nUid:\t0\t0\t0\t0",
            f"lib/modules/{KERNEL}/modules.dep": "\n".join(f"kernel/drivers/{name}.ko:" for name in host.drivers),
            f"lib/modules/{KERNEL}/modules.builtin": "",
            **{f"sys/module/{name}/version": version for name, version in host.drivers.items()},
            "etc/passwd": "\n".join(f"{who}:x:{uid}:{uid}::/home/{who}:/bin/sh" for who, uid in USERS.items()),
        }
        for place, text in texts.items():
            (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / place, text + "\n")
        self.add_root_port("0000:00:01.0", *OWN_BUSES)
        if not (self.folder / "proc/1/mountinfo").exists():
            replace_file(self.folder / "proc/1/mountinfo", "\n".join(_MOUNTS_OF_EVERY_HOST) + "\n")

    def add_root_port(self, address: str, first_bus: int, last_bus: int) -> None:
        """Show a root port with the buses and the window for memory below it."""
        place = self.devices / address
        place.mkdir(exist_ok=True)
        texts = {
            "class": "0x060400",
            "secondary_bus_number": str(first_bus),
            "subordinate_bus_number": str(last_bus),
            "resource": _resource(self._window, WINDOW_FLAGS) if self._window else "",
        }
        for name, text in texts.items():
            replace_file(place / name, text + "\n")

    def has(self, address: str) -> bool:
        """Return whether the host has an entry for an address."""
        return (self.devices / address).is_dir()

    def removal_requested(self, address: str) -> bool | None:
        """Return whether a device's removal was requested; None where the host has no entry for it."""
        file = self._removals.get(address)
        if file is None:
            file = self._removals[address] = ControlFile(self.devices / address / "remove")
        size = file.size()
        return None if size is None else size > 0

    def plug(self, card: PciCard, lanes: int, generation: str) -> None:
        """Show a device, atomically and bound to its driver."""
        model = card.model
        new = self.pci / f".new-{card.address}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        texts = {
            "vendor": model.vendor_id.lower(),
            "device": model.device_id.lower(),
            "subsystem_vendor": model.subsystem_vendor_id.lower(),
            "subsystem_device": model.subsystem_id.lower(),
            "class": model.class_code.lower(),
            "numa_node": "0",
            "max_link_width": str(model.lanes),
            "max_link_speed": _speed(model.generation),
            "current_link_width": str(lanes),
            "current_link_speed": _speed(generation),
            "resource": "\n".join((_resource(2**24, BAR_FLAGS), _resource(_bar_bytes(model), WINDOW_BAR_FLAGS))),
        }
        if self._iommu:
            (new / "iommu_group").mkdir()
            texts["iommu_group/type"] = self._iommu
        for name, text in texts.items():
            (new / name).write_text(text + "\n")
        (new / "config").write_bytes(_config(model))
        (new / "vpd").write_bytes(_vpd(model, card.serial))
        (new / "remove").touch()
        new.rename(self.devices / card.address)
        self.bind(card)

    def unplug(self, card: PciCard) -> None:
        """Remove a device's entry, atomically."""
        self.unbind(card)
        self._removals.pop(card.address, None)
        gone = self.pci / f".gone-{card.address}"
        shutil.rmtree(gone, ignore_errors=True)
        (self.devices / card.address).rename(gone)
        shutil.rmtree(gone)

    def bind(self, card: PciCard) -> None:
        """Bind a device to its driver, which creates its device files, where the host has that."""
        place = self.devices / card.address
        driver = _driver(card)
        if (place / "driver").is_symlink() or not (self.pci / "drivers" / driver).is_dir():
            return
        for part, number, name in _files(card):
            (place / part).mkdir(parents=True)
            if number:
                (place / part / "dev").write_text(number + "\n")
                (place / part / "uevent").write_text(f"DEVNAME={name}\n")
        if card.model.kind is DeviceModelKind.DRIVE:
            nvme = place / f"nvme/nvme{card.number}"
            (nvme / "serial").write_text(card.serial + "\n")
            (nvme / "model").write_text(card.model.model + "\n")
        elif card.model.kind is DeviceModelKind.NETWORK:
            net = next((place / "net").iterdir())
            (net / "flags").write_text("0x1003\n" if driver == "ixgbe" else "0x1002\n")
        elif card.model.kind is DeviceModelKind.GPU:
            information = self.folder / "proc/driver/nvidia/gpus" / card.address
            information.mkdir(parents=True, exist_ok=True)
            text = f"Model: \t\t {card.model.model}\nDevice Minor: \t {card.number}\nBus Location: \t {card.address}\n"
            replace_file(information / "information", text)
        node = self.folder / card.node[1:]
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
        (place / "driver").symlink_to(f"../../drivers/{driver}")

    def unbind(self, card: PciCard) -> None:
        """Unbind a device from its driver, which removes its device files."""
        place = self.devices / card.address
        for part in {part.partition("/")[0] for part, _, _ in _files(card)}:
            shutil.rmtree(place / part, ignore_errors=True)
        shutil.rmtree(self.folder / "proc/driver/nvidia/gpus" / card.address, ignore_errors=True)
        (self.folder / "gpus" / f"{card.address}.json").unlink(missing_ok=True)
        (self.folder / card.node[1:]).unlink(missing_ok=True)
        (place / "driver").unlink(missing_ok=True)

    def bound(self, card: PciCard) -> bool:
        """Return whether a device is bound to its driver."""
        return os.path.islink(f"{self.devices}/{card.address}/driver")  # noqa: PTH114 - several times a second for each

    def set_link(self, card: PciCard, lanes: int, generation: str) -> None:
        """Show the trained width and speed of a device's link."""
        replace_file(self.devices / card.address / "current_link_width", f"{lanes}\n")
        replace_file(self.devices / card.address / "current_link_speed", _speed(generation) + "\n")

    def lose(self, card: PciCard) -> None:
        """Make a device unresponsive: its registers read as ones; the kernel's cached values stay."""
        replace_file(self.devices / card.address / "config", ABSENT_CONFIG)
        replace_file(self.devices / card.address / "current_link_width", "63\n")
        replace_file(self.devices / card.address / "current_link_speed", "Unknown\n")

    def restore(self, card: PciCard) -> None:
        """Make a device responsive again."""
        replace_file(self.devices / card.address / "config", _config(card.model))

    def add_process(self, pid: int, command: str, uid: int, files: Mapping[int, str]) -> None:
        """Show a process with its open files by descriptor; one with its PID that is shown already stays."""
        new = self.folder / "proc" / f".new-{pid}-{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        (new / "fd").mkdir(parents=True)
        (new / "comm").write_text(command.partition(" ")[0][:15] + "\n")
        (new / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (new / "status").write_text(f"Name:\t{command[:15]}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        ticks = int((time.time() - BOOT) * os.sysconf("SC_CLK_TCK"))
        (new / "stat").write_text(f"{pid} ({command[:15]}) S {'0 ' * 18}{ticks} 0\n")
        for descriptor, file in files.items():
            (new / "fd" / str(descriptor)).symlink_to(file)
        with suppress(OSError):  # another chassis was first
            new.rename(self.folder / "proc" / str(pid))
        shutil.rmtree(new, ignore_errors=True)

    def remove_process(self, pid: int) -> None:
        """Remove a process."""
        shutil.rmtree(self.folder / "proc" / str(pid), ignore_errors=True)

    def mount(self, card: PciCard, path: str) -> None:
        """Mount the first partition of a drive."""
        line = f"{200 + card.number} 27 {NVME_MAJOR}:{8 * card.number + 2} / {path} rw - ext4 {card.node}p1 rw"
        with self._mounts() as lines:
            lines.append(line)

    def unmount(self, card: PciCard) -> None:
        """Unmount all partitions of a drive."""
        with self._mounts() as lines:
            lines[:] = [line for line in lines if f" {card.node}p1 " not in line]

    @contextmanager
    def _mounts(self) -> Iterator[list[str]]:
        file = self.folder / "proc/1/mountinfo"
        with (self.folder / ".mounts").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = file.read_text().splitlines()
            yield lines
            replace_file(file, "\n".join(lines) + "\n")


def replace_file(file: Path | str, content: str | bytes) -> None:
    """Replace a file atomically; one that hangs keeps hanging and has the content after that."""
    folder, name = os.path.split(file)
    new = f"{folder}/.{name}.{os.getpid()}"
    with open(new, "wb", buffering=0) as writing:  # noqa: PTH123 - some thirty files a second
        writing.write(content.encode() if isinstance(content, str) else content)
    os.replace(new, _hung_path(Path(file)) if _mode(file) == stat.S_IFIFO else file)  # noqa: PTH105


def _mode(file: Path | str) -> int | None:
    """Return the type of a file, None where it does not exist."""
    try:
        return stat.S_IFMT(os.stat(file).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        return None


def set_hanging(file: Path, *, hanging: bool) -> None:
    """Make opening a file block forever, or restore it."""
    if not hanging:
        if _hung_path(file).exists():
            _hung_path(file).replace(file)
    elif _mode(file) not in (None, stat.S_IFIFO):
        file.rename(_hung_path(file))
        os.mkfifo(file)


class ControlFile:
    """A file that others write to. It is kept open, so that many can be looked at ten times a second."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._descriptor = -1

    def size(self) -> int | None:
        """Return its size in bytes, None where there is no such file."""
        for _attempt in range(2):
            if self._descriptor < 0:
                try:
                    self._descriptor = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK)  # it may be a pipe that hangs
                except FileNotFoundError:
                    return None
            found = os.fstat(self._descriptor)
            if found.st_nlink:
                return found.st_size
            self.close()  # it was removed; there may be another
        return None

    def read(self, begin: int, end: int) -> bytes:
        """Return these bytes of it, once its size is known."""
        return os.pread(self._descriptor, end - begin, begin)

    def close(self) -> None:
        """Close it until it is looked at again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close


class FileTail:
    """Reads the lines appended to a control file, each once."""

    def __init__(self, file: Path) -> None:
        self._file = ControlFile(file)
        self._at = self._file.size() or 0

    def lines(self) -> list[str]:
        """Return the new complete lines."""
        size = self._file.size() or 0
        if size <= self._at:
            return []
        data = self._file.read(self._at, size)
        complete = data[: data.rfind(b"\n") + 1]
        self._at += len(complete)
        return complete.decode(errors="replace").split()


def _hung_path(file: Path) -> Path:
    return file.with_name(f".hangs-{file.name}")


def _speed(generation: str) -> str:
    return f"{LANE_GBPS[generation]:.1f} GT/s PCIe"


def _driver(card: PciCard) -> str:
    if card.model.vendor_id.lower() == "0x8086" and card.model.kind is DeviceModelKind.NETWORK:
        return "ixgbe"
    return DRIVERS[card.model.kind]


def _files(card: PciCard) -> list[tuple[str, str, str]]:
    """Return the folders below a device that its driver creates: path, `major:minor`, name of the device file."""
    number = card.number
    match card.model.kind:
        case DeviceModelKind.DRIVE:
            disk = f"nvme/nvme{number}/nvme{number}n1"
            return [
                (f"nvme/nvme{number}", f"240:{number}", f"nvme{number}"),
                (disk, f"{NVME_MAJOR}:{8 * number + 1}", f"nvme{number}n1"),
                (f"{disk}/nvme{number}n1p1", f"{NVME_MAJOR}:{8 * number + 2}", f"nvme{number}n1p1"),
            ]
        case DeviceModelKind.NETWORK:
            name = card.address.replace(":", "").replace(".", "f")[4:]
            files = [(f"net/enp{name}", "", "")]
            if _driver(card) == "mlx5_core":
                files.append(
                    (f"infiniband_verbs/uverbs{number}", f"{VERBS_MAJOR}:{192 + number}", f"infiniband/uverbs{number}")
                )
            return files
        case DeviceModelKind.CUSTOM:
            return [(f"drm/renderD{128 + number}", f"{DRM_MAJOR}:{128 + number}", f"dri/renderD{128 + number}")]
        case _:
            return []


# Flags of address ranges, as Linux has them: memory; of 64 bits and prefetchable; such a window of a bridge.
BAR_FLAGS, WINDOW_BAR_FLAGS, WINDOW_FLAGS = 0x40200, 0x14220C, 0x102201 | 0x200000


def _bar_bytes(model: DeviceModel) -> int:
    """Return the size of a device's large BAR: a GPU shows all of its memory."""
    return 2 ** max(20, (model.memory_mib * 2**20 - 1).bit_length()) if model.memory_mib else 2**20


def _resource(size: int, flags: int, begin: int = 2**40) -> str:
    return f"0x{begin:016x} 0x{begin + size - 1:016x} 0x{flags:016x}"


def _config(model: DeviceModel) -> bytes:
    head = b"".join(int(number, 16).to_bytes(2, "little") for number in (model.vendor_id, model.device_id))
    return head + bytes(252)


def _vpd(model: DeviceModel, serial: str) -> bytes:
    name, part, number = model.model.encode(), model.part_number.encode(), serial.encode()
    fields = b"PN%c%bSN%c%b" % (len(part), part, len(number), number)
    return b"\x82%b%b\x90%b%b\x78" % (len(name).to_bytes(2, "little"), name, len(fields).to_bytes(2, "little"), fields)


NETWORK_CARD = DeviceModel(
    kind=DeviceModelKind.NETWORK,
    manufacturer="Intel",
    model="X540-AT2",
    part_number="X540-AT2",
    vendor_id="0x8086",
    device_id="0x1528",
    subsystem_vendor_id="0x15D9",
    subsystem_id="0x0734",
    class_code="0x020000",
    generation="Gen2",
    lanes=8,
)


def own_cards(name: str, host: HostLab) -> list[PciCard]:
    """Return the host's own cards; a host has the same ones in each process."""
    gpu = msgspec.structs.replace(
        DEVICE_MODELS["V100-PCIE-16GB"], model=host.gpu_model, device_id="0x1DB1", part_number="900-2G503-0000-000"
    )
    cards = [
        PciCard("0000:02:00.0", NETWORK_CARD, stable_serial("", name, "network"), 0),
        PciCard("0000:02:00.1", NETWORK_CARD, stable_serial("", name, "network"), 0),
        PciCard("0000:05:00.0", DEVICE_MODELS["SSDPEDKX040T7"], stable_serial("", name, "drive"), 0),
    ]
    return cards + [
        PciCard(f"0000:{0x10 + number:02x}:00.0", gpu, stable_serial("", name, f"gpu{number + 1}"), number)
        for number in range(host.gpus)
    ]
