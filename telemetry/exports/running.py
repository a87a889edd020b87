"""A worker's turn at a run: events in the order of their numbers, into a file or to a receiver.

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
from datetime import timedelta
from itertools import accumulate

from django.db import DatabaseError, transaction
from django.utils import timezone

from falconweb.errors import FalconWebError
from telemetry.delivery.senders import DeliveryFailed, send_syslog, send_webhook
from telemetry.events.cursor import events_after, horizon
from telemetry.events.filters import Filter
from telemetry.events.models import Event, EventQuerySet
from telemetry.events.services import event_record
from telemetry.exports import files
from telemetry.exports.formats import Shape
from telemetry.exports.models import ExportDefinition, ExportRun, Kind
from telemetry.exports.options import Options, shape_of
from telemetry.exports.runs import Hold, RunEnded, RunLost, State
from telemetry.exports.services import cursor_move

logger = logging.getLogger(__name__)

SLICE_SECONDS = 20.0  # after which a delivery makes room for others
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0  # s between tries
GIVES_UP_AFTER = timedelta(hours=24)  # of failing; a stream never does
MOST_BYTES = 2**20  # of one request
DATAGRAMS_AT_ONCE = 50  # so that a receiver's buffer can hold them
SITE_ERROR = "An error of the site stopped it; the log of the worker says which."


@dataclass(frozen=True)
class Batch:
    """Events that are sent together, and a line for each."""

    events: list[Event]
    lines: list[bytes]


def run_go_on(run_id: int, *, worker: str) -> bool:
    """Take a run as far as it goes now; tell whether there is more to do at once. Does nothing where it is not due.

    A run that fails waits for the next try, or ends; nothing is raised for that. An error of the database is: the claim
    runs out, and another worker goes on.
    """
    hold = Hold.claim(run_id, worker)
    if hold is None:
        return False
    try:
        hold.look()
        return _written(hold) if hold.run.makes_file else _delivered(hold)
    except RunLost:
        logger.warning("run %s of an export: another worker has it", run_id)
        return False
    except RunEnded as error:
        _end(hold, error.state, error.sentence)
    except files.Elsewhere:
        hold.release(retry_at=timezone.now() + timedelta(seconds=FIRST_PAUSE))
    except DeliveryFailed as error:
        _failed(hold, error)
    except FalconWebError as error:
        _end(hold, State.FAILED, error.sentence)
    except DatabaseError:
        raise
    except Exception:
        logger.exception("run %s of an export", run_id)
        _end(hold, State.FAILED, SITE_ERROR)
    return False


def rows_of(run: ExportRun, shape: Shape) -> EventQuerySet:
    """Return the events that a run is about, in no order yet; '24 hours ago' counts from when it was asked for."""
    rows = Event.objects.only(*shape.fields())
    return Filter.of(run.snapshot["filter"], is_kept=True).apply(rows, now=run.created_at)


def shape_of_run(run: ExportRun) -> Shape:
    """Return how a run writes events."""
    return shape_of(run.snapshot["format"], run.snapshot["columns"], Options.of(run.snapshot["options"]))


def _begin(hold: Hold, rows: EventQuerySet) -> int:
    """Say which events a run takes, the first time; returns the number of the last."""
    run = hold.run
    if run.until is not None:
        return run.until
    until = horizon()
    total = rows.order_by().filter(pk__gt=run.cursor, pk__lte=until).count()
    more = {"file": files.name_of(run)} if run.makes_file else {}
    hold.keep(until=until, total=total, **more)
    return until


def _written(hold: Hold) -> bool:
    """Write the file of a run to its end."""
    run, shape = hold.run, shape_of_run(hold.run)
    rows = rows_of(run, shape)
    until = _begin(hold, rows)
    try:
        part = files.PartFile(run.file, run.bytes, heed=hold.heed)
        with part:
            _fill(hold, part, rows, until, shape)
    except FileNotFoundError:
        # What was written is not there any more: a disk that was lost, or somebody who tidied up. From the beginning.
        hold.release(cursor=run.begun_after, counted=0, bytes=0)
        return True
    return False


def _fill(hold: Hold, part: files.PartFile, rows: EventQuerySet, until: int, shape: Shape) -> None:
    run = hold.run
    packed = bool(run.snapshot["options"].get("gzip"))
    cursor, counted = run.cursor, run.counted
    if part.position == 0 and shape.heading:
        part.write(_packed(shape.heading, packed=packed))
    try:
        for block in events_after(rows, cursor, until=until):
            part.write(_packed(b"".join(shape.lines(block)), packed=packed))
            cursor, counted = block[-1].pk, counted + len(block)
            if hold.due:
                part.sync()
                hold.keep(cursor=cursor, counted=counted, bytes=part.position)
                hold.look()
    except files.NoRoom as error:
        # Of what is in the file, only what the last look has kept counts: the rest is cut off by who resumes.
        raise RunEnded(State.FAILED, f"{error.sentence} {run.counted:,} events are kept.") from error
    part.finish()
    with transaction.atomic():
        hold.end(
            State.DONE, cursor=until, counted=counted, total=counted, bytes=part.position,
            checksum=part.digest.hexdigest(),
        )  # fmt: skip
        cursor_move(run, until)
    if run.definition is not None:
        files.files_tidy(run.definition)


def _packed(data: bytes, *, packed: bool) -> bytes:
    """Return data as a member of a gzip file: members are put one behind the other, so that a file can go on."""
    return gzip.compress(data, compresslevel=6, mtime=0) if packed else data


def _delivered(hold: Hold) -> bool:
    """Send batch after batch until there is nothing more for now, or it is others' turn; True for the latter."""
    run, shape = hold.run, shape_of_run(hold.run)
    rows = rows_of(run, shape)
    until = None if run.is_stream else _begin(hold, rows)
    end = time.monotonic() + SLICE_SECONDS
    while time.monotonic() < end:
        if run.is_stream and (sentence := _why_ended(run)):
            hold.end(State.DONE, sentence)
            return False
        known = horizon() if until is None else until
        batch = _batch(hold, rows, shape, known)
        if not batch.events:
            _caught_up(hold, known)
            return False
        _send(run, shape, batch)
        _took(hold, batch)
        hold.look()
    hold.release()
    return True


