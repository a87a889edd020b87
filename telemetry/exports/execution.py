"""Carries a run out: into a file or to a receiver, up to a cursor; begins what is due.

A run is known to be done up to its cursor, always. What a worker did after the cursor was kept is done again by the
next: cut off and written anew in a file, sent again to a receiver, under the same id.
"""

from __future__ import annotations

import gzip
import logging
import random
import time
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from django.db import DatabaseError, transaction
from django.utils import timezone

from core.errors import FalconWebError
from telemetry.delivery.endpoints import DeliveryFailed
from telemetry.delivery.senders import send_syslog, send_webhook
from telemetry.events.filters import EventFilter
from telemetry.events.models import Event, EventQuerySet
from telemetry.events.selectors import events_after, horizon
from telemetry.events.services import event_record
from telemetry.exports import files
from telemetry.exports.files import files_delete_expired, parts_delete_abandoned
from telemetry.exports.formats import EventFormatter
from telemetry.exports.models import ExportDefinition, ExportRun, ExportSchedule, ExportTarget
from telemetry.exports.options import ExportOptions, formatter_for, next_cron_time
from telemetry.exports.services import ExportRunClaim, ExportRunEnded, ExportRunLost, State, cursor_move, run_request

logger = logging.getLogger(__name__)

SLICE_SECONDS = 20.0  # after which a delivery makes room for others
MIN_RETRY_PAUSE, MAX_RETRY_PAUSE = 2.0, 300.0  # s between tries
GIVES_UP_AFTER = timedelta(hours=24)  # of failing; a stream never does
MAX_REQUEST_BYTES = 2**20  # of one request
DATAGRAMS_PER_BATCH = 50  # so that a receiver's buffer can hold them
SITE_ERROR = "An error of the site stopped it; the log of the worker says which."


@dataclass(frozen=True)
class EventBatch:
    """Events that are sent together, and a line for each."""

    events: list[Event]
    lines: list[bytes]


def run_continue(run_id: int, *, worker: str) -> bool:
    """Take a run as far as it goes now; tell whether there is more to do at once. Does nothing where it is not due.

    A run that fails waits for the next try, or ends; nothing is raised for that. An error of the database is: the claim
    runs out, and another worker goes on.
    """
    hold = ExportRunClaim.claim(run_id, worker)
    if hold is None:
        return False
    try:
        hold.look()
        return _write_file(hold) if hold.run.makes_file else _deliver(hold)
    except ExportRunLost:
        logger.warning("run %s of an export: another worker has it", run_id)
        return False
    except ExportRunEnded as error:
        _end_run(hold, error.state, error.sentence)
    except files.FileBusy:
        hold.release(retry_at=timezone.now() + timedelta(seconds=MIN_RETRY_PAUSE))
    except DeliveryFailed as error:
        _retry_later(hold, error)
    except FalconWebError as error:
        _end_run(hold, State.FAILED, error.sentence)
    except DatabaseError:
        raise
    except Exception:
        logger.exception("run %s of an export", run_id)
        _end_run(hold, State.FAILED, SITE_ERROR)
    return False


def run_events(run: ExportRun, shape: EventFormatter) -> EventQuerySet:
    """Return the events that a run is about, in no order yet; '24 hours ago' counts from when it was asked for."""
    rows = Event.objects.only(*shape.fields())
    return EventFilter.of(run.snapshot["filter"], is_kept=True).apply(rows, now=run.created_at)


def run_formatter(run: ExportRun) -> EventFormatter:
    """Return how a run writes events."""
    return formatter_for(run.snapshot["format"], run.snapshot["columns"], ExportOptions.of(run.snapshot["options"]))


def _begin_run(hold: ExportRunClaim, rows: EventQuerySet) -> int:
    """Say which events a run takes, the first time; returns the number of the last."""
    run = hold.run
    if run.until is not None:
        return run.until
    until = horizon()
    total = rows.order_by().filter(pk__gt=run.cursor, pk__lte=until).count()
    more = {"file": files.file_name(run)} if run.makes_file else {}
    hold.keep(until=until, total=total, **more)
    return until


