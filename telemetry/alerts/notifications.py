"""Groups alerts into one notification a route, and delivers notifications in order, with retries.

The only state is which route was notified of which alert (`AlertNotification`): the notifications that are due follow
from the current alerts. So a storm, a restart and a silence that ends need no special cases, and no notification is
repeated.

Delivery is at least once: a sender that dies between the receiver's answer and its own commit leaves a claim that
expires, and the same message is sent again with the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import DatabaseError, IntegrityError, close_old_connections, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from core.claims import LONGEST_WAIT, RowClaim, unclaimed, wait_is_over
from core.endpoints import DeliveryFailed
from core.enqueue import enqueue
from core.errors import FalconWebError
from core.language import gettext_noop
from fabric.leases.models import Tenure
from telemetry.alerts import messages
from telemetry.alerts.messages import NotificationLine
from telemetry.alerts.models import Alert, AlertNotification, AlertSeverity, Delivery, Route
from telemetry.alerts.route_services import delivery_add, email_addresses
from telemetry.alerts.selectors import suppressed_alerts

logger = logging.getLogger(__name__)

# Alerts within this time (s) of the first share its message; the more messages there were lately, the longer.
GATHER_WAITS: Final = (10.0, 10.0, 60.0, 180.0)
# Critical alerts wait for other critical ones only, and less long; their message includes all that are waiting.
URGENT_GATHER_WAITS: Final = (10.0, 10.0, 30.0, 60.0)
LATELY: Final = timedelta(minutes=15)
MISSED: Final = timedelta(hours=1)
MAX_ALERTS_PER_ROUND: Final = 2000


class GatheringClaim(RowClaim[Route]):
    """A worker's claim on gathering for a route; `AlertNotification` is unique, so none is twice."""

    duration = timedelta(seconds=30)
    until_column = "gathering_until"
    worker_column = ""


GatheringClaim.watch(Route.objects.all)


def notifications_gather() -> int:
    """Create the due messages of all routes; returns their number."""
    now = timezone.now()
    _mark_suppressed(now)
    made = 0
    routes = Route.objects.in_use()
    for pk in routes.order_by("pk").values_list("pk", flat=True):
        claim = GatheringClaim.take(routes, pk)
        if claim is None:
            continue
        try:
            made += _gather(claim.row, now)
        except IntegrityError:
            logger.info("another worker gathered for route %s", pk)
        finally:
            claim.release()
    return made


def gather_wait(messages_lately: int, *, urgent: bool = False) -> float:
    """Return how long (s) the first alert waits for others, by the number of recent messages.

    For `urgent`, that is the number of messages with critical alerts.
    """
    waits = URGENT_GATHER_WAITS if urgent else GATHER_WAITS
    return waits[min(messages_lately, len(waits) - 1)]


def _mark_suppressed(now: datetime) -> None:
    """Mark the firing alerts that are suppressed now: those that resolve meanwhile are never notified."""
    suppressed = suppressed_alerts(now)
    active = Alert.objects.filter(state__in=Alert.ACTIVE)
    active.filter(suppressed, hushed=False).update(hushed=True)
    active.filter(hushed=True).exclude(pk__in=active.filter(suppressed).values("pk")).update(hushed=False)


def _gather(route: Route, now: datetime) -> int:
    firing, resolved = _unreported_alerts(route, now)
    critical = [row.fired_at for row in firing if row.severity == AlertSeverity.CRITICAL and row.is_active]
    moments = [*(row.fired_at for row in firing), *(row.resolved_at for row in resolved)]
    lately = route.deliveries.filter(is_test=False)
    # One message has both the firing and the resolved alerts, whichever of them is due.
    if not _is_due(moments, lately, now) and not _is_due(
        critical, lately.filter(content__critical__gt=0), now, urgent=True
    ):
        return 0
    with transaction.atomic():
        # The constraint of AlertNotification detects alerts that another worker notified meanwhile.
        lines = [notification_line(row, tenant=route.tenant_id) for row in (*firing, *resolved)]
        message = messages.build_notification(lines, site=settings.CONFIG.address, at=now)
        delivery = delivery_add(route, message["summary"], dict(message))
        AlertNotification.objects.bulk_create(
            AlertNotification(route=route, alert=row, fired_in=delivery) for row in firing
        )
        over = [row for row in (*firing, *resolved) if row.state == Alert.State.RESOLVED]
        AlertNotification.objects.filter(route=route, alert__in=over, resolved_in=None).update(resolved_in=delivery)
        if route.kind == Route.Kind.PAGE:
            # The header reads the alerts itself.
            Delivery.objects.filter(pk=delivery.pk).update(state=Delivery.State.DELIVERED, delivered_at=now)
    return 1


def _is_due(
    moments: Iterable[datetime | None], earlier: QuerySet[Delivery], now: datetime, *, urgent: bool = False
) -> bool:
    """Return whether alerts of these moments have waited long enough for others, given the `earlier` deliveries."""
    first = min((at for at in moments if at is not None), default=None)
    if first is None:
        return False
    lately = list(earlier.filter(made_at__gt=now - LATELY).order_by("-made_at").values_list("made_at", flat=True))
    if len(lately) > 1:
        first = max(first, lately[0])
    return now >= first + timedelta(seconds=gather_wait(len(lately), urgent=urgent))


