"""The way back: what a lease that is over held is detached by a plan of the site, then freed.

Nothing is freed while it is attached to a host, or while nobody knows whether it is: the mirror is as old as the last
walk, so the chassis is asked first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.audit.services import together
from fabric.models import Chassis, Device, HostPort, Lease, LeaseItem, Operation, Plan
from fabric.planning import Wanted
from fabric.services import lease_letters
from fabric.services.booking import is_busy
from fabric.services.hands import change_hands, leases_settle
from fabric.services.jobs import plan_cancel, plan_resume
from fabric.services.leases import lease_locked
from fabric.services.locks import lock_chassis, lock_held
from fabric.services.plan_words import wanted_of_base
from fabric.services.plans import plan_apply, plan_create
from fabric.services.truth import truth_read
from fabric.services.wording import SITE_NAME
from falconweb.errors import FalconWebError

logger = logging.getLogger(__name__)
READ_SECONDS: Final = 10.0  # for all that a chassis is asked: one that takes longer is asked again the next time
FIRST_PAUSE: Final = 60.0  # s after the first try; twice as long after each
LONGEST_PAUSE: Final = 900.0
TELL_AFTER: Final = 2  # tries: one that fails may be chance


@dataclass(frozen=True)
class Left:
    """What keeps a lease from having ended: devices to be detached, and a sentence about what must be waited for."""

    attached: tuple[Device, ...]
    waits: str = ""


def lease_bring_back(lease: Lease) -> None:
    """Free what may go, and let a plan detach the rest; to be called again until the lease has ended."""
    known = _read(lease)
    with transaction.atomic():
        row = lease_locked(None, lease)
        if row.state != Lease.State.ENDING:
            return
        left = _free(row, known)
        leases_settle([row.pk], by=SITE_NAME)
        row.refresh_from_db()
        if row.state == Lease.State.ENDED:
            lease_letters.ended(row)
            return
    # Apart from the transaction above: there devices are locked, here chassis come first.
    with together():
        row = lease_locked(None, lease)
        if row.state == Lease.State.ENDING:
            _detach(row, left)


def _read(lease: Lease) -> Mapping[int, datetime]:
    """Ask each chassis of a lease what is attached; returns since when that is known of which.

    One that is switched off is asked nothing: it stays as it was last seen.
    """
    items = lease.items.filter(released_at=None, taken_at__isnull=False)
    chassis = Q(pk__in=items.values("device__chassis")) | Q(pk__in=items.values("host_port__chassis"))
    known: dict[int, datetime] = {}
    for row in Chassis.objects.filter(chassis).exclude(~Q(last_error=""), enabled=True).order_by("pk"):
        now = timezone.now()
        try:
            if row.enabled:
                asyncio.run(_in_time(row))
            known[row.pk] = now
        except (FalconWebError, TimeoutError) as error:
            logger.info("lease %s: %s could not be read: %s", lease.pk, row.name, error)
    return known


async def _in_time(chassis: Chassis) -> None:
    async with asyncio.timeout(READ_SECONDS):
        await truth_read(chassis, Wanted())


def _free(lease: Lease, known: Mapping[int, datetime]) -> Left:
    """Free what of a lease is attached nowhere by what is `known` of its chassis; returns what is left."""
    held = list(lease.items.filter(released_at=None))
    # All at once, in the order in which everybody locks them: a lease lists them in another.
    lock_held(devices=[item.device_id for item in held], host_ports=[item.host_port_id for item in held])
    now = timezone.now()
    lease.items.filter(released_at=None, taken_at=None).update(released_at=now)
    attached: dict[int, Device] = {}
    waits = ""
    for item in lease.items.filter(released_at=None).select_related("device", "host_port"):
        thing, hanging = _state_of(item, lease)
        if thing is None:
            item.released_at = now
            item.save(update_fields=["released_at"])
        elif thing.chassis_id not in known:
            waits = waits or f"{thing.chassis.name} is not answering."
        elif hanging:
            attached |= {device.pk: device for device in hanging}
        elif why := _why_not_yet(thing, known[thing.chassis_id]):
            waits = waits or why
        else:
            change_hands([thing], {thing.pk: None}, by=SITE_NAME)
    return Left(tuple(attached.values()), waits)


def _state_of(item: LeaseItem, lease: Lease) -> tuple[Device | HostPort | None, Sequence[Device]]:
    """Return the row behind an item, None where it is the tenant's no more; and what has to be detached."""
    if item.device_id is not None:
        device: Device | None = (
            Device.objects.select_related("tenant", "chassis", "slot__drawer")
            .filter(pk=item.device_id, tenant=lease.tenant_id)
            .first()
        )
        return device, (device,) if device is not None and device.host_port_id is not None else ()
    port: HostPort | None = (
        HostPort.objects.select_related("tenant", "chassis")
        .filter(pk=item.host_port_id, tenant=lease.tenant_id)
        .first()
    )
    if port is None:
        return None, ()
    # What is not the tenant's stays as it is: whoever attached it there decides.
    own = Device.objects.filter(tenant=lease.tenant_id, host_port=port, missing_since=None)
    return port, tuple(own.select_related("chassis"))


