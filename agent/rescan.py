"""Looking for devices that were attached: have the kernel scan the bus, then wait until what is wanted is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agent.course import Course
from agent.limits import NotEndedError, StepError
from agent.machine import POLL_SECONDS, Machine, described, fits
from hostwire.shapes import DeviceWanted, Outcome, PciDevice, Rescan


def rescan(
    machine: Machine, request: Rescan, course: Course, *, wait_for: Callable[[float], bool]
) -> tuple[Outcome, str]:
    """Scan the bus and wait for the wanted devices; returns the outcome and its sentence.

    Raises StepError and NotEndedError where the scan itself fails or does not end.
    """
    deadline = time.monotonic() + max(request.wait, machine.read_seconds)
    before = machine.devices()
    known = set(request.known) if request.known is not None else {found.address for found in before}
    _clear_what_is_gone(machine, before, course)
    course.take("rescan", lambda: machine.write("rescan", "1", seconds=max(request.wait, machine.step_seconds)))
    while True:
        seen, missing = _sort_out(machine.devices(), request.wanted, known)
        course.devices = seen
        left = deadline - time.monotonic()
        if not missing or left <= 0:
            break
        if wait_for(min(left, POLL_SECONDS)):
            return "interrupted", "The agent was ended while it waited for devices."
    if missing:
        return "not_seen", f"The host does not see {', '.join(described(one) or 'a new device' for one in missing)}."
    if not request.wanted:
        return "seen", f"The bus was scanned; {len(seen)} devices are new."
    return "seen", "; ".join(_linked(found) for found in seen) + "."


def _clear_what_is_gone(machine: Machine, before: Sequence[PciDevice], course: Course) -> None:
    """Remove entries of devices that no longer answer: while they stay, nothing new is found at their place."""
    for found in before:
        if found.answers:
            continue
        try:
            if any(machine.holders([found.address]).holders.values()):
                course.note("clear", f"{found.address} no longer answers, but is held")
                continue
            course.take("clear", lambda found=found: machine.write(f"devices/{found.address}/remove", "1"))  # type: ignore[misc]
        except NotEndedError:
            raise
        except StepError:
            continue


def _sort_out(
    devices: Sequence[PciDevice], wanted: Sequence[DeviceWanted], known: set[str]
) -> tuple[list[PciDevice], list[DeviceWanted]]:
    """Return the devices that were waited for, in the order of `wanted`, and what is missing.

    Without anything wanted, what is new counts. A device is seen when its serial number is; where the host does not
    tell it, when a device of the kind is new.
    """
    there = [found for found in devices if found.answers and not found.problems]
    if not wanted:
        return [found for found in there if found.address not in known], []
    seen: list[PciDevice] = []
    missing: list[DeviceWanted] = []
    for one in wanted:
        exact = [found for found in there if one.serial and found not in seen and fits(found, one)]
        kind = DeviceWanted(one.address, one.vendor_id, one.device_id)
        new = [
            found
            for found in there
            if found not in seen
            and found.address not in known
            and not (one.serial and found.serial)
            and (kind == DeviceWanted() or fits(found, kind))
        ]
        if exact or new:
            seen.append((exact or new)[0])
        else:
            missing.append(one)
    return seen, missing


def _linked(found: PciDevice) -> str:
    if not found.width:
        return f"{found.address} is there"
    return f"{found.address} is there with x{found.width} at {found.speed:g} GT/s"
