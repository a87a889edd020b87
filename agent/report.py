"""Reports of the host's state for the site."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from agent import VERSION
from agent.device_usage import DeviceHolders
from agent.machine import Machine
from agent.runs.manager import RunManager
from agent.settings import Settings
from agent.step_execution import StepError
from agent.sysfs import read_text
from hostwire.protocol import HostReport
from hostwire.signing import MAX_BYTES

MAX_REPORTED_HOLDERS = 16
MAX_PROBLEMS = 20


class HostReporter:
    """Reads the host's state and numbers the reports."""

    def __init__(self, settings: Settings, machine: Machine, runs: RunManager) -> None:
        self._settings = settings
        self._runs = runs
        self._machine = machine
        self._started = time.time()
        self._number = 0

    def read(self, *, busy: Sequence[str] = (), problems: Sequence[str] = ()) -> HostReport:
        """Return a report of the present state. It lists read errors; nothing is raised."""
        machine, root = self._machine, self._settings.root
        sentences = list(problems)
        readings = machine.gpus()
        held = DeviceHolders({}, 0)
        try:
            devices = machine.devices()
            held = machine.holders([found.address for found in devices])
        except StepError as error:
            devices = []
            sentences.append(f"Reading the devices: {error}.")
        limits = None
        try:
            limits = machine.host_limits()
        except StepError as error:
            sentences.append(f"Reading what limits its devices: {error}.")
        if held.unseen:
            sentences.append(f"The open files of {held.unseen} processes cannot be read: the agent is not root.")
        if stuck := machine.stuck:
            sentences.append(f"Steps that never ended: {', '.join(stuck)}.")
        self._number += 1
        return truncate_report(
            HostReport(
                host=self._settings.host,
                number=self._number,
                started=self._started,
                sent=time.time(),
                version=VERSION,
                hostname=read_text(root / "proc/sys/kernel/hostname"),
                uuid=read_text(root / "sys/class/dmi/id/product_uuid"),
                boot_id=read_text(root / "proc/sys/kernel/random/boot_id"),
                kernel=read_text(root / "proc/sys/kernel/osrelease"),
                devices=tuple(devices),
                holders={address: who[:MAX_REPORTED_HOLDERS] for address, who in held.holders.items() if who},
                gpus=readings.gpus,
                nvml=readings.absent,
                busy=tuple(busy),
                problems=tuple(sentences[:MAX_PROBLEMS]),
                limits=limits,
                trainer=self._runs.capabilities(),
            )
        )


def truncate_report(report: HostReport) -> HostReport:
    """Return a report that fits into a message: devices that do not fit are left out from the end, and counted."""
    most = MAX_BYTES - 1024
    while len(msgspec.json.encode(report)) > most and report.devices:
        kept = report.devices[: len(report.devices) * 3 // 4]
        there = {found.address for found in kept}
        report = msgspec.structs.replace(
            report,
            devices=kept,
            holders={address: who for address, who in report.holders.items() if address in there},
            gpus=tuple(gpu for gpu in report.gpus if gpu.address in there),
            left_out=report.left_out + len(report.devices) - len(kept),
        )
    return report
