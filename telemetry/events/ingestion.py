"""Stores log entries and stream records of a BMC as events, each once, with the position of the last one."""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from core.language import gettext_noop
from fabric.bmc.events import LogCursor, LogReadResult, parse_timestamp
from fabric.bmc.events import RedfishEvent as Record
from fabric.inventory.models import Chassis
from fabric.inventory.progress import event_limit_record
from fabric.inventory.selectors import ReadingOwner
from telemetry.events import rules
from telemetry.events.models import Event, EventSource, Position, event_key
from telemetry.events.rules import KnownEvent
from telemetry.events.selectors import announce_writer
from telemetry.events.services import MAX_TEXT_LENGTH, event_record
from telemetry.events.subjects import ChassisSubjects, tenants_at

logger = logging.getLogger(__name__)

# A BMC that starts without a clock reports old times until its clock is set.
EARLIEST_TIME = datetime(2015, 1, 1, tzinfo=UTC)
# Events of one content and time that are kept, or without a time, in a day: each new one is compared with all.
MAX_ALIKE = 1000
MAX_REPORTED = 50_000  # keys in memory: the longest log that is read at once, and more
# New events of a chassis that are kept: as many as its logs may have at first, and so many a day of a BMC that sends
# them for ever. Beyond that they are dropped, and a page and an event say so.
MAX_STORED_AT_ONCE = 50_000
MAX_STORED_A_DAY = 10_000
TOO_MANY = gettext_noop(
    "It sends more events than are kept of one chassis, 10,000 a day: some are dropped. Check what it reports."
)
TOO_MANY_ALIKE = gettext_noop("It repeats one event of one time more than 1,000 times: the others are dropped.")
# Events of a stream are recent; one that is older than this by both clocks is repeated, late.
LATE = timedelta(minutes=2)


@dataclass(frozen=True)
class IngestResult:
    """The numbers of new and known events of a batch."""

    new: int
    known: int


def stream_records_ingest(
    *,
    chassis_id: int,
    stream_uri: str,
    records: Sequence[Record],
    owners: Mapping[str, ReadingOwner],
    ahead: timedelta | None,
    live: bool,
    reported: set[str] | None = None,
) -> IngestResult:
    """Store the records of a stream, and its position.

    `ahead` is how far the BMC's clock is ahead of ours; `live` is whether the stream has been open for long. `reported`
    are the keys of the events that this connection has reported, to which these are added; None: it repeats nothing.
    Records past the retention of events are skipped.
    """
    now = timezone.now()
    newest = Event.objects.filter(chassis_id=chassis_id, source=EventSource.BMC).order_by("-at", "-pk").first()
    told = newest.told_at if newest is not None else None
    context = _IngestContext(
        now,
        rules.match_in_stream,
        lambda one, _: stream_time(one, ahead, now, live=live, newest=told),
        reported=reported,
    )
    last = next((record.stream_id for record in reversed(records) if record.stream_id), "")
    with transaction.atomic():
        kept = _ingest(_lock_chassis(chassis_id), records, owners, context)
        if last:
            moved = {"last_id": last[:100], "moved_at": now}
            Position.objects.update_or_create(chassis_id=chassis_id, uri=stream_uri, defaults=moved)
    _add_reported(reported, context)
    return kept


def log_records_ingest(
    *,
    chassis_id: int,
    records: Sequence[Record],
    owners: Mapping[str, ReadingOwner],
    ahead: timedelta | None,
    position: tuple[str, LogCursor | None] | None = None,
    reported: set[str] | None = None,
) -> IngestResult:
    """Store entries of a log, oldest first, and with them the first `position`: that in the log of this URI.

    Entries past the retention of events are skipped: each reading of the whole log would add them again. `reported` are
    the keys of the events that this reading of a whole log has come to, to which these are added; None: it continues
    from a known position.
    """
    now = timezone.now()
    context = _IngestContext(
        now, rules.match_in_log, lambda one, before: log_time(one, ahead, now, before), reported=reported
    )
    with transaction.atomic():
        locked = _lock_chassis(chassis_id)
        if position is not None:
            _store_position(chassis_id, *position)
        kept = _ingest(locked, records, owners, context)
    _add_reported(reported, context)
    return kept


def _add_reported(reported: set[str] | None, context: _IngestContext) -> None:
    """Add the keys of stored records, once they are committed: a transaction that is repeated must not see them."""
    if reported is not None:
        if len(reported) > MAX_REPORTED:
            reported.clear()  # they count only for other events of the same content and time
        reported |= context.found


