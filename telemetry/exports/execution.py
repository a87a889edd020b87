"""Executes runs of exports, into a file or to a receiver, and starts due ones.

Everything up to a run's cursor is done. Work of a dead worker after its last stored cursor is repeated by the next one:
truncated and rewritten in a file, sent again to a receiver with the same id.
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
from django.db.models import QuerySet
from django.utils import timezone

from core.claims import ClaimLost
from core.endpoints import DeliveryFailed
from core.errors import FalconWebError
from core.failpoints import failpoint
from core.language import english, gettext_noop
from telemetry.delivery.senders import send_syslog, send_webhook
from telemetry.events.filters import EventFilter
from telemetry.events.models import Event
from telemetry.events.selectors import events_after, horizon
from telemetry.events.services import event_record
from telemetry.exports import files
from telemetry.exports.formats import EventFormatter, EventRow
from telemetry.exports.models import ExportDefinition, ExportRun, ExportSchedule, ExportTarget
from telemetry.exports.options import next_cron_time, spec_of
from telemetry.exports.services import ExportRunClaim, ExportRunEnded, State, cursor_move, run_request

logger = logging.getLogger(__name__)

SLICE_SECONDS = 20.0  # after which a delivery yields to other runs
MIN_RETRY_PAUSE, MAX_RETRY_PAUSE = 2.0, 300.0  # s between attempts
GIVES_UP_AFTER = timedelta(hours=24)  # of failing; streams are retried without end
MAX_REQUEST_BYTES = 2**20  # of one request
DATAGRAMS_PER_BATCH = 50  # fits the buffer of a receiver
SITE_ERROR = gettext_noop("An internal error stopped it; see the log of the worker.")


@dataclass(frozen=True)
class EventBatch:
    """Events that are sent in one request, and a line for each."""

    events: list[EventRow]
    lines: list[bytes]


def run_continue(run_id: int, *, worker: str) -> bool:
    """Continue a run for a time slice, if it is due; returns whether it should be continued immediately.

    A failure schedules the next attempt, or ends the run, and is not raised. Errors of the database are raised: the
    claim expires, and another worker continues.
    """
    claim = ExportRunClaim.claim(run_id, worker)
    if claim is None:
        return False
    try:
        failpoint("export.claimed")
        claim.check_may_continue()
        return _write_file(claim) if claim.row.makes_file else _deliver(claim)
    except ClaimLost:
        logger.warning("run %s of an export: another worker has claimed it", run_id)
        return False
    except ExportRunEnded as error:
        _end_run(claim, error.state, error.sentence)
    except files.FileBusy:
        claim.release(retry_at=timezone.now() + timedelta(seconds=MIN_RETRY_PAUSE))
    except DeliveryFailed as error:
        _retry_later(claim, error)
    except FalconWebError as error:
        _end_run(claim, State.FAILED, error.sentence)
    except DatabaseError:
        raise
    except Exception:
        logger.exception("run %s of an export", run_id)
        _end_run(claim, State.FAILED, SITE_ERROR)
    return False


def run_events(run: ExportRun, shape: EventFormatter) -> QuerySet[Event, EventRow]:
    """Return the events of a run, unordered; '24 hours ago' counts from when the run was requested."""
    rows = EventFilter.of(run.snapshot["filter"], is_kept=True).apply(Event.objects.all(), now=run.created_at)
    return shape.select(rows, as_messages=run.snapshot.get("target") == ExportTarget.SYSLOG)


def _begin_run(claim: ExportRunClaim, rows: QuerySet[Event, EventRow]) -> int:
    """Fix the range of events at the first start of a run; returns the number of the last."""
    run = claim.row
    if run.until is not None:
        return run.until
    until = horizon()
    total = rows.order_by().filter(pk__gt=run.cursor, pk__lte=until).count()
    more = {"file": files.file_name(run)} if run.makes_file else {}
    claim.write(until=until, total=total, **more)
    failpoint("export.begun")
    return until


def _write_file(claim: ExportRunClaim) -> bool:
    run, shape = claim.row, spec_of(claim.row).shape()
    rows = run_events(run, shape)
    until = _begin_run(claim, rows)
    try:
        part = files.PartFile(run.file, run.bytes, on_locked=claim.write, on_progress=claim.extend_if_due)
        with part:
            _fill_file(claim, part, rows, until, shape)
    except FileNotFoundError:
        # The part that was written is missing, such as after the loss of a disk: start again.
        claim.release(cursor=run.begun_after, counted=0, bytes=0)
        return True
    return False


def _fill_file(
    claim: ExportRunClaim, part: files.PartFile, rows: QuerySet[Event, EventRow], until: int, shape: EventFormatter
) -> None:
    run = claim.row
    packed = bool(run.snapshot["options"].get("gzip"))
    cursor, counted = run.cursor, run.counted
    if part.position == 0 and shape.heading:
        part.write(_compress(shape.heading, packed=packed))
    try:
        for block in events_after(rows, cursor, until=until):
            part.write(_compress(shape.block(block), packed=packed))
            failpoint("export.page.written")
            cursor, counted = block[-1].id, counted + len(block)
            if claim.is_due:
                part.sync()
                claim.write(cursor=cursor, counted=counted, bytes=part.position)
                failpoint("export.progress.stored")
                claim.check_may_continue()
    except files.InsufficientStorage as error:
        # Only the part up to the last stored position counts: the rest is truncated when the run is resumed.
        raise ExportRunEnded(State.FAILED, f"{english(error.sentence)} {run.counted:,} events are written.") from error
    failpoint("export.rename")
    part.finish()
    failpoint("export.renamed")
    with transaction.atomic():
        claim.end(
            State.DONE, cursor=until, counted=counted, total=counted, bytes=part.position,
            checksum=part.digest.hexdigest(),
        )  # fmt: skip
        cursor_move(run, until)
    failpoint("export.ended")
    if run.definition is not None:
        files.files_delete_expired(run.definition)


def _compress(data: bytes, *, packed: bool) -> bytes:
    """Return data as a member of a gzip file; members are concatenated, so that a file can be continued."""
    return gzip.compress(data, compresslevel=6, mtime=0) if packed else data


def _deliver(claim: ExportRunClaim) -> bool:
    """Send batches until no events are left, or the time slice ends; returns True for the latter."""
    run, shape = claim.row, spec_of(claim.row).shape()
    rows = run_events(run, shape)
    until = None if run.is_stream else _begin_run(claim, rows)
    end = time.monotonic() + SLICE_SECONDS
    while time.monotonic() < end:
        if run.is_stream and (sentence := _stream_end_reason(run)):
            claim.end(State.DONE, sentence)
            return False
        known = horizon() if until is None else until
        batch = _next_batch(claim, rows, shape, known)
        if not batch.events:
            _record_caught_up(claim, known)
            return False
        failpoint("export.batch.chosen")
        _send(run, shape, batch)
        failpoint("export.batch.sent")
        _record_delivered(claim, batch)
        failpoint("export.batch.stored")
        claim.check_may_continue()
    claim.release()
    return True


def _stream_end_reason(run: ExportRun) -> str:
    """Return why the run of a stream ends; '' while it continues."""
    row = ExportDefinition.objects.filter(runs=run.pk).only("enabled", "version").first()
    if row is None or not row.enabled:
        return gettext_noop("It was switched off.")
    changed = gettext_noop("The export was changed: a new run continues from here.")
    return "" if row.version == run.version else changed


def _next_batch(
    claim: ExportRunClaim, rows: QuerySet[Event, EventRow], shape: EventFormatter, known: int
) -> EventBatch:
    """Return the next batch; the previous one where it was sent and its result is unknown."""
    run = claim.row
    remaining = rows.order_by("pk").filter(pk__gt=run.cursor)
    if run.pending is not None:
        again = list(remaining.filter(pk__lte=run.pending))
        if again:
            claim.write()
            return EventBatch(again, shape.lines(again))
    options = spec_of(run).options
    most = min(options.batch, DATAGRAMS_PER_BATCH) if options.address.startswith("udp:") else options.batch
    events = list(remaining.filter(pk__lte=known)[:most])
    lines = shape.lines(events)
    sizes = list(accumulate(len(line) for line in lines))
    fitting = max(1, bisect_right(sizes, MAX_REQUEST_BYTES))
    batch = EventBatch(events[:fitting], lines[:fitting])
    claim.write(pending=batch.events[-1].id if batch.events else None)
    return batch


def _send(run: ExportRun, shape: EventFormatter, batch: EventBatch) -> None:
    spec, events = spec_of(run), batch.events
    options = spec.options
    if spec.target == ExportTarget.SYSLOG:
        send_syslog(address=options.address, messages=shape.messages(events, batch.lines), ca=options.ca)
        return
    send_webhook(
        url=options.address,
        body=_compress(shape.heading + b"".join(batch.lines), packed=options.gzip),
        content_type=shape.content_type,
        encoding="gzip" if options.gzip else "",
        secret=run.definition.secret() if run.definition is not None else "",
        message_id=f"export-{run.definition_id}-{events[0].id}-{events[-1].id}",
        ca=options.ca,
    )


def _record_delivered(claim: ExportRunClaim, batch: EventBatch) -> None:
    run, last = claim.row, batch.events[-1].id
    size = sum(len(line) for line in batch.lines)
    done = {"cursor": last, "counted": run.counted + len(batch.events), "bytes": run.bytes + size}
    with transaction.atomic():
        claim.write(**done, pending=None, attempts=0, failing_since=None, error="")
        cursor_move(run, last)


def _record_caught_up(claim: ExportRunClaim, known: int) -> None:
    """Store that no events are left: a stream waits for new ones, any other run is done."""
    run = claim.row
    cursor = max(run.cursor, known)
    with transaction.atomic():
        cursor_move(run, cursor)
        if run.is_stream:
            claim.release(cursor=cursor)
        else:
            claim.end(State.DONE, cursor=cursor, total=run.counted)


def _retry_later(claim: ExportRunClaim, error: DeliveryFailed) -> None:
    """Schedule the next attempt after a growing pause; end the run where a retry cannot succeed."""
    run, now = claim.row, timezone.now()
    since = run.failing_since or now
    if error.permanent or (not run.is_stream and now - since > GIVES_UP_AFTER):
        _end_run(claim, State.FAILED, f"{english(error.sentence)} Fix that, then resume: nothing is lost.")
        return
    pause = max(retry_delay(run.attempts), error.retry_after or 0.0)
    claim.release(
        attempts=run.attempts + 1, failing_since=since, retry_at=now + timedelta(seconds=pause),
        error=english(error.sentence)[:500],
    )  # fmt: skip


def retry_delay(attempts: int) -> float:
    """Return the seconds to wait after one more failure than `attempts`."""
    longest = min(MIN_RETRY_PAUSE * 2.0 ** min(attempts, 20), MAX_RETRY_PAUSE)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 - jitter, so that not all retry at the same time


def _end_run(claim: ExportRunClaim, state: ExportRun.State, sentence: str) -> None:
    try:
        claim.end(state, sentence)
    except ClaimLost:
        return
    if state == State.FAILED:
        event_record(
            source="site",
            message_id="FalconWeb.1.0.ExportFailed",
            severity="Warning",
            text=f"Run {claim.row.pk} of the export {claim.row.name} failed: {english(sentence)}",
            at=timezone.now(),
            link=f"/exports/runs/{claim.row.pk}/",
        )


def exports_begin_due() -> list[int]:
    """Start due exports, and return the runs (ids) that a worker should continue."""
    _begin_scheduled(timezone.now())
    _begin_streams()
    due = list(ExportRun.objects.due(timezone.now()).select_related("definition").order_by("pk"))
    if not due:
        return []
    known = horizon()
    return [run.pk for run in due if not _is_idle(run, known)]


def exports_delete_expired() -> int:
    """Delete files past their retention; returns their number."""
    now = timezone.now()
    expired = sum(files.files_delete_expired(row) for row in ExportDefinition.objects.all())
    return expired + files.parts_delete_abandoned(now)


def _begin_scheduled(now: datetime) -> None:
    for row in ExportDefinition.objects.filter(enabled=True, schedule=ExportSchedule.CRON, next_at__lte=now):
        following = next_cron_time(row.cron, datetime.now(UTC))
        # Of concurrent workers, the one that updates the time starts the run.
        if not ExportDefinition.objects.filter(pk=row.pk, next_at=row.next_at).update(next_at=following, note=""):
            continue
        try:
            run_request(by=None, definition=row, trigger="schedule")
        except FalconWebError as error:
            note = f"Not started at {row.next_at:%Y-%m-%d %H:%M} UTC: {english(error.sentence)}"
            ExportDefinition.objects.filter(pk=row.pk).update(note=note[:500])


def _begin_streams() -> None:
    """Start a run for each stream without one; after a failed or cancelled run, a person has to resume it."""
    streams = ExportDefinition.objects.filter(enabled=True, schedule=ExportSchedule.STREAM)
    for row in streams:
        last = row.runs.order_by("-pk").first()
        if last is not None and last.state != ExportRun.State.DONE:
            continue
        try:
            run_request(by=None, definition=row, trigger="stream")
        except FalconWebError as error:
            logger.info("stream %s: %s", row.name, error.sentence)  # another worker was faster


def _is_idle(run: ExportRun, known: int) -> bool:
    """Return whether a stream has nothing to do: no event is new, and its definition has not changed."""
    row = run.definition
    if not run.is_stream or run.state != ExportRun.State.RUNNING or row is None or run.pending is not None:
        return False
    return run.cursor >= known and row.enabled and row.version == run.version