def _unreported_alerts(route: Route, now: datetime) -> tuple[list[Alert], list[Alert]]:
    """Return the alerts that a route was not notified of: fired ones, and notified ones that were resolved since."""
    # The worst first, so that the limit of one message never excludes them.
    rows = Alert.objects.select_related("chassis", "device", "host_port").order_by("-rank", "pk")
    notified = AlertNotification.objects.filter(route=route, alert=OuterRef("pk"))
    # Not those that were acknowledged already, or resolved long ago.
    missed = Q(state=Alert.State.RESOLVED, acknowledged_at=None, resolved_at__gt=now - MISSED)
    fired = rows.filter(route.alerts(), Q(state=Alert.State.FIRING) | missed, ~Exists(notified))
    fired = fired.filter(hushed=False, fired_at__gte=route.enabled_at)
    if route.tenant_id is not None:
        # Alerts that were resolved before the tenant leased the part belong to another tenant.
        fired = fired.filter(Alert.objects.all().granted_to(route.tenant_id))
    over = rows.filter(Exists(notified.filter(resolved_in=None)), state=Alert.State.RESOLVED)
    over = over.filter(resolved_at__gte=route.enabled_at)
    return list(fired[:MAX_ALERTS_PER_ROUND]), list(over[:MAX_ALERTS_PER_ROUND])


def notification_line(row: Alert, *, tenant: int | None = None) -> NotificationLine:
    """Return an alert in the form of messages.

    A `tenant` sees no values measured while another tenant leased the part, nor since when another one has it.
    """
    site = settings.CONFIG.address
    part = row.device if row.device is not None else row.host_port
    is_lost = tenant is not None and (part is None or part.tenant_id != tenant)
    leased_at, lost = None, None
    if tenant is not None and is_lost:
        leased_at, lost = _tenure_of(row, tenant)
    elif tenant is not None and part is not None:
        leased_at = part.tenant_since
    since = max(row.since, leased_at or row.since)
    is_older = since > row.since
    resolved = row.resolved_at if lost is None or row.resolved_at is None else min(row.resolved_at, lost)
    return NotificationLine(
        id=row.pk,
        state="resolved" if row.state == Alert.State.RESOLVED else "firing",
        severity=row.severity,
        title=row.title,
        subject=row.subject_name,
        chassis=row.chassis.name if row.chassis is not None else row.subject_name,
        chassis_id=row.chassis_id,
        series_key=row.series_key,
        quantity=row.quantity,
        value=None if is_older else row.value,
        worst_value=None if is_older or is_lost else row.worst_value,
        unit=row.unit,
        threshold=row.threshold,
        since=messages.iso_utc(since),
        fired_at=messages.iso_utc(max(row.fired_at, since)) if row.fired_at else None,
        resolved_at=messages.iso_utc(resolved) if resolved else None,
        resolved_because=row.resolved_because,
        # Without a rule, it tells what was before the lease.
        note=row.note if tenant is None or row.rule_id is not None else "",
        url=f"{site}/alerts/{row.pk}/" if site else "",
    )


def _tenure_of(row: Alert, tenant: int) -> tuple[datetime | None, datetime | None]:
    """Return start and end of the tenant's lease of an alert's part at the time it fired; None where unknown."""
    of = Q(device=row.device_id) if row.device_id is not None else Q(host_port=row.host_port_id)
    if row.device_id is None and row.host_port_id is None:
        return None, None
    ended = Tenure.objects.filter(of, tenant=tenant, ended_at__gt=row.fired_at or row.since).order_by("ended_at")
    return ended.values_list("began_at", "ended_at").first() or (None, None)


# s between attempts; the last one repeats
RETRY_DELAYS: Final = (5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 300.0, 600.0)
MAX_RETRY_AFTER: Final = 3600.0  # s; longest wait that a receiver may request
GIVE_UP: Final = timedelta(days=7)
# Permanent refusals are retried for a shorter time: a receiver that restarts may send wrong statuses for minutes.
GIVE_UP_REFUSED: Final = timedelta(hours=2)
PARALLEL_ROUTES: Final = 8  # a slow route does not block the others
DELIVERIES_IN_A_ROW: Final = 50  # deliveries of one route in one run
DELIVERIES_KEPT: Final = timedelta(days=90)  # of delivered and failed ones
ALERTS_KEPT: Final = timedelta(days=400)


def deliveries_send() -> int:
    """Send the due deliveries of every route; returns the number of delivered ones."""
    routes = list(_due_routes())
    if not routes:
        return 0
    with ThreadPoolExecutor(min(PARALLEL_ROUTES, len(routes)), "deliveries") as threads:
        return sum(threads.map(_route_in_thread, routes))