def _write_file(hold: ExportRunClaim) -> bool:
    """Write the file of a run to its end."""
    run, shape = hold.run, run_formatter(hold.run)
    rows = run_events(run, shape)
    until = _begin_run(hold, rows)
    try:
        part = files.PartFile(run.file, run.bytes, heed=hold.heed)
        with part:
            _fill_file(hold, part, rows, until, shape)
    except FileNotFoundError:
        # What was written is not there any more: a disk that was lost, or somebody who tidied up. From the beginning.
        hold.release(cursor=run.begun_after, counted=0, bytes=0)
        return True
    return False


def _fill_file(
    hold: ExportRunClaim, part: files.PartFile, rows: EventQuerySet, until: int, shape: EventFormatter
) -> None:
    run = hold.run
    packed = bool(run.snapshot["options"].get("gzip"))
    cursor, counted = run.cursor, run.counted
    if part.position == 0 and shape.heading:
        part.write(_compress(shape.heading, packed=packed))
    try:
        for block in events_after(rows, cursor, until=until):
            part.write(_compress(b"".join(shape.lines(block)), packed=packed))
            cursor, counted = block[-1].pk, counted + len(block)
            if hold.due:
                part.sync()
                hold.keep(cursor=cursor, counted=counted, bytes=part.position)
                hold.look()
    except files.InsufficientStorage as error:
        # Of what is in the file, only what the last look has kept counts: the rest is cut off by who resumes.
        raise ExportRunEnded(State.FAILED, f"{error.sentence} {run.counted:,} events are kept.") from error
    part.finish()
    with transaction.atomic():
        hold.end(
            State.DONE, cursor=until, counted=counted, total=counted, bytes=part.position,
            checksum=part.digest.hexdigest(),
        )  # fmt: skip
        cursor_move(run, until)
    if run.definition is not None:
        files.files_delete_expired(run.definition)


def _compress(data: bytes, *, packed: bool) -> bytes:
    """Return data as a member of a gzip file: members are put one behind the other, so that a file can go on."""
    return gzip.compress(data, compresslevel=6, mtime=0) if packed else data


def _deliver(hold: ExportRunClaim) -> bool:
    """Send batch after batch until there is nothing more for now, or it is others' turn; True for the latter."""
    run, shape = hold.run, run_formatter(hold.run)
    rows = run_events(run, shape)
    until = None if run.is_stream else _begin_run(hold, rows)
    end = time.monotonic() + SLICE_SECONDS
    while time.monotonic() < end:
        if run.is_stream and (sentence := _stream_end_reason(run)):
            hold.end(State.DONE, sentence)
            return False
        known = horizon() if until is None else until
        batch = _next_batch(hold, rows, shape, known)
        if not batch.events:
            _caught_up(hold, known)
            return False
        _send(run, shape, batch)
        _record_delivered(hold, batch)
        hold.look()
    hold.release()
    return True


def _stream_end_reason(run: ExportRun) -> str:
    """Return why the run of a stream is over; '' while it is not."""
    row = ExportDefinition.objects.filter(runs=run.pk).only("enabled", "version").first()
    if row is None or not row.enabled:
        return "It was switched off."
    return "" if row.version == run.version else "The export was changed: a new run goes on from here."


def _next_batch(hold: ExportRunClaim, rows: EventQuerySet, shape: EventFormatter, known: int) -> EventBatch:
    """Return what to send next; the same again where that was sent and nobody knows how it ended."""
    run = hold.run
    behind = rows.order_by("pk").filter(pk__gt=run.cursor)
    if run.pending is not None:
        again = list(behind.filter(pk__lte=run.pending))
        if again:
            hold.keep()
            return EventBatch(again, shape.lines(again))
    options = ExportOptions.of(run.snapshot["options"])
    most = min(options.batch, DATAGRAMS_PER_BATCH) if options.address.startswith("udp:") else options.batch
    events = list(behind.filter(pk__lte=known)[:most])
    lines = shape.lines(events)
    sizes = list(accumulate(len(line) for line in lines))
    fitting = max(1, bisect_right(sizes, MAX_REQUEST_BYTES))
    batch = EventBatch(events[:fitting], lines[:fitting])
    hold.keep(pending=batch.events[-1].pk if batch.events else None)
    return batch


