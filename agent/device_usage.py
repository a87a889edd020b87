"""Users of a device: open files, mounts, swap, network interfaces; and the data folder or device file of an NVMe drive.

Runs in a separate process, like all reads of the host.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from agent import sysfs
from hostwire.protocol import DeviceHolder

MAX_COMMAND_LENGTH = 200
MAX_HOLDERS = 50
_OCTAL = re.compile(r"\\([0-7]{3})")


class DeviceHolders(msgspec.Struct, frozen=True):
    """Holders by address of the device; the open files of `unseen` processes could not be read."""

    holders: dict[str, tuple[DeviceHolder, ...]]
    unseen: int


def holders(root: Path, addresses: list[str], *, briefly: bool = False) -> DeviceHolders:
    """Return the holders of these devices. `briefly` reads the short command names: a full one can be slow to read."""
    files = {address: list(sysfs.device_files(root, address)) for address in addresses}
    found = {address: _kernel_holders(root, address, [node for node, _ in its]) for address, its in files.items()}
    # Device files by name (`/dev/nvme0n1`) and by `major:minor`, which only some have.
    address_of = {name: address for address, its in files.items() for file in its for name in file if name}
    for path in _swap(root):
        if (at := address_of.get(path)) is not None:
            found[at].append(DeviceHolder("swap", path))
    mounts: dict[tuple[str, str], None] = {}
    namespaces: set[str] = set()
    unseen, boot = 0, _boot(root)
    for process in _processes(root):
        mounts.update(dict.fromkeys(_mounts(process, namespaces, address_of)))
        try:
            open_files = _open_files(process)
        except PermissionError:
            unseen += 1
            continue
        for node in open_files:
            if (at := address_of.get(node)) is not None:
                found[at].append(_holder(root, process, node, boot, briefly=briefly))
    for at, path in mounts:
        found[at].append(DeviceHolder("mount", path))
    return DeviceHolders({address: tuple(who[:MAX_HOLDERS]) for address, who in found.items()}, unseen)


def _kernel_holders(root: Path, address: str, nodes: list[str]) -> list[DeviceHolder]:
    """Return the users of a device other than processes."""
    found = [DeviceHolder("mapping", f"{disk} is part of {above}") for disk, above in sysfs.block_holders(root, nodes)]
    found += [DeviceHolder("interface", name) for name in sysfs.interfaces_up(root, address)]
    if count := sysfs.virtual_functions(root, address):
        found.append(DeviceHolder("functions", f"{count} virtual functions"))
    return found


def _processes(root: Path) -> Iterator[Path]:
    for entry in os.scandir(root / "proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            yield Path(entry.path)


def _open_files(process: Path) -> list[str]:
    """Return the distinct targets of a process's open files; raises PermissionError where they cannot be read."""
    found: dict[str, None] = {}
    try:
        entries = list(os.scandir(process / "fd"))
    except PermissionError:
        raise
    except OSError:  # it has ended
        return []
    for entry in entries:
        try:
            found[str(Path(entry.path).readlink()).removesuffix(" (deleted)")] = None
        except OSError:
            continue
    return list(found)


def _mounts(process: Path, namespaces: set[str], address_of: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Yield the mounts of these devices, per mount namespace: a container's mounts may be invisible elsewhere."""
    try:
        namespace = str((process / "ns/mnt").readlink())
    except OSError:
        namespace = "" if process.name == "1" else "unknown"
    if namespace in namespaces or namespace == "unknown":
        return
    namespaces.add(namespace)
    try:
        lines = (process / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        source = [*rest.split(), "", ""][1]
        if len(words) > 4 and (at := address_of.get(words[2]) or address_of.get(source)) is not None:
            yield at, _OCTAL.sub(lambda found: chr(int(found[1], 8)), words[4])


def _swap(root: Path) -> list[str]:
    return [line.split()[0] for line in sysfs.read_text(root / "proc/swaps").splitlines()[1:] if line.strip()]


def _holder(root: Path, process: Path, node: str, boot: int, *, briefly: bool) -> DeviceHolder:
    command = "" if briefly else sysfs.read_text(process / "cmdline").replace("\0", " ").strip()
    return DeviceHolder(
        kind="process",
        what=node,
        pid=int(process.name),
        command=(command or sysfs.read_text(process / "comm"))[:MAX_COMMAND_LENGTH],
        owner=_owner(root, process),
        started=_started(process, boot),
    )


def _boot(root: Path) -> int:
    """Return when the host started, in Unix seconds; 0 where the kernel does not say."""
    with suppress(OSError):  # `read_text` reads the start of a file alone, and interrupts fill this one before it
        for line in (root / "proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return int(line.split()[1])
    return 0


def _started(process: Path, boot: int) -> float:
    """Return when a process started, in whole Unix seconds; 0.0 where that is not known."""
    # After the name in parentheses, which may contain any character, the start is the twentieth field.
    ticks = sysfs.read_text(process / "stat").rpartition(")")[2].split()[19:20]
    return float(boot + int(ticks[0]) // os.sysconf("SC_CLK_TCK")) if boot and ticks else 0.0


def _owner(root: Path, process: Path) -> str:
    for line in sysfs.read_text(process / "status").splitlines():
        if line.startswith("Uid:"):
            return _user_name(root, line.split()[1])
    return ""


def _user_name(root: Path, uid: str) -> str:
    if root == Path("/"):
        try:
            return pwd.getpwuid(int(uid)).pw_name
        except (KeyError, ValueError):
            return f"uid {uid}"
    with suppress(OSError):
        for line in (root / "etc/passwd").read_text().splitlines():
            if line.split(":")[2:3] == [uid]:
                return line.partition(":")[0]
    return f"uid {uid}"


# The folder at the top of a mount that the host's operator created for the agent. Nothing else is written to: the mount
# point of a container or service may be a system folder on the host.
DATA_FOLDER = "falconweb"


def data_place(root: Path, address: str) -> str:
    """Return the agent's folder on a file system of a drive, else its device file; '' where neither may be used.

    Runs in a separate process: a hanging file system blocks nothing else.
    """
    numbers = {number for _, number in sysfs.device_files(root, address)}
    held = holders(root, [address], briefly=True).holders[address]
    for mount in (holder.what for holder in held if holder.kind == "mount"):
        folder = Path(mount) / DATA_FOLDER
        if _is_own_folder(folder) and _device_number(folder.stat().st_dev) in numbers:
            return str(folder)
    # Of a namespace; its partitions follow.
    nodes = sorted(node for node, _ in sysfs.device_files(root, address) if Path(node).name.startswith("nvme"))
    return next((node for node in nodes if Path(node).is_block_device() and os.access(node, os.R_OK)), "")


def _is_own_folder(folder: Path) -> bool:
    """Return whether it is a folder (not a link) that the agent owns and may write to."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and os.access(folder, os.W_OK | os.X_OK)


def _device_number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"