def log_position_move(*, chassis_id: int, entries_uri: str, newest: LogCursor | None, gap: LogGap | None) -> None:
    """Store the position in a log (None: it is empty), and the gap of entries that can no longer be read."""
    with transaction.atomic():
        if gap is not None:
            event_record(
                source=EventSource.BMC,
                message_id=gap.message_id,
                severity="Warning",
                text=gap.sentence,
                at=timezone.now(),
                chassis_id=chassis_id,
                key=f"gap {gap.key}",
                arguments=[entries_uri],
                link=reverse("fabric:chassis", args=[chassis_id]),
            )
        _store_position(chassis_id, entries_uri, newest)


def _store_position(chassis_id: int, entries_uri: str, newest: LogCursor | None) -> None:
    mark = newest or LogCursor(entry_uri="", timestamp="")
    moved = {"entry_uri": mark.entry_uri, "told": mark.timestamp, "count": mark.count, "moved_at": timezone.now()}
    Position.objects.update_or_create(chassis_id=chassis_id, uri=entries_uri, defaults=moved)


def log_position(chassis_id: int, entries_uri: str) -> LogCursor | None:
    """Return the position in a log, None for one that was never read."""
    row = Position.objects.filter(chassis_id=chassis_id, uri=entries_uri).exclude(entry_uri="").first()
    return LogCursor(entry_uri=row.entry_uri, timestamp=row.told, count=row.count) if row else None


def stream_position(chassis_id: int, stream_uri: str) -> str:
    """Return the id after which a stream is resumed, '' for none."""
    row = Position.objects.filter(chassis_id=chassis_id, uri=stream_uri).first()
    return row.last_id if row else ""


def stream_time(
    record: Record, ahead: timedelta | None, now: datetime, *, live: bool, newest: datetime | None = None
) -> datetime:
    """Return the time of an event of a stream, by our clock; `newest` is that of the newest event, by the BMC's."""
    at = _site_time(record, ahead)
    if at is None or at > now or at < EARLIEST_TIME:
        return now
    told = parse_timestamp(record.timestamp)
    if told is not None and newest is not None and told < newest:
        return at  # the BMC repeats an older event
    # A large difference is due to the BMC's clock, which may have been set since it was checked.
    return now if now - at > LATE and (live or ahead is None) else at


def log_time(record: Record, ahead: timedelta | None, now: datetime, before: datetime | None) -> datetime:
    """Return the time of a log entry, by our clock; `before` is that of the previous entry."""
    at = _site_time(record, ahead)
    if at is None or at < EARLIEST_TIME:
        return before or at or now
    return min(at, now)


def _site_time(record: Record, ahead: timedelta | None) -> datetime | None:
    moment = parse_timestamp(record.timestamp)
    try:
        return moment - ahead if moment is not None and ahead is not None else moment
    except OverflowError:
        return None


def _lock_chassis(chassis_id: int) -> Position:
    """Lock a chassis for one writer: a worker may not have noticed yet that another one has claimed the chassis.

    The row's `count` are the events that were stored lately: it falls by MAX_STORED_A_DAY, since `moved_at`.
    """
    Position.objects.get_or_create(chassis_id=chassis_id, uri="")
    return Position.objects.select_for_update().get(chassis_id=chassis_id, uri="")


def _within_limit(locked: Position, count: int, now: datetime) -> int:
    """Return how many of so many new events are stored, and count them; reports that the others are dropped."""
    before, a_day = locked.count, timedelta(days=1)
    fallen = max(now - locked.moved_at, timedelta()) * MAX_STORED_A_DAY // a_day
    left = max(0, before - fallen)
    kept = min(count, MAX_STORED_AT_ONCE - left)
    locked.count = left + kept
    # Parts of an event count, too; a clock that was set back begins anew.
    locked.moved_at = min(now, locked.moved_at + fallen * a_day / MAX_STORED_A_DAY) if left else now
    locked.save(update_fields=["count", "moved_at"])
    if kept < count:
        event_limit_record(chassis_id=locked.chassis_id, sentence=TOO_MANY)
        _report_dropped(locked.chassis_id, TOO_MANY, now)
    elif left <= MAX_STORED_AT_ONCE - MAX_STORED_A_DAY < before:
        Chassis.objects.filter(pk=locked.chassis_id, event_limit=TOO_MANY).update(event_limit="")
    return kept


def _has_enough(group: Sequence[KnownEvent], record: Record, now: datetime) -> bool:
    """Return whether no more events like this one are kept."""
    if len(group) < MAX_ALIKE or not rules.is_timeless(record):
        return len(group) >= MAX_ALIKE
    return sum(now - row.received_at < timedelta(days=1) for row in group) >= MAX_ALIKE


