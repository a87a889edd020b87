"""What a BMC tells becomes events: each once, with the position up to which it was read, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from fabric.bmc.eventlog import Mark, instant
from fabric.bmc.types import Event as Record
from fabric.sights import Owner
from telemetry.events.cursor import announce
from telemetry.events.gaps import Gap, gap_record
from telemetry.events.matching import (
    TIMELESS,
    Known,
    is_timeless,
    known_in_log,
    known_in_stream,
    number_of,
    signature_of,
    timeless_of,
)
from telemetry.events.messages import message_known, message_of, severity_of
from telemetry.events.models import Event, Position, Source, key_of
from telemetry.events.services import LONGEST_TEXT, told
from telemetry.events.subjects import Subjects, holders_of

# A BMC that was started without a clock tells times of long ago, until it is told what time it is.
BEFORE_ANY = datetime(2015, 1, 1, tzinfo=UTC)
# What comes over a stream has just happened, unless its clock and ours say that it was so long ago: told again, late.
LATE = timedelta(minutes=2)


@dataclass(frozen=True)
class Kept:
    """How many events of a batch were new, and how many were known."""

    new: int
    known: int


def records_from_stream(
    *,
    chassis_id: int,
    stream_uri: str,
    records: Sequence[Record],
    owners: Mapping[str, Owner],
    ahead: timedelta | None,
    live: bool,
) -> Kept:
    """Keep what a stream told, and how far it did.

    `ahead` is how far the BMC's clock is before ours; `live` tells that the stream has long been open, so that nothing
    in it is of before.
    """
    now = timezone.now()
    telling = _Telling(now, known_in_stream, lambda one, _: stream_time(one, ahead, now, live=live))
    last = next((record.stream_id for record in reversed(records) if record.stream_id), "")
    with transaction.atomic():
        _lock(chassis_id)
        kept = _keep(chassis_id, records, owners, telling)
        if last:
            moved = {"last_id": last[:100], "moved_at": now}
            Position.objects.update_or_create(chassis_id=chassis_id, uri=stream_uri, defaults=moved)
    return kept


def records_from_log(
    *, chassis_id: int, records: Sequence[Record], owners: Mapping[str, Owner], ahead: timedelta | None
) -> Kept:
    """Keep entries of a log, oldest first; how far it was read is for `log_read` to say.

    What is older than events are kept for is left out: it would come again with each reading of the whole log.
    """
    now = timezone.now()
    oldest = now - timedelta(seconds=settings.KEEP_EVENTS_SECONDS)
    telling = _Telling(now, known_in_log, lambda one, before: log_time(one, ahead, now, before), oldest)
    with transaction.atomic():
        _lock(chassis_id)
        return _keep(chassis_id, records, owners, telling)


def log_read(*, chassis_id: int, entries_uri: str, newest: Mark | None, gap: Gap | None) -> None:
    """Note how far a log was read (None: it is empty), and what of it nobody will read any more."""
    mark = newest or Mark(entry_uri="", told="")
    moved = {"entry_uri": mark.entry_uri, "told": mark.told, "count": mark.count, "moved_at": timezone.now()}
    with transaction.atomic():
        if gap is not None:
            gap_record(chassis_id=chassis_id, entries_uri=entries_uri, gap=gap)
        Position.objects.update_or_create(chassis_id=chassis_id, uri=entries_uri, defaults=moved)


def position_of_log(chassis_id: int, entries_uri: str) -> Mark | None:
    """Return up to where a log was read, None for one that never was."""
    row = Position.objects.filter(chassis_id=chassis_id, uri=entries_uri).exclude(entry_uri="").first()
    return Mark(entry_uri=row.entry_uri, told=row.told, count=row.count) if row else None


def position_of_stream(chassis_id: int, stream_uri: str) -> str:
    """Return what a stream is to be asked for events after, '' for nothing in particular."""
    row = Position.objects.filter(chassis_id=chassis_id, uri=stream_uri).first()
    return row.last_id if row else ""


def stream_time(record: Record, ahead: timedelta | None, now: datetime, *, live: bool) -> datetime:
    """Return when an event of a stream happened, by our clock."""
    at = _ours(record, ahead)
    if at is None or at > now or at < BEFORE_ANY:
        return now
    # What is off by much is the BMC's clock, not the event: it may have been set since it was looked at.
    return now if now - at > LATE and (live or ahead is None) else at


def log_time(record: Record, ahead: timedelta | None, now: datetime, before: datetime | None) -> datetime:
    """Return when an entry of a log was made, by our clock; `before` is when the entry before it was."""
    at = _ours(record, ahead)
    if at is None or at < BEFORE_ANY:
        return before or at or now
    return min(at, now)


def _ours(record: Record, ahead: timedelta | None) -> datetime | None:
    moment = instant(record.timestamp)
    try:
        return moment - ahead if moment is not None and ahead is not None else moment
    except OverflowError:
        return None


def _lock(chassis_id: int) -> None:
    """Let one writer at a time tell of a chassis: an old worker may not know yet that another one took over."""
    Position.objects.get_or_create(chassis_id=chassis_id, uri="")
    Position.objects.select_for_update().get(chassis_id=chassis_id, uri="")


@dataclass(frozen=True)
class _Telling:
    """How to take what is told: when it is, how to find what is known of it, when it happened, and what is too old."""

    now: datetime
    find: Callable[[Record, Iterable[Known]], Known | None]
    time_of: Callable[[Record, datetime | None], datetime]
    oldest: datetime | None = None

    @property
    def from_log(self) -> bool:
        return self.find is known_in_log


def _keep(chassis_id: int, records: Sequence[Record], owners: Mapping[str, Owner], telling: _Telling) -> Kept:
    if not records:
        return Kept(0, 0)
    announce()
    now, find, from_log = telling.now, telling.find, telling.from_log
    groups = _known(chassis_id, records)
    new: list[tuple[Record, Event]] = []
    seen: dict[int, Record] = {}  # rows that are known, by what told of them now
    before: datetime | None = None
    for record in records:
        at = before = telling.time_of(record, before)
        if telling.oldest is not None and at < telling.oldest:
            continue
        signature = signature_of(record)
        group = near = groups[signature]
        row = find(record, group)
        if row is None and not is_timeless(record):
            near = groups[timeless_of(record)]
            row = find(record, [one for one in near if abs(one.received_at - at) < TIMELESS])
        if row is None:
            event = _event(chassis_id, record, at, now, signature)
            event.key = key_of(Source.BMC, chassis_id, number_of(record, signature, group, now))
            event.streamed = not from_log
            new.append((record, event))
            group.append(_known_as(event, -len(new)))
            continue
        # From now on it is told: the next record like it is another one.
        told_of = replace(row, entry_uri=record.entry_uri) if from_log else replace(row, streamed=True)
        near[near.index(row)] = told_of
        if row.pk > 0:
            seen[row.pk] = record
    events = _with_subjects(chassis_id, new, owners)
    Event.objects.bulk_create(events, batch_size=200)
    _note_again(seen, from_log=from_log)
    told(events)
    return Kept(len(events), len(seen))


def _known_as(event: Event, pk: int) -> Known:
    return Known(
        pk, event.event_id, event.entry_uri, event.streamed, event.origin_uri, event.key or "", event.received_at
    )


def _known(chassis_id: int, records: Sequence[Record]) -> defaultdict[int, list[Known]]:
    """Return what is known with the signatures of records, with and without their times."""
    wanted = sorted({*map(signature_of, records), *map(timeless_of, records)})
    groups: defaultdict[int, list[Known]] = defaultdict(list)
    for start in range(0, len(wanted), 500):  # SQLite takes a limited number of parameters
        rows = Event.objects.filter(chassis_id=chassis_id, signature__in=wanted[start : start + 500]).order_by("pk")
        fields = ("pk", "event_id", "entry_uri", "streamed", "origin_uri", "key", "received_at")
        for signature, *values in rows.values_list("signature", *fields):
            groups[signature].append(Known(*values))
    return groups


def _event(chassis_id: int, record: Record, at: datetime, now: datetime, signature: int) -> Event:
    known = message_known(record.message_id)
    text = record.message or (known.explanation if known else "") or record.message_id or "The BMC told of something."
    return Event(
        at=at,
        told_at=instant(record.timestamp),
        received_at=now,
        source=Source.BMC,
        severity=severity_of(record.severity, record.message_id),
        message_id=record.message_id[:200],
        message=message_of(record.message_id)[:200],
        text=text.replace("\0", " ")[:LONGEST_TEXT],
        arguments=[argument[:1000] for argument in record.arguments[:50]],
        chassis_id=chassis_id,
        origin_uri=record.origin_uri[:400],
        event_id=record.event_id[:100],
        entry_uri=record.entry_uri[:400],
        originator=record.originator,
        origin_address=record.address,
        signature=signature,
    )


def _with_subjects(chassis_id: int, new: Sequence[tuple[Record, Event]], owners: Mapping[str, Owner]) -> list[Event]:
    """Return new events with what they are about, and who held that then."""
    if not new:
        return []
    subjects = Subjects(chassis_id, owners, since=min(event.at for _, event in new))
    about = [subjects.of(record.origin_uri, event.at) for record, event in new]
    holders = holders_of((one, event.at) for one, (_, event) in zip(about, new, strict=True))
    events = [event for _, event in new]
    for event, subject, holder in zip(events, about, holders, strict=True):
        event.chassis_name = subjects.chassis_name
        event.device_id, event.port_id = subject.device_id, subject.port_id
        event.drawer_id, event.host_id = subject.drawer_id, subject.host_id
        event.subject_name, event.link = subject.name[:300], subject.link
        event.tenant_id, event.tenant_name = holder.id, holder.name
    return events


def _note_again(seen: Mapping[int, Record], *, from_log: bool) -> None:
    """Note of known events where else they were told, and when, if only now their time is."""
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
            row.told_at = row.told_at or instant(record.timestamp)
        Event.objects.bulk_update(logged, ["entry_uri", "told_at"])
