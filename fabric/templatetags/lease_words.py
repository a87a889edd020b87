"""Labels of leases."""

from __future__ import annotations

from datetime import timedelta

from django import template
from django.utils import timezone

from fabric.leases.models import Activity, Lease, LeaseItem
from fabric.leases.quotas import count_label
from fabric.leases.selectors import LeaseCandidate, items_label, requested_parts

register = template.Library()
WATCHED = timedelta(minutes=10)


@register.filter
def leased_label(lease: Lease) -> str:
    """Return the label of a lease's items: present, requested or past ones."""
    items = list(lease.items.all())
    if not items:
        return ", ".join(count_label(wish.kind, wish.count) for wish in requested_parts(lease))
    if not lease.is_open:
        items = [LeaseItem(kind=item.kind) for item in items]
    return items_label(items)


@register.filter
def used_words(item: LeaseItem) -> str:
    """Return the label of a leased device's use."""
    activity = Activity.objects.filter(device=item.device_id).first()
    if activity is None or timezone.now() - activity.measured_at > WATCHED:
        return "not measured"
    return "in use" if activity.quiet_since is None else f"quiet since {activity.quiet_since:%Y-%m-%d %H:%M}"


@register.filter
def is_chosen(chosen: set[str] | None, one: LeaseCandidate) -> bool:
    """Return whether a checkbox is checked: as submitted, or as proposed."""
    return one.proposed if chosen is None else f"{one.field}/{one.thing.pk}" in chosen
