"""Draining a device: block new use, wait until it is unused, remove it from the bus. And restoring it.

The order makes it safe: the driver is unbound (which blocks new use) only when the device has no holders, and holders
are checked once more before the removal. A drain that fails midway is undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from agent.machine import POLL_SECONDS, DeviceLookupError, Machine, card_address, describe_selector
from agent.step_execution import CommandEndedError, StepError, StepLog, StepTimeoutError
from agent.sysfs import BRIDGE
from hostwire.protocol import DATA_HOLDER_KINDS, DeviceHolder, DeviceSelector, DrainRequest, Outcome, PciDevice

GPU_VENDOR, DISPLAY = "0x10de", "03"
# Opens every GPU in persistence mode without using it, and closes it when NVML ends that mode. The kernel truncates
# process names.
IGNORED_PROCESSES = ("nvidia-persistenced", "nvidia-persiste")
HOLDER_WORDS = {
    "process": "{0.command} (process {0.pid} of {0.owner})",
    "mount": "mounted on {0.what}",
    "interface": "interface {0.what} is up",
    "swap": "swap on {0.what}",
}


def drain(
    machine: Machine, request: DrainRequest, step_log: StepLog, *, wait_for: Callable[[float], bool]
) -> tuple[Outcome, str]:
    """Drain a device; returns the outcome and its sentence.

    `wait_for(seconds)` waits and returns whether the agent must end. Raises CommandEndedError, StepError,
    StepTimeoutError; `step_log` logs every step.
    """
    found = _resolve_device(machine, request.device, step_log)
    if found is None:
        return "removed", f"The host has no device {describe_selector(request.device)} any more: nothing to do."
    step_log.devices = [found]
    if found.class_code[2:4] == BRIDGE:
        raise CommandEndedError("refused", f"{found.address} is a bridge: other devices are behind it.")
    functions = machine.functions(found.address)
    device_drain = _DeviceDrain(machine, request, found, functions, step_log, wait_for)
    device_drain.wait_until_unused()
    try:
        device_drain.remove()
    except (CommandEndedError, StepError) as error:
        if not isinstance(error, StepTimeoutError):
            _rebind(machine, functions, step_log)
        step_log.devices = [now] if (now := machine.device(found.address)) is not None else []
        raise
    if step_log.cut_off:
        return "removed", f"{found.address} was removed by force while in use: {_describe_holders(step_log.cut_off)}."
    return "removed", f"{found.address} was removed from the bus; it was not in use."


@dataclass(frozen=True)
class _DeviceDrain:
    """The drain of a device with its functions."""

    machine: Machine
    request: DrainRequest
    device: PciDevice
    functions: Sequence[str]
    log: StepLog
    wait_for: Callable[[float], bool]

    @property
    def forced(self) -> bool:
        return self.request.force or not self.device.answers

    def wait_until_unused(self) -> None:
        """Return when the device has no holders, or by force; else raises CommandEndedError (in use, refused)."""
        address, log, began = self.device.address, self.log, time.monotonic()
        while holders := self._holders():
            log.holders = holders
            data_holders = [holder for holder in holders if holder.kind in DATA_HOLDER_KINDS]
            if data_holders and self.device.answers:
                raise CommandEndedError(
                    "refused",
                    f"{address} holds data in use ({_describe_holders(data_holders)}). "
                    "Unmount it: force does not help here.",
                )
            if self.forced:
                log.cut_off = holders
                log.skip("wait", f"did not wait for {_describe_holders(holders)}")
                return
            left = self.request.wait - (time.monotonic() - began)
            if left <= 0:
                waited = f" after {self.request.wait:g} s" if self.request.wait else ""
                raise CommandEndedError("in_use", f"{address} is in use{waited}: {_describe_holders(holders)}.")
            if self.wait_for(min(left, POLL_SECONDS)):
                sentence = f"The agent was stopped while it waited for {_describe_holders(holders)}."
                raise CommandEndedError("interrupted", sentence)
        log.holders = ()

    def remove(self) -> None:
        """Block new use of the device, and remove it unless it came into use meanwhile."""
        self._block_new_use()
        late = self._holders()
        if late and not self.request.force:
            self.log.holders = late
            sentence = f"{self.device.address} came into use during the drain: {_describe_holders(late)}."
            raise CommandEndedError("in_use", sentence)
        self.log.run("remove", self._remove_functions)

    def _holders(self) -> tuple[DeviceHolder, ...]:
        try:
            held = self.machine.holders(list(self.functions))
        except StepError as error:
            if self.forced:
                self.log.skip("holders", f"the holders could not be read: {error}")
                return ()
            raise
        if held.unseen and not self.forced:
            sentence = f"The open files of {held.unseen} processes cannot be read: run the agent as root."
            raise CommandEndedError("refused", sentence)
        return tuple(
            holder
            for address in self.functions
            for holder in held.holders[address]
            if PurePath(holder.command.partition(" ")[0]).name not in IGNORED_PROCESSES
        )

    def _block_new_use(self) -> None:
        found, log = self.device, self.log
        if _is_gpu(found) and found.driver == "nvidia":
            refusal = self.machine.set_draining(found.address, draining=True)
            if refusal:
                log.skip("stop new use by NVML", refusal)
            else:
                log.run("stop new use by NVML", lambda: None)
        for address in self.functions:
            if driver := self.machine.driver(address):
                log.run("unbind", partial(self._unbind, address, driver))
            else:
                log.skip("unbind", f"{address} has no driver")

    def _unbind(self, address: str, driver: str) -> None:
        self.machine.write(f"drivers/{driver}/unbind", address)
        _wait_until(lambda: self.machine.driver(address) == "", self.machine.step_seconds)

    def _remove_functions(self) -> None:
        # The first function is removed last: the others are found through it.
        for address in reversed(self.functions):
            if self.machine.present(address):
                self.machine.write(f"devices/{address}/remove", "1")
                _wait_until(lambda address=address: not self.machine.present(address), self.machine.step_seconds)  # type: ignore[misc]


def restore(machine: Machine, selector: DeviceSelector, step_log: StepLog) -> None:
    """Bind a device to its driver; raises DeviceLookupError where the host does not see it."""
    try:
        found = machine.find(selector)
    except DeviceLookupError as error:
        candidates = machine.candidates(selector)
        if error.several or len(candidates) != 1 or not candidates[0].vendor_id:
            raise
        found = candidates[0]
    _rebind(machine, machine.functions(found.address), step_log)
    step_log.devices = [machine.device(found.address) or found]


def _resolve_device(machine: Machine, selector: DeviceSelector, step_log: StepLog) -> PciDevice | None:
    """Return the device, None where the host certainly has none; raises CommandEndedError where that is ambiguous."""
    found = _find_device(machine, selector, step_log)
    if _ambiguous_devices(machine, selector, found) and selector.vendor_id.casefold() == GPU_VENDOR:
        # Only its driver can read a GPU's serial number, and a newly started agent has not read it yet.
        machine.gpus()
        found = _find_device(machine, selector, step_log)
    if candidates := _ambiguous_devices(machine, selector, found):
        step_log.devices = list({one.address: one for one in [*([found] if found else []), *candidates]}.values())
        places = ", ".join(one.address for one in step_log.devices)
        sentence = f"The device {describe_selector(selector)} cannot be identified: it may be any of {places}."
        raise CommandEndedError("refused", sentence)
    return found


def _ambiguous_devices(machine: Machine, selector: DeviceSelector, found: PciDevice | None) -> list[PciDevice]:
    """Return other devices that may match the selector, besides or instead of the one found."""
    if found is not None and (
        (found.serial and (selector.serial or selector.address)) or selector == DeviceSelector(selector.address)
    ):
        return []
    candidates = machine.candidates(selector)
    if not selector.address:
        return candidates
    # Only the address distinguishes it from others without a serial number: they may have swapped addresses meanwhile.
    own = "" if found is None else card_address(found.address)
    return [one for one in candidates if not one.serial and card_address(one.address) != own]


def _find_device(machine: Machine, selector: DeviceSelector, step_log: StepLog) -> PciDevice | None:
    try:
        return step_log.run("look", lambda: machine.find(selector))
    except DeviceLookupError as error:
        if error.several:
            raise CommandEndedError("refused", str(error)) from error
        if selector.address and machine.present(selector.address.casefold()):
            now = machine.device(selector.address.casefold())
            if now is not None:
                step_log.devices = [now]
                sentence = f"{selector.address} has another device now: {now.vendor_id}:{now.device_id}."
                raise CommandEndedError("refused", sentence) from error
        return None


def _is_gpu(found: PciDevice) -> bool:
    return found.vendor_id == GPU_VENDOR and found.class_code[2:4] == DISPLAY


def _rebind(machine: Machine, functions: Sequence[str], step_log: StepLog) -> None:
    """Bind the remaining functions to their drivers; errors are logged only, and do not hide the original one."""
    for address in functions:
        try:
            if not machine.present(address):
                continue
            if not machine.driver(address):
                step_log.run("bind again", partial(_bind, machine, address))
            now = machine.device(address)
            if now is not None and _is_gpu(now):
                machine.set_draining(address, draining=False)
        except StepError:
            continue


def _bind(machine: Machine, address: str) -> None:
    machine.write("drivers_probe", address)
    _wait_until(lambda: machine.driver(address) != "", machine.read_seconds)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise StepTimeoutError(f"had no effect within {seconds:g} s")
        time.sleep(POLL_SECONDS / 4)


def _describe_holders(holders: Sequence[DeviceHolder]) -> str:
    """Return holders in words, the first five of them."""
    words = [HOLDER_WORDS.get(holder.kind, "{0.what}").format(holder) for holder in holders[:5]]
    if len(holders) > len(words):
        words.append(f"{len(holders) - len(words)} more")
    return ", ".join(words)
