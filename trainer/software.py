"""The software and hardware of a run, as the host reports them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import torch

from hostwire.training import Software

# Variables that a container image or an operator may set; the supervisor passes them on.
CONTAINER_VARIABLE = "FALCONWEB_CONTAINER_DIGEST"
COMMIT_VARIABLE = "FALCONWEB_COMMIT"
_LIBRARIES = ("torch", "transformers", "numpy", "msgspec", "triton")


def host_software() -> Software:
    """Return the software and hardware of this process, with '' or nothing for unknown values."""
    return Software(
        python=platform.python_version(),
        framework=f"torch {torch.__version__}",
        cuda=torch.version.cuda or "",
        nccl=_nccl(),
        driver=_driver(),
        libraries=_libraries(),
        operating_system=_operating_system(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        accelerators=tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())),
        container=os.environ.get(CONTAINER_VARIABLE, ""),
        commit=os.environ.get(COMMIT_VARIABLE, "") or _commit(),
    )


def _nccl() -> str:
    if not torch.cuda.is_available():
        return ""
    with contextlib.suppress(Exception):
        return ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return ""


def _driver() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"Kernel Module\D*([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        return found[1] if found else ""
    return ""


def _libraries() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _operating_system() -> str:
    with contextlib.suppress(OSError):
        return f"{platform.freedesktop_os_release().get('PRETTY_NAME', '')}, {platform.system()} {platform.release()}"
    return f"{platform.system()} {platform.release()}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return found[1].strip() if found else platform.machine()
    return platform.machine()


def _commit() -> str:
    home = Path(__file__).resolve().parent.parent
    git = shutil.which("git")
    if git is None or not (home / ".git").exists():
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(  # noqa: S603  # one fixed question to git
            [git, "-C", str(home), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
        return output.stdout.strip() if output.returncode == 0 else ""
    return ""
