"""Periodic changes of leases: they start, warn, end, and return their parts; each step is safe to repeat.

A step is one transaction that checks under the lock whether it is still due: a crash leaves nothing half done, and two
workers do nothing twice. States change in one direction only, whatever the clock is set to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.dispatch import receiver
from django.utils import timezone

from accounts.access import SITE_NAME
from accounts.audit.actions import Action
from accounts.audit.services import audit_record, target_of
from core.enqueue import enqueue
from core.errors import FalconWebError
from core.failpoints import failpoint
from core.language import gettext_noop
from fabric.inventory.locks import lock_tenants
from fabric.leases import emails
from fabric.leases.emails import letters_send
from fabric.leases.ends import lease_release_parts
from fabric.leases.grants import ownership_reconcile
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.ownership import lease_acquire, leases_end_empty, timeline_add
from fabric.leases.rules import format_duration
from fabric.leases.services import lease_audit_values, lock_lease
from fabric.leases.usage import idle_items
from fabric.operations.models import Plan
from fabric.signals import plan_changed

logger = logging.getLogger(__name__)


def leases_process() -> None:
    """Do everything that is due; a failure with one lease does not stop the others."""
    _safely(ownership_reconcile, "ownership")
    now = timezone.now()
    # Starts come first: parts that a tenant's next lease continues are not detached in between.
    _for_each(lease_start, Lease.objects.filter(state=Lease.State.APPROVED, starts_at__lte=now))
    # Leases without parts, since these were replaced or removed.
    empty = Lease.objects.filter(state__in=Lease.BOOKED).exclude(items__in=LeaseItem.objects.filter(released_at=None))
    _safely(partial(leases_end_without_parts, empty), "empty leases")
    awaiting = LeaseItem.objects.filter(taken_at=None, released_at=None).values("lease")
    _for_each(lease_acquire_pending, Lease.objects.filter(state=Lease.State.ACTIVE, pk__in=awaiting))
    _for_each(lease_end, Lease.objects.filter(state=Lease.State.ACTIVE, ends_at__lte=now))
    _for_each(lease_release_parts, Lease.objects.filter(state=Lease.State.ENDING))
    # Again: parts that were just returned may be pending for another lease.
    _for_each(lease_acquire_pending, Lease.objects.filter(state=Lease.State.ACTIVE, pk__in=awaiting))
    _for_each(lease_warn, Lease.objects.filter(state=Lease.State.ACTIVE, ends_at__gt=now))
    _for_each(lease_report_idle, Lease.objects.filter(state=Lease.State.ACTIVE))
    _safely(letters_send, "letters")


def leases_end_without_parts(leases: QuerySet[Lease]) -> None:
    """End these leases, which have no parts and will get none."""
    if pks := list(leases.values_list("pk", flat=True)):
        with transaction.atomic():
            lock_tenants()
            leases_end_empty(pks, by=SITE_NAME)


def lease_start(lease: Lease) -> None:
    """Start a due lease; one whose end has passed too, while the site was down, just ends."""
    with transaction.atomic():
        row, now = lock_lease(None, lease), timezone.now()
        if row.state != Lease.State.APPROVED or row.starts_at > now:
            return
        if row.tenant is None or (row.ends_at is not None and row.ends_at <= now):
            row.state, row.ended_at = Lease.State.ENDED, now
            row.save(update_fields=["state", "ended_at"])
            row.items.filter(released_at=None).update(released_at=now)
            timeline_add(
                row, SITE_NAME, gettext_noop("Its time passed while the site was not running: nothing was taken.")
            )
            return
        row.state = Lease.State.ACTIVE
        row.save(update_fields=["state"])
        timeline_add(row, SITE_NAME, gettext_noop("Started."))
        if awaited := lease_acquire(row, by=SITE_NAME):
            sentence = f"{awaited} of its parts are not available yet, and follow as soon as they are."
            timeline_add(row, SITE_NAME, sentence)
        audit_record(action=Action.LEASE_START, actor=None, target=target_of(row), after=lease_audit_values(row))
        failpoint("lease.started.uncommitted")
    failpoint("lease.started")


def lease_acquire_pending(lease: Lease) -> None:
    """Grant an active lease its pending parts, as far as they are free by now."""
    with transaction.atomic():
        row = lock_lease(None, lease)
        if row.state != Lease.State.ACTIVE:
            return
        waiting = row.items.filter(taken_at=None, released_at=None).count()
        awaited = lease_acquire(row, by=SITE_NAME)
        if awaited < waiting:
            rest = f" {awaited} still to come." if awaited else ""
            timeline_add(
                row, SITE_NAME, f"{waiting - awaited} parts that it waited for came, and are the tenant's now.{rest}"
            )
            failpoint("lease.acquired.uncommitted")
    failpoint("lease.acquired")


def lease_end(lease: Lease) -> None:
    """Start the return of a lease that is due."""
    with transaction.atomic():
        row = lock_lease(None, lease)
        if row.state != Lease.State.ACTIVE or row.ends_at is None or row.ends_at > timezone.now():
            return
        row.state, row.extension_to = Lease.State.ENDING, None
        row.save(update_fields=["state", "extension_to"])
        timeline_add(
            row,
            SITE_NAME,
            gettext_noop("It has ended: attached devices are detached, then everything returns to the pool."),
        )
        audit_record(action=Action.LEASE_END, actor=None, target=target_of(row), after=lease_audit_values(row))
    failpoint("lease.ended")


def lease_warn(lease: Lease) -> None:
    """Warn before the end, once per configured threshold; of several that were missed, the last."""
    with transaction.atomic():
        row, now = lock_lease(None, lease), timezone.now()
        if row.state != Lease.State.ACTIVE or row.ends_at is None or row.ends_at <= now:
            return
        left = (row.ends_at - now).total_seconds()
        length = (row.ends_at - row.starts_at).total_seconds()
        # A lease of two hours is not warned of its end seven days before it.
        due = [one for one in settings.LEASE_WARNING_SECONDS if left <= one < length]
        if not due or (row.warned_seconds is not None and row.warned_seconds <= min(due)):
            return
        row.warned_seconds = min(due)
        row.save(update_fields=["warned_seconds"])
        timeline_add(row, SITE_NAME, f"Warned: it ends in {format_duration(left)}.")
        emails.notify_ending(row, format_duration(left), row.warned_seconds)


def lease_report_idle(lease: Lease) -> None:
    """Report idle parts once; after they were used, once more."""
    found = {item.pk for item in idle_items([lease])}
    reported = set(lease.items.filter(idle_told_at__isnull=False, released_at=None).values_list("pk", flat=True))
    if found == reported:
        return
    with transaction.atomic():
        row, now = lock_lease(None, lease), timezone.now()
        if row.state != Lease.State.ACTIVE:
            return
        row.items.filter(idle_told_at__isnull=False).exclude(pk__in=found).update(idle_told_at=None)
        fresh = row.items.filter(pk__in=found, idle_told_at=None, released_at=None)
        names, pks = [item.name for item in fresh], [item.pk for item in fresh]
        if not names:
            return
        fresh.update(idle_told_at=now)
        hours = settings.CONFIG.idle_hours
        timeline_add(row, SITE_NAME, f"Idle for {hours:g} hours: {', '.join(names)}.")
        emails.notify_idle(row, names, hours, key=f"{now:%Y%m%d%H%M}-{min(pks)}")


@receiver(plan_changed)
def on_plan_changed(plan: Plan, **kwargs: Any) -> None:
    """Continue the return of a lease whose plan has ended."""
    if plan.by_site and not plan.is_active and Lease.objects.filter(plan=plan, state=Lease.State.ENDING).exists():
        enqueue("fabric.tend_leases")


def _for_each(step: Callable[[Lease], None], leases: Iterable[Lease]) -> None:
    for lease in list(leases):
        _safely(partial(step, lease), f"lease {lease.pk}")


def _safely(step: Callable[[], object], what: str) -> None:
    """Run a step; an error with one lease must not stop the others, and is retried next time."""
    try:
        step()
    except FalconWebError as error:
        logger.warning("%s: %s", what, error.sentence)
    except Exception:
        logger.exception("%s could not be processed", what)
