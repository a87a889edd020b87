"""Deliveries go out, of each route in order: claimed by a conditional update, tried again for days, logged.

At least once: who dies between the receiver's answer and the note of it leaves a claim that expires, and the same
message goes out again under the same id.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from django.db import DatabaseError, close_old_connections
from django.db.models import F, Min, Q
from django.utils import timezone

from falconweb.errors import FalconWebError
from telemetry.alerts.models import Alert, Delivery, Route
from telemetry.alerts.sending import send_email, send_json, send_lines
from telemetry.alerts.services.routes import addresses_of
from telemetry.delivery.senders import DeliveryFailed

logger = logging.getLogger(__name__)

PAUSES: Final = (5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 300.0, 600.0)  # s between tries; the last one stays
LONGEST_ASKED: Final = 3600.0  # s that a receiver may ask us to wait
GIVE_UP: Final = timedelta(days=7)
# What the receiver refuses for good is tried for a while all the same: who restarts answers nonsense for minutes.
GIVE_UP_REFUSED: Final = timedelta(hours=2)
CLAIM: Final = timedelta(seconds=120)  # longer than any sender takes
AT_ONCE: Final = 8  # routes side by side: a slow one does not stand before the others
ROUNDS: Final = 50  # deliveries of a route in a row
KEPT: Final = timedelta(days=90)  # of what has come to its end
ALERTS_KEPT: Final = timedelta(days=400)


def deliveries_send() -> int:
    """Send what is due of every route; returns how many arrived."""
    routes = list(_due_routes())
    if not routes:
        return 0
    with ThreadPoolExecutor(min(AT_ONCE, len(routes)), "deliveries") as threads:
        return sum(threads.map(_route_in_thread, routes))


def deliveries_forget() -> None:
    """Delete what came to its end long ago: deliveries first, then alerts."""
    now = timezone.now()
    ended = Delivery.objects.exclude(state=Delivery.State.WAITING).filter(made_at__lt=now - KEPT)
    ended.delete()
    Alert.objects.filter(state=Alert.State.RESOLVED, resolved_at__lt=now - ALERTS_KEPT).delete()


def route_deliver(route_id: int) -> int:
    """Send what is due of one route, the oldest first, until one fails or none is left; returns how many arrived."""
    arrived = 0
    for _ in range(ROUNDS):
        row = _claimed(route_id)
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


def _claimed(route_id: int) -> Delivery | None:
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
        if claim.update(claimed_until=now + CLAIM, attempts=F("attempts") + 1):
            found: Delivery = Delivery.objects.select_related("route").get(pk=row.pk)
            return found
    return None


def _send(row: Delivery) -> bool:
    """Try one delivery and note how it went; tells whether the next one of the route may be tried."""
    try:
        _hand_over(row)
    except DeliveryFailed as error:
        return _failed(row, error.sentence, permanent=error.permanent, asked=error.retry_after)
    except FalconWebError as error:
        # An address that was fine when it was entered, or a secret whose key is lost: people have to see to it.
        return _failed(row, error.sentence, permanent=False, asked=None)
    except Exception:
        logger.exception("delivery %s", row.pk)
        return _failed(row, "An error of the site stopped it; the log of the worker says which.", permanent=False,
                       asked=None)  # fmt: skip
    now = timezone.now()
    Delivery.objects.filter(pk=row.pk).update(
        state=Delivery.State.DELIVERED, delivered_at=now, claimed_until=None, last_error=""
    )
    return True


def _hand_over(row: Delivery) -> None:
    route, identity = row.route, str(row.pk)
    match route.kind:
        case Route.Kind.EMAIL:
            send_email(addresses_of(route.address), row.content, message_id=identity)
        case Route.Kind.WEBHOOK:
            send_json(route.address, row.content, message_id=identity, secret=route.secret())
        case Route.Kind.SYSLOG:
            send_lines(route.address, row.content, message_id=identity)


def pause_after(attempts: int) -> float:
    """Return how long (s) to wait after so many tries."""
    return PAUSES[min(max(attempts, 1), len(PAUSES)) - 1]


def _failed(row: Delivery, sentence: str, *, permanent: bool, asked: float | None) -> bool:
    """Note a failure; tells whether the next delivery of the route may be tried: after one that is given up."""
    now = timezone.now()
    wait = max(pause_after(row.attempts), min(asked or 0.0, LONGEST_ASKED))
    over = row.is_test or now - row.made_at > (GIVE_UP_REFUSED if permanent else GIVE_UP)
    state = Delivery.State.FAILED if over else Delivery.State.WAITING
    Delivery.objects.filter(pk=row.pk, state=Delivery.State.WAITING).update(
        state=state, last_error=sentence[:1000], next_try_at=now + timedelta(seconds=wait), claimed_until=None
    )
    if row.attempts == 1 or over:
        logger.warning("route %s: %s", row.route_id, sentence)
    return over
