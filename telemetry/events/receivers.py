"""Signal receivers that record the site's own actions as events, and the catch-up for lost signals.

A process may die between a change and its signal, so `events_catch_up` reads recent changes. Each event has a key, so
that it is stored once whichever of them records it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db import DatabaseError, transaction
from django.db.models import Min, Q
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.urls import reverse
from django.utils import timezone, translation

from accounts.models import User
from accounts.sign_in.security import break_glass_used, client_address, sign_in_refused
from core.language import SOURCE_LANGUAGE, english
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis
from fabric.leases.models import Lease, LeaseEvent
from fabric.operations.models import Operation, Plan
from fabric.signals import inventory_changed, operation_changed, plan_changed
from telemetry.events.models import EventSource, Position
from telemetry.events.services import EventReport, events_record

logger = logging.getLogger(__name__)

SIGN_IN_VIEWS = {
    "accounts:sign_in", "accounts:second_factor", "accounts:sign_in_passkey", "accounts:provider_callback",
}  # fmt: skip
SIGN_OUT = "accounts:sign_out"
LOOK_BACK = timedelta(hours=1)
OPERATION_ENDS = {
    "done": ("OperationDone", "OK"),
    "failed": ("OperationFailed", "Warning"),
    "cancelled": ("OperationCancelled", "OK"),
}
PLAN_ENDS = {"done": "PlanDone", "cancelled": "PlanCancelled", "rolled_back": "PlanRolledBack", "left": "PlanLeft"}


def events_catch_up(now: datetime | None = None) -> int:
    """Record recent changes that are not recorded yet; returns the number of new events."""
    since = (now or timezone.now()) - LOOK_BACK
    operations = Operation.objects.filter(Q(started_at__gte=since) | Q(finished_at__gte=since))
    plans = Plan.objects.filter(Q(applied_at__gte=since) | Q(finished_at__gte=since))
    drifts = Drift.objects.filter(Q(noticed_at__gte=since) | Q(ended_at__gte=since))
    leases = Lease.objects.filter(events__at__gte=since).distinct()
    return (
        sum(map(_record_operation, operations.iterator()))
        + sum(map(_record_plan, plans.iterator()))
        + sum(map(_record_drift, drifts.iterator()))
        + sum(map(_record_lease, leases.iterator()))
    )


def _record(
    key: str, name: str, at: datetime, text: str, severity: str = "OK", *, source: str = EventSource.SITE, **about: Any
) -> bool:
    """Record an event of the site; `about` are arguments of `events_record`. Returns whether it is new."""
    return bool(events_record([_report(key, name, at, text, severity)], source=source, **about))


def _report(key: str, name: str, at: datetime, text: str, severity: str = "OK") -> EventReport:
    return EventReport(message_id=f"FalconWeb.1.0.{name}", severity=severity, text=text, at=at, key=key)


def _record_after_commit(work: Callable[[], object]) -> None:
    """Record an event after the transaction of its change; a failure must not roll back the change."""

    def done() -> None:
        try:
            with translation.override(SOURCE_LANGUAGE):
                work()
        except DatabaseError:
            logger.exception("an event could not be recorded yet")

    transaction.on_commit(done, robust=True)


@receiver(operation_changed)
def record_operation(operation: Operation, **kwargs: Any) -> None:
    _record_after_commit(lambda: _record_operation(operation))


@receiver(plan_changed)
def record_plan(plan: Plan, **kwargs: Any) -> None:
    _record_after_commit(lambda: _record_plan(plan))


@receiver(inventory_changed)
def record_drifts(chassis_id: int, **kwargs: Any) -> None:
    """Record the drifts of a walk, which are stored together with its results."""
    since = timezone.now() - LOOK_BACK
    rows = Drift.objects.filter(Q(noticed_at__gte=since) | Q(ended_at__gte=since), chassis=chassis_id)
    _record_after_commit(lambda: [_record_drift(row) for row in rows])


@receiver(post_save, sender=LeaseEvent)
def record_lease(instance: LeaseEvent, **kwargs: Any) -> None:
    """Record that a lease started or ended: both add a line to its timeline."""
    rows = Lease.objects.filter(pk=instance.lease_id)
    _record_after_commit(lambda: [_record_lease(row) for row in rows])


@receiver(post_save, sender=Chassis)
def record_chassis_added(instance: Chassis, created: bool, **kwargs: Any) -> None:
    if created:
        pk, now, text = instance.pk, timezone.now(), f"The chassis {instance.name} was added."
        about: dict[str, Any] = {"chassis_id": pk, "link": reverse("fabric:chassis", args=[pk])}
        _record_after_commit(lambda: _record(f"chassis {pk} added", "ChassisAdded", now, text, **about))


@receiver(post_delete, sender=Chassis)
def record_chassis_removed(instance: Chassis, **kwargs: Any) -> None:
    """Record that a chassis was removed, and delete the positions in its logs."""
    # Django clears `pk` before the commit.
    pk, now, text = instance.pk, timezone.now(), f"The chassis {instance.name} was removed from this site."
    about: dict[str, Any] = {"chassis_id": pk, "chassis_name": instance.name}
    Position.objects.filter(chassis_id=pk).delete()
    _record_after_commit(lambda: _record(f"chassis {pk} removed", "ChassisRemoved", now, text, "Warning", **about))


@receiver(user_logged_in)
def record_sign_in(request: Any, user: User, **kwargs: Any) -> None:
    """Record that a person signed in on a page, or came back to it from a provider."""
    if _view_name(request) in SIGN_IN_VIEWS:
        _record_person("SignedIn", user, f"{user.username} signed in from {client_address(request)}.")


@receiver(user_logged_out)
def record_sign_out(request: Any, user: User | None, **kwargs: Any) -> None:
    if user is not None and _view_name(request) == SIGN_OUT:
        _record_person("SignedOut", user, f"{user.username} signed out.")


@receiver(break_glass_used)
def record_break_glass(person: User, address: str, **kwargs: Any) -> None:
    """Record the sign-in of the administrator for emergencies."""
    text = f"{person.username}, who is for when no identity provider answers, signed in from {address}."
    _record_person("BreakGlassUsed", person, text, severity="Critical")


@receiver(sign_in_refused)
def record_refused_sign_in(person: User | None, address: str, sentence: str, **kwargs: Any) -> None:
    """Record a refused sign-in, once a minute and name: guessing must not fill the log.

    An unknown name is not recorded: it may be a password that was typed into the wrong field.
    """
    now = timezone.now()
    who = person.username if person else "an unknown user"
    key = f"refused {person.pk if person else 0} {now:%Y-%m-%dT%H:%M}"
    text = f"A sign-in as {who} from {address} was refused. {english(sentence)}"
    _record_person("SignInRefused", person, text, severity="Warning", key=key)


def _record_person(name: str, person: User | None, text: str, *, severity: str = "OK", key: str = "") -> None:
    now = timezone.now()
    about: dict[str, Any] = {"person_id": person.pk, "person_name": person.username} if person else {}
    _record_after_commit(lambda: _record(key, name, now, text, severity, source=EventSource.SIGN_IN, **about))


def _view_name(request: Any) -> str:
    match = getattr(request, "resolver_match", None)
    return str(match.view_name) if match else ""


def _record_operation(row: Operation) -> int:
    """Record that an operation started and, where it has, that it ended; returns the number of new events."""
    reports = []
    if row.started_at is not None:
        reports.append(_report(f"operation {row.pk} begun", "OperationBegun", row.started_at, f"Begun: {row.summary}."))
    if row.state in OPERATION_ENDS and row.finished_at is not None:
        name, severity = OPERATION_ENDS[row.state]
        word = row.get_state_display()
        if row.is_rollback and row.state == Operation.State.DONE:
            name, word = "OperationRolledBack", "Rolled back"
        text = f"{word}: {row.summary}.{f' {row.error}' if row.error else ''}"
        reports.append(_report(f"operation {row.pk} {row.state}", name, row.finished_at, text, severity))
    if not reports:
        return 0
    about: dict[str, Any] = {
        "chassis_id": row.chassis_id, "device_id": row.device_id, "drawer_id": row.drawer_id, "host_id": row.host_id,
        "port_id": row.port_id or _port_of(row), "tenant_id": row.tenant_id,
        "link": reverse("fabric:operation", args=[row.pk]), "person_id": row.requested_by_id,
        "person_name": row.requested_by_name, "source": EventSource.OPERATION, "chassis_name": row.chassis.name,
    }  # fmt: skip
    return len(events_record(reports, **about))


def _port_of(row: Operation) -> int | None:
    """Return the port of the host port of an operation without a device."""
    place = (row.source or row.target) if row.device_id is None else None
    return place.port_id if place is not None else None


def _record_plan(row: Plan) -> int:
    """Record that a plan started and, where it has, that it stopped or ended; returns the number of new events."""
    if row.state == Plan.State.DRAFT:
        return 0
    about: dict[str, Any] = {
        "tenant_id": row.tenant_id, "subject_name": row.title, "link": reverse("fabric:plan", args=[row.pk]),
        "person_id": row.acting_id or row.requested_by_id, "person_name": row.acting_name or row.requested_by_name,
        "source": EventSource.OPERATION,
    }  # fmt: skip
    new = 0
    if row.applied_at is not None:
        text = f"The plan ‘{row.title}’ is being carried out."
        new += _record(f"plan {row.pk} begun", "PlanBegun", row.applied_at, text, **about)
    why = f" {row.sentence}" if row.sentence else ""
    if row.state == Plan.State.STOPPED:
        text = f"The plan ‘{row.title}’ stopped.{why}"
        new += _record(f"plan {row.pk} stopped {row.round}", "PlanStopped", timezone.now(), text, "Warning", **about)
    elif row.state in PLAN_ENDS:
        text = f"The plan ‘{row.title}’ ended: {row.get_state_display().lower()}.{why}"
        at = row.finished_at or timezone.now()
        new += _record(f"plan {row.pk} {row.state}", PLAN_ENDS[row.state], at, text, **about)
    return new


def _record_drift(row: Drift) -> int:
    """Record that a drift was noticed and, where it has, that it ended; returns the number of new events."""
    # The found state may name hosts that not everybody who sees the part may see: only the drift's page shows it.
    subject = f"{row.what}: {row.get_kind_display().lower()}"
    about: dict[str, Any] = {
        "chassis_id": row.chassis_id, "device_id": row.device_id, "drawer_id": row.drawer_id,
        "port_id": row.port_id or (row.host_port.port_id if row.host_port else None), "subject_name": row.what,
        "link": reverse("fabric:drift", args=[row.pk]),
    }  # fmt: skip
    text = f"{subject} differs from the approved state."
    new = int(_record(f"drift {row.pk} noticed", "DriftNoticed", row.noticed_at, text, "Warning", **about))
    if row.ended_at is not None:
        text = f"{subject} no longer differs from the approved state: {row.get_end_display().lower()}."
        new += _record(f"drift {row.pk} ended", "DriftEnded", row.ended_at, text, **about)
    return new


def _record_lease(row: Lease) -> int:
    """Record that a lease started and, where it has, that it ended; returns the number of new events."""
    if row.tenant_id is None:
        return 0
    about: dict[str, Any] = {
        "tenant_id": row.tenant_id, "subject_name": f"Lease {row.pk}", "link": reverse("fabric:lease", args=[row.pk]),
        "person_name": row.decided_by_name or row.asked_by_name,
    }  # fmt: skip
    new = 0
    taken = row.items.aggregate(first=Min("taken_at"))["first"]
    if taken is not None:
        names = ", ".join(row.items.values_list("name", flat=True)[:20])
        until = f"until {row.ends_at:%Y-%m-%d %H:%M} UTC" if row.ends_at else "until further notice"
        text = f"{row.tenant_name} has leased {names} {until}."
        new += _record(f"lease {row.pk} given", "LeaseGiven", taken, text, **about)
    if row.state == Lease.State.ENDED and row.ended_at is not None:
        text = f"The lease {row.pk} of {row.tenant_name} ended."
        new += _record(f"lease {row.pk} ended", "LeaseEnded", row.ended_at, text, **about)
    return new
