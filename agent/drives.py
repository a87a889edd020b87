"""Where data is read from an NVMe drive: a folder on one of its mounts, or else the drive itself, as one long file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agent import processes, sysfs

# A folder of this name at the top of a mount is taken before the mount itself.
OURS = "falconweb"
# What systems start from: nothing is written there.
SYSTEMS = ("/", "/boot", "/boot/efi", "/efi")


def data_place(root: Path, address: str) -> str:
    """Return a folder that may be written on a file system of a drive, else its device file; '' where neither is ours.

    Runs in a process of its own: a file system that hangs holds up nobody else.
    """
    numbers = {number for _, number in sysfs.device_files(root, address)}
    held = processes.holders(root, [address], briefly=True).holders[address]
    for mount in (holder.what for holder in held if holder.kind == "mount"):
        for folder in _folders(Path(mount)):
            # What is mounted in somebody's container has another file system of ours under its name.
            if folder.is_dir() and _number(folder.stat().st_dev) in numbers and os.access(folder, os.W_OK | os.X_OK):
                return str(folder)
    # Of a namespace; partitions come after it.
    nodes = sorted(node for node, _ in sysfs.device_files(root, address) if Path(node).name.startswith("nvme"))
    return next((node for node in nodes if Path(node).is_block_device() and os.access(node, os.R_OK)), "")


def _folders(mount: Path) -> Iterator[Path]:
    yield mount / OURS
    if str(mount) not in SYSTEMS:
        yield mount


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"
