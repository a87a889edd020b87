"""Reading events on somebody's behalf: a page at a time, by time, however many there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.urls import reverse

from accounts.models import User
from falconweb.errors import Invalid, NotFound
from telemetry.events.filters import LARGEST_ID
from telemetry.events.models import Event, EventQuerySet, SavedView

ROWS_A_PAGE: Final = 50
# An exact number of so many rows costs more than anybody has of it.
MOST_COUNTED: Final = 10_000
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


def place_of(event: Event) -> str:
    """Return an event's place in the list: after which, or before which, others come."""
    return f"{(event.at - EPOCH) // timedelta(microseconds=1)}-{event.pk}"


def events_page(rows: EventQuerySet, *, before: str = "", after: str = "", limit: int = ROWS_A_PAGE) -> EventPage:
    """Return a part of a list: the newest, those older than the place `before`, or those newer than `after`.

    Raises Invalid for what is no place.
    """
    backwards = bool(after)
    if backwards:
        at, pk = _place(after, "after")
        found = list(rows.filter(at__gte=at).exclude(at=at, pk__lte=pk).order_by("at", "pk")[: limit + 1])
    else:
        if before:
            at, pk = _place(before, "before")
            rows = rows.filter(at__lte=at).exclude(at=at, pk__gte=pk)
        found = list(rows.order_by("-at", "-pk")[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    if backwards:
        found.reverse()
    has_newer, has_older = (more, True) if backwards else (bool(before), more)
    return EventPage(
        rows=found,
        newer=place_of(found[0]) if found and has_newer else "",
        older=place_of(found[-1]) if found and has_older else "",
    )


def events_count(rows: EventQuerySet) -> tuple[int, bool]:
    """Return how many events there are, and whether that is exact: more than MOST_COUNTED are not counted."""
    count = rows.order_by()[: MOST_COUNTED + 1].count()
    return min(count, MOST_COUNTED), count <= MOST_COUNTED


def event_get(person: User, pk: int) -> Event:
    """Return an event that a person may see; raises NotFound."""
    event = Event.objects.visible_to(person).filter(pk=pk).first() if pk <= LARGEST_ID else None
    if event is None:
        raise NotFound("There is no such event.")
    return event


def neighbours_of(person: User, event: Event) -> list[Event]:
    """Return what happened around an event, newest first, the event among it: of its chassis, if it has one."""
    rows = _of_its_chassis(person, event)
    near = rows.filter(at__range=(event.at - AROUND, event.at + AROUND))
    later = near.filter(at__gte=event.at).exclude(at=event.at, pk__lte=event.pk).order_by("at", "pk")[:NEIGHBOURS]
    earlier = near.filter(at__lte=event.at).exclude(at=event.at, pk__gte=event.pk).order_by("-at", "-pk")[:NEIGHBOURS]
    return [*reversed(later), event, *earlier]


def is_first(person: User, event: Event) -> bool:
    """Tell whether nothing is known from before an event: of its chassis, if it has one."""
    return not events_page(_of_its_chassis(person, event), before=place_of(event), limit=1).rows


def _of_its_chassis(person: User, event: Event) -> EventQuerySet:
    rows = Event.objects.visible_to(person)
    return rows if event.chassis_id is None else rows.filter(chassis_id=event.chassis_id)


def charts_of(event: Event) -> str:
    """Return the address of the charts of an event's thing around its moment, '' for what has none."""
    for kind in ("device", "port", "drawer", "chassis", "host"):
        if (pk := getattr(event, f"{kind}_id")) is not None:
            since, until = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (event.at - AROUND, event.at + AROUND))
            return f"{reverse('history:telemetry')}?of={kind}/{pk}&since={since}&until={until}"
    return ""


def sources_of(event: Event) -> str:
    """Return where an event of a BMC was told, in words."""
    told = [word for word, so in (("its event stream", event.streamed), ("its log", bool(event.entry_uri))) if so]
    return " and ".join(told)


COLUMNS: dict[str, Column] = {
    "id": lambda event: event.pk,
    "at": lambda event: _told(event.at),
    "severity": lambda event: event.severity,
    "source": lambda event: event.source,
    "message_id": lambda event: event.message_id,
    "text": lambda event: event.text,
    "chassis": lambda event: event.chassis_name,
    "subject": lambda event: event.subject_name,
    "tenant": lambda event: event.tenant_name,
    "person": lambda event: event.person_name,
    "bmc_at": lambda event: _told(event.told_at),
    "received_at": lambda event: _told(event.received_at),
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
            yield [column(event) for column in COLUMNS.values()]
        place = page.older
        if not place:
            return


def views_of(person: User) -> QuerySet[SavedView]:
    """Return the searches that a person keeps."""
    return SavedView.objects.filter(person=person)


def messages_known(rows: EventQuerySet, *, most: int = 200) -> list[str]:
    """Return the messages that a person's events of the last weeks have, for a list to choose from."""
    lately = rows.order_by("-at")[:5000].values_list("message", flat=True)
    return sorted({name for name in lately if name})[:most]


def _place(text: str, name: str) -> tuple[datetime, int]:
    found = re.fullmatch(r"(-?[0-9]{1,17})-([0-9]{1,18})", text)
    if found is not None:
        try:
            return EPOCH + timedelta(microseconds=int(found[1])), int(found[2])
        except OverflowError:
            pass
    raise Invalid("There is no such place in the list.", errors={name: "Take it from an answer."})


def _told(at: Any) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at is not None else ""
