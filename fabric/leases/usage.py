"""Usage: how long tenants had which parts, exact to the second, by month (UTC), from tenures that never overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Greatest
from django.utils import timezone

from accounts.models import User
from fabric.inventory.models import Device
from fabric.leases.models import KINDS, Activity, Lease, LeaseItem, Tenure
from fabric.leases.rules import (
    Month,
    TimeSpan,
    month_after,
    month_begin,
    month_label,
    month_of,
    months_between,
    parse_month,
    seconds_by_month,
)

MAX_MONTHS: Final = 120
DEFAULT_MONTHS: Final = 6
KIND_LABELS: Final = dict(KINDS)
COLUMNS: Final = ("tenant", "kind", "month", "hours", "seconds", "things")


@dataclass(frozen=True)
class UsageRecord:
    """The seconds that a tenant had parts of a kind in a month, and how many different ones."""

    tenant: str
    kind: str
    month: Month
    seconds: float
    things: int

    @property
    def kind_label(self) -> str:
        return str(KIND_LABELS[self.kind])

    @property
    def month_label(self) -> str:
        return month_label(self.month)

    @property
    def hours(self) -> float:
        return self.seconds / 3600


@dataclass(frozen=True)
class UsageRow:
    """A tenant and kind with its hours in each month."""

    tenant: str
    kind_label: str
    hours: tuple[float, ...]
    total: float


def usage_period(since: str, until: str) -> tuple[Month, Month]:
    """Return the first and last month to show: the typed ones where they are valid, else the last six."""
    last = parse_month(until) or month_of(timezone.now())
    first = parse_month(since) or month_after(last, 1 - DEFAULT_MONTHS)
    first = min(first, last)
    return max(first, month_after(last, 1 - MAX_MONTHS)), last


def usage_of(person: User, first: Month, last: Month, *, tenant: int | None = None) -> list[UsageRecord]:
    """Return the usage from one month to another, both included, by tenant, kind and month.

    Members see that of their own tenant. Open tenures are counted until now.
    """
    now = timezone.now()
    whole = TimeSpan(month_begin(first), min(month_begin(month_after(last)), now))
    if whole.is_empty:
        return []
    rows = Tenure.objects.visible_to(person).filter(began_at__lt=whole.end)
    rows = rows.filter(Q(ended_at=None) | Q(ended_at__gt=whole.begin))
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    seconds: dict[tuple[str, str, Month], float] = defaultdict(float)
    things: dict[tuple[str, str, Month], set[object]] = defaultdict(set)
    # A tenant has its present name; a removed one its last.
    for tenure in rows.select_related("tenant").iterator(chunk_size=2000):
        name = tenure.tenant.name if tenure.tenant else tenure.tenant_name
        part = (tenure.device_id, tenure.host_port_id)
        for month, held in seconds_by_month([TimeSpan(tenure.began_at, tenure.ended_at)], within=whole).items():
            key = (name, tenure.kind, month)
            seconds[key] += held
            things[key].add(part if any(part) else tenure.name)
    order = [kind for kind, _ in KINDS]
    keys = sorted(seconds, key=lambda one: (one[0].casefold(), one[0], order.index(one[1]), one[2]))
    return [UsageRecord(*key, seconds=seconds[key], things=len(things[key])) for key in keys]


def usage_table(held: Iterable[UsageRecord], first: Month, last: Month) -> list[UsageRow]:
    """Return the records as rows of a table: a tenant and kind per row, a month per column."""
    months = list(months_between(first, last))
    hours: dict[tuple[str, str], dict[Month, float]] = defaultdict(dict)
    for one in held:
        hours[one.tenant, one.kind][one.month] = one.hours
    return [
        UsageRow(
            tenant=tenant,
            kind_label=str(KIND_LABELS[kind]),
            hours=tuple(of.get(month, 0.0) for month in months),
            total=sum(of.values()),
        )
        for (tenant, kind), of in hours.items()
    ]


def usage_table_rows(held: Sequence[UsageRecord]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the CSV with the columns COLUMNS."""
    for one in held:
        yield (one.tenant, one.kind_label, one.month_label, round(one.hours, 4), round(one.seconds, 3), one.things)


MAX_MEASUREMENT_AGE = timedelta(minutes=10)  # older measurements do not show that a device is idle now


def idle_items(leases: Iterable[Lease]) -> list[Any]:
    """Return the items of these leases that have been idle for the configured time, longest first.

    `idle_since` of an item is when its device became idle, or was granted, where that is later. Only gapless
    measurements show that a device is idle; 0 hours in the settings disables the report.
    """
    hours = settings.CONFIG.idle_hours
    if not hours:
        return []
    now = timezone.now()
    items = LeaseItem.objects.annotate(idle_since=Greatest("device__activity__quiet_since", "taken_at")).filter(
        lease__in=[lease.pk for lease in leases if lease.state == Lease.State.ACTIVE],
        released_at=None,
        taken_at__isnull=False,
        device__activity__quiet_since__isnull=False,
        device__activity__measured_at__gte=now - MAX_MEASUREMENT_AGE,
        idle_since__lte=now - timedelta(hours=hours),
    )
    return list(items.order_by("idle_since", "pk"))


# Between two measurements further apart, a device may have been used unnoticed.
MAX_MEASUREMENT_GAP: Final = timedelta(minutes=10)


def owned_devices(chassis_id: int) -> dict[int, int | None]:
    """Return the granted devices of a chassis, each with the port of its slot."""
    rows = Device.objects.filter(chassis=chassis_id, tenant__isnull=False, missing_since=None)
    return dict(rows.values_list("pk", "slot__port"))


def activity_record(*, at: datetime, active: Mapping[int, bool]) -> None:
    """Record whether each device (by its id) was used in the minute that ended at an instant."""
    with transaction.atomic():
        known = Activity.objects.in_bulk(list(active))
        here = set(Device.objects.filter(pk__in=active).values_list("pk", flat=True))
        rows = []
        for pk in sorted(here):
            row = known.get(pk) or Activity(device_id=pk, measured_at=at)
            unseen = abs(at - row.measured_at) > MAX_MEASUREMENT_GAP
            if active[pk]:
                row.quiet_since, row.active_at = None, at
            elif row.quiet_since is None or unseen:
                row.quiet_since = at
            row.measured_at = at
            rows.append(row)
        Activity.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["device"],
            update_fields=["measured_at", "quiet_since", "active_at"],
        )
