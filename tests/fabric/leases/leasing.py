"""What tests of leases have in common: time that passes, and a worker's part of the site's own plans."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from accounts.models import Tenant, User
from fabric.leases.models import Lease, LeaseItem
from fabric.operations.models import Plan


def pass_time(lease: Lease, **by: float) -> Lease:
    """Let a lease be as if so much time had passed: all its instants lie so much earlier."""
    step = timedelta(**by)
    row = Lease.objects.get(pk=lease.pk)
    for name in ("starts_at", "ends_at", "asked_at", "decided_at", "tried_at", "extension_to"):
        at = getattr(row, name)
        if at is not None:
            setattr(row, name, at - step)
    row.save()
    for item in LeaseItem.objects.filter(lease=row, taken_at__isnull=False):
        LeaseItem.objects.filter(pk=item.pk).update(taken_at=(item.taken_at or timezone.now()) - step)
    return row


def fresh(lease: Lease) -> Lease:
    """Return a lease as it is now."""
    return Lease.objects.get(pk=lease.pk)


def story(lease: Lease) -> list[str]:
    """Return the timeline of a lease."""
    return list(lease.events.values_list("sentence", flat=True))


def tenant_of(person: User) -> Tenant:
    """Return a member's tenant."""
    assert person.tenant is not None
    return person.tenant


def plan_of(lease: Lease) -> Plan:
    """Return the plan that brings a lease back."""
    plan = fresh(lease).plan
    assert plan is not None
    return plan
