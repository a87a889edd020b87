"""Reads events for a person, page by page, and the cursor for those who follow them.

A number is given when a row is written, and the row is seen when its transaction commits. SQLite has one writer at a
time, so both orders are the same. PostgreSQL has many: event 7 may be seen while 6 is still being written. There each
writer first takes a shared lock whose name is the last number given by then; all that it writes has greater ones. The
least of the locks that are held is where sure knowledge ends. Nobody waits for anybody, and a writer that dies lets go.
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
from accounts.visibility import visible_or_404
from core.errors import Invalid
from telemetry.events.models import Event, EventQuerySet, SavedView

ROWS_PER_PAGE: Final = 50
# An exact number of so many rows costs more than anybody has of it.
MAX_COUNTED: Final = 10_000
AROUND = timedelta(minutes=15)
NEIGHBOURS: Final = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Column = Callable[[Event], object]


@dataclass(frozen=True)
class EventPage:
    """A part of a list, newest first; `newer` and `older` are places to begin the next parts at, '' where none is."""

    rows: Sequence[Event]
    newer: str
    older: str


def list_position(event: Event) -> str:
    """Return an event's place in the list: after which, or before which, others come."""
    return f"{(event.at - EPOCH) // timedelta(microseconds=1)}-{event.pk}"


def events_page(rows: EventQuerySet, *, before: str = "", after: str = "", limit: int = ROWS_PER_PAGE) -> EventPage:
    """Return a part of a list: the newest, those older than the place `before`, or those newer than `after`.

    Raises Invalid for what is no place.
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
    """Return how many events there are, and whether that is exact: more than MAX_COUNTED are not counted."""
    count = rows.order_by()[: MAX_COUNTED + 1].count()
    return min(count, MAX_COUNTED), count <= MAX_COUNTED


def event_get(person: User, pk: int) -> Event:
    """Return an event that a person may see; raises NotFound."""
    event: Event = visible_or_404(Event.objects, person, pk, "event")
    return event


def nearby_events(person: User, event: Event) -> list[Event]:
    """Return what happened around an event, newest first, the event among it: of its chassis, if it has one."""
    rows = _events_of_chassis(person, event)
    near = rows.filter(at__range=(event.at - AROUND, event.at + AROUND))
    later = near.filter(at__gte=event.at).exclude(at=event.at, pk__lte=event.pk).order_by("at", "pk")[:NEIGHBOURS]
    earlier = near.filter(at__lte=event.at).exclude(at=event.at, pk__gte=event.pk).order_by("-at", "-pk")[:NEIGHBOURS]
    return [*reversed(later), event, *earlier]


def is_first_event(person: User, event: Event) -> bool:
    """Tell whether nothing is known from before an event: of its chassis, if it has one."""
    return not events_page(_events_of_chassis(person, event), before=list_position(event), limit=1).rows


def _events_of_chassis(person: User, event: Event) -> EventQuerySet:
    rows = Event.objects.visible_to(person)
    return rows if event.chassis_id is None else rows.filter(chassis_id=event.chassis_id)


def charts_url(event: Event) -> str:
    """Return the address of the charts of an event's thing around its moment, '' for what has none."""
    for kind in ("device", "port", "drawer", "chassis", "host"):
        if (pk := getattr(event, f"{kind}_id")) is not None:
            since, until = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (event.at - AROUND, event.at + AROUND))
            return f"{reverse('history:telemetry')}?of={kind}/{pk}&since={since}&until={until}"
    return ""


def report_sources(event: Event) -> str:
    """Return where an event of a BMC was told, in words."""
    told = [word for word, so in (("its event stream", event.streamed), ("its log", bool(event.entry_uri))) if so]
    return " and ".join(told)


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
    """Yield the events of a list as rows of COLUMNS, newest first, read in blocks: of millions none is held long."""
    place = ""
    while True:
        page = events_page(rows, before=place, limit=at_once)
        for event in page.rows:
            yield [column(event) for column in EVENT_COLUMNS.values()]
        place = page.older
        if not place:
            return


def saved_views(person: User) -> QuerySet[SavedView]:
    """Return the searches that a person keeps."""
    return SavedView.objects.filter(person=person)


def recent_messages(rows: EventQuerySet, *, most: int = 200) -> list[str]:
    """Return the messages that a person's events of the last weeks have, for a list to choose from."""
    lately = rows.order_by("-at")[:5000].values_list("message", flat=True)
    return sorted({name for name in lately if name})[:most]


def _parse_position(text: str, name: str) -> tuple[datetime, int]:
    found = re.fullmatch(r"(-?[0-9]{1,17})-([0-9]{1,18})", text)
    if found is not None:
        try:
            return EPOCH + timedelta(microseconds=int(found[1])), int(found[2])
        except OverflowError:
            pass
    raise Invalid("There is no such place in the list.", errors={name: "Take it from an answer."})


def _iso_ms(at: Any) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at is not None else ""


# Of the 64 bits of a lock's name the upper 24 are this room's, the lower 40 the number.
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
    """Say that this transaction writes events from now on; called in the transaction, before the first is written."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT pg_advisory_xact_lock_shared((%s::bigint << %s) | ({_LAST_ID_SQL}))", [LOCK_NAMESPACE, LOCK_BITS]
        )


def horizon() -> int:
    """Return the greatest number up to which no event can appear any more; 0 before the first.

    Call it outside a transaction: rows are to be read after it.
    """
    if connection.vendor != "postgresql":
        return Event.objects.aggregate(last=Max("pk"))["last"] or 0
    with connection.cursor() as cursor:
        # First the number, then the locks: whoever locks later gets greater numbers than this.
        cursor.execute(_LAST_ID_SQL)
        given = int(cursor.fetchone()[0])
        cursor.execute(_OLDEST_WRITER_SQL, [(1 << LOCK_BITS) - 1, LOCK_BITS, LOCK_NAMESPACE])
        held = cursor.fetchone()[0]
    return given if held is None else min(given, int(held))


def events_after(
    rows: EventQuerySet, cursor: int, *, until: int | None = None, at_once: int = BLOCK_ROWS
) -> Iterator[list[Event]]:
    """Yield the events of a queryset with numbers behind `cursor`, in their order, in blocks that are each read anew.

    Ends at `until`, or at the horizon of the call. The next cursor is the number of the last event of a block; where a
    whole pass yields nothing, `until` itself is a good one.
    """
    end = horizon() if until is None else until
    while block := list(rows.order_by("pk").filter(pk__gt=cursor, pk__lte=end)[:at_once]):
        cursor = block[-1].pk
        yield block
