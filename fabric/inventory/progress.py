"""How far the inventory of a chassis is read, and what is left out of it: told by the worker, shown on pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from core.language import _
from fabric.inventory.models import Chassis

FRESH = timedelta(seconds=30)  # without news for so long, nobody reads it


class WalkState(NamedTuple):
    """How many resources a walk has read of those that it knows, and whether it waits for its turn."""

    read: int
    known: int
    waits: bool


def walk_progress_record(found: Mapping[WalkState, Collection[int]], *, seconds: float) -> None:
    """Record how walks proceed, by state those of chassis (ids) that have gone on for so many s; ended ones are not."""
    now = timezone.now()
    is_under_way = Q(inventory_at=None) | Q(inventory_at__lt=now - timedelta(seconds=seconds))
    with transaction.atomic():
        for state, chassis in found.items():
            progress: dict[str, Any] = {**state._asdict(), "at": now.isoformat()}
            Chassis.objects.filter(is_under_way, pk__in=chassis).update(walk_progress=progress)


def reading_limit_record(*, chassis_id: int, sentence: str) -> None:
    """Record which of its readings are left out, '' for none."""
    Chassis.objects.filter(pk=chassis_id).exclude(reading_limit=sentence).update(reading_limit=sentence)


def event_limit_record(*, chassis_id: int, sentence: str) -> None:
    """Record why its events cannot be read, '' where they can."""
    Chassis.objects.filter(pk=chassis_id).exclude(event_limit=sentence).update(event_limit=sentence)


def limits_of(chassis: Chassis) -> tuple[str, ...]:
    """Return what of a chassis is not read, in sentences."""
    return tuple(_(one) for one in (chassis.walk_limit, chassis.reading_limit, chassis.event_limit) if one)


def walk_progress_label(chassis: Chassis) -> str:
    """Return how a walk proceeds that goes on now, in words; '' where none is known to."""
    progress = chassis.walk_progress or {}
    at = parse_datetime(progress.get("at", ""))
    if at is None or timezone.now() - at > FRESH:
        return ""
    counts = {"read": f"{progress['read']:,}", "known": f"{progress['known']:,}"}
    if not progress["known"]:
        waits, reads = _("Reading its inventory waits for others."), _("Waiting for its first answer.")
    else:
        waits = _("Reading its inventory waits for others: {read} of about {known} resources.", **counts)
        reads = _("Reading its inventory: {read} of about {known} resources.", **counts)
    return waits if progress["waits"] else reads
