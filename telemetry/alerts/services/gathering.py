"""What a route is to be told is gathered: one notification for all that comes together, not one for each.

Nothing is remembered but which route was told of which alert: what is left to tell follows from the alerts as they
stand. So a storm, a restart and a silence that ends need no cases of their own, and nothing is told twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from fabric.models import Tenure
from telemetry.alerts.models import Alert, Delivery, Route, Severity, Told
from telemetry.alerts.selectors import hushed_alerts
from telemetry.alerts.services.routes import delivery_add
from telemetry.alerts.wording import Line, instant, message_of

logger = logging.getLogger(__name__)

# What comes within so long of the first goes with it; the more messages there were lately, the longer.
WAITS: Final = (10.0, 10.0, 60.0, 180.0)
# What is critical waits for other critical news alone, and less long: it takes along what waits besides.
URGENT_WAITS: Final = (10.0, 10.0, 30.0, 60.0)
LATELY: Final = timedelta(minutes=15)
CLAIM: Final = timedelta(seconds=30)  # whoever gathers and dies lets it expire
MISSED: Final = timedelta(hours=1)
MOST_AT_ONCE: Final = 2000


def notifications_gather() -> int:
    """Make the messages that are due, of all routes; returns how many."""
    now = timezone.now()
    _hush(now)
    made = 0
    for route in Route.objects.filter(enabled=True).order_by("pk"):
        free = Q(gathering_until=None) | Q(gathering_until__lt=now)
        if not Route.objects.filter(free, pk=route.pk, enabled=True).update(gathering_until=now + CLAIM):
            continue
        try:
            made += _gather(route, now)
        except IntegrityError:
            logger.info("route %s was gathered for by another worker", route.pk)
        finally:
            Route.objects.filter(pk=route.pk).update(gathering_until=None)
    return made


def wait_of(messages_lately: int, *, urgent: bool = False) -> float:
    """Return how long (s) the first news waits for others, by how many messages there were lately.

    Of what is `urgent` only messages that told of something critical count.
    """
    waits = URGENT_WAITS if urgent else WAITS
    return waits[min(messages_lately, len(waits) - 1)]


def _hush(now: datetime) -> None:
    """Note which firing alerts are to notify nobody just now: what resolves meanwhile is not told at all."""
    quiet = hushed_alerts(now)
    ringing = Alert.objects.filter(state__in=Alert.RINGING)
    ringing.filter(quiet, hushed=False).update(hushed=True)
    ringing.filter(hushed=True).exclude(pk__in=ringing.filter(quiet).values("pk")).update(hushed=False)


def _gather(route: Route, now: datetime) -> int:
    firing, resolved = _news(route, now)
    critical = [row.fired_at for row in firing if row.severity == Severity.CRITICAL and row.is_ringing]
    moments = [*(row.fired_at for row in firing), *(row.resolved_at for row in resolved)]
    lately = route.deliveries.filter(is_test=False)
    # Firing and resolved are told in one order, whichever of them does not wait any longer.
    if not _is_due(moments, lately, now) and not _is_due(
        critical, lately.filter(content__critical__gt=0), now, urgent=True
    ):
        return 0
    with transaction.atomic():
        # What another worker told of meanwhile is found by the constraint of Told.
        lines = [line_of(row, tenant=route.tenant_id) for row in (*firing, *resolved)]
        message = message_of(lines, site=settings.CONFIG.address, at=now)
        delivery = delivery_add(route, message["summary"], dict(message))
        over = {row.pk for row in firing if row.state == Alert.State.RESOLVED}
        Told.objects.bulk_create(
            [
                Told(route=route, alert=row, fired_in=delivery, resolved_in=delivery if row.pk in over else None)
                for row in firing
            ]
        )
        Told.objects.filter(route=route, alert__in=[row.pk for row in resolved], resolved_in=None).update(
            resolved_in=delivery
        )
        if route.kind == Route.Kind.PAGE:
            # The mark in the header tells it by itself.
            Delivery.objects.filter(pk=delivery.pk).update(state=Delivery.State.DELIVERED, delivered_at=now)
    return 1


def _is_due(
    moments: Iterable[datetime | None], told: QuerySet[Delivery], now: datetime, *, urgent: bool = False
) -> bool:
    """Tell whether news of these moments have waited long enough for others, after what was `told` before them."""
    first = min((at for at in moments if at is not None), default=None)
    if first is None:
        return False
    lately = list(told.filter(made_at__gt=now - LATELY).order_by("-made_at").values_list("made_at", flat=True))
    if len(lately) > 1:
        first = max(first, lately[0])
    return now >= first + timedelta(seconds=wait_of(len(lately), urgent=urgent))


def _news(route: Route, now: datetime) -> tuple[list[Alert], list[Alert]]:
    """Return what a route has not been told of: alerts that fired, and those that it knows of which are over."""
    # What is worst first: more than goes into one message must not stand before it.
    rows = Alert.objects.select_related("chassis", "device", "host_port").order_by("-rank", "pk")
    told = Told.objects.filter(route=route, alert=OuterRef("pk"))
    # Of what somebody has acknowledged already nobody needs to be told, nor of what was over long before.
    missed = Q(state=Alert.State.RESOLVED, acknowledged_at=None, resolved_at__gt=now - MISSED)
    fired = rows.filter(route.alerts(), Q(state=Alert.State.FIRING) | missed, ~Exists(told))
    fired = fired.filter(hushed=False, fired_at__gte=route.enabled_at)
    if route.tenant_id is not None:
        # What was over before the tenant held it was another's.
        fired = fired.filter(Alert.objects.all().granted_to(route.tenant_id))
    over = rows.filter(Exists(told.filter(resolved_in=None)), state=Alert.State.RESOLVED)
    over = over.filter(resolved_at__gte=route.enabled_at)
    return list(fired[:MOST_AT_ONCE]), list(over[:MOST_AT_ONCE])


def line_of(row: Alert, *, tenant: int | None = None) -> Line:
    """Return an alert as messages have it.

    A `tenant` is told nothing that was measured while another held what it is about, nor since when another does.
    """
    site = settings.CONFIG.address
    part = row.device if row.device is not None else row.host_port
    is_lost = tenant is not None and (part is None or part.tenant_id != tenant)
    held, lost = None, None
    if tenant is not None and is_lost:
        held, lost = _tenure_of(row, tenant)
    elif tenant is not None and part is not None:
        held = part.tenant_since
    begun_before = held is not None and row.since < held
    since = held if begun_before and held is not None else row.since
    resolved = row.resolved_at if lost is None or row.resolved_at is None else min(row.resolved_at, lost)
    return Line(
        id=row.pk,
        state="resolved" if row.state == Alert.State.RESOLVED else "firing",
        severity=row.severity,
        title=row.title,
        subject=row.subject_name,
        chassis=row.chassis.name,
        chassis_id=row.chassis_id,
        series_key=row.series_key,
        quantity=row.quantity,
        value=None if begun_before else row.value,
        worst_value=None if begun_before or is_lost else row.worst_value,
        unit=row.unit,
        threshold=row.threshold,
        since=instant(since),
        fired_at=instant(max(row.fired_at, since)) if row.fired_at else None,
        resolved_at=instant(resolved) if resolved else None,
        resolved_because=row.resolved_because,
        note=row.note,
        url=f"{site}/alerts/{row.pk}/" if site else "",
    )


def _tenure_of(row: Alert, tenant: int) -> tuple[datetime | None, datetime | None]:
    """Return from when to when a tenant held what an alert is about, as it fired; None where nothing tells."""
    of = Q(device=row.device_id) if row.device_id is not None else Q(host_port=row.host_port_id)
    if row.device_id is None and row.host_port_id is None:
        return None, None
    ended = Tenure.objects.filter(of, tenant=tenant, ended_at__gt=row.fired_at or row.since).order_by("ended_at")
    return ended.values_list("began_at", "ended_at").first() or (None, None)