def _why_ended(run: ExportRun) -> str:
    """Return why the run of a stream is over; '' while it is not."""
    row = ExportDefinition.objects.filter(runs=run.pk).only("enabled", "version").first()
    if row is None or not row.enabled:
        return "It was switched off."
    return "" if row.version == run.version else "The export was changed: a new run goes on from here."


def _batch(hold: Hold, rows: EventQuerySet, shape: Shape, known: int) -> Batch:
    """Return what to send next; the same again where that was sent and nobody knows how it ended."""
    run = hold.run
    behind = rows.order_by("pk").filter(pk__gt=run.cursor)
    if run.pending is not None:
        again = list(behind.filter(pk__lte=run.pending))
        if again:
            hold.keep()
            return Batch(again, shape.lines(again))
    options = Options.of(run.snapshot["options"])
    most = min(options.batch, DATAGRAMS_AT_ONCE) if options.address.startswith("udp:") else options.batch
    events = list(behind.filter(pk__lte=known)[:most])
    lines = shape.lines(events)
    sizes = list(accumulate(len(line) for line in lines))
    fitting = max(1, bisect_right(sizes, MOST_BYTES))
    batch = Batch(events[:fitting], lines[:fitting])
    hold.keep(pending=batch.events[-1].pk if batch.events else None)
    return batch


def _send(run: ExportRun, shape: Shape, batch: Batch) -> None:
    options, events = Options.of(run.snapshot["options"]), batch.events
    if run.snapshot["target"] == Kind.SYSLOG:
        send_syslog(address=options.address, messages=shape.messages(events, batch.lines), ca=options.ca)
        return
    send_webhook(
        url=options.address,
        body=_packed(shape.heading + b"".join(batch.lines), packed=options.gzip),
        content_type=shape.content_type,
        encoding="gzip" if options.gzip else "",
        secret=run.definition.secret if run.definition is not None else "",
        message_id=f"export-{run.definition_id}-{events[0].pk}-{events[-1].pk}",
        ca=options.ca,
    )


def _took(hold: Hold, batch: Batch) -> None:
    """Note that a batch has arrived."""
    run, last = hold.run, batch.events[-1].pk
    size = sum(len(line) for line in batch.lines)
    done = {"cursor": last, "counted": run.counted + len(batch.events), "bytes": run.bytes + size}
    with transaction.atomic():
        hold.keep(**done, pending=None, attempts=0, failing_since=None, error="")
        cursor_move(run, last)


def _caught_up(hold: Hold, known: int) -> None:
    """Note that nothing is left for now: a stream waits for what comes, any other run is done."""
    run = hold.run
    cursor = max(run.cursor, known)
    with transaction.atomic():
        cursor_move(run, cursor)
        if run.is_stream:
            hold.release(cursor=cursor)
        else:
            hold.end(State.DONE, cursor=cursor, total=run.counted)


def _failed(hold: Hold, error: DeliveryFailed) -> None:
    """Try again later, in growing pauses; end where that would not help."""
    run, now = hold.run, timezone.now()
    since = run.failing_since or now
    if error.permanent or (not run.is_stream and now - since > GIVES_UP_AFTER):
        _end(hold, State.FAILED, f"{error.sentence} Mend that, then resume: nothing is lost.")
        return
    pause = max(pause_after(run.attempts), error.retry_after or 0.0)
    hold.release(
        attempts=run.attempts + 1, failing_since=since, retry_at=now + timedelta(seconds=pause),
        error=error.sentence[:500],
    )  # fmt: skip


def pause_after(attempts: int) -> float:
    """Return the seconds to wait after so many tries that failed, and one more."""
    longest = min(FIRST_PAUSE * 2.0 ** min(attempts, 20), LONGEST_PAUSE)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 - so that not all come at once


def _end(hold: Hold, state: ExportRun.State, sentence: str) -> None:
    try:
        hold.end(state, sentence)
    except RunLost:
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
