"""Groups alerts into one notification a route, and delivers notifications in order, with retries.

Nothing is remembered but which route was told of which alert: what is left to tell follows from the alerts as they
stand. So a storm, a restart and a silence that ends need no cases of their own, and nothing is told twice.

At least once: who dies between the receiver's answer and the note of it leaves a claim that expires, and the same
message goes out again under the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.conf import settings
from django.db import DatabaseError, IntegrityError, close_old_connections, transaction
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from core.enqueue import enqueue
from core.errors import FalconWebError
from fabric.leases.models import Tenure
from telemetry.alerts.messages import (
    NotificationLine,
    build_notification,
    iso_utc,
    send_by_email,
    send_to_syslog,
    send_to_webhook,
)
from telemetry.alerts.models import Alert, AlertSeverity, Delivery, Route, Told
from telemetry.alerts.route_services import delivery_add, email_addresses
from telemetry.alerts.selectors import suppressed_alerts
from telemetry.delivery.endpoints import DeliveryFailed

logger = logging.getLogger(__name__)

# What comes within so long of the first goes with it; the more messages there were lately, the longer.
GATHER_WAITS: Final = (10.0, 10.0, 60.0, 180.0)
# What is critical waits for other critical news alone, and less long: it takes along what waits besides.
URGENT_GATHER_WAITS: Final = (10.0, 10.0, 30.0, 60.0)
LATELY: Final = timedelta(minutes=15)
GATHER_CLAIM: Final = timedelta(seconds=30)  # whoever gathers and dies lets it expire
MISSED: Final = timedelta(hours=1)
MAX_ALERTS_PER_ROUND: Final = 2000


def notifications_gather() -> int:
    """Make the messages that are due, of all routes; returns how many."""
    now = timezone.now()
    _mark_suppressed(now)
    made = 0
    for route in Route.objects.filter(enabled=True).order_by("pk"):
        free = Q(gathering_until=None) | Q(gathering_until__lt=now)
        if not Route.objects.filter(free, pk=route.pk, enabled=True).update(gathering_until=now + GATHER_CLAIM):
            continue
        try:
            made += _gather(route, now)
        except IntegrityError:
            logger.info("route %s was gathered for by another worker", route.pk)
        finally:
            Route.objects.filter(pk=route.pk).update(gathering_until=None)
    return made


def gather_wait(messages_lately: int, *, urgent: bool = False) -> float:
    """Return how long (s) the first news waits for others, by how many messages there were lately.

    Of what is `urgent` only messages that told of something critical count.
    """
    waits = URGENT_GATHER_WAITS if urgent else GATHER_WAITS
    return waits[min(messages_lately, len(waits) - 1)]


def _mark_suppressed(now: datetime) -> None:
    """Note which firing alerts are to notify nobody just now: what resolves meanwhile is not told at all."""
    quiet = suppressed_alerts(now)
    ringing = Alert.objects.filter(state__in=Alert.RINGING)
    ringing.filter(quiet, hushed=False).update(hushed=True)
    ringing.filter(hushed=True).exclude(pk__in=ringing.filter(quiet).values("pk")).update(hushed=False)


def _gather(route: Route, now: datetime) -> int:
    firing, resolved = _unreported_alerts(route, now)
    critical = [row.fired_at for row in firing if row.severity == AlertSeverity.CRITICAL and row.is_ringing]
    moments = [*(row.fired_at for row in firing), *(row.resolved_at for row in resolved)]
    lately = route.deliveries.filter(is_test=False)
    # Firing and resolved are told in one order, whichever of them does not wait any longer.
    if not _is_due(moments, lately, now) and not _is_due(
        critical, lately.filter(content__critical__gt=0), now, urgent=True
    ):
        return 0
    with transaction.atomic():
        # What another worker told of meanwhile is found by the constraint of Told.
        lines = [notification_line(row, tenant=route.tenant_id) for row in (*firing, *resolved)]
        message = build_notification(lines, site=settings.CONFIG.address, at=now)
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
    return now >= first + timedelta(seconds=gather_wait(len(lately), urgent=urgent))


def _unreported_alerts(route: Route, now: datetime) -> tuple[list[Alert], list[Alert]]:
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
    return list(fired[:MAX_ALERTS_PER_ROUND]), list(over[:MAX_ALERTS_PER_ROUND])


def notification_line(row: Alert, *, tenant: int | None = None) -> NotificationLine:
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
    return NotificationLine(
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
        since=iso_utc(since),
        fired_at=iso_utc(max(row.fired_at, since)) if row.fired_at else None,
        resolved_at=iso_utc(resolved) if resolved else None,
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


RETRY_DELAYS: Final = (5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 300.0, 600.0)  # s between tries; the last one stays
MAX_RETRY_AFTER: Final = 3600.0  # s that a receiver may ask us to wait
GIVE_UP: Final = timedelta(days=7)
# What the receiver refuses for good is tried for a while all the same: who restarts answers nonsense for minutes.
GIVE_UP_REFUSED: Final = timedelta(hours=2)
SEND_CLAIM: Final = timedelta(seconds=120)  # longer than any sender takes
PARALLEL_ROUTES: Final = 8  # routes side by side: a slow one does not stand before the others
DELIVERIES_IN_A_ROW: Final = 50  # deliveries of a route in a row
DELIVERIES_KEPT: Final = timedelta(days=90)  # of what has come to its end
ALERTS_KEPT: Final = timedelta(days=400)


def deliveries_send() -> int:
    """Send what is due of every route; returns how many arrived."""
    routes = list(_due_routes())
    if not routes:
        return 0
    with ThreadPoolExecutor(min(PARALLEL_ROUTES, len(routes)), "deliveries") as threads:
        return sum(threads.map(_route_in_thread, routes))


def deliveries_delete_old() -> None:
    """Delete what came to its end long ago: deliveries first, then alerts."""
    now = timezone.now()
    ended = Delivery.objects.exclude(state=Delivery.State.WAITING).filter(made_at__lt=now - DELIVERIES_KEPT)
    ended.delete()
    Alert.objects.filter(state=Alert.State.RESOLVED, resolved_at__lt=now - ALERTS_KEPT).delete()


def route_deliver(route_id: int) -> int:
    """Send what is due of one route, the oldest first, until one fails or none is left; returns how many arrived."""
    arrived = 0
    for _ in range(DELIVERIES_IN_A_ROW):
        row = _claim_next(route_id)
        if row is None or not _send(row):
            break
        arrived += 1
    return arrived


def _route_in_thread(route_id: int) -> int:
    close_old_connections()
    try:
        return route_deliver(route_id)
    except DatabaseError as error:
        logger.warning("route %s waits for the database: %s", route_id, error)
        return 0
    finally:
        close_old_connections()


def _due_routes() -> set[int]:
    now = timezone.now()
    free = Q(claimed_until=None) | Q(claimed_until__lt=now)
    waiting = Delivery.objects.waiting().filter(route__enabled=True)
    tests = Delivery.objects.waiting().filter(free, is_test=True, next_try_at__lte=now)
    heads = waiting.filter(is_test=False).values("route").annotate(head=Min("number"))
    found = set(tests.values_list("route", flat=True))
    for one in heads:
        head = waiting.filter(free, route=one["route"], number=one["head"], next_try_at__lte=now)
        if head.exists():
            found.add(one["route"])
    return found


def _claim_next(route_id: int) -> Delivery | None:
    """Return what is to be sent next by a route, held by this sender from now on; None where nothing is due.

    That is a test, or the oldest of the others: while that one waits for its next try, those behind it wait too.
    """
    now = timezone.now()
    waiting = Delivery.objects.waiting().filter(route=route_id)
    test = waiting.filter(is_test=True, next_try_at__lte=now).order_by("number").first()
    head = waiting.filter(is_test=False, route__enabled=True).order_by("number").first()
    for row in (test, head):
        if row is None or row.next_try_at > now:
            continue
        free = Q(claimed_until=None) | Q(claimed_until__lt=now)
        claim = waiting.filter(free, pk=row.pk, next_try_at__lte=now)
        if claim.update(claimed_until=now + SEND_CLAIM, attempts=F("attempts") + 1):
            found: Delivery = Delivery.objects.select_related("route").get(pk=row.pk)
            return found
    return None


def _send(row: Delivery) -> bool:
    """Try one delivery and note how it went; tells whether the next one of the route may be tried."""
    try:
        _transmit(row)
    except DeliveryFailed as error:
        return _record_failure(row, error.sentence, permanent=error.permanent, asked=error.retry_after)
    except FalconWebError as error:
        # An address that was fine when it was entered, or a secret whose key is lost: people have to see to it.
        return _record_failure(row, error.sentence, permanent=False, asked=None)
    except Exception:
        logger.exception("delivery %s", row.pk)
        return _record_failure(
            row, "An error of the site stopped it; the log of the worker says which.", permanent=False, asked=None
        )
    now = timezone.now()
    Delivery.objects.filter(pk=row.pk).update(
        state=Delivery.State.DELIVERED, delivered_at=now, claimed_until=None, last_error=""
    )
    return True


def _transmit(row: Delivery) -> None:
    route, identity = row.route, str(row.pk)
    match route.kind:
        case Route.Kind.EMAIL:
            send_by_email(email_addresses(route.address), row.content, message_id=identity)
        case Route.Kind.WEBHOOK:
            send_to_webhook(route.address, row.content, message_id=identity, secret=route.secret())
        case Route.Kind.SYSLOG:
            send_to_syslog(route.address, row.content, message_id=identity)


def retry_delay(attempts: int) -> float:
    """Return how long (s) to wait after so many tries."""
    return RETRY_DELAYS[min(max(attempts, 1), len(RETRY_DELAYS)) - 1]


def _record_failure(row: Delivery, sentence: str, *, permanent: bool, asked: float | None) -> bool:
    """Note a failure; tells whether the next delivery of the route may be tried: after one that is given up."""
    now = timezone.now()
    wait = max(retry_delay(row.attempts), min(asked or 0.0, MAX_RETRY_AFTER))
    over = row.is_test or now - row.made_at > (GIVE_UP_REFUSED if permanent else GIVE_UP)
    state = Delivery.State.FAILED if over else Delivery.State.WAITING
    Delivery.objects.filter(pk=row.pk, state=Delivery.State.WAITING).update(
        state=state, last_error=sentence[:1000], next_try_at=now + timedelta(seconds=wait), claimed_until=None
    )
    if row.attempts == 1 or over:
        logger.warning("route %s: %s", row.route_id, sentence)
    return over


def enqueue_delivery() -> None:
    """Have what is due delivered once the transaction is committed; a broker that is away only makes it later."""
    transaction.on_commit(partial(_enqueue), robust=True)


def _enqueue() -> None:
    try:
        enqueue("alerts.notify", expires=10)
    except (OperationalError, OSError) as error:
        logger.info("deliveries wait for beat: %s", error)