def _send(run: ExportRun, shape: EventFormatter, batch: EventBatch) -> None:
    options, events = ExportOptions.of(run.snapshot["options"]), batch.events
    if run.snapshot["target"] == ExportTarget.SYSLOG:
        send_syslog(address=options.address, messages=shape.messages(events, batch.lines), ca=options.ca)
        return
    send_webhook(
        url=options.address,
        body=_compress(shape.heading + b"".join(batch.lines), packed=options.gzip),
        content_type=shape.content_type,
        encoding="gzip" if options.gzip else "",
        secret=run.definition.secret if run.definition is not None else "",
        message_id=f"export-{run.definition_id}-{events[0].pk}-{events[-1].pk}",
        ca=options.ca,
    )


def _record_delivered(hold: ExportRunClaim, batch: EventBatch) -> None:
    """Note that a batch has arrived."""
    run, last = hold.run, batch.events[-1].pk
    size = sum(len(line) for line in batch.lines)
    done = {"cursor": last, "counted": run.counted + len(batch.events), "bytes": run.bytes + size}
    with transaction.atomic():
        hold.keep(**done, pending=None, attempts=0, failing_since=None, error="")
        cursor_move(run, last)


def _caught_up(hold: ExportRunClaim, known: int) -> None:
    """Note that nothing is left for now: a stream waits for what comes, any other run is done."""
    run = hold.run
    cursor = max(run.cursor, known)
    with transaction.atomic():
        cursor_move(run, cursor)
        if run.is_stream:
            hold.release(cursor=cursor)
        else:
            hold.end(State.DONE, cursor=cursor, total=run.counted)


def _retry_later(hold: ExportRunClaim, error: DeliveryFailed) -> None:
    """Try again later, in growing pauses; end where that would not help."""
    run, now = hold.run, timezone.now()
    since = run.failing_since or now
    if error.permanent or (not run.is_stream and now - since > GIVES_UP_AFTER):
        _end_run(hold, State.FAILED, f"{error.sentence} Mend that, then resume: nothing is lost.")
        return
    pause = max(retry_delay(run.attempts), error.retry_after or 0.0)
    hold.release(
        attempts=run.attempts + 1, failing_since=since, retry_at=now + timedelta(seconds=pause),
        error=error.sentence[:500],
    )  # fmt: skip


def retry_delay(attempts: int) -> float:
    """Return the seconds to wait after so many tries that failed, and one more."""
    longest = min(MIN_RETRY_PAUSE * 2.0 ** min(attempts, 20), MAX_RETRY_PAUSE)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 - so that not all come at once


def _end_run(hold: ExportRunClaim, state: ExportRun.State, sentence: str) -> None:
    try:
        hold.end(state, sentence)
    except ExportRunLost:
        return
    if state == State.FAILED:
        event_record(
            source="site",
            message_id="FalconWeb.1.0.ExportFailed",
            severity="Warning",
            text=f"Run {hold.run.pk} of the export {hold.run.name} failed: {sentence}",
            at=timezone.now(),
            link=f"/exports/runs/{hold.run.pk}/",
        )


def exports_begin_due() -> list[int]:
    """Begin what is due, and return the runs (ids) that a worker should go on with."""
    _begin_scheduled(timezone.now())
    _begin_streams()
    due = list(ExportRun.objects.due(timezone.now()).select_related("definition").order_by("pk"))
    if not due:
        return []
    known = horizon()
    return [run.pk for run in due if not _is_idle(run, known)]


def exports_delete_expired() -> int:
    """Delete files that are over their time; returns how many."""
    now = timezone.now()
    return sum(files_delete_expired(row) for row in ExportDefinition.objects.all()) + parts_delete_abandoned(now)


def _begin_scheduled(now: datetime) -> None:
    for row in ExportDefinition.objects.filter(enabled=True, schedule=ExportSchedule.CRON, next_at__lte=now):
        following = next_cron_time(row.cron, datetime.now(UTC))
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
    streams = ExportDefinition.objects.filter(enabled=True, schedule=ExportSchedule.STREAM)
    for row in streams:
        last = row.runs.order_by("-pk").first()
        if last is not None and last.state != ExportRun.State.DONE:
            continue
        try:
            run_request(by=None, definition=row, trigger="stream")
        except FalconWebError as error:
            logger.info("stream %s: %s", row.name, error.sentence)  # somebody else was faster


def _is_idle(run: ExportRun, known: int) -> bool:
    """Tell whether a stream has nothing to do: no event is new, and its definition is as it was."""
    row = run.definition
    if not run.is_stream or run.state != ExportRun.State.RUNNING or row is None or run.pending is not None:
        return False
    return run.cursor >= known and row.enabled and row.version == run.version