def _report_dropped(chassis_id: int, sentence: str, now: datetime) -> None:
    """Report once a day that events of a chassis are dropped."""
    reported = event_record(
        source=EventSource.SITE,
        message_id="FalconWeb.EventsDropped",
        severity="Warning",
        text=sentence,
        at=now,
        chassis_id=chassis_id,
        key=f"dropped {now:%Y-%m-%d} {sentence[:30]}",
        link=reverse("fabric:chassis", args=[chassis_id]),
    )
    if reported is not None:
        logger.warning("chassis %s: %s", chassis_id, sentence)


@dataclass(frozen=True)
class _IngestContext:
    """How to ingest records: the current time, the lookup of known events, and their times.

    `reported` are the keys of the events that the same connection or reading has reported before, `found` those of this
    batch.
    """

    now: datetime
    find: Callable[[Record, Iterable[KnownEvent], Sequence[KnownEvent]], KnownEvent | None]
    time_of: Callable[[Record, datetime | None], datetime]
    reported: Collection[str] | None
    found: set[str] = field(default_factory=set)

    @property
    def oldest(self) -> datetime:
        """The time before which events are not kept."""
        return self.now - timedelta(seconds=settings.KEEP_EVENTS_SECONDS)

    def unreported(self, record: Record, group: Sequence[KnownEvent]) -> list[KnownEvent]:
        """Return the known events that the record may repeat; a BMC without a clock repeats no time."""
        told = parse_timestamp(record.timestamp)
        if self.reported is None or told is None or told < EARLIEST_TIME:
            return []
        return [row for row in group if row.key not in self.reported and row.key not in self.found]


def _ingest(
    locked: Position, records: Sequence[Record], owners: Mapping[str, ReadingOwner], context: _IngestContext
) -> IngestResult:
    if not records:
        return IngestResult(0, 0)
    announce_writer()
    chassis_id = locked.chassis_id
    now, find, oldest = context.now, context.find, context.oldest
    from_log = find is rules.match_in_log
    groups = _known_events(chassis_id, records)
    new: list[tuple[Record, Event]] = []
    seen: dict[int, Record] = {}  # id of known rows to their record in this batch
    before: datetime | None = None
    alike_dropped = False
    for record in records:
        at = before = context.time_of(record, before)
        if at < oldest:
            continue
        signature = rules.event_signature(record)
        group = near = groups[signature]
        row = find(record, group, context.unreported(record, group))
        if row is None and not rules.is_timeless(record):
            near = groups[rules.timeless_signature(record)]
            row = find(record, [one for one in near if abs(one.received_at - at) < rules.TIMELESS_WINDOW], ())
        if row is None and _has_enough(group, record, now):
            alike_dropped = True
            continue
        if row is None:
            event = _new_event(chassis_id, record, at, now, signature)
            event.key = event_key(EventSource.BMC, chassis_id, rules.unique_key_suffix(record, signature, group, now))
            event.streamed = not from_log
            context.found.add(event.key or "")
            new.append((record, event))
            group.append(_as_known(event, -len(new)))
            continue
        # Mark the event as reported, so that the next record like it is another event.
        marked = replace(row, entry_uri=record.entry_uri) if from_log else replace(row, streamed=True)
        near[near.index(row)] = marked
        context.found.add(row.key)
        if row.pk > 0:
            seen[row.pk] = record
    if alike_dropped:
        _report_dropped(chassis_id, TOO_MANY_ALIKE, now)
    if new:
        del new[_within_limit(locked, len(new), now) :]
    events = _with_subjects(chassis_id, new, owners)
    Event.objects.bulk_create(events, batch_size=200)
    _update_known(seen, from_log=from_log)
    return IngestResult(len(events), len(seen))


def _as_known(event: Event, pk: int) -> KnownEvent:
    return KnownEvent(
        pk, event.event_id, event.entry_uri, event.streamed, event.origin_uri, event.key or "", event.received_at
    )


def _known_events(chassis_id: int, records: Sequence[Record]) -> defaultdict[int, list[KnownEvent]]:
    """Return known events by the signatures of records, with and without their times."""
    signatures = sorted({*map(rules.event_signature, records), *map(rules.timeless_signature, records)})
    groups: defaultdict[int, list[KnownEvent]] = defaultdict(list)
    for start in range(0, len(signatures), 500):  # SQLite limits the number of parameters
        rows = Event.objects.filter(chassis_id=chassis_id, signature__in=signatures[start : start + 500]).order_by("pk")
        fields = ("pk", "event_id", "entry_uri", "streamed", "origin_uri", "key", "received_at")
        for signature, *values in rows.values_list("signature", *fields):
            groups[signature].append(KnownEvent(*values))
    return groups


