"""Reads events for a person, page by page, and the cursor for consumers that follow them.

A row gets its number when it is written, and becomes visible when its transaction commits. SQLite has one writer at a
time, so both orders are the same. PostgreSQL has many: event 7 may be visible while 6 is being written. There each
writer first takes a shared advisory lock whose key is the last number assigned by then; its rows have greater ones. The
least key of the locks that are held is the horizon. No transaction waits, and the locks of a dead writer are released.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import Max, QuerySet
from django.urls import reverse

from accounts.models import User
from core.errors import Invalid
from core.language import _
from telemetry.events.models import Event, EventQuerySet

ROWS_PER_PAGE: Final = 35
# Counting more rows exactly costs too much.
MAX_COUNTED: Final = 10_000
AROUND = timedelta(minutes=15)
NEIGHBOURS: Final = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Column = Callable[[Event], object]


@dataclass(frozen=True)
class EventPage:
    """A page of a list, newest first; `newer` and `older` are the positions of the next pages, '' where none is."""

    rows: Sequence[Event]
    newer: str
    older: str


def list_position(event: Event) -> str:
    """Return an event's position in the list, for `before` and `after` of events_page."""
    return f"{(event.at - EPOCH) // timedelta(microseconds=1)}-{event.pk}"


def events_page(rows: EventQuerySet, *, before: str = "", after: str = "", limit: int = ROWS_PER_PAGE) -> EventPage:
    """Return a page of a list: the newest, those older than the position `before`, or those newer than `after`.

    Raises Invalid for an invalid position.
    """
    backwards = bool(after)
    if backwards:
        at, pk = _parse_position(after, "after")
        found = list(rows.filter(at__gte=at).exclude(at=at, pk__lte=pk).order_by("at", "pk")[: limit + 1])
    else:
        if before:
            at, pk = _parse_position(before, "before")
            rows = rows.filter(at__lte=at).exclude(at=at, pk__gte=pk)
        found = list(rows.order_by("-at", "-pk")[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    if backwards:
        found.reverse()
    has_newer, has_older = (more, True) if backwards else (bool(before), more)
    return EventPage(
        rows=found,
        newer=list_position(found[0]) if found and has_newer else "",
        older=list_position(found[-1]) if found and has_older else "",
    )


def events_count(rows: EventQuerySet) -> tuple[int, bool]:
    """Return the number of events, and whether it is exact: counting stops at MAX_COUNTED."""
    count = rows.order_by()[: MAX_COUNTED + 1].count()
    return min(count, MAX_COUNTED), count <= MAX_COUNTED


def nearby_events(person: User, event: Event) -> list[Event]:
    """Return the events around an event, itself included, newest first; of its chassis, if it has one."""
    rows = _events_of_chassis(person, event)
    near = rows.filter(at__range=(event.at - AROUND, event.at + AROUND))
    later = near.filter(at__gte=event.at).exclude(at=event.at, pk__lte=event.pk).order_by("at", "pk")[:NEIGHBOURS]
    earlier = near.filter(at__lte=event.at).exclude(at=event.at, pk__gte=event.pk).order_by("-at", "-pk")[:NEIGHBOURS]
    return [*reversed(later), event, *earlier]


def is_first_event(person: User, event: Event) -> bool:
    """Return whether an event is the oldest; of its chassis, if it has one."""
    return not events_page(_events_of_chassis(person, event), before=list_position(event), limit=1).rows


def _events_of_chassis(person: User, event: Event) -> EventQuerySet:
    rows = Event.objects.visible_to(person)
    return rows if event.chassis_id is None else rows.filter(chassis_id=event.chassis_id)


def charts_url(event: Event) -> str:
    """Return the address of the charts of an event's subject around its time, '' where it has none."""
    for kind in ("device", "port", "drawer", "chassis", "host"):
        if (pk := getattr(event, f"{kind}_id")) is not None:
            since, until = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (event.at - AROUND, event.at + AROUND))
            return f"{reverse('history:telemetry')}?of={kind}/{pk}&since={since}&until={until}"
    return ""


def report_sources(event: Event) -> str:
    """Return where an event of a BMC was read from, in words."""
    if event.streamed:
        return _("its event stream and its log") if event.entry_uri else _("its event stream")
    return _("its log") if event.entry_uri else ""


EVENT_COLUMNS: dict[str, Column] = {
    "id": lambda event: event.pk,
    "at": lambda event: _iso_ms(event.at),
    "severity": lambda event: event.severity,
    "source": lambda event: event.source,
    "message_id": lambda event: event.message_id,
    "text": lambda event: event.text,
    "chassis": lambda event: event.chassis_name,
    "subject": lambda event: event.subject_name,
    "tenant": lambda event: event.tenant_name,
    "person": lambda event: event.person_name,
    "bmc_at": lambda event: _iso_ms(event.told_at),
    "received_at": lambda event: _iso_ms(event.received_at),
    "origin": lambda event: event.origin_uri,
    "arguments": lambda event: " | ".join(map(str, event.arguments)),
    "link": lambda event: event.link,
}


def event_rows(rows: EventQuerySet, *, at_once: int = 1000) -> Iterator[list[object]]:
    """Yield the events of a list as rows of EVENT_COLUMNS, newest first, read in blocks of `at_once`."""
    place = ""
    while True:
        page = events_page(rows, before=place, limit=at_once)
        for event in page.rows:
            yield [column(event) for column in EVENT_COLUMNS.values()]
        place = page.older
        if not place:
            return


def recent_messages(rows: EventQuerySet, *, most: int = 200) -> list[str]:
    """Return the messages of a person's newest events, for a list of choices."""
    lately = rows.order_by("-at")[:5000].values_list("message", flat=True)
    return sorted({name for name in lately if name})[:most]


def _parse_position(text: str, name: str) -> tuple[datetime, int]:
    found = re.fullmatch(r"(-?[0-9]{1,17})-([0-9]{1,18})", text)
    if found is not None:
        try:
            return EPOCH + timedelta(microseconds=int(found[1])), int(found[2])
        except OverflowError:
            pass
    raise Invalid(_("There is no such place in the list."), errors={name: _("Take it from an answer.")})


def _iso_ms(at: Any) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at is not None else ""


# Of the 64 bits of a lock's key the upper 24 identify events, the lower 40 are the number.
LOCK_NAMESPACE = 0x45_5645
LOCK_BITS = 40
BLOCK_ROWS = 1000

_LAST_ID_SQL = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM events_event_id_seq"
_OLDEST_WRITER_SQL = """
SELECT min(((classid::bigint << 32) | objid::bigint) & %s) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND ((classid::bigint << 32) | objid::bigint) >> %s = %s
"""


def announce_writer() -> None:
    """Take the writer's lock; call it in the transaction, before the first event is written."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT pg_advisory_xact_lock_shared((%s::bigint << %s) | ({_LAST_ID_SQL}))", [LOCK_NAMESPACE, LOCK_BITS]
        )


def horizon() -> int:
    """Return the greatest number up to which no further event can become visible; 0 before the first.

    Call it outside a transaction, and before the rows are read.
    """
    if connection.vendor != "postgresql":
        return Event.objects.aggregate(last=Max("pk"))["last"] or 0
    with connection.cursor() as cursor:
        # First the number, then the locks: later writers get greater numbers.
        cursor.execute(_LAST_ID_SQL)
        last = int(cursor.fetchone()[0])
        cursor.execute(_OLDEST_WRITER_SQL, [(1 << LOCK_BITS) - 1, LOCK_BITS, LOCK_NAMESPACE])
        oldest_writer = cursor.fetchone()[0]
    return last if oldest_writer is None else min(last, int(oldest_writer))


def events_after(
    rows: QuerySet[Event, Any], cursor: int, *, until: int | None = None, at_once: int = BLOCK_ROWS
) -> Iterator[list[Any]]:
    """Yield the events of a queryset, or their named values, in order, in blocks, each from its own query.

    Those with numbers after `cursor`, up to `until`, or to the horizon of the call. The next cursor is the number of
    the last event of a block; where a whole pass yields nothing, it is `until`.
    """
    end = horizon() if until is None else until
    while block := list(rows.order_by("pk").filter(pk__gt=cursor, pk__lte=end)[:at_once]):
        cursor = block[-1].id
        yield block
