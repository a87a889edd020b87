"""NVML of a simulated host: the functions of `pynvml` that an agent calls, based on the files of the host's tree.

`AGENT_ROOT` names the tree. Only GPUs that are bound to their driver are visible.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

NVML_TEMPERATURE_GPU = 0
NVML_PCIE_UTIL_TX_BYTES = 0
NVML_PCIE_UTIL_RX_BYTES = 1


class NVMLError(Exception):
    """An error of NVML."""


class GpuReadings(msgspec.Struct):
    """The file of a GPU: shares in percent, watts, degrees Celsius, and traffic in bytes per second."""

    name: str
    serial: str
    gpu: float
    memory: float
    used_mib: float
    total_mib: float
    watts: float
    celsius: float
    to_device: float = 0.0
    from_device: float = 0.0


class Pci(NamedTuple):
    """The PCI address of a GPU."""

    busId: str  # noqa: N815 - NVML's own name


class Rates(NamedTuple):
    """Utilisation in percent over the last second."""

    gpu: int
    memory: int


class Memory(NamedTuple):
    """Bytes."""

    used: int
    total: int


# The GPUs at the time of the initialisation, in order.
_handles: list[Path] = []


def _folder() -> Path:
    return Path(os.environ["AGENT_ROOT"]) / "gpus"


def _gpu(handle: Path) -> GpuReadings:
    try:
        return msgspec.json.decode(handle.read_bytes(), type=GpuReadings)
    except OSError as error:
        raise NVMLError("GPU is lost") from error


def nvmlInit() -> None:  # noqa: N802
    """Open the library."""
    if not _folder().is_dir():
        raise NVMLError("Driver Not Loaded")
    _handles[:] = sorted(_folder().glob("*.json"))


def nvmlShutdown() -> None:  # noqa: N802
    """Close the library."""


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """Return the number of GPUs."""
    return len(_handles)


def nvmlDeviceGetHandleByIndex(index: int) -> Path:  # noqa: N802
    """Return a GPU by its index."""
    if index >= len(_handles):
        raise NVMLError("Invalid Argument")
    return _handles[index]


def nvmlDeviceGetPciInfo(handle: Path) -> Pci:  # noqa: N802
    """Return its PCI address in NVML's format."""
    return Pci(f"0000{handle.stem.upper()}")


def nvmlDeviceGetName(handle: Path) -> str:  # noqa: N802
    """Return its model."""
    return _gpu(handle).name


def nvmlDeviceGetSerial(handle: Path) -> str:  # noqa: N802
    """Return its serial number."""
    return _gpu(handle).serial


def nvmlDeviceGetUUID(handle: Path) -> str:  # noqa: N802
    """Return its UUID."""
    return f"GPU-{_gpu(handle).serial.lower()}"


def nvmlDeviceGetUtilizationRates(handle: Path) -> Rates:  # noqa: N802
    """Return its utilisation."""
    gpu = _gpu(handle)
    return Rates(round(gpu.gpu), round(gpu.memory))


def nvmlDeviceGetMemoryInfo(handle: Path) -> Memory:  # noqa: N802
    """Return its memory."""
    gpu = _gpu(handle)
    return Memory(int(gpu.used_mib * 2**20), int(gpu.total_mib * 2**20))


def nvmlDeviceGetPowerUsage(handle: Path) -> int:  # noqa: N802
    """Return its power in milliwatts."""
    return round(_gpu(handle).watts * 1000)


def nvmlDeviceGetTemperature(handle: Path, _sensor: int) -> int:  # noqa: N802
    """Return its temperature in degrees Celsius."""
    return round(_gpu(handle).celsius)


def nvmlDeviceGetPcieThroughput(handle: Path, counter: int) -> int:  # noqa: N802
    """Return its PCIe traffic, sent (TX) or received (RX), in KB/s."""
    gpu = _gpu(handle)
    return round((gpu.from_device if counter == NVML_PCIE_UTIL_TX_BYTES else gpu.to_device) / 1000)


def nvmlDeviceSetPersistenceMode(_handle: Path, _mode: int) -> None:  # noqa: N802
    """Set the persistence mode; a simulated driver always stays loaded."""


def nvmlDeviceModifyDrainState(place: Pci, state: int) -> None:  # noqa: N802
    """Refuse new use of a GPU, or allow it again."""
    mark = _folder() / f"{place.busId[4:].lower()}.draining"
    if state:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def nvmlDeviceQueryDrainState(place: Pci) -> int:  # noqa: N802
    """Return whether new use of a GPU is refused."""
    return int((_folder() / f"{place.busId[4:].lower()}.draining").exists())
