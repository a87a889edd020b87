"""Rescan of the bus: have the kernel scan it, then wait until the expected devices are present."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from agent.machine import POLL_SECONDS, Machine, describe_selector, device_matches
from agent.step_execution import StepError, StepLog, StepTimeoutError
from hostwire.protocol import DeviceSelector, Outcome, PciDevice, RescanRequest


def rescan(
    machine: Machine, request: RescanRequest, step_log: StepLog, *, wait_for: Callable[[float], bool]
) -> tuple[Outcome, str]:
    """Scan the bus and wait for the expected devices; returns the outcome and its sentence.

    Raises StepError and StepTimeoutError where the scan itself fails or hangs.
    """
    deadline = time.monotonic() + max(request.wait, machine.read_seconds)
    before = machine.devices()
    known = set(request.known) if request.known is not None else {found.address for found in before}
    _remove_stale_entries(machine, before, step_log)
    step_log.run("rescan", lambda: machine.write("rescan", "1", seconds=max(request.wait, machine.step_seconds)))
    while True:
        seen, missing = _match_devices(machine.devices(), request.wanted, known)
        step_log.devices = seen
        left = deadline - time.monotonic()
        if not missing or left <= 0:
            break
        if wait_for(min(left, POLL_SECONDS)):
            return "interrupted", "The agent was stopped while it waited for devices."
    if missing:
        names = ", ".join(describe_selector(one) or "a new device" for one in missing)
        return "not_seen", f"The host does not see {names}."
    if not request.wanted:
        return "seen", f"The bus was scanned; {len(seen)} devices are new."
    return "seen", "; ".join(_describe_link(found) for found in seen) + "."


def _remove_stale_entries(machine: Machine, before: Sequence[PciDevice], step_log: StepLog) -> None:
    """Remove entries of devices that no longer respond: they block new devices at their addresses."""
    for found in before:
        if found.answers:
            continue
        try:
            if any(machine.holders([found.address]).holders.values()):
                step_log.skip("clear", f"{found.address} no longer responds, but is in use")
                continue
            step_log.run("clear", partial(machine.write, f"devices/{found.address}/remove", "1"))
        except StepTimeoutError:
            raise
        except StepError:
            continue


def _match_devices(
    devices: Sequence[PciDevice], selectors: Sequence[DeviceSelector], known: set[str]
) -> tuple[list[PciDevice], list[DeviceSelector]]:
    """Return the expected devices that are present, in the order of `selectors`, and the missing ones.

    Without `selectors`, all new devices count. A device is present if its serial number is; where the host does not
    report it, if a device of the same kind is new.
    """
    there = [found for found in devices if found.answers and not found.problems]
    if not selectors:
        return [found for found in there if found.address not in known], []
    seen: list[PciDevice] = []
    missing: list[DeviceSelector] = []
    for one in selectors:
        exact = [found for found in there if one.serial and found not in seen and device_matches(found, one)]
        kind = DeviceSelector(one.address, one.vendor_id, one.device_id)
        new = [
            found
            for found in there
            if found not in seen
            and found.address not in known
            and not (one.serial and found.serial)
            and (kind == DeviceSelector() or device_matches(found, kind))
        ]
        if exact or new:
            seen.append((exact or new)[0])
        else:
            missing.append(one)
    return seen, missing


def _describe_link(found: PciDevice) -> str:
    return f"{found.address} is there" + (f" with x{found.width} at {found.speed:g} GT/s" if found.width else "")
