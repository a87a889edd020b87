"""Access to the host's devices for commands and reports: every read and every change has a time limit."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import msgspec

from agent.device_usage import DeviceHolders
from agent.nvml import NvmlReadings
from agent.step_execution import StepError, StepProcessPool, StepTimeoutError
from hostwire.protocol import DeviceSelector, HostLimits, PciDevice

# A device whose reads hang is not read again for this multiple of the limit: each try may leave a process behind.
RETRY_LIMITS = 5
POLL_SECONDS = 0.2
T = TypeVar("T")


class DeviceLookupError(Exception):
    """The selector matches no device, or several; the text says which."""

    def __init__(self, sentence: str, *, several: bool = False) -> None:
        super().__init__(sentence)
        self.several = several


class Machine:
    """One host. `read_seconds` limits a read, `step_seconds` a change; raises StepError and StepTimeoutError.

    Several hosts of one process share the processes of `steps`.
    """

    def __init__(
        self, root: Path, *, read_seconds: float, step_seconds: float, steps: StepProcessPool | None = None
    ) -> None:
        self.root = root
        self.read_seconds = read_seconds
        self.step_seconds = step_seconds
        self._steps = steps or StepProcessPool()
        self._lock = threading.Lock()
        # The times until which devices are not read again.
        self._paused: dict[str, float] = {}
        self._gpu_serials: dict[str, str] = {}

    def close(self) -> None:
        """End the processes that executed the steps."""
        self._steps.close()

    @property
    def stuck(self) -> list[str]:
        """Steps whose processes cannot be ended."""
        return self._steps.stuck(self.root)

    def _read(self, shape: type[T], step: str, **arguments: Any) -> T:
        return self._steps.execute(shape, self.root, step, seconds=self.read_seconds, **arguments)

    def addresses(self) -> list[str]:
        """Return the addresses of the devices that are reported."""
        return self._read(list[str], "addresses")

    def functions(self, address: str) -> list[str]:
        """Return the functions of a device's card that are present."""
        return self._read(list[str], "functions", address=address)

    def present(self, address: str) -> bool:
        """Return whether the host has an entry for an address."""
        return self._read(bool, "present", address=address)

    def driver(self, address: str) -> str:
        """Return the driver that a device is bound to."""
        return self._read(str, "driver", address=address)

    def device(self, address: str) -> PciDevice | None:
        """Return a device, None where there is none; read errors are in its `problems`."""
        with self._lock:
            if self._paused.get(address, 0.0) > time.monotonic():
                return PciDevice(address, "", "", problems=("reading it does not end",))
        try:
            found: PciDevice | None = self._read(PciDevice | None, "device", address=address)  # type: ignore[arg-type]
        except StepTimeoutError as error:
            with self._lock:
                self._paused[address] = time.monotonic() + RETRY_LIMITS * self.read_seconds
            return PciDevice(address, "", "", problems=(f"reading it {error}",))
        except StepError as error:
            return PciDevice(address, "", "", problems=(f"it cannot be read: {error}",))
        if found is not None and (serial := self._gpu_serials.get(address)):
            # Only its driver can read a GPU's serial number.
            return msgspec.structs.replace(found, serial=serial)
        return found

    def devices(self) -> list[PciDevice]:
        """Return the reported devices, except those that disappear meanwhile."""
        return [found for address in self.addresses() if (found := self.device(address)) is not None]

    def holders(self, addresses: list[str]) -> DeviceHolders:
        """Return the holders of devices."""
        try:
            return self._read(DeviceHolders, "holders", addresses=addresses)
        except StepTimeoutError:
            # Reading the full command line of a process that hangs in the kernel may itself hang.
            return self._read(DeviceHolders, "holders", addresses=addresses, briefly=True)

    def host_limits(self) -> HostLimits:
        """Return what limits the devices that the host can take."""
        return self._read(HostLimits, "host_limits")

    def data_place(self, address: str) -> str:
        """Return the folder or device file for reading data from a drive; '' where neither may be used."""
        return self._read(str, "data_place", address=address)

    def gpus(self) -> NvmlReadings:
        """Return NVML's readings."""
        try:
            readings = self._steps.execute(NvmlReadings, self.root, "gpus", seconds=max(self.read_seconds, 5.0))
        except StepError as error:
            return NvmlReadings(absent=f"NVML: {error}")
        self._gpu_serials = {gpu.address: gpu.serial for gpu in readings.gpus if gpu.serial not in ("", "0")}
        return readings

    def set_draining(self, address: str, *, draining: bool) -> str:
        """Block or allow new use of a GPU by NVML; returns the reason for a refusal, or ''."""
        seconds = self.step_seconds
        return self._steps.execute(str, self.root, "draining", seconds=seconds, address=address, draining=draining)

    def write(self, path: str, content: str, *, seconds: float | None = None) -> None:
        """Write to a control file below /sys/bus/pci."""
        limit = self.step_seconds if seconds is None else seconds
        self._steps.execute(NoneType, self.root, "write", seconds=limit, path=path, content=content + "\n")

    def find(self, selector: DeviceSelector) -> PciDevice:
        """Return the matching device, of a card its first function; raises DeviceLookupError for none or several."""
        matching = [found for found in self.devices() if device_matches(found, selector)]
        if not matching:
            raise DeviceLookupError(f"The host sees no device {describe_selector(selector)}.")
        if len({card_address(found.address) for found in matching}) > 1:
            places = ", ".join(found.address for found in matching)
            sentence = f"Several devices match {describe_selector(selector)}: {places}. Name the address."
            raise DeviceLookupError(sentence, several=True)
        return matching[0]

    def candidates(self, selector: DeviceSelector) -> list[PciDevice]:
        """Return the devices that may match, although nothing confirms it: one function of each card.

        Those are the devices with its IDs whose serial number is unknown or matches; failing that, those that cannot be
        read.
        """
        if not (selector.vendor_id and selector.device_id):
            return []
        living = [found for found in self.devices() if found.answers]
        kind = DeviceSelector(vendor_id=selector.vendor_id, device_id=selector.device_id)
        others = {
            card_address(found.address)
            for found in living
            if found.serial and selector.serial and _normalised(found.serial) != _normalised(selector.serial)
        }
        alike = [found for found in living if device_matches(found, kind) and card_address(found.address) not in others]
        cards: dict[str, PciDevice] = {}
        for found in alike or [found for found in living if not found.vendor_id]:
            cards.setdefault(card_address(found.address), found)
        return list(cards.values())


def card_address(address: str) -> str:
    """Return the common prefix of the addresses of a card's functions."""
    return address.rpartition(".")[0]


def device_matches(found: PciDevice, selector: DeviceSelector) -> bool:
    """Return whether a device matches a selector in all its fields.

    Unknown fields of a device (its serial number, or all of them while it cannot be read) match only where the selector
    names its address: another device of the same kind must not be mistaken for it.
    """
    if selector == DeviceSelector() or (selector.address and selector.address.casefold() != found.address):
        return False
    for name in ("vendor_id", "device_id", "serial"):
        known, required = getattr(found, name), getattr(selector, name)
        if required and _normalised(known) != _normalised(required) and (known or not selector.address):
            return False
    return True


def describe_selector(selector: DeviceSelector) -> str:
    """Return a description of the selector."""
    ids = f"{selector.vendor_id}:{selector.device_id}" if selector.vendor_id or selector.device_id else ""
    serial = f"with the serial number {selector.serial}" if selector.serial else ""
    return " ".join(part for part in (ids, serial, f"at {selector.address}" if selector.address else "") if part)


def _normalised(value: str) -> str:
    return value.strip().casefold()
