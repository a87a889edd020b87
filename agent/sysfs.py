"""PCIe devices as Linux shows them below /sys/bus/pci. Runs in a separate process: any read here may never return."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hostwire.protocol import PciDevice

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Composable classes: storage, network, display, memory, co-processors, accelerators, and unclassified.
REPORTED_CLASSES = ("01", "02", "03", "05", "0b", "12", "ff", "00")
BRIDGE = "06"
MAX_CONFIG_BYTES = 4096
MAX_VPD_BYTES = 32768
DEEPEST = 6
SMALL_FILE_BYTES = 4096
MAX_MODEL_LENGTH = 40  # letters, of an NVMe drive's: NVM Express base specification, Identify Controller
# Flags of resources, from include/linux/ioport.h of Linux.
MEMORY, PREFETCHABLE, WINDOW, UNASSIGNED = 0x200, 0x2000, 0x200000, 0x20000000
MAX_RESOURCE_BYTES = 2**50  # more is no range of a working device
# Cache: serial numbers do not change while a device stays, and the VPD of some cards takes a second to read.
_serials: dict[tuple[Path, int], str] = {}


def pci_root(root: Path) -> Path:
    """Return the folder of PCI."""
    return root / "sys/bus/pci"


def device_folder(root: Path, address: str) -> Path:
    """Return the folder of a device; raises ValueError for an invalid address."""
    if not ADDRESS.fullmatch(address):
        raise ValueError(f"'{address}' is no PCI address")
    return pci_root(root) / "devices" / address


def addresses(root: Path) -> list[str]:
    """Return the addresses of the reported devices, without accessing a device."""
    return sorted(
        entry.name
        for entry in os.scandir(pci_root(root) / "devices")
        if ADDRESS.fullmatch(entry.name) and read_text(f"{entry.path}/class")[2:4] in REPORTED_CLASSES
    )


def functions(root: Path, address: str) -> list[str]:
    """Return all present functions of the card that an address belongs to, itself included."""
    card = device_folder(root, address).name.rpartition(".")[0] + "."
    return sorted(entry.name for entry in os.scandir(pci_root(root) / "devices") if entry.name.startswith(card))


def present(root: Path, address: str) -> bool:
    """Return whether the host has an entry for an address."""
    return device_folder(root, address).exists()


def device(root: Path, address: str) -> PciDevice | None:
    """Return a device, or None where the host has no entry for it."""
    place = device_folder(root, address)
    try:
        inode = place.stat().st_ino
        vendor = (place / "vendor").read_text().strip()
    except OSError as error:
        if _is_missing(error):
            return None
        raise
    problems: list[str] = []
    memory = [one for one in read_resources(place) if one.flags & MEMORY and not one.flags & WINDOW]
    answers = _answers(place, problems)
    nodes = sorted(node for node, _ in device_files(root, address))
    return PciDevice(
        address=address,
        vendor_id=vendor,
        device_id=read_text(f"{place}/device"),
        subsystem_vendor_id=read_text(f"{place}/subsystem_vendor"),
        subsystem_id=read_text(f"{place}/subsystem_device"),
        class_code=read_text(f"{place}/class"),
        serial=_serial(place, inode, answers=answers),
        driver=driver(root, address),
        numa_node=_number(read_text(f"{place}/numa_node"), -1),
        width=_number(read_text(f"{place}/current_link_width"), 0) if answers else 0,
        max_width=_width(read_text(f"{place}/max_link_width")),
        speed=_speed(read_text(f"{place}/current_link_speed")) if answers else 0.0,
        max_speed=_speed(read_text(f"{place}/max_link_speed")),
        answers=answers,
        nodes=tuple(nodes[:32]),
        problems=tuple(problems),
        model=_drive_model(place),
        memory_window=sum(one.size for one in memory if one.is_prefetchable),
        unassigned=sum(one.size for one in memory if one.flags & UNASSIGNED),
        iommu=read_text(f"{place}/iommu_group/type"),
    )


class PciResource(NamedTuple):
    """An address range of a device; `flags` as in Linux, include/linux/ioport.h."""

    size: int  # bytes
    flags: int

    @property
    def is_prefetchable(self) -> bool:
        """Whether it is memory without side effects of reads: bridges forward that beyond 4 GiB."""
        return self.flags & (MEMORY | PREFETCHABLE) == MEMORY | PREFETCHABLE


def read_resources(place: Path) -> list[PciResource]:
    """Return the ranges of a device that are in use, in the order of its file `resource`: BARs, ROM, windows."""
    found = []
    for line in read_text(f"{place}/resource").splitlines():
        try:
            begin, end, flags = (int(word, 16) for word in line.split())
        except ValueError:
            continue
        if flags and end >= begin:
            found.append(PciResource(min(end - begin + 1, MAX_RESOURCE_BYTES), flags))
    return found


def _drive_model(place: Path) -> str:
    """Return the model name of an NVMe drive's controller, '' for any other device."""
    return next((read_text(f"{entry.path}/model")[:MAX_MODEL_LENGTH] for entry in _entries(place / "nvme")), "")