def deliveries_delete_old() -> None:
    """Delete old deliveries, then old resolved alerts."""
    now = timezone.now()
    ended = Delivery.objects.exclude(state=Delivery.State.WAITING).filter(made_at__lt=now - DELIVERIES_KEPT)
    ended.delete()
    Alert.objects.filter(state=Alert.State.RESOLVED, resolved_at__lt=now - ALERTS_KEPT).delete()


def route_deliver(route_id: int) -> int:
    """Send the due deliveries of one route, the oldest first, until one fails; returns the number of delivered ones."""
    arrived = 0
    for _ in range(DELIVERIES_IN_A_ROW):
        claim = _claim_next(route_id)
        if claim is None or not _send(claim):
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
    """Return the routes (ids) that may have a due delivery; `_claim_next` finds out which one it is."""
    now = timezone.now()
    due = Delivery.objects.waiting().filter(unclaimed(DeliveryClaim.until_column), _try_is_due(now))
    return set(due.filter(Q(is_test=True) | Q(route__in=Route.objects.in_use())).values_list("route", flat=True))


def _try_is_due(now: datetime) -> Q:
    return wait_is_over("next_try_at", now, LONGEST_WAIT)


class DeliveryClaim(RowClaim[Delivery]):
    """A sender's claim on a delivery; a receiver detects duplicates by the id."""

    duration = timedelta(seconds=120)  # longer than any sender takes
    until_column = "claimed_until"
    worker_column = ""
    related = ("route",)


DeliveryClaim.watch(Delivery.objects.waiting)


def _claim_next(route_id: int) -> DeliveryClaim | None:
    """Claim the next delivery of a route; None where none is due, or another sender was faster.

    That is a test, or the oldest of the others: while that one waits for its next attempt, those behind it wait too.
    """
    now = timezone.now()
    waiting = Delivery.objects.waiting().filter(route=route_id)
    test = waiting.filter(_try_is_due(now), is_test=True).order_by("number").first()
    head = waiting.filter(is_test=False, route__in=Route.objects.in_use()).order_by("number").first()
    for row in (test, head):
        if row is None:
            continue
        due = waiting.filter(_try_is_due(now))
        if (claim := DeliveryClaim.take(due, row.pk, attempts=F("attempts") + 1)) is not None:
            return claim
    return None


def _send(claim: DeliveryClaim) -> bool:
    """Attempt one delivery and record the result; returns whether the next one of the route may be attempted."""
    row = claim.row
    try:
        _transmit(row)
    except DeliveryFailed as error:
        return _record_failure(claim, error.sentence, permanent=error.permanent, retry_after=error.retry_after)
    except FalconWebError as error:
        # An address that was valid when it was entered, or a secret whose key is lost: an administrator has to act.
        return _record_failure(claim, error.sentence, permanent=False, retry_after=None)
    except Exception:
        logger.exception("delivery %s", row.pk)
        sentence = gettext_noop("An internal error stopped it; see the log of the worker.")
        return _record_failure(claim, sentence, permanent=False, retry_after=None)
    claim.release(state=Delivery.State.DELIVERED, delivered_at=timezone.now(), last_error="")
    return True


def _transmit(row: Delivery) -> None:
    route, identity = row.route, str(row.pk)
    match route.kind:
        case Route.Kind.EMAIL:
            address = route.address if route.person is None else route.person.email
            messages.send_by_email(email_addresses(address), row.content, message_id=identity)
        case Route.Kind.WEBHOOK:
            messages.send_to_webhook(route.address, row.content, message_id=identity, secret=route.secret())
        case Route.Kind.SYSLOG:
            messages.send_to_syslog(route.address, row.content, message_id=identity)


def retry_delay(attempts: int) -> float:
    """Return how long (s) to wait after a number of attempts."""
    return RETRY_DELAYS[min(max(attempts, 1), len(RETRY_DELAYS)) - 1]


def _record_failure(claim: DeliveryClaim, sentence: str, *, permanent: bool, retry_after: float | None) -> bool:
    """Record a failure; returns whether the next delivery of the route may be attempted: after one that failed."""
    row, now = claim.row, timezone.now()
    wait = max(retry_delay(row.attempts), min(retry_after or 0.0, MAX_RETRY_AFTER))
    over = row.is_test or now - row.made_at > (GIVE_UP_REFUSED if permanent else GIVE_UP)
    state = Delivery.State.FAILED if over else Delivery.State.WAITING
    # Only where it still waits: another sender may have delivered it since this claim expired.
    claim.held().filter(state=Delivery.State.WAITING).update(
        state=state, last_error=sentence[:1000], next_try_at=now + timedelta(seconds=wait), claimed_until=None
    )
    if row.attempts == 1 or over:
        logger.warning("route %s: %s", row.route_id, sentence)
    return over


def enqueue_delivery() -> None:
    """Start a delivery run once the transaction is committed; without a broker, the schedule starts it later."""
    transaction.on_commit(_enqueue, robust=True)


def _enqueue() -> None:
    try:
        enqueue("alerts.notify")
    except (OperationalError, OSError) as error:
        logger.info("deliveries wait for beat: %s", error)
