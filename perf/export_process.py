"""`python -m perf.export_process run ID` or `export_by_cursor`: one export in its own process, and its cost."""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path

import django
from django.conf import settings

from perf.environment import CannotMeasureError

FIELDS = (
    "id", "at", "source", "severity", "message_id", "text", "chassis_name", "subject_name", "tenant_name",
    "person_name", "link",
)  # fmt: skip


def main(what: str, run: str = "") -> None:
    """Export, and print its time and CPU time in seconds and the peak memory in bytes."""
    django.setup()
    from telemetry.exports.execution import run_continue

    begin, begin_cpu = time.perf_counter(), time.process_time()
    if what == "run":
        run_continue(int(run), worker="perf")
    else:
        export_by_cursor(settings.EXPORTS_FOLDER / "bare.csv")
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    sys.stdout.write(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak_memory()}))


def export_by_cursor(path: Path) -> None:
    """Write all events by a loop over a cursor of the database."""
    from telemetry.events.models import Event

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(Event.objects.order_by("pk").values_list(*FIELDS).iterator(chunk_size=1000))


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; raises CannotMeasureError off Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CannotMeasureError("this system does not report the peak memory of a process.")


if __name__ == "__main__":
    main(*sys.argv[1:])
