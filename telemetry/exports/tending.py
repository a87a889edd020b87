"""What beat has done: schedules that are due, streams that should go on, runs whose worker is gone, files to delete."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from django.utils import timezone

from falconweb.errors import FalconWebError
from telemetry.events.cursor import horizon
from telemetry.exports.files import files_tidy, parts_tidy
from telemetry.exports.models import ExportDefinition, ExportRun, Schedule
from telemetry.exports.options import next_time
from telemetry.exports.runs import run_request

logger = logging.getLogger(__name__)


def exports_tend() -> list[int]:
    """Begin what is due, and return the runs (ids) that a worker should go on with."""
    _begin_scheduled(timezone.now())
    _begin_streams()
    due = list(ExportRun.objects.due(timezone.now()).select_related("definition").order_by("pk"))
    if not due:
        return []
    known = horizon()
    return [run.pk for run in due if not _sleeps(run, known)]


def exports_tidy() -> int:
    """Delete files that are over their time; returns how many."""
    now = timezone.now()
    return sum(files_tidy(row) for row in ExportDefinition.objects.all()) + parts_tidy(now)


def _begin_scheduled(now: datetime) -> None:
    for row in ExportDefinition.objects.filter(enabled=True, schedule=Schedule.CRON, next_at__lte=now):
        following = next_time(row.cron, datetime.now(UTC))
        # Of all that ask at once, the one that moves the time on begins it.
        if not ExportDefinition.objects.filter(pk=row.pk, next_at=row.next_at).update(next_at=following, note=""):
            continue
        try:
            run_request(by=None, definition=row, trigger="schedule")
        except FalconWebError as error:
            note = f"Not begun at {row.next_at:%Y-%m-%d %H:%M} UTC: {error.sentence}"
            ExportDefinition.objects.filter(pk=row.pk).update(note=note[:500])


def _begin_streams() -> None:
    """Begin a run for each stream that has none; one that failed, or that somebody cancelled, waits for a person."""
    streams = ExportDefinition.objects.filter(enabled=True, schedule=Schedule.STREAM)
    for row in streams:
        last = row.runs.order_by("-pk").first()
        if last is not None and last.state != ExportRun.State.DONE:
            continue
        try:
            run_request(by=None, definition=row, trigger="stream")
        except FalconWebError as error:
            logger.info("stream %s: %s", row.name, error.sentence)  # somebody else was faster


def _sleeps(run: ExportRun, known: int) -> bool:
    """Tell whether a stream has nothing to do: no event is new, and its definition is as it was."""
    row = run.definition
    if not run.is_stream or run.state != ExportRun.State.RUNNING or row is None or run.pending is not None:
        return False
    return run.cursor >= known and row.enabled and row.version == run.version
