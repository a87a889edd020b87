"""Signal receivers that record the site's own actions as events, and the catch-up for lost signals.

A process may die between a change and its signal, so `events_catch_up` reads recent changes. Each event has a key, so
that it is stored once whichever of them records it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db import DatabaseError, transaction
from django.db.models import Min, Q
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from accounts.sign_in.security import client_address, sign_in_refused
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis
from fabric.leases.models import Lease, LeaseEvent
from fabric.operations.models import Operation, Plan
from fabric.signals import inventory_changed, operation_changed, plan_changed
from telemetry.events.models import EventSource, Position
from telemetry.events.services import event_record

logger = logging.getLogger(__name__)

SIGN_IN, SIGN_OUT = "accounts:sign_in", "accounts:sign_out"
LOOK_BACK = timedelta(hours=1)
OPERATION_ENDS = {
    "done": ("OperationDone", "OK"),
    "failed": ("OperationFailed", "Warning"),
    "cancelled": ("OperationCancelled", "OK"),
}
PLAN_ENDS = {"done": "PlanDone", "cancelled": "PlanCancelled", "rolled_back": "PlanRolledBack", "left": "PlanLeft"}


@dataclass(frozen=True)
class _SiteEvent:
    """One event of the site: the arguments of `event_record`."""

    key: str
    name: str
    at: datetime
    text: str
    severity: str = "OK"
    source: str = EventSource.SITE
    more: dict[str, Any] = field(default_factory=dict)


def events_catch_up(now: datetime | None = None) -> int:
    """Record recent changes that are not recorded yet; returns the number of new events."""
    since = (now or timezone.now()) - LOOK_BACK
    event: list[_SiteEvent] = []
    operations = Operation.objects.filter(Q(started_at__gte=since) | Q(finished_at__gte=since))
    for operation in operations.iterator():
        event += _operation_events(operation)
    plans = Plan.objects.exclude(state=Plan.State.DRAFT)
    for plan in plans.filter(Q(applied_at__gte=since) | Q(finished_at__gte=since)).iterator():
        event += _plan_events(plan)
    for drift in Drift.objects.filter(Q(noticed_at__gte=since) | Q(ended_at__gte=since)).iterator():
        event += _drift_events(drift)
    for lease in Lease.objects.filter(events__at__gte=since).distinct().iterator():
        event += _lease_events(lease)
    return sum(_record(one) for one in event)


def _record(event: _SiteEvent) -> bool:
    made = event_record(
        source=event.source,
        message_id=f"FalconWeb.1.0.{event.name}",
        severity=event.severity,
        text=event.text,
        at=event.at,
        key=event.key,
        **event.more,
    )
    return made is not None


def _record_after_commit(work: Callable[[], object]) -> None:
    """Record an event after the transaction of its change; a failure must not roll back the change."""

    def done() -> None:
        try:
            work()
        except DatabaseError:
            logger.exception("an event could not be recorded yet")

    transaction.on_commit(done, robust=True)


@receiver(operation_changed)
def record_operation(operation: Operation, **kwargs: Any) -> None:
    """Record that an operation started, or ended."""
    _record_after_commit(lambda: [_record(one) for one in _operation_events(operation)])


@receiver(plan_changed)
def record_plan(plan: Plan, **kwargs: Any) -> None:
    """Record that a plan started, stopped or ended."""
    _record_after_commit(lambda: [_record(one) for one in _plan_events(plan)])


@receiver(inventory_changed)
def record_drifts(chassis_id: int, **kwargs: Any) -> None:
    """Record the drifts of a walk, which are stored together with its results."""
    since = timezone.now() - LOOK_BACK
    rows = Drift.objects.filter(Q(noticed_at__gte=since) | Q(ended_at__gte=since), chassis=chassis_id)
    _record_after_commit(lambda: [_record(one) for row in rows for one in _drift_events(row)])


@receiver(post_save, sender=LeaseEvent)
def record_lease(instance: LeaseEvent, **kwargs: Any) -> None:
    """Record that a lease started or ended: both add a line to its timeline."""
    pk = instance.lease_id
    _record_after_commit(lambda: [_record(one) for row in Lease.objects.filter(pk=pk) for one in _lease_events(row)])


@receiver(post_save, sender=Chassis)
def record_chassis_added(instance: Chassis, created: bool, **kwargs: Any) -> None:
    """Record that a chassis was added."""
    if created:
        text = f"The chassis {instance.name} was added."
        more = {"chassis_id": instance.pk, "link": reverse("fabric:chassis", args=[instance.pk])}
        event = _SiteEvent(f"chassis {instance.pk} added", "ChassisAdded", timezone.now(), text, more=more)
        _record_after_commit(lambda: _record(event))


@receiver(post_delete, sender=Chassis)
def record_chassis_removed(instance: Chassis, **kwargs: Any) -> None:
    """Record that a chassis was removed, and delete the positions in its logs."""
    pk = instance.pk
    text = f"The chassis {instance.name} was removed from this site."
    more = {"chassis_id": pk, "chassis_name": instance.name}
    event = _SiteEvent(f"chassis {pk} removed", "ChassisRemoved", timezone.now(), text, "Warning", more=more)
    Position.objects.filter(chassis_id=pk).delete()
    _record_after_commit(lambda: _record(event))


@receiver(user_logged_in)
def record_sign_in(request: Any, user: User, **kwargs: Any) -> None:
    """Record that a person signed in on the sign-in page."""
    if _view_name(request) == SIGN_IN:
        _record_person("SignedIn", user, f"{user.username} signed in from {client_address(request)}.")


@receiver(user_logged_out)
def record_sign_out(request: Any, user: User | None, **kwargs: Any) -> None:
    """Record that a person signed out."""
    if user is not None and _view_name(request) == SIGN_OUT:
        _record_person("SignedOut", user, f"{user.username} signed out.")


@receiver(sign_in_refused)
def record_refused_sign_in(person: User | None, address: str, sentence: str, **kwargs: Any) -> None:
    """Record a refused sign-in, once a minute and name: guessing must not fill the log.

    An unknown name is not recorded: it may be a password that was typed into the wrong field.
    """
    now = timezone.now()
    who = person.username if person else "an unknown user"
    key = f"refused {person.pk if person else 0} {now:%Y-%m-%dT%H:%M}"
    text = f"A sign-in as {who} from {address} was refused. {sentence}"
    _record_person("SignInRefused", person, text, severity="Warning", key=key)


def _record_person(name: str, person: User | None, text: str, *, severity: str = "OK", key: str = "") -> None:
    about = {"person_id": person.pk, "person_name": person.username} if person else {}
    event = _SiteEvent(key, name, timezone.now(), text, severity, EventSource.SIGN_IN, about)
    _record_after_commit(lambda: _record(event))


def _view_name(request: Any) -> str:
    match = getattr(request, "resolver_match", None)
    return str(match.view_name) if match else ""


def _operation_events(row: Operation) -> Iterator[_SiteEvent]:
    more = {
        "chassis_id": row.chassis_id, "device_id": row.device_id, "drawer_id": row.drawer_id, "host_id": row.host_id,
        "port_id": row.port_id or _port_of(row), "tenant_id": row.tenant_id, "subject_name": "",
        "link": reverse("fabric:operation", args=[row.pk]), "person_id": row.requested_by_id,
        "person_name": row.requested_by_name,
    }  # fmt: skip
    if row.started_at is not None:
        text = f"Begun: {row.summary}."
        yield _SiteEvent(
            f"operation {row.pk} begun", "OperationBegun", row.started_at, text, "OK", EventSource.OPERATION, more
        )
    if row.state in OPERATION_ENDS and row.finished_at is not None:
        name, severity = OPERATION_ENDS[row.state]
        if row.is_rollback and row.state == Operation.State.DONE:
            name = "OperationRolledBack"
        word = "Rolled back" if name == "OperationRolledBack" else row.get_state_display()
        text = f"{word}: {row.summary}.{f' {row.error}' if row.error else ''}"
        key = f"operation {row.pk} {row.state}"
        yield _SiteEvent(key, name, row.finished_at, text, severity, EventSource.OPERATION, more)


def _port_of(row: Operation) -> int | None:
    """Return the port of the host port of an operation without a device."""
    place = (row.source or row.target) if row.device_id is None else None
    return place.port_id if place is not None else None


def _plan_events(row: Plan) -> Iterator[_SiteEvent]:
    if row.state == Plan.State.DRAFT:
        return
    more = {
        "tenant_id": row.tenant_id, "subject_name": row.title, "link": reverse("fabric:plan", args=[row.pk]),
        "person_id": row.acting_id or row.requested_by_id, "person_name": row.acting_name or row.requested_by_name,
    }  # fmt: skip
    if row.applied_at is not None:
        text = f"The plan ‘{row.title}’ is being carried out."
        yield _SiteEvent(f"plan {row.pk} begun", "PlanBegun", row.applied_at, text, "OK", EventSource.OPERATION, more)
    why = f" {row.sentence}" if row.sentence else ""
    if row.state == Plan.State.STOPPED:
        text = f"The plan ‘{row.title}’ stopped.{why}"
        key = f"plan {row.pk} stopped {row.round}"
        yield _SiteEvent(key, "PlanStopped", timezone.now(), text, "Warning", EventSource.OPERATION, more)
    elif row.state in PLAN_ENDS:
        text = f"The plan ‘{row.title}’ ended: {row.get_state_display().lower()}.{why}"
        at = row.finished_at or timezone.now()
        yield _SiteEvent(
            f"plan {row.pk} {row.state}", PLAN_ENDS[row.state], at, text, "OK", EventSource.OPERATION, more
        )


def _drift_events(row: Drift) -> Iterator[_SiteEvent]:
    # The found state may name hosts that not everybody who sees the part may see: only the drift's page shows it.
    subject = f"{row.what}: {row.get_kind_display().lower()}"
    more = {
        "chassis_id": row.chassis_id, "device_id": row.device_id, "drawer_id": row.drawer_id,
        "port_id": row.port_id or (row.host_port.port_id if row.host_port else None), "subject_name": row.what,
        "link": reverse("fabric:drift", args=[row.pk]),
    }  # fmt: skip
    text = f"{subject} differs from the approved state."
    yield _SiteEvent(f"drift {row.pk} noticed", "DriftNoticed", row.noticed_at, text, "Warning", more=more)
    if row.ended_at is not None:
        text = f"{subject} no longer differs from the approved state: {row.get_end_display().lower()}."
        yield _SiteEvent(f"drift {row.pk} ended", "DriftEnded", row.ended_at, text, more=more)


def _lease_events(row: Lease) -> Iterator[_SiteEvent]:
    if row.tenant_id is None:
        return
    more = {
        "tenant_id": row.tenant_id, "subject_name": f"Lease {row.pk}", "link": reverse("fabric:lease", args=[row.pk]),
        "person_name": row.decided_by_name or row.asked_by_name,
    }  # fmt: skip
    taken = row.items.aggregate(first=Min("taken_at"))["first"]
    if taken is not None:
        names = ", ".join(row.items.values_list("name", flat=True)[:20])
        until = f"until {row.ends_at:%Y-%m-%d %H:%M} UTC" if row.ends_at else "until further notice"
        text = f"{row.tenant_name} has leased {names} {until}."
        yield _SiteEvent(f"lease {row.pk} given", "LeaseGiven", taken, text, more=more)
    if row.state == Lease.State.ENDED and row.ended_at is not None:
        text = f"The lease {row.pk} of {row.tenant_name} ended."
        yield _SiteEvent(f"lease {row.pk} ended", "LeaseEnded", row.ended_at, text, more=more)
