"""`python -m falconweb.perf.exporting run ID` or `bare`: one export in a process of its own, and what it took."""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path

import django
from django.conf import settings

from falconweb.perf.place import CannotMeasureError

FIELDS = (
    "id", "at", "source", "severity", "message_id", "text", "chassis_name", "subject_name", "tenant_name",
    "person_name", "link",
)  # fmt: skip


def main(what: str, run: str = "") -> None:
    """Export, and print the seconds and the most bytes of memory that this took."""
    django.setup()
    from telemetry.exports.running import run_go_on

    begin = time.perf_counter()
    if what == "run":
        run_go_on(int(run), worker="perf")
    else:
        bare(settings.EXPORTS_FOLDER / "bare.csv")
    seconds = time.perf_counter() - begin
    sys.stdout.write(json.dumps({"seconds": seconds, "peak": peak()}))


def bare(path: Path) -> None:
    """Write all events by a loop over a cursor of the database."""
    from telemetry.events.models import Event

    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(Event.objects.order_by("pk").values_list(*FIELDS).iterator(chunk_size=1000))


def peak() -> int:
    """Return the most memory that this process had at once, in bytes; raises CannotMeasureError off Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CannotMeasureError("this system does not tell the most memory that a process had.")


if __name__ == "__main__":
    main(*sys.argv[1:])