def _new_event(chassis_id: int, record: Record, at: datetime, now: datetime, signature: int) -> Event:
    known = rules.find_message(record.message_id)
    text = (
        record.message
        or (known.explanation if known else "")
        or record.message_id
        or "The BMC sent an event without a message."
    )
    return Event(
        at=at,
        told_at=parse_timestamp(record.timestamp),
        received_at=now,
        source=EventSource.BMC,
        severity=rules.event_severity(record.severity, record.message_id),
        message_id=record.message_id[:200],
        message=rules.message_name(record.message_id)[:200],
        text=text.replace("\0", " ")[:MAX_TEXT_LENGTH],
        arguments=[argument[:1000] for argument in record.arguments[:50]],
        chassis_id=chassis_id,
        origin_uri=record.origin_uri[:400],
        event_id=record.event_id[:100],
        entry_uri=record.entry_uri[:400],
        originator=record.originator,
        origin_address=record.address,
        signature=signature,
    )


def _with_subjects(
    chassis_id: int, new: Sequence[tuple[Record, Event]], owners: Mapping[str, ReadingOwner]
) -> list[Event]:
    """Return new events with their subjects, and the tenants of these at the time."""
    if not new:
        return []
    subjects = ChassisSubjects(chassis_id, owners, since=min(event.at for _, event in new))
    about = [
        subjects.of(record.origin_uri or subjects.named(event.message, record.arguments, event.at), event.at)
        for record, event in new
    ]
    tenures = tenants_at((one, event.at) for one, (_, event) in zip(about, new, strict=True))
    events = [event for _, event in new]
    for event, subject, tenure in zip(events, about, tenures, strict=True):
        event.chassis_name = subjects.chassis_name
        event.device_id, event.port_id = subject.device_id, subject.port_id
        event.drawer_id, event.host_id = subject.drawer_id, subject.host_id
        event.subject_name, event.link = subject.name[:300], subject.link
        event.tenant_id, event.tenant_name = tenure.tenant_id, tenure.tenant_name
    return events


def _update_known(seen: Mapping[int, Record], *, from_log: bool) -> None:
    """Store for known events that they were also in the stream or log, and their time where it was missing."""
    pks = sorted(seen)
    for start in range(0, len(pks), 200):
        rows = Event.objects.filter(pk__in=pks[start : start + 200])
        if not from_log:
            rows.filter(streamed=False).update(streamed=True)
            continue
        logged = list(rows.filter(Q(entry_uri="") | Q(told_at=None)))
        for row in logged:
            record = seen[row.pk]
            row.entry_uri = row.entry_uri or record.entry_uri[:400]
            row.told_at = row.told_at or parse_timestamp(record.timestamp)
        Event.objects.bulk_update(logged, ["entry_uri", "told_at"])


EVENTS_LOST = "FalconWeb.EventsLost"
EVENTS_MAY_BE_LOST = "FalconWeb.EventsMayBeLost"


@dataclass(frozen=True)
class LogGap:
    """Events that are lost, or may be; `key` is the same each time the gap is detected."""

    message_id: str
    sentence: str
    key: str


def find_log_gap(mark: LogCursor, reading: LogReadResult, *, known: int, stream_was_open: bool) -> LogGap | None:
    """Return the gap between the mark and the current entries of a log, None where there is none.

    `known` is the number of entries that were known already: the log then overlaps with events that were received.
    `stream_was_open` is whether the stream was open without a break since the mark, so that no event was missed.
    """
    if reading.continuous or stream_was_open or known:
        return None
    since = f"entry {_entry_number(mark.entry_uri)} of {mark.timestamp or 'an unknown time'}"
    if not reading.events:
        sentence = f"The BMC's log was cleared while the site was not connected: events after {since} may be lost."
        return LogGap(EVENTS_MAY_BE_LOST, sentence, _gap_key(mark, ""))
    first = reading.events[0]
    last, next_number = _entry_number(mark.entry_uri), _entry_number(first.entry_uri)
    until = f"entry {next_number} of {first.timestamp or 'an unknown time'}"
    key = _gap_key(mark, f"{first.entry_uri} {first.timestamp}")
    if last.isdecimal() and next_number.isdecimal():
        missing = int(next_number) - int(last) - 1
        if missing == 0:
            return None
        if missing > 0:
            why = "there were more than one reading allows" if reading.cut else "the log of the BMC was overwritten"
            return LogGap(EVENTS_LOST, f"{missing} events between {since} and {until} are lost: {why}.", key)
        sentence = f"The numbering of the BMC's log restarted: events between {since} and {until} may be lost."
        return LogGap(EVENTS_MAY_BE_LOST, sentence, key)
    return LogGap(EVENTS_LOST, f"Events between {since} and {until} are lost: the log of the BMC was overwritten.", key)


def _entry_number(entry_uri: str) -> str:
    return entry_uri.rpartition("/")[2]


def _gap_key(mark: LogCursor, until: str) -> str:
    return hashlib.blake2b(f"{mark.entry_uri} {mark.timestamp} {until}".encode(), digest_size=16).hexdigest()