def driver(root: Path, address: str) -> str:
    """Return the name of the driver that a device is bound to, '' for none."""
    try:
        return (device_folder(root, address) / "driver").readlink().name
    except OSError:
        return ""


def virtual_functions(root: Path, address: str) -> int:
    """Return the number of enabled virtual functions of a device."""
    return _number(read_text(device_folder(root, address) / "sriov_numvfs"), 0)


def device_files(root: Path, address: str) -> Iterator[tuple[str, str]]:
    """Yield each device file of a device (`/dev/nvme0n1`) with its `major:minor`, as far as the kernel reports them."""
    place = device_folder(root, address)
    yield from _device_files_below(place, DEEPEST)
    for line in read_text(root / "proc/driver/nvidia/gpus" / address / "information").splitlines():
        if line.startswith("Device Minor:"):
            minor = line.partition(":")[2].strip()
            yield f"/dev/nvidia{minor}", f"195:{minor}"
    try:
        group = (place / "iommu_group").readlink().name
    except OSError:
        return
    if driver(root, address) == "vfio-pci":
        yield f"/dev/vfio/{group}", ""


def interfaces_up(root: Path, address: str) -> list[str]:
    """Return the network interfaces of a device that are up."""
    place = device_folder(root, address)
    # Below the device itself, or below a child that its driver created (virtio).
    places = [
        place / "net",
        *(Path(entry.path) / "net" for entry in _entries(place) if entry.name.startswith("virtio")),
    ]
    return sorted(entry.name for net in places for entry in _entries(net) if _is_up(Path(entry.path)))


def _is_up(interface: Path) -> bool:
    flags = read_text(interface / "flags")
    return flags.startswith("0x") and bool(int(flags, 16) & 1)  # IFF_UP


def block_holders(root: Path, nodes: Iterable[str]) -> list[tuple[str, str]]:
    """Return the block devices on top of these device files (device mapper, RAID): (disk, holder)."""
    names = {node.removeprefix("/dev/") for node in nodes}
    return sorted(
        (name, entry.name) for name in names for entry in _entries(root / "sys/class/block" / name / "holders")
    )


def write(root: Path, path: str, content: str) -> None:
    """Write to one of the kernel's control files below /sys/bus/pci; raises OSError where the kernel refuses it."""
    place = pci_root(root) / path
    # Paths from the wire must not lead elsewhere.
    if ".." in place.parts or not set(content) <= set("0123456789abcdef:.\n"):
        raise ValueError(f"'{path}' is not a control file")
    # Simulated control files are plain files: concurrent writes must not overwrite each other.
    handle = os.open(place, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, content.encode())
    finally:
        os.close(handle)


