"""The calendar of leases by chassis, drawer and slot, as one user sees it.

A member sees the tenant's own leases; those of others are 'in use', without a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Final, Literal

from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_date

from accounts.models import User
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.rules import TimeSpan

CalendarStep = Literal["days", "weeks"]
COLUMNS: Final[dict[CalendarStep, int]] = {"days": 14, "weeks": 12}
EARLIEST, LATEST = date(2000, 1, 1), date(2200, 1, 1)
DAYS: Final[dict[CalendarStep, int]] = {"days": 1, "weeks": 7}


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
    label: str
    about: str
    blocks: tuple[CalendarBlock, ...]
    cells: tuple[CalendarCell, ...]


@dataclass(frozen=True)
class CalendarGroup:
    label: str
    rows: tuple[CalendarRow, ...]


@dataclass(frozen=True)
class CalendarGrid:
    """The calendar of some days or weeks; `first` is the first day."""

    step: CalendarStep
    first: date
    columns: tuple[date, ...]
    groups: tuple[CalendarGroup, ...]

    @property
    def last(self) -> date:
        return self.columns[-1] + timedelta(days=DAYS[self.step] - 1)

    @property
    def earlier(self) -> date:
        """The first day of the previous calendar."""
        return self.first - (self.last - self.first + timedelta(days=1))

    @property
    def later(self) -> date:
        """The first day of the next calendar."""
        return self.last + timedelta(days=1)


def parse_first_day(text: str) -> date | None:
    """Return a day of a query, None for anything else and for one that no calendar shows."""
    try:
        day = parse_date(text)
    except ValueError:
        return None
    return day if day is not None and EARLIEST <= day <= LATEST else None


def lease_calendar(person: User, *, first: date, step: CalendarStep, chassis: int | None = None) -> CalendarGrid:
    """Return the calendar from a day on; weeks begin on Mondays. The number of queries is constant."""
    if step == "weeks":
        first -= timedelta(days=first.weekday())
    columns = tuple(first + timedelta(days=DAYS[step] * place) for place in range(COLUMNS[step]))
    visible = Chassis.objects.visible_to(person).order_by("name")
    rows = list(visible if chassis is None else visible.filter(pk=chassis))
    whole = TimeSpan(_midnight(columns[0]), _midnight(columns[-1] + timedelta(days=DAYS[step])))
    items = _items(whole, [row.pk for row in rows])
    groups: list[CalendarGroup] = []
    for row in rows:
        groups += _groups(person, row, items, columns, DAYS[step])
    return CalendarGrid(step=step, first=columns[0], columns=columns, groups=tuple(groups))


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


def _groups(
    person: User,
    chassis: Chassis,
    items: dict[tuple[str, int], list[LeaseItem]],
    columns: Sequence[date],
    days: int,
) -> list[CalendarGroup]:
    groups: dict[tuple[int, str], list[CalendarRow]] = defaultdict(list)
    devices = Device.objects.filter(chassis=chassis, missing_since=None).select_related("slot__drawer")
    mine = set(Device.objects.visible_to(person).filter(chassis=chassis).values_list("pk", flat=True))
    for device in devices.order_by("slot__drawer__number", "slot__number", "uri"):
        held = items.get(("device", device.pk), [])
        drawer = device.slot.drawer if device.slot else None
        is_seen = device.pk in mine or _any_own(person, held)
        if device.slot is None and not is_seen:
            continue  # parts of others outside slots are not disclosed
        label = f"Slot {device.slot.number}" if device.slot else device.name
        about = f"{device.get_kind_display()} {device.name}" if is_seen and device.slot else ""
        key = (drawer.number, drawer.name) if drawer else (10**6, "")
        groups[key].append(_row(person, (label, about), held, columns, days))
    visible = HostPort.objects.visible_to(person).filter(missing_since=None)
    coming = [pk for (relation, pk), held in items.items() if relation == "host_port" and _any_own(person, held)]
    ports = HostPort.objects.filter(Q(pk__in=visible) | Q(pk__in=coming), chassis=chassis).select_related("host")
    for port in ports.order_by("number", "pk"):
        held = items.get(("host_port", port.pk), [])
        # Before and after its own lease a tenant sees no host there.
        is_seen = person.is_administrator or port.tenant_id == person.tenant_id
        about = (port.host.name if port.host else "no host") if is_seen else ""
        groups[10**7, "host ports"].append(_row(person, (f"Host port {port.label}", about), held, columns, days))
    return [CalendarGroup(f"{chassis.name} {name}".strip(), tuple(rows)) for (_, name), rows in sorted(groups.items())]


def _any_own(person: User, items: Iterable[LeaseItem]) -> bool:
    return any(_is_own(person, item) for item in items)


def _is_own(person: User, item: LeaseItem) -> bool:
    return person.is_administrator or item.lease.tenant_id == person.tenant_id


def _row(
    person: User, names: tuple[str, str], items: Iterable[LeaseItem], columns: Sequence[date], days: int
) -> CalendarRow:
    label, about = names
    blocks = sorted((_block(person, item) for item in items), key=lambda one: one.span.begin)
    spans = [TimeSpan(_midnight(day), _midnight(day + timedelta(days=days))) for day in columns]
    in_columns = (tuple(block for block in blocks if block.span.overlaps(span)) for span in spans)
    cells = tuple(CalendarCell(len(list(group)), here) for here, group in groupby(in_columns))
    return CalendarRow(label=label, about=about, blocks=tuple(blocks), cells=cells)


def _block(person: User, item: LeaseItem) -> CalendarBlock:
    if not _is_own(person, item):
        return CalendarBlock("in use", _span(item), None, "other")
    text = item.lease.tenant_name if person.is_administrator else f"Lease {item.lease_id}"
    return CalendarBlock(text, _span(item), item.lease_id, item.lease.state)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
