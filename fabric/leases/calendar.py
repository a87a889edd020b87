"""The calendar of leases by chassis, drawer and slot, as one user sees it; its days are of the person's zone.

A member sees the tenant's own leases; those of others are 'in use', without a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import groupby
from typing import Any, Final, Literal

from django.core.paginator import Page, Paginator
from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_date

from accounts.models import User
from core.language import _, gettext_noop
from core.text import natural_key
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.rules import TimeSpan

# Of pages: a week, or five of them; of the API: 14 days, or 12 weeks.
CalendarSpan = Literal["week", "month", "days", "weeks"]
HOST_PORTS: Final = gettext_noop("host ports")  # where a calendar has drawers
COLUMNS: Final[dict[CalendarSpan, int]] = {"week": 7, "month": 35, "days": 14, "weeks": 12}
FROM_MONDAY: Final = {"week", "month", "weeks"}
EARLIEST, LATEST = date(2000, 1, 1), date(2200, 1, 1)
LINES_A_PAGE = 40


@dataclass(frozen=True)
class CalendarBlock:
    """A time in which a part is leased or booked; without a lease's id it is another tenant's."""

    text: str
    span: TimeSpan
    lease_id: int | None
    state: str


@dataclass(frozen=True)
class CalendarCell:
    """Adjacent columns with the same content; without blocks the part is unassigned."""

    columns: int
    blocks: tuple[CalendarBlock, ...]


@dataclass(frozen=True)
class CalendarRow:
    """A part as the user sees it: `place` is its chassis and drawer."""

    chassis: str
    drawer: str
    label: str
    about: str
    blocks: tuple[CalendarBlock, ...]

    @property
    def place(self) -> str:
        """The chassis and the drawer."""
        drawer = _(self.drawer) if self.drawer == HOST_PORTS else self.drawer
        return f"{self.chassis} {drawer}".strip()


@dataclass(frozen=True)
class CalendarGroup:
    """Rows of a chassis or tenant on a page, with their cells; `count` is of all, which `is_whole` groups show."""

    label: str
    count: int
    is_whole: bool
    rows: tuple[tuple[CalendarRow, tuple[CalendarCell, ...]], ...]


@dataclass(frozen=True)
class CalendarGrid:
    """The calendar of some days or weeks; `first` is the first day."""

    span: CalendarSpan
    first: date
    columns: tuple[date, ...]
    rows: tuple[CalendarRow, ...]

    @property
    def last(self) -> date:
        return self.columns[-1] + timedelta(days=_days(self.span) - 1)

    @property
    def earlier(self) -> date:
        """The first day of the previous calendar."""
        return self.first - (self.last - self.first + timedelta(days=1))

    @property
    def later(self) -> date:
        """The first day of the next calendar."""
        return self.last + timedelta(days=1)

    def cells(self, row: CalendarRow) -> tuple[CalendarCell, ...]:
        """Return a row as cells, which are as wide together as the calendar."""
        spans = [TimeSpan(_midnight(day), _midnight(day + timedelta(days=_days(self.span)))) for day in self.columns]
        in_columns = (tuple(block for block in row.blocks if block.span.overlaps(span)) for span in spans)
        return tuple(CalendarCell(len(list(group)), here) for here, group in groupby(in_columns))

    def page(self, *, by_tenant: bool = False, opened: str = "", number: str | None = None) -> Page[CalendarGroup]:
        """Return a page of groups; unless all rows fit on one, those without leases show only in the opened group."""
        groups: dict[str, list[CalendarRow]] = defaultdict(list)
        for row in self.rows:
            for name in {block.text for block in row.blocks} if by_tenant else (row.chassis,):
                groups[name].append(row)
        # Of a tenant nothing is hidden: all of it is leased.
        whole = set(groups) if by_tenant or len(self.rows) <= LINES_A_PAGE else {opened}
        lines: list[tuple[str, CalendarRow | None]] = []
        for name, rows in sorted(groups.items(), key=lambda one: natural_key(one[0].casefold())):
            shown = [row for row in rows if row.blocks or name in whole]
            lines += [(name, row) for row in shown] or [(name, None)]
        # The opened group comes first, then those with leases.
        lines.sort(key=lambda line: (line[0] != opened, line[1] is None))
        page: Page[Any] = Paginator(lines, LINES_A_PAGE).get_page(number)
        page.object_list = [
            CalendarGroup(
                label=name,
                count=len(groups[name]),
                is_whole=name in whole,
                rows=tuple((row, self.cells(row)) for _name, row in found if row is not None),
            )
            for name, found in groupby(page.object_list, key=lambda line: line[0])
        ]
        return page


def parse_first_day(text: str) -> date | None:
    """Return a day of a query, None for anything else and for one that no calendar shows."""
    try:
        day = parse_date(text)
    except ValueError:
        return None
    return day if day is not None and EARLIEST <= day <= LATEST else None


def lease_calendar(person: User, *, first: date, span: CalendarSpan, chassis: int | None = None) -> CalendarGrid:
    """Return the calendar from a day on; weeks begin on Mondays. The number of queries is constant."""
    if span in FROM_MONDAY:
        first -= timedelta(days=first.weekday())
    columns = tuple(first + timedelta(days=_days(span) * place) for place in range(COLUMNS[span]))
    visible = Chassis.objects.visible_to(person)
    rows = visible if chassis is None else visible.filter(pk=chassis)
    names = dict(rows.values_list("pk", "name"))
    whole = TimeSpan(_midnight(columns[0]), _midnight(columns[-1] + timedelta(days=_days(span))))
    return CalendarGrid(
        span=span, first=columns[0], columns=columns, rows=_rows(person, names, _items(whole, [*names]))
    )


def _days(span: CalendarSpan) -> int:
    """Return how many days a column has."""
    return 7 if span == "weeks" else 1


def _items(whole: TimeSpan, chassis: Sequence[int]) -> dict[tuple[str, int], list[LeaseItem]]:
    """Return the items leased or booked within a span, by device or host port."""
    found: dict[tuple[str, int], list[LeaseItem]] = defaultdict(list)
    rows = LeaseItem.objects.filter(lease__state__in=(*Lease.BOOKED, Lease.State.ENDING, Lease.State.ENDED))
    rows = rows.exclude(released_at__lt=whole.begin).filter(lease__starts_at__lt=whole.end)
    for relation in ("device", "host_port"):
        for item in rows.filter(**{f"{relation}__chassis__in": chassis}).select_related("lease"):
            if not _span(item).within(whole).is_empty:
                found[relation, getattr(item, f"{relation}_id")].append(item)
    return found


def _span(item: LeaseItem) -> TimeSpan:
    """Return the time of an item: acquisition and release count where they were later or earlier than booked."""
    begin = item.taken_at or item.lease.starts_at
    if item.released_at is not None:
        # Released before it was acquired: it was never leased.
        return TimeSpan(begin, item.released_at if item.taken_at else begin)
    if item.lease.state == Lease.State.ENDING:
        return TimeSpan(begin, max(timezone.now(), item.lease.ends_at or begin))
    return TimeSpan(begin, item.lease.ends_at)


def _rows(
    person: User, names: dict[int, str], items: dict[tuple[str, int], list[LeaseItem]]
) -> tuple[CalendarRow, ...]:
    """Return the rows of chassis (names by id): those of slots, and then those of host ports."""
    found: list[tuple[tuple[object, ...], CalendarRow]] = []
    devices = Device.objects.filter(chassis__in=names, missing_since=None).select_related("slot__drawer")
    mine = set(Device.objects.visible_to(person).filter(chassis__in=names).values_list("pk", flat=True))
    for device in devices.order_by("slot__drawer__number", "slot__number", "uri"):
        held = items.get(("device", device.pk), [])
        drawer = device.slot.drawer if device.slot else None
        is_seen = device.pk in mine or _any_own(person, held)
        if device.slot is None and not is_seen:
            continue  # parts of others outside slots are not disclosed
        label = _("Slot {number}", number=device.slot.number) if device.slot else device.name
        about = f"{device.get_kind_display()} {device.name}" if is_seen and device.slot else ""
        order, place = (drawer.number, drawer.name) if drawer else (10**6, "")
        found.append(_row(person, (names[device.chassis_id], order, place), (label, about), held))
    visible = HostPort.objects.visible_to(person).filter(missing_since=None)
    coming = [pk for (relation, pk), held in items.items() if relation == "host_port" and _any_own(person, held)]
    ports = HostPort.objects.filter(Q(pk__in=visible) | Q(pk__in=coming), chassis__in=names).select_related("host")
    for port in ports.order_by("number", "pk"):
        held = items.get(("host_port", port.pk), [])
        # Before and after its own lease a tenant sees no host there.
        is_seen = person.is_administrator or port.tenant_id == person.tenant_id
        about = (port.host.name if port.host else _("no host")) if is_seen else ""
        place = (names[port.chassis_id], 10**7, HOST_PORTS)
        found.append(_row(person, place, (_("Host port {label}", label=port.label), about), held))
    return tuple(row for _place, row in sorted(found, key=lambda one: one[0]))


def _any_own(person: User, items: Iterable[LeaseItem]) -> bool:
    return any(_is_own(person, item) for item in items)


def _is_own(person: User, item: LeaseItem) -> bool:
    return person.is_administrator or item.lease.tenant_id == person.tenant_id


def _row(
    person: User, place: tuple[str, int, str], names: tuple[str, str], items: Iterable[LeaseItem]
) -> tuple[tuple[object, ...], CalendarRow]:
    """Return a row with what it is sorted by."""
    (chassis, order, drawer), (label, about) = place, names
    blocks = sorted((_block(person, item) for item in items), key=lambda one: one.span.begin)
    row = CalendarRow(chassis=chassis, drawer=drawer, label=label, about=about, blocks=tuple(blocks))
    return (natural_key(chassis.casefold()), chassis, order, drawer), row


def _block(person: User, item: LeaseItem) -> CalendarBlock:
    if not _is_own(person, item):
        return CalendarBlock(_("in use"), _span(item), None, "other")
    text = item.lease.tenant_name if person.is_administrator else _("Lease {lease}", lease=item.lease_id)
    return CalendarBlock(text, _span(item), item.lease_id, item.lease.state)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), timezone.get_current_timezone())
