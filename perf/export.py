"""Export of a million events as CSV and JSON Lines, by the worker's code in a separate process.

Three sizes of the log show what grows. Compared with, in a separate process, in turn with the others: the same columns
of the same rows by a loop over a database cursor, without claim, progress, checksum, safe cells or resumption.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from statistics import median

from django.db import connections

from accounts.models import User
from falconweb.config import BASE_DIR
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from telemetry.events.models import Event
from telemetry.exports.models import ExportDefinition, ExportRun
from telemetry.exports.options import ExportOptions, ExportSpec
from telemetry.exports.services import export_add, run_request

SIZES = (10_000, 100_000, 1_000_000)
FORMATS = ("csv", "jsonl")
SHORT = {"SIZES": (5_000, 40_000)}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 3
MAX_TIME = 1.25  # of the bare loop's
MAX_GROWTH = 1.15  # growth of the peak memory from the fewest to the most events
KINDS = (
    ("bmc", "OK", "ResourceEvent.1.3.ResourceChanged", "One or more resource properties have changed."),
    ("bmc", "Warning", "Fabric.1.0.LinkDowngraded", "The link of port 12 came up at x8 instead of x16."),
    ("operation", "OK", "FalconWeb.1.0.OperationDone", "Attach GPU 3 to H1: done in 4.2 s."),
    ("sign_in", "OK", "FalconWeb.1.0.SignedIn", "Ada signed in from 192.0.2.7."),
    ("alert", "Critical", "FalconWeb.1.0.AlertFiring", "Drawer 1 is at 81 °C: its limit is 80 °C."),
)


@dataclass(frozen=True)
class ExportCost:
    """The time and CPU time in s and the peak memory in bytes of one process, or the medians of several."""

    seconds: float
    cpu: float
    peak: int


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of exporting."""
    person = User.objects.create_superuser("perf")
    definitions = [
        export_add(
            by=person, spec=ExportSpec(name, format=name, target="download", options=ExportOptions(keep_files=1))
        )
        for name in FORMATS
    ]
    taken: dict[tuple[str, int], ExportCost] = {}
    for size in SIZES:
        _fill(size)
        log(f"{size:,} events in the log, exported by {len(FORMATS)} definitions and a bare loop, {ROUNDS} times")
        rounds: dict[str, list[ExportCost]] = defaultdict(list)
        for _ in range(ROUNDS):
            rounds["bare"].append(_process("bare"))
            for row in definitions:
                rounds[row.name].append(_exported(row, size))
        taken |= {(name, size): _median(costs) for name, costs in rounds.items()}
    return list(_figures(taken))


def _figures(taken: dict[tuple[str, int], ExportCost]) -> Iterator[PerfFigure]:
    least, most = SIZES[0], SIZES[-1]
    for size in reversed(SIZES):
        for name in FORMATS:
            yield PerfFigure(
                f"CPU an event, {size:,} as {name}", taken[name, size].cpu / size * 1e6, "us",
                beside="bare loop to csv", beside_value=taken["bare", size].cpu / size * 1e6,
                most_ratio=MAX_TIME if size == most else None,
            )  # fmt: skip
    for name in FORMATS:
        yield PerfFigure(f"{most:,} events as {name}", most / taken[name, most].seconds, "events/s")
    for name in FORMATS:
        *others, last = (taken[name, size].peak / 2**20 for size in SIZES)
        for size, peak in zip(SIZES, others, strict=False):
            yield PerfFigure(f"peak memory, {size:,} as {name}", peak, "MiB")
        yield PerfFigure(
            f"peak memory, {most:,} as {name}",
            last,
            "MiB",
            beside=f"of {least:,}",
            beside_value=others[0],
            most_ratio=MAX_GROWTH,
        )


def _median(costs: list[ExportCost]) -> ExportCost:
    return ExportCost(
        seconds=median(one.seconds for one in costs),
        cpu=median(one.cpu for one in costs),
        peak=int(median(one.peak for one in costs)),
    )


def _fill(size: int) -> None:
    """Fill the log to this number of events."""
    numbers_left = iter(range(Event.objects.count(), size))
    while numbers := list(islice(numbers_left, 5000)):
        Event.objects.bulk_create([_event(number) for number in numbers], batch_size=500)


def _event(number: int) -> Event:
    source, severity, message_id, text = KINDS[number % len(KINDS)]
    return Event(
        at=BEGIN + timedelta(seconds=7 * number),
        source=source,
        severity=severity,
        message_id=message_id,
        message=message_id.replace(".1.3.", ".").replace(".1.0.", "."),
        text=f"{text} ({number})",
        chassis_id=number % 8 + 1,
        chassis_name=f"falcon-{number % 8 + 1}",
        subject_name=f"GPU {number % 16}",
        tenant_name="Vision group",
        link=f"/devices/{number % 128}/",
    )


def _exported(row: ExportDefinition, size: int) -> ExportCost:
    run = run_request(by=None, definition=row)
    taken = _process("run", str(run.pk))
    run.refresh_from_db()
    if run.state != ExportRun.State.DONE or run.counted != size:
        raise CannotMeasureError(f"the run exported {run.counted} of {size} events: {run.error or run.state}.")
    return taken


def _process(*what: str) -> ExportCost:
    """Run one export in a separate process."""
    connections.close_all()
    answer = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "perf.export_process", *what],
        cwd=BASE_DIR, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode:
        raise CannotMeasureError(f"the process that exports failed: {answer.stderr[-500:]}")
    return ExportCost(**json.loads(answer.stdout))
