"""Where data is read from an NVMe drive: a folder on one of its mounts, or else the drive itself, as one long file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agent import processes, sysfs

# The folder at the top of a mount that whoever runs the host has made for us. No other place is written to: a name
# that a container or a service gives to one of its mounts may be a folder of the system here.
OURS = "falconweb"


def data_place(root: Path, address: str) -> str:
    """Return our folder on a file system of a drive, else its device file; '' where neither is ours to use.

    Runs in a process of its own: a file system that hangs holds up nobody else.
    """
    numbers = {number for _, number in sysfs.device_files(root, address)}
    held = processes.holders(root, [address], briefly=True).holders[address]
    for mount in (holder.what for holder in held if holder.kind == "mount"):
        folder = Path(mount) / OURS
        if _is_ours(folder) and _number(folder.stat().st_dev) in numbers:
            return str(folder)
    # Of a namespace; partitions come after it.
    nodes = sorted(node for node, _ in sysfs.device_files(root, address) if Path(node).name.startswith("nvme"))
    return next((node for node in nodes if Path(node).is_block_device() and os.access(node, os.R_OK)), "")


def _is_ours(folder: Path) -> bool:
    """Tell whether it is a folder and no link to one, the agent's own, which it may write to."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and os.access(folder, os.W_OK | os.X_OK)


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"