def read_text(path: Path | str) -> str:
    """Return a small file's text, '' where it does not exist or cannot be read."""
    try:
        # A report reads hundreds of them: a file object takes three times as long, and a Path as long as the reading.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(handle, SMALL_FILE_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(handle)


def _is_missing(error: OSError) -> bool:
    return error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR)


def _answers(place: Path, problems: list[str]) -> bool:
    try:
        with (place / "config").open("rb") as file:
            # A device that was removed reads as all ones.
            return file.read(4) != b"\xff\xff\xff\xff"
    except OSError as error:
        if not _is_missing(error):
            problems.append(f"config: {error.strerror}")
        return not _is_missing(error)


def _serial(place: Path, inode: int, *, answers: bool) -> str:
    key = place, inode
    if key not in _serials and answers:
        _serials[key] = _read_serial(place)
    return _serials.get(key, "")


def _read_serial(place: Path) -> str:
    for entry in _entries(place / "nvme"):
        if serial := read_text(Path(entry.path) / "serial"):
            return serial
    return vpd_serial(_bytes(place / "vpd", MAX_VPD_BYTES)) or dsn_serial(_bytes(place / "config", MAX_CONFIG_BYTES))


def vpd_serial(vpd: bytes) -> str:
    """Return the serial number (keyword SN) of vital product data (PCI 3.0, appendix I), '' where there is none."""
    at = 0
    while at + 3 <= len(vpd):
        tag = vpd[at]
        if not tag & 0x80:  # a small resource: the end tag, or padding
            if tag >> 3 == 0x0F:
                return ""
            at += 1 + (tag & 7)
            continue
        length = int.from_bytes(vpd[at + 1 : at + 3], "little")
        fields = vpd[at + 3 : at + 3 + length]
        at += 3 + length
        while tag == 0x90 and len(fields) >= 3:
            size = fields[2]
            if fields[:2] == b"SN":
                return _printable(fields[3 : 3 + size])
            fields = fields[3 + size :]
    return ""


def dsn_serial(config: bytes) -> str:
    """Return the number of the Device Serial Number capability as 16 hexadecimal digits, '' where there is none."""
    at = 0x100
    for _ in range(96):
        header = int.from_bytes(config[at : at + 4], "little")
        if len(config) < at + 12 or header in (0, 0xFFFFFFFF):
            return ""
        if header & 0xFFFF == 0x0003:
            return f"{int.from_bytes(config[at + 4 : at + 12], 'little'):016X}"
        at = header >> 20
        if at < 0x100:
            return ""
    return ""


def _device_files_below(place: Path, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the device files that the kernel created for a device: `dev` has the number, `uevent` the name."""
    entries = _entries(place)
    has_number = any(entry.name == "dev" for entry in entries)
    if has_number and (number := read_text(f"{place}/dev")) and (name := _device_name(place)):
        yield f"/dev/{name}", number
    if depth:
        for entry in entries:
            # Links lead elsewhere, and behind a bridge are other devices.
            if entry.is_dir(follow_symlinks=False) and not ADDRESS.fullmatch(entry.name) and entry.name != "power":
                yield from _device_files_below(Path(entry.path), depth - 1)


def _device_name(place: Path) -> str:
    for line in read_text(f"{place}/uevent").splitlines():
        if line.startswith("DEVNAME="):
            return line.removeprefix("DEVNAME=")
    return ""


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(place))
    except OSError:
        return []


def _bytes(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""


def _printable(raw: bytes) -> str:
    return "".join(letter for letter in raw.decode("ascii", errors="ignore") if letter.isprintable()).strip()


def _number(text: str, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise


def _width(text: str) -> int:
    # The kernel reports 255 for a link without a width.
    width = _number(text, 0)
    return width if width <= 32 else 0


def _speed(text: str) -> float:
    """Return the GT/s of `16.0 GT/s PCIe`; 0.0 for `Unknown`."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return 0.0
