"""Quotas of tenants: set by administrators, shown with requests, enforced at decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Q
from django.utils import timezone

from accounts.access import require_administrator
from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal, two_people
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import Tenant, User
from core.errors import Invalid
from core.language import Text, _, _n, english, gettext_noop
from fabric.inventory.locks import lock_tenants
from fabric.leases.models import KINDS, Lease, LeaseItem, Quota, Tenure
from fabric.leases.rules import (
    TimeSpan,
    max_concurrent,
    month_after,
    month_begin,
    month_label,
    month_of,
    seconds_by_month,
)

MONTHS_AHEAD: Final = 12  # the horizon of leases without an end
MAX_LIMIT: Final = 1_000_000
COUNTED_KINDS: Final[dict[str, Callable[[int], Text]]] = {
    "gpu": lambda count: _n("{count} GPU", "{count} GPUs", count),
    "nvme": lambda count: _n("{count} NVMe drive", "{count} NVMe drives", count),
    "nic": lambda count: _n("{count} NIC", "{count} NICs", count),
    "custom": lambda count: _n("{count} custom device", "{count} custom devices", count),
    "host_port": lambda count: _n("{count} host port", "{count} host ports", count),
}
KIND_NAMES: Final = {
    "gpu": gettext_noop("GPUs"),
    "nvme": gettext_noop("NVMe drives"),
    "nic": gettext_noop("NICs"),
    "custom": gettext_noop("custom devices"),
    "host_port": gettext_noop("host ports"),
}


@dataclass(frozen=True)
class QuotaLimits:
    """The limits of a kind; None is no limit."""

    most_at_once: int | None = None
    most_hours_a_month: int | None = None


def count_label(kind: str, number: int) -> Text:
    """Return '1 GPU', '2 GPUs'."""
    return COUNTED_KINDS[kind](number)


def quotas_proposal(*, tenant: Tenant, limits: Mapping[str, QuotaLimits], **_: Any) -> Proposal:
    """Return what other limits would allow a tenant; only higher ones are dangerous."""
    is_raised = any(
        limit is not None and (wanted is None or wanted > limit)
        for now in Quota.objects.filter(tenant=tenant)
        for limit, wanted in zip(
            (now.most_at_once, now.most_hours_a_month), astuple(limits.get(now.kind, QuotaLimits())), strict=True
        )
    )
    return Proposal(
        dangers=[Danger.OVER_QUOTA] if is_raised else [],
        target=target_of(tenant),
        sentence=f"Raise the quota of {tenant.name}.",
        facts={"quota": _audit_values(tenant), "wanted": {kind: asdict(one) for kind, one in limits.items()}},
    )


@two_people(quotas_proposal)
def quotas_set(*, person: User, tenant: Tenant, limits: Mapping[str, QuotaLimits]) -> None:
    """Replace all limits of a tenant; kinds that are left out have none. Existing grants are not touched.

    Administrators only. Raises Forbidden, NotFound, and Invalid for an unknown kind or a number out of range.
    """
    with audited(Action.QUOTA_SET, actor=person, target=target_of(tenant)) as act:
        require_administrator(person)
        errors = {kind: _("There is no such kind.") for kind in limits if kind not in dict(KINDS)}
        for kind, one in limits.items():
            for number in (one.most_at_once, one.most_hours_a_month):
                if number is not None and not 0 <= number <= MAX_LIMIT:
                    errors[kind] = _("Give a number from 0 to {largest}, or nothing for no limit.", largest=MAX_LIMIT)
        if errors:
            raise Invalid(_("The quota cannot be used."), errors=errors)
        lock_tenants(tenant)
        act.before = _audit_values(tenant)
        kept = {kind: one for kind, one in limits.items() if one != QuotaLimits()}
        Quota.objects.filter(tenant=tenant).exclude(kind__in=kept).delete()
        for kind, one in kept.items():
            Quota.objects.update_or_create(tenant=tenant, kind=kind, defaults=asdict(one))
        act.after = _audit_values(tenant)


def quota_objections(tenant: Tenant, counts: Counter[str], span: TimeSpan, *, but: Lease | None = None) -> list[str]:
    """Return a sentence for each limit of a tenant that these additional parts of each kind would exceed within a span.

    `but` is the lease that they replace. Hours are those used this month so far, and those booked from now on.
    """
    sentences: list[str] = []
    for quota in Quota.objects.filter(tenant=tenant, kind__in=[kind for kind, number in counts.items() if number > 0]):
        number = counts[quota.kind]
        if quota.most_at_once is not None:
            others = [one.within(span) for one in _booked_spans(tenant, quota.kind, but)]
            most = max_concurrent([*others, *[span] * number])
            if most > quota.most_at_once:
                sentences.append(
                    _(
                        "{tenant} would hold {parts} at once; its quota is {limit}.",
                        tenant=tenant.name,
                        parts=count_label(quota.kind, most),
                        limit=quota.most_at_once,
                    )
                )
        if quota.most_hours_a_month is not None:
            sentences.append(_hours_objection(tenant, quota, number, span, but))
    return [sentence for sentence in sentences if sentence]


def _hours_objection(tenant: Tenant, quota: Quota, number: int, span: TimeSpan, but: Lease | None) -> str:
    now = timezone.now()
    horizon = _horizon(span)
    begin = month_begin(month_of(now))
    tenures = Tenure.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), tenant=tenant, kind=quota.kind)
    used = [TimeSpan(*times).within(TimeSpan(begin, now)) for times in tenures.values_list("began_at", "ended_at")]
    ahead = [one.within(TimeSpan(now, horizon)) for one in _booked_spans(tenant, quota.kind, but)]
    new = span.within(TimeSpan(now, horizon))
    within = TimeSpan(begin, horizon)
    own = seconds_by_month([new] * number, within=within)
    others = seconds_by_month([*used, *ahead], within=within)
    most = quota.most_hours_a_month or 0
    for month, seconds in sorted(own.items()):
        hours = (seconds + others.get(month, 0.0)) / 3600
        if hours > most:
            return _(
                "{tenant} would hold {kind} for {hours:,.0f} hours in {month}; its quota is {limit:,} a month.",
                tenant=tenant.name,
                kind=_(KIND_NAMES[quota.kind]),
                hours=hours,
                month=month_label(month),
                limit=most,
            )
    return ""


def _horizon(span: TimeSpan) -> datetime:
    """Return the horizon of the months to check: the span with all of its last month, which others fill too."""
    latest = month_begin(month_after(month_of(max(timezone.now(), span.begin)), MONTHS_AHEAD))
    return latest if span.end is None else min(latest, month_begin(month_after(month_of(span.end))))


def _booked_spans(tenant: Tenant, kind: str, but: Lease | None) -> list[TimeSpan]:
    """Return the times of the parts of a kind that a tenant has or will have by its leases."""
    items = LeaseItem.objects.filter(lease__tenant=tenant, lease__state__in=Lease.BOOKED, kind=kind, released_at=None)
    if but is not None:
        items = items.exclude(lease=but)
    return [TimeSpan(begin, end) for begin, end in items.values_list("lease__starts_at", "lease__ends_at")]


def _audit_values(tenant: Tenant) -> dict[str, object]:
    return {
        english(one.get_kind_display()): {"at once": one.most_at_once, "hours a month": one.most_hours_a_month}
        for one in Quota.objects.filter(tenant=tenant)
    }