def _why_not_yet(thing: Device | HostPort, known: datetime) -> str:
    """Return why what is attached nowhere may be soon, or be by now, '' where that is certain."""
    name = thing.name if isinstance(thing, Device) else f"Host port {thing.label}"
    about = Q(device=thing) if isinstance(thing, Device) else Q(source=thing) | Q(target=thing)
    if is_busy(thing):
        return f"An operation on {name} has not ended."
    # Ended since the chassis was asked: but for a detach that is done, it may have attached what was looked at before.
    ended = Operation.objects.filter(about, finished_at__gte=known)
    if ended.exclude(state=Operation.State.DONE, target=None).exists():
        return f"An operation on {name} has just ended: what came of it is read first."
    return ""


def _detach(lease: Lease, left: Left) -> None:
    """Let the lease's plan go on, or make one, unless it runs or was tried a moment ago."""
    plan, now = lease.plan, timezone.now()
    if plan is not None and plan.is_active:
        return
    failed = plan is not None and plan.state != Plan.State.DONE
    trouble = left.waits or (plan.sentence if failed and plan is not None else "")
    if left.attached and _is_due(lease, failed=failed):
        lease.tries, lease.tried_at = lease.tries + 1, now
        try:
            # What is half made when it turns out to be impossible is taken back, the lease's own row is not.
            with together():
                lease.plan = _plan(lease, left.attached)
            trouble = left.waits
        except FalconWebError as error:
            trouble = error.sentence
    if trouble and lease.tries == 0:
        lease.tries, lease.tried_at = 1, now
    lease.trouble = trouble
    lease.save(update_fields=["plan", "tries", "tried_at", "trouble"])
    if trouble and (lease.tries >= TELL_AFTER or (lease.tried_at and now - lease.tried_at > timedelta(minutes=2))):
        lease_letters.stuck(lease)


def _plan(lease: Lease, attached: Sequence[Device]) -> Plan | None:
    """Return the plan that detaches these devices, on its way; the former one where none is left to be detached."""
    plan = lease.plan
    # Those of the former plan and of the next one at once: one after the other they could be taken in another order.
    former = plan.operations.values_list("chassis", flat=True) if plan is not None else ()
    lock_chassis({device.chassis_id for device in attached}.union(former))
    # What was detached or swapped until now is not the lease's to detach.
    held = Device.objects.filter(pk__in=[one.pk for one in attached], tenant=lease.tenant_id, host_port__isnull=False)
    where = dict(held.values_list("pk", "host_port"))
    if not where:
        return plan
    if plan is not None and plan.state == Plan.State.STOPPED:
        before = wanted_of_base(plan.base).attachments
        wanted = Wanted.from_json(plan.wanted).attachments
        if all(pk in wanted and before.get(pk) == port for pk, port in where.items()):
            return plan_resume(person=None, plan=plan)
        # Something was attached elsewhere since: that is another plan.
        plan_cancel(person=None, plan=plan)
    fresh = plan_create(
        person=None,
        wanted=Wanted(attachments=dict.fromkeys(where)),
        title=f"Return lease {lease.pk} of {lease.tenant_name}",
        origin="lease",
    )
    return plan_apply(person=None, plan=fresh)


def _is_due(lease: Lease, *, failed: bool) -> bool:
    """Tell whether it is time for the next try: at once after success, ever later after failures."""
    if lease.tried_at is None or (lease.plan_id is not None and not failed):
        return True
    pause = min(FIRST_PAUSE * 2 ** min(lease.tries - 1, 10), LONGEST_PAUSE)
    since = (timezone.now() - lease.tried_at).total_seconds()
    # A clock that was set back must not mean to wait for years.
    return since >= pause * 0.9 or since < 0
