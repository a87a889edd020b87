"""How long tenants held what: exact to the second, by month (UTC), summed up of tenures that never overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from fabric.booking import Month, Span, month_after, month_begin, month_of, months_between, seconds_by_month
from fabric.models import Tenure
from fabric.models.leases import KINDS

MOST_MONTHS: Final = 120
SHOWN: Final = 6
LABELS: Final = dict(KINDS)
COLUMNS: Final = ("tenant", "kind", "month", "hours", "seconds", "things")


@dataclass(frozen=True)
class Held:
    """How many seconds a tenant held things of a kind in a month, and how many different ones."""

    tenant: str
    kind: str
    month: Month
    seconds: float
    things: int

    @property
    def kind_label(self) -> str:
        """The kind in words."""
        return LABELS[self.kind]

    @property
    def month_label(self) -> str:
        """The month as '2026-11'."""
        return month_label(self.month)

    @property
    def hours(self) -> float:
        """The same in hours."""
        return self.seconds / 3600


@dataclass(frozen=True)
class UsageRow:
    """A tenant and kind with its hours in each month."""

    tenant: str
    kind: str
    kind_label: str
    hours: tuple[float, ...]
    total: float


def month_label(month: Month) -> str:
    """Return a month as '2026-11'."""
    return f"{month[0]:04}-{month[1]:02}"


def month_read(text: str) -> Month | None:
    """Return '2026-11' as a month, None for anything else."""
    year, _, month = text.partition("-")
    if not (len(year) == 4 and len(month) == 2 and (year + month).isascii() and (year + month).isdecimal()):
        return None
    return (int(year), int(month)) if 1 <= int(month) <= 12 and 2000 <= int(year) <= 9000 else None


def months_shown(since: str, until: str) -> tuple[Month, Month]:
    """Return the first and last month to show: what was typed where it can be used, else the last six."""
    last = month_read(until) or month_of(timezone.now())
    first = month_read(since) or month_after(last, 1 - SHOWN)
    first = min(first, last)
    return max(first, month_after(last, 1 - MOST_MONTHS)), last


def usage_of(person: User, first: Month, last: Month, *, tenant: int | None = None) -> list[Held]:
    """Return what was held from one month to another, both included, by tenant, kind and month.

    Members see what their own tenant held. What goes on is counted until now.
    """
    now = timezone.now()
    whole = Span(month_begin(first), min(month_begin(month_after(last)), now))
    if whole.is_empty:
        return []
    rows = Tenure.objects.visible_to(person).filter(began_at__lt=whole.end)
    rows = rows.filter(Q(ended_at=None) | Q(ended_at__gt=whole.begin))
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    seconds: dict[tuple[str, str, Month], float] = defaultdict(float)
    things: dict[tuple[str, str, Month], set[object]] = defaultdict(set)
    # A tenant is called as it is now; one that was removed as it was.
    for tenure in rows.select_related("tenant").iterator(chunk_size=2000):
        name = tenure.tenant.name if tenure.tenant else tenure.tenant_name
        for month, part in seconds_by_month([Span(tenure.began_at, tenure.ended_at)], within=whole).items():
            key = (name, tenure.kind, month)
            seconds[key] += part
            things[key].add((tenure.device_id, tenure.host_port_id) if _is_there(tenure) else tenure.name)
    order = [kind for kind, _ in KINDS]
    return [
        Held(
            tenant=name,
            kind=kind,
            month=month,
            seconds=seconds[name, kind, month],
            things=len(things[name, kind, month]),
        )
        for name, kind, month in sorted(
            seconds, key=lambda one: (one[0].casefold(), one[0], order.index(one[1]), one[2])
        )
    ]


def usage_table(held: Iterable[Held], first: Month, last: Month) -> list[UsageRow]:
    """Return the same as rows of a table: a tenant and kind a row, a month a column."""
    months = list(months_between(first, last))
    hours: dict[tuple[str, str], dict[Month, float]] = defaultdict(dict)
    for one in held:
        hours[one.tenant, one.kind][one.month] = one.hours
    return [
        UsageRow(
            tenant=tenant,
            kind=kind,
            kind_label=LABELS[kind],
            hours=tuple(of.get(month, 0.0) for month in months),
            total=sum(of.values()),
        )
        for (tenant, kind), of in hours.items()
    ]


def usage_lines(held: Sequence[Held]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the sheet with the columns COLUMNS."""
    for one in held:
        yield (one.tenant, one.kind_label, one.month_label, round(one.hours, 4), round(one.seconds, 3), one.things)


def _is_there(tenure: Tenure) -> bool:
    return tenure.device_id is not None or tenure.host_port_id is not None
