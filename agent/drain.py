"""Draining a device: block new use, wait until it is unused, remove it from the bus. And restoring it.

The order makes it safe: the driver is unbound (which blocks new use) only when the device has no holders, and holders
are checked once more before the removal. A drain that fails midway is undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import PurePath

from agent.machine import POLL_SECONDS, DeviceLookupError, Machine, card_address, describe_selector
from agent.step_execution import CommandEndedError, StepError, StepLog, StepTimeoutError
from agent.sysfs import BRIDGE
from hostwire.protocol import DATA_HOLDER_KINDS, DeviceHolder, DeviceSelector, DrainRequest, Outcome, PciDevice

GPU_VENDOR, DISPLAY = "0x10de", "03"
# Opens every GPU in persistence mode without using it, and closes it when NVML ends that mode. The kernel truncates
# process names.
IGNORED_PROCESSES = ("nvidia-persistenced", "nvidia-persiste")


def drain(
    machine: Machine, request: DrainRequest, step_log: StepLog, *, wait_for: Callable[[float], bool]
) -> tuple[Outcome, str]:
    """Drain a device; returns the outcome and its sentence.

    `wait_for(seconds)` waits and returns whether the agent must end. Raises CommandEndedError, StepError,
    StepTimeoutError; `step_log` logs every step.
    """
    found = _resolve_device(machine, request.device, step_log)
    if found is None:
        return (
            "removed",
            f"The host has no device {describe_selector(request.device)} any more: nothing to do.",
        )
    step_log.devices = [found]
    if found.class_code[2:4] == BRIDGE:
        raise CommandEndedError("refused", f"{found.address} is a bridge: other devices are behind it.")
    functions = machine.functions(found.address)
    _wait_for_holders(machine, request, found, functions, step_log, wait_for=wait_for)
    try:
        _remove_device(machine, request, found, functions, step_log)
    except (CommandEndedError, StepError) as error:
        if not isinstance(error, StepTimeoutError):
            _rebind(machine, functions, step_log)
        step_log.devices = [now] if (now := machine.device(found.address)) is not None else []
        raise
    if step_log.cut_off:
        return "removed", f"{found.address} was removed by force while in use: {_describe_holders(step_log.cut_off)}."
    return "removed", f"{found.address} was removed from the bus; it was not in use."


def _remove_device(
    machine: Machine, request: DrainRequest, found: PciDevice, functions: Sequence[str], step_log: StepLog
) -> None:
    _block_new_use(machine, found, functions, step_log)
    late = _holders(machine, functions, step_log, force=request.force or not found.answers)
    if late and not request.force:
        step_log.holders = late
        raise CommandEndedError("in_use", f"{found.address} came into use during the drain: {_describe_holders(late)}.")
    step_log.take("remove", lambda: _remove(machine, functions))


def restore(machine: Machine, wanted: DeviceSelector, step_log: StepLog) -> None:
    """Bind a device to its driver; raises DeviceLookupError where the host does not see it."""
    try:
        found = machine.find(wanted)
    except DeviceLookupError as error:
        alone = machine.possible(wanted)
        if error.several or len(alone) != 1 or not alone[0].vendor_id:
            raise
        found = alone[0]
    _rebind(machine, machine.functions(found.address), step_log)
    step_log.devices = [machine.device(found.address) or found]


def _resolve_device(machine: Machine, wanted: DeviceSelector, step_log: StepLog) -> PciDevice | None:
    """Return the device, None where the host certainly has none; raises CommandEndedError where that is ambiguous."""
    found = _find_device(machine, wanted, step_log)
    if _ambiguous_devices(machine, wanted, found) and wanted.vendor_id.casefold() == GPU_VENDOR:
        # Only its driver can read a GPU's serial number, and a newly started agent has not read it yet.
        machine.gpus()
        found = _find_device(machine, wanted, step_log)
    if mistakable := _ambiguous_devices(machine, wanted, found):
        step_log.devices = list({one.address: one for one in [*([found] if found else []), *mistakable]}.values())
        places = ", ".join(one.address for one in step_log.devices)
        raise CommandEndedError(
            "refused",
            f"The device {describe_selector(wanted)} cannot be identified: it may be any of {places}.",
        )
    return found


def _ambiguous_devices(machine: Machine, wanted: DeviceSelector, found: PciDevice | None) -> list[PciDevice]:
    """Return other devices that may match the selector, besides or instead of the one found."""
    if found is not None and (
        (found.serial and (wanted.serial or wanted.address)) or wanted == DeviceSelector(wanted.address)
    ):
        return []
    possible = machine.possible(wanted)
    if not wanted.address:
        return possible
    # Only the address distinguishes it from others without a serial number: they may have swapped addresses meanwhile.
    own = "" if found is None else card_address(found.address)
    return [one for one in possible if not one.serial and card_address(one.address) != own]


def _find_device(machine: Machine, wanted: DeviceSelector, step_log: StepLog) -> PciDevice | None:
    try:
        return step_log.take("look", lambda: machine.find(wanted))
    except DeviceLookupError as error:
        if error.several:
            raise CommandEndedError("refused", str(error)) from error
        if wanted.address and machine.present(wanted.address.casefold()):
            now = machine.device(wanted.address.casefold())
            if now is not None:
                step_log.devices = [now]
                raise CommandEndedError(
                    "refused", f"{wanted.address} has another device now: {now.vendor_id}:{now.device_id}."
                ) from error
        return None


def _wait_for_holders(
    machine: Machine,
    request: DrainRequest,
    found: PciDevice,
    functions: Sequence[str],
    step_log: StepLog,
    *,
    wait_for: Callable[[float], bool],
) -> None:
    """Return when the device has no holders, or by force; else raises CommandEndedError (in use, refused)."""
    began = time.monotonic()
    while holders := _holders(machine, functions, step_log, force=request.force or not found.answers):
        step_log.holders = holders
        keeping = [holder for holder in holders if holder.kind in DATA_HOLDER_KINDS]
        if keeping and found.answers:
            raise CommandEndedError(
                "refused",
                f"{found.address} holds data in use ({_describe_holders(keeping)}). "
                "Unmount it: force does not help here.",
            )
        if request.force or not found.answers:
            step_log.cut_off = holders
            step_log.note("wait", f"did not wait for {_describe_holders(holders)}")
            return
        left = request.wait - (time.monotonic() - began)
        if left <= 0:
            waited = f" after {request.wait:g} s" if request.wait else ""
            raise CommandEndedError("in_use", f"{found.address} is in use{waited}: {_describe_holders(holders)}.")
        if wait_for(min(left, POLL_SECONDS)):
            raise CommandEndedError(
                "interrupted", f"The agent was stopped while it waited for {_describe_holders(holders)}."
            )
    step_log.holders = ()


def _holders(machine: Machine, functions: Sequence[str], step_log: StepLog, *, force: bool) -> tuple[DeviceHolder, ...]:
    try:
        held = machine.holders(list(functions))
    except StepError as error:
        if force:
            step_log.note("holders", f"the holders could not be read: {error}")
            return ()
        raise
    if held.unseen and not force:
        raise CommandEndedError(
            "refused", f"The open files of {held.unseen} processes cannot be read: run the agent as root."
        )
    found = [holder for address in functions for holder in held.holders[address]]
    return tuple(holder for holder in found if PurePath(holder.command.partition(" ")[0]).name not in IGNORED_PROCESSES)


def _block_new_use(machine: Machine, found: PciDevice, functions: Sequence[str], step_log: StepLog) -> None:
    if found.vendor_id == GPU_VENDOR and found.class_code[2:4] == DISPLAY and found.driver == "nvidia":
        refusal = machine.set_draining(found.address, draining=True)
        if refusal:
            step_log.note("stop new use by NVML", refusal)
        else:
            step_log.take("stop new use by NVML", lambda: None)
    for address in functions:
        if not (driver := machine.driver(address)):
            step_log.note("unbind", f"{address} has no driver")
            continue
        step_log.take("unbind", lambda address=address, driver=driver: _unbind(machine, address, driver))  # type: ignore[misc]


def _unbind(machine: Machine, address: str, driver: str) -> None:
    machine.write(f"drivers/{driver}/unbind", address)
    _wait_until(lambda: machine.driver(address) == "", machine.step_seconds)


def _remove(machine: Machine, functions: Sequence[str]) -> None:
    # The first function is removed last: the others are found through it.
    for address in reversed(functions):
        if machine.present(address):
            machine.write(f"devices/{address}/remove", "1")
            _wait_until(lambda address=address: not machine.present(address), machine.step_seconds)  # type: ignore[misc]


def _rebind(machine: Machine, functions: Sequence[str], step_log: StepLog) -> None:
    """Bind the remaining functions to their drivers; errors are logged only, and do not hide the original one."""
    for address in functions:
        try:
            if not machine.present(address):
                continue
            if not machine.driver(address):
                step_log.take("bind again", lambda address=address: _bind(machine, address))  # type: ignore[misc]
            now = machine.device(address)
            if now is not None and now.vendor_id == GPU_VENDOR and now.class_code[2:4] == DISPLAY:
                machine.set_draining(address, draining=False)
        except StepError:
            continue


def _bind(machine: Machine, address: str) -> None:
    machine.write("drivers_probe", address)
    _wait_until(lambda: machine.driver(address) != "", machine.read_seconds)


def _wait_until(true: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise StepTimeoutError(f"had no effect within {seconds:g} s")
        time.sleep(POLL_SECONDS / 4)


def _describe_holders(holders: Sequence[DeviceHolder]) -> str:
    """Return holders in words, the first five of them."""
    words = []
    for holder in holders[:5]:
        if holder.kind == "process":
            words.append(f"{holder.command} (process {holder.pid} of {holder.owner})")
        elif holder.kind == "mount":
            words.append(f"mounted on {holder.what}")
        elif holder.kind == "interface":
            words.append(f"interface {holder.what} is up")
        else:
            words.append(holder.what if holder.kind != "swap" else f"swap on {holder.what}")
    if len(holders) > len(words):
        words.append(f"{len(holders) - len(words)} more")
    return ", ".join(words)
