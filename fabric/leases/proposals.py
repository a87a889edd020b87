"""What a change of a lease or of grants would do, for those that the policy has a second person approve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal
from accounts.audit.services import target_of
from accounts.models import Tenant, User
from fabric.inventory.models import Device, HostPort, LeasablePart
from fabric.leases.models import Lease, LeaseItem, kind_of
from fabric.leases.ownership import parts_label
from fabric.leases.quotas import quota_objections
from fabric.leases.rules import TimeSpan, format_end


def lease_give_proposal(
    *, tenant: Tenant, things: Sequence[LeasablePart], ends_at: datetime | None, override: bool = False, **_: Any
) -> Proposal:
    return Proposal(
        dangers=[Danger.OVER_QUOTA] if override else [],
        target=target_of(tenant),
        sentence=f"Lease {parts_label(things)} to {tenant.name}, {format_end(ends_at)}, over its quota.",
        facts={"holders": _holders(things)},
    )


def lease_approve_proposal(
    *, lease: Lease, things: Sequence[LeasablePart], ends_at: datetime | None, override: bool = False, **_: Any
) -> Proposal:
    return Proposal(
        dangers=[Danger.OVER_QUOTA] if override else [],
        target=target_of(lease),
        sentence=f"Approve lease {lease.pk} of {lease.tenant_name}: {parts_label(things)}, {format_end(ends_at)}, "
        "over its quota.",
        facts={**_lease_facts(lease), "holders": _holders(things)},
    )


def lease_extend_proposal(*, lease: Lease, ends_at: datetime | None, override: bool = False, **_: Any) -> Proposal:
    sooner = ends_at is not None and (lease.ends_at is None or ends_at < lease.ends_at)
    return Proposal(
        dangers=([Danger.OVER_QUOTA] if override else []) + ([Danger.TENANT] if sooner else []),
        target=target_of(lease),
        sentence=f"Set the end of lease {lease.pk} of {lease.tenant_name}: {format_end(ends_at)}.",
        facts=_lease_facts(lease),
    )


def lease_return_proposal(
    *, person: User, lease: Lease, items: Collection[LeaseItem] | None = None, **_: Any
) -> Proposal:
    what = "all of it" if items is None else ", ".join(sorted(one.name for one in items))
    return Proposal(
        dangers=[Danger.TENANT] if person.is_administrator else [],
        target=target_of(lease),
        sentence=f"Return lease {lease.pk} of {lease.tenant_name} before its end: {what}.",
        facts=_lease_facts(lease),
    )


def device_grant_proposal(*, device: Device, tenant: Tenant | None, **_: Any) -> Proposal:
    return _grant_proposal(device, tenant)


def host_port_grant_proposal(*, host_port: HostPort, tenant: Tenant | None, **_: Any) -> Proposal:
    return _grant_proposal(host_port, tenant)


def grants_set_proposal(
    *, tenant: Tenant, devices: Collection[Device], host_ports: Collection[HostPort], **_: Any
) -> Proposal:
    """Return what a tenant would lose, and what others would to it."""
    wanted: list[LeasablePart] = [*devices, *host_ports]
    lost: list[LeasablePart] = [
        *Device.objects.filter(tenant=tenant).exclude(pk__in=[one.pk for one in devices]),
        *HostPort.objects.filter(tenant=tenant).exclude(pk__in=[one.pk for one in host_ports]),
    ]
    lost += [one for one in wanted if one.tenant_id not in {None, tenant.pk}]
    return Proposal(
        dangers=([Danger.TENANT] if lost else []) + _over_quota(tenant, wanted, lost),
        target=target_of(tenant),
        sentence=f"Set what {tenant.name} holds; taken from their holders: {', '.join(_names(lost)) or 'nothing'}.",
        facts={"holders": _holders([*wanted, *lost])},
    )


def _grant_proposal(part: LeasablePart, tenant: Tenant | None) -> Proposal:
    held = part.tenant_id is not None and (tenant is None or part.tenant_id != tenant.pk)
    (name,) = _names([part])
    after = f"to {tenant.name}" if tenant else "to nobody"
    return Proposal(
        dangers=([Danger.TENANT] if held else []) + (_over_quota(tenant, [part]) if tenant else []),
        target=target_of(part, name),
        sentence=f"Grant {name}, which {part.tenant.name if part.tenant else 'nobody'} holds, {after}.",
        facts={"holders": _holders([part])},
    )


def _over_quota(tenant: Tenant, granted: Collection[LeasablePart], lost: Collection[LeasablePart] = ()) -> list[Danger]:
    """Return the danger of granting a tenant parts until further notice, if its quota does not allow that."""
    counts = Counter(kind_of(one) for one in granted if one.tenant_id != tenant.pk)
    counts.subtract(kind_of(one) for one in lost if one.tenant_id == tenant.pk)
    return [Danger.OVER_QUOTA] if quota_objections(tenant, counts, TimeSpan(timezone.now(), None)) else []


def _names(parts: Collection[LeasablePart]) -> list[str]:
    return [one.label if isinstance(one, HostPort) else one.name for one in parts]


def _holders(parts: Collection[LeasablePart]) -> dict[str, str]:
    """Return who holds each part now, by its kind, id and name."""
    return {
        f"{type(one).__name__} {one.pk} {name}": one.tenant.name if one.tenant else "nobody"
        for one, name in zip(parts, _names(parts), strict=True)
    }


def _lease_facts(lease: Lease) -> dict[str, object]:
    return {
        "state": lease.state,
        "ends": lease.ends_at.isoformat() if lease.ends_at else "until further notice",
        "holds": sorted(lease.items.filter(released_at=None).values_list("name", flat=True)),
    }
