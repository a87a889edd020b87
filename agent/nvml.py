"""NVML readings, where the host has a GPU and the library `pynvml` (nvidia-ml-py); otherwise the reason why not.

`AGENT_NVML` names the module. NVML is initialised for each call and shut down again: it keeps the GPUs open in between.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hostwire.protocol import GpuReading

MIB = 2**20


class NvmlReadings(msgspec.Struct, frozen=True):
    """The readings of the GPUs, or the reason why there are none."""

    gpus: tuple[GpuReading, ...] = ()
    absent: str = ""


class GpuTraffic(msgspec.Struct, frozen=True):
    """PCIe traffic of a GPU in bytes per second, measured over 20 ms; None where the GPU does not report it."""

    address: str
    to_device: float | None
    from_device: float | None


class NvmlUnavailableError(Exception):
    """NVML is not available; the text says why."""


def readings(root: Path) -> NvmlReadings:
    """Return the readings of each GPU."""
    try:
        with _library(root) as nvml:
            return NvmlReadings(tuple(_reading(nvml, handle, place) for handle, place in _gpus(nvml)))
    except NvmlUnavailableError as error:
        return NvmlReadings(absent=str(error))


def traffic(root: Path, addresses: Collection[str]) -> tuple[GpuTraffic, ...]:
    """Return the PCIe traffic of those of these GPUs that NVML sees; each takes 40 ms."""
    try:
        with _library(root) as nvml:
            return tuple(
                _traffic(nvml, address, handle)
                for handle, place in _gpus(nvml)
                if (address := _address(place)) in addresses
            )
    except NvmlUnavailableError:
        return ()


def set_draining(root: Path, address: str, *, draining: bool) -> str:
    """Block or allow new use of a GPU in its driver; returns the reason for a refusal, '' on success.

    Persistence mode is ended before draining: nvidia-persistenced keeps every such GPU open.
    """
    try:
        with _library(root) as nvml:
            modify = getattr(nvml, "nvmlDeviceModifyDrainState", None)
            if modify is None:
                return "this pynvml knows no drain state"
            gpu = next((gpu for gpu in _gpus(nvml) if _address(gpu[1]) == address), None)
            if gpu is None:
                return "NVML does not see this GPU"
            if draining:
                _query(nvml, nvml.nvmlDeviceSetPersistenceMode, gpu[0], 0)
            try:
                modify(gpu[1], 1 if draining else 0)
            except nvml.NVMLError as error:
                return f"NVML refuses: {error}"
    except NvmlUnavailableError as error:
        return str(error)
    return ""


@contextmanager
def _library(root: Path) -> Iterator[Any]:
    # NVML reports the machine it runs on. A simulated host needs a module of its own, named by AGENT_NVML.
    name = os.environ.get("AGENT_NVML", "pynvml" if root == Path("/") else "")
    if not name:
        raise NvmlUnavailableError("no NVML: this root is not this machine's")
    try:
        nvml = importlib.import_module(name)
    except ImportError:
        raise NvmlUnavailableError(f"no NVML: the library {name} is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlUnavailableError(f"no NVML: {error}") from None
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise NvmlUnavailableError(f"NVML failed: {error}") from None
    finally:
        nvml.nvmlShutdown()


def _gpus(nvml: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the handle of each GPU, with its PCI information."""
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        yield handle, nvml.nvmlDeviceGetPciInfo(handle)


def _reading(nvml: Any, handle: Any, place: Any) -> GpuReading:
    rates = _query(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _query(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _query(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    celsius = _query(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    query = getattr(nvml, "nvmlDeviceQueryDrainState", None)
    draining = None if query is None else _query(nvml, query, place)
    return GpuReading(
        address=_address(place),
        name=_text(_query(nvml, nvml.nvmlDeviceGetName, handle)),
        serial=_text(_query(nvml, nvml.nvmlDeviceGetSerial, handle)),
        uuid=_text(_query(nvml, nvml.nvmlDeviceGetUUID, handle)),
        gpu_share=None if rates is None else rates.gpu / 100,
        memory_share=None if rates is None else rates.memory / 100,
        memory_used=None if memory is None else memory.used / MIB,
        memory_total=None if memory is None else memory.total / MIB,
        watts=None if milliwatts is None else milliwatts / 1000,
        celsius=None if celsius is None else float(celsius),
        draining=None if draining is None else bool(draining),
    )


def _traffic(nvml: Any, address: str, handle: Any) -> GpuTraffic:
    # NVML counts from the GPU's side (TX is from the GPU), in KB/s.
    received, sent = (
        _query(nvml, nvml.nvmlDeviceGetPcieThroughput, handle, counter)
        for counter in (nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES)
    )
    return GpuTraffic(address, None if received is None else received * 1000.0, None if sent is None else sent * 1000.0)


def _query(nvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value, or None: not every GPU supports every query."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _address(place: Any) -> str:
    """Return `0000:3b:00.0` of NVML's `00000000:3B:00.0`."""
    domain, _, rest = _text(place.busId).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _text(text: Any) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text or "")
