"""What the host is like, for the site."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from agent import VERSION
from agent.limits import StepError
from agent.machine import Machine
from agent.processes import Held
from agent.runs.runs import Runs
from agent.settings import Settings
from agent.sysfs import text
from hostwire.messages import MAX_BYTES
from hostwire.shapes import HostReport

MOST_HOLDERS = 16
MOST_PROBLEMS = 20


class Reporter:
    """Looks at the host and numbers what it saw."""

    def __init__(self, settings: Settings, machine: Machine, runs: Runs) -> None:
        self._settings = settings
        self._runs = runs
        self._machine = machine
        self._started = time.time()
        self._number = 0

    def look(self, *, busy: Sequence[str] = (), problems: Sequence[str] = ()) -> HostReport:
        """Return a report of now. What could not be seen is said in it; nothing is raised."""
        machine, root = self._machine, self._settings.root
        said = list(problems)
        readings = machine.gpus()
        held = Held({}, 0)
        try:
            devices = machine.devices()
            held = machine.holders([found.address for found in devices])
        except StepError as error:
            devices = []
            said.append(f"Looking at the devices: {error}.")
        if held.unseen:
            said.append(f"{held.unseen} processes do not show what they hold: the agent does not run as root.")
        if stuck := machine.stuck:
            said.append(f"Steps that never ended: {', '.join(stuck)}.")
        self._number += 1
        return fitting(
            HostReport(
                host=self._settings.host,
                number=self._number,
                started=self._started,
                sent=time.time(),
                version=VERSION,
                hostname=text(root / "proc/sys/kernel/hostname"),
                uuid=text(root / "sys/class/dmi/id/product_uuid"),
                boot_id=text(root / "proc/sys/kernel/random/boot_id"),
                kernel=text(root / "proc/sys/kernel/osrelease"),
                devices=tuple(devices),
                holders={address: who[:MOST_HOLDERS] for address, who in held.holders.items() if who},
                gpus=readings.gpus,
                nvml=readings.absent,
                busy=tuple(busy),
                problems=tuple(said[:MOST_PROBLEMS]),
                trainer=self._runs.trainer(),
            )
        )


def fitting(report: HostReport) -> HostReport:
    """Return a report that fits into a message: devices are left out from the end where it does not, and counted."""
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
