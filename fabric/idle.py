"""What is held and not used, by what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from fabric.models import Lease, LeaseItem

WATCHED = timedelta(minutes=10)  # what was last measured before that is not known to be quiet now


@dataclass(frozen=True)
class Idle:
    """An item of a lease whose device does nothing, since when (or since it is held, where that is later)."""

    item: LeaseItem
    since: datetime


def idle_items(leases: Iterable[Lease]) -> list[Idle]:
    """Return what these leases hold without using it for as long as is set, longest first.

    Only what was watched all the time is known to be quiet; 0 hours in the settings means that nobody is told.
    """
    hours = settings.CONFIG.idle_hours
    if not hours:
        return []
    now = timezone.now()
    items = LeaseItem.objects.filter(
        lease__in=[lease.pk for lease in leases if lease.state == Lease.State.ACTIVE],
        released_at=None,
        taken_at__isnull=False,
        device__activity__quiet_since__lte=now - timedelta(hours=hours),
        device__activity__measured_at__gte=now - WATCHED,
    )
    found = []
    for item in items.select_related("device__activity"):
        if item.device is None or item.taken_at is None or item.device.activity.quiet_since is None:
            continue
        since = max(item.device.activity.quiet_since, item.taken_at)
        if since <= now - timedelta(hours=hours):
            found.append(Idle(item, since))
    return sorted(found, key=lambda one: (one.since, one.item.pk))
