"""Taking a device from the host: nobody new, nobody left, off the bus. And giving it back.

The order makes it safe: the driver lets go (which refuses new use) only when nobody holds the device, and whoever came
in between is looked for once more before the device goes. What has begun and fails is undone.
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
# Holds every GPU in persistence mode, for nobody; it lets go when NVML ends that mode. The kernel cuts names off.
IGNORED_PROCESSES = ("nvidia-persistenced", "nvidia-persiste")


def drain(
    machine: Machine, request: DrainRequest, course: StepLog, *, wait_for: Callable[[float], bool]
) -> tuple[Outcome, str]:
    """Take a device from the host; returns the outcome and its sentence.

    `wait_for(seconds)` waits and returns whether the agent is asked to end. Raises CommandEndedError, StepError,
    StepTimeoutError; whatever happened is noted in `course`.
    """
    found = _resolve_device(machine, request.device, course)
    if found is None:
        return (
            "removed",
            f"The host has no device {describe_selector(request.device)} any more: nothing was left to do.",
        )
    course.devices = [found]
    if found.class_code[2:4] == BRIDGE:
        raise CommandEndedError("refused", f"{found.address} is a bridge. Others are behind it.")
    functions = machine.functions(found.address)
    _wait_for_holders(machine, request, found, functions, course, wait_for=wait_for)
    try:
        _remove_device(machine, request, found, functions, course)
    except (CommandEndedError, StepError) as error:
        if not isinstance(error, StepTimeoutError):
            _rebind(machine, functions, course)
        course.devices = [now] if (now := machine.device(found.address)) is not None else []
        raise
    if course.cut_off:
        return "removed", f"{found.address} was taken by force from {_describe_holders(course.cut_off)}."
    return "removed", f"{found.address} is off the bus; nobody held it."


def _remove_device(
    machine: Machine, request: DrainRequest, found: PciDevice, functions: Sequence[str], course: StepLog
) -> None:
    _block_new_use(machine, found, functions, course)
    late = _holders(machine, functions, course, force=request.force or not found.answers)
    if late and not request.force:
        course.holders = late
        raise CommandEndedError("in_use", f"{found.address} was taken in the last moment: {_describe_holders(late)}.")
    course.take("remove", lambda: _remove(machine, functions))


def restore(machine: Machine, wanted: DeviceSelector, course: StepLog) -> None:
    """Give the wanted device back to its driver, where the host sees it; raises DeviceLookupError where it does not."""
    try:
        found = machine.find(wanted)
    except DeviceLookupError as error:
        alone = machine.possible(wanted)
        if error.several or len(alone) != 1 or not alone[0].vendor_id:
            raise
        found = alone[0]
    _rebind(machine, machine.functions(found.address), course)
    course.devices = [machine.device(found.address) or found]


def _resolve_device(machine: Machine, wanted: DeviceSelector, course: StepLog) -> PciDevice | None:
    """Return the wanted device, None where the host surely has none; raises CommandEndedError where it may have it."""
    found = _find_device(machine, wanted, course)
    if _ambiguous_devices(machine, wanted, found) and wanted.vendor_id.casefold() == GPU_VENDOR:
        # A GPU tells its serial number to its driver alone: an agent that has just been started has not asked yet.
        machine.gpus()
        found = _find_device(machine, wanted, course)
    if mistakable := _ambiguous_devices(machine, wanted, found):
        course.devices = list({one.address: one for one in [*([found] if found else []), *mistakable]}.values())
        places = ", ".join(one.address for one in course.devices)
        raise CommandEndedError(
            "refused",
            f"Which device is {describe_selector(wanted)} cannot be told: it may be at {places}, which do not say.",
        )
    return found


def _ambiguous_devices(machine: Machine, wanted: DeviceSelector, found: PciDevice | None) -> list[PciDevice]:
    """Return the devices that may be the wanted one besides what was found, or instead."""
    if found is not None and (
        (found.serial and (wanted.serial or wanted.address)) or wanted == DeviceSelector(wanted.address)
    ):
        return []
    possible = machine.possible(wanted)
    if not wanted.address:
        return possible
    # Nothing but its address tells it from those that tell as little: they may have changed places meanwhile.
    own = "" if found is None else card_address(found.address)
    return [one for one in possible if not one.serial and card_address(one.address) != own]


def _find_device(machine: Machine, wanted: DeviceSelector, course: StepLog) -> PciDevice | None:
    try:
        return course.take("look", lambda: machine.find(wanted))
    except DeviceLookupError as error:
        if error.several:
            raise CommandEndedError("refused", str(error)) from error
        if wanted.address and machine.present(wanted.address.casefold()):
            now = machine.device(wanted.address.casefold())
            if now is not None:
                course.devices = [now]
                raise CommandEndedError(
                    "refused", f"At {wanted.address} is another device now: {now.vendor_id}:{now.device_id}."
                ) from error
        return None


def _wait_for_holders(
    machine: Machine,
    request: DrainRequest,
    found: PciDevice,
    functions: Sequence[str],
    course: StepLog,
    *,
    wait_for: Callable[[float], bool],
) -> None:
    """Return when nobody holds the device, or by force; raises CommandEndedError (in use, refused) with who does."""
    began = time.monotonic()
    while holders := _holders(machine, functions, course, force=request.force or not found.answers):
        course.holders = holders
        keeping = [holder for holder in holders if holder.kind in DATA_HOLDER_KINDS]
        if keeping and found.answers:
            raise CommandEndedError(
                "refused",
                f"{found.address} holds data in use ({_describe_holders(keeping)}). "
                "Unmount it: force does not help here.",
            )
        if request.force or not found.answers:
            course.cut_off = holders
            course.note("wait", f"not waited for {_describe_holders(holders)}")
            return
        left = request.wait - (time.monotonic() - began)
        if left <= 0:
            waited = f" after {request.wait:g} s" if request.wait else ""
            raise CommandEndedError("in_use", f"{found.address} is in use{waited}: {_describe_holders(holders)}.")
        if wait_for(min(left, POLL_SECONDS)):
            raise CommandEndedError(
                "interrupted", f"The agent was ended while it waited for {_describe_holders(holders)}."
            )
    course.holders = ()


def _holders(machine: Machine, functions: Sequence[str], course: StepLog, *, force: bool) -> tuple[DeviceHolder, ...]:
    try:
        held = machine.holders(list(functions))
    except StepError as error:
        if force:
            course.note("holders", f"who holds it could not be seen: {error}")
            return ()
        raise
    if held.unseen and not force:
        raise CommandEndedError(
            "refused", f"{held.unseen} processes do not show what they hold: the agent must run as root to be sure."
        )
    found = [holder for address in functions for holder in held.holders[address]]
    return tuple(holder for holder in found if PurePath(holder.command.partition(" ")[0]).name not in IGNORED_PROCESSES)


def _block_new_use(machine: Machine, found: PciDevice, functions: Sequence[str], course: StepLog) -> None:
    if found.vendor_id == GPU_VENDOR and found.class_code[2:4] == DISPLAY and found.driver == "nvidia":
        refusal = machine.set_draining(found.address, draining=True)
        if refusal:
            course.note("stop new use by NVML", refusal)
        else:
            course.take("stop new use by NVML", lambda: None)
    for address in functions:
        if not (driver := machine.driver(address)):
            course.note("unbind", f"{address} has no driver")
            continue
        course.take("unbind", lambda address=address, driver=driver: _unbind(machine, address, driver))  # type: ignore[misc]


def _unbind(machine: Machine, address: str, driver: str) -> None:
    machine.write(f"drivers/{driver}/unbind", address)
    _wait_until(lambda: machine.driver(address) == "", machine.step_seconds)


def _remove(machine: Machine, functions: Sequence[str]) -> None:
    # The first function goes last: the others are found through it.
    for address in reversed(functions):
        if machine.present(address):
            machine.write(f"devices/{address}/remove", "1")
            _wait_until(lambda address=address: not machine.present(address), machine.step_seconds)  # type: ignore[misc]


def _rebind(machine: Machine, functions: Sequence[str], course: StepLog) -> None:
    """Give what is still there back to its drivers; what stands in the way is noted, and hides no earlier reason."""
    for address in functions:
        try:
            if not machine.present(address):
                continue
            if not machine.driver(address):
                course.take("bind again", lambda address=address: _bind(machine, address))  # type: ignore[misc]
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
