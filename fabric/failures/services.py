"""What is done about failures: noticed by walks, proposed and replaced after the policy of the device's tenant."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.dispatch import receiver
from django.utils import timezone

from accounts.access import SITE_NAME, actor_name, require_composer
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.services import Target, audited, target_of
from accounts.models import Tenant, User
from core.database import lock_rows
from core.errors import Conflict, FalconWebError, Forbidden
from core.language import _, english, gettext_noop
from fabric.failures.models import Failure, FailurePolicy
from fabric.failures.selectors import (
    desired_replacement,
    failure_cause,
    policy_choice,
    replacement_proposal,
    serving_port,
    spares_of,
    suspect_devices,
)
from fabric.inventory.labels import part_name
from fabric.inventory.locks import lock_chassis, lock_parts, lock_tenants
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.ownership import items_add, ownership_change, timeline_add
from fabric.operations.models import Operation, Plan
from fabric.operations.services import check_not_held
from fabric.plans.services import plan_apply, plan_create
from fabric.signals import inventory_changed, walk_mirrored

logger = logging.getLogger(__name__)
State, End = Failure.State, Failure.End
# A failure that a walk shows is acted upon when it has lasted so long: links train, and BMCs start again.
CONFIRMED_AFTER: Final = timedelta(seconds=60)
MAX_PAUSE: Final = timedelta(hours=1)  # between attempts of the site that are refused
MAX_ENDED: Final = 100  # of a device, that are kept
ORIGIN: Final = "failure"
UNDECIDED: Final = (State.NOTICED, State.PROPOSED)
NO_SPARE: Final = gettext_noop("No device of its model is free, healthy and permitted by the rules of its drawer.")
OF_THE_HOST: Final = gettext_noop("Its host has failed: another device would not help.")


@receiver(walk_mirrored)
def failures_notice(*, chassis: Chassis, **kwargs: Any) -> None:
    """Notice the attached devices of a walked chassis that have failed, and end what is over; devices at work wait."""
    known = {one.device_id: one for one in Failure.objects.open().filter(chassis=chassis).order_by()}
    # Their ids alone first: most walks find none, and all that is asked of them takes longer to ask for than they do.
    found = Device.objects.filter(suspect_devices() | Q(pk__in=known), chassis=chassis).order_by()
    if not (suspects := list(found.values_list("pk", flat=True))):
        return
    rows = Device.objects.filter(pk__in=suspects).select_related(
        "chassis", "slot__drawer", "slot__port__switch", "host_port__host", "approved_host_port__host", "tenant"
    )
    busy = set(Operation.objects.open().filter(chassis=chassis).values_list("device", flat=True))
    # What is gone cannot be detached: it would be replaced again and again.
    replaced = Failure.objects.filter(chassis=chassis, end=End.REPLACED, device__missing_since__lte=F("ended_at"))
    busy |= set(replaced.filter(host_port=F("device__approved_host_port")).values_list("device", flat=True))
    for device in rows.order_by("pk"):
        cause, failure = failure_cause(device), known.get(device.pk)
        if device.pk in busy or (failure is not None and failure.state == State.REPLACING):
            continue
        port = serving_port(device)
        if failure is not None and (end := _end_of(failure, device, port, cause)) is not None:
            _end(failure, end)
            failure = None
        if cause is None or port is None:
            continue
        if failure is None:
            _begin(device, port, cause)
        elif failure.cause != cause:
            if failure.cause == Failure.Cause.HOST:
                failure.noticed_at = timezone.now()  # of the device, link or switch only now
            failure.cause = cause
            failure.save(update_fields=["cause", "noticed_at"])
            _reconsider(Failure.objects.filter(pk=failure.pk))


def _end_of(failure: Failure, device: Device, port: HostPort | None, cause: Failure.Cause | None) -> Failure.End | None:
    """Return how a failure has ended; None where it lasts."""
    if port is None or port.pk != failure.host_port_id:
        return End.DETACHED
    if device.tenant_id != failure.tenant_id:
        return End.REASSIGNED
    return End.RECOVERED if cause is None else None


def _begin(device: Device, port: HostPort, cause: Failure.Cause) -> None:
    Failure.objects.create(
        chassis=device.chassis,
        device=device,
        host_port=port,
        tenant=device.tenant,
        cause=cause,
        device_name=part_name(device),
        host_name=port.host.name if port.host is not None else "",
        noticed_at=timezone.now(),
    )


def _end(failure: Failure, end: Failure.End) -> None:
    failure.state, failure.end, failure.ended_at = State.ENDED, end, timezone.now()
    if end != End.REPLACED:  # what was proposed has replaced nothing
        failure.spare, failure.spare_name = None, ""
    failure.save(update_fields=["state", "end", "ended_at", "spare", "spare_name"])
    # A link may come and go for months.
    ended = Failure.objects.filter(device=failure.device_id, state=State.ENDED).order_by("-noticed_at", "-pk")
    Failure.objects.filter(pk__in=[one.pk for one in ended[MAX_ENDED:]]).delete()


def _reconsider(failures: QuerySet[Failure]) -> None:
    """Have the policy decide again about open failures that it has kept, and try again what was refused."""
    kept = failures.filter(state=State.KEPT, decided_by=None, decided_by_name=SITE_NAME, plan=None)
    kept.exclude(cause=Failure.Cause.HOST).update(state=State.NOTICED, decided_by_name="", why="")
    failures.filter(state__in=UNDECIDED).update(tried_at=None)


def failures_process() -> None:
    """Act on failures that have lasted, and conclude replacements; a problem with one does not stop the others."""
    for failure in {one.chassis_id: one for one in Failure.objects.reassigned()}.values():
        _safely(_notice_reassigned, failure)
    undecided = Failure.objects.filter(state__in=UNDECIDED)
    # A walk has shown them after that time, too: of a BMC that does not answer nothing is known.
    lasting = undecided.filter(chassis__inventory_at__gte=F("noticed_at") + CONFIRMED_AFTER)
    for failure in lasting.order_by("pk"):
        _safely(_act, failure)
    replaced = Failure.objects.filter(state=State.REPLACING, plan__state__in=Plan.FINAL)
    for failure in replaced.order_by("pk"):
        _safely(_conclude, failure)


def _notice_reassigned(failure: Failure) -> None:
    with transaction.atomic():
        for locked in lock_chassis([failure.chassis_id]):
            failures_notice(chassis=locked)


def _safely(step: Any, failure: Failure) -> None:
    try:
        step(failure)
    except FalconWebError as error:
        logger.info("failure %s: %s", failure.pk, english(error.sentence))
        Failure.objects.filter(pk=failure.pk).update(why=english(error.sentence)[:500])
    except Exception:
        logger.exception("failure %s", failure.pk)


def _act(failure: Failure) -> None:
    """Do what the policy says: nothing, propose, or replace."""
    choice = policy_choice(failure.tenant_id)
    if failure.cause == Failure.Cause.HOST or choice == FailurePolicy.Choice.KEEP:
        why = OF_THE_HOST if failure.cause == Failure.Cause.HOST else ""
        # A person may have decided meanwhile.
        undecided = Failure.objects.filter(pk=failure.pk, state__in=UNDECIDED)
        undecided.update(state=State.KEPT, why=why, decided_by_name=SITE_NAME)
        return
    spares = spares_of(failure)
    if choice == FailurePolicy.Choice.REPLACE and spares:
        if _is_due(failure):
            Failure.objects.filter(pk=failure.pk).update(tried_at=timezone.now())
            failure_replace(person=None, failure=failure, spare=spares[0].pk)
        return
    _propose(failure, spares[0] if spares else None)


def _is_due(failure: Failure) -> bool:
    """Return whether the site may try to replace a device: ever more rarely, for each refusal is in the audit log."""
    tried = failure.tried_at
    if tried is None:
        return True
    pause = min(max(tried - failure.noticed_at, CONFIRMED_AFTER), MAX_PAUSE)
    return timezone.now() >= tried + pause


def _propose(failure: Failure, spare: Device | None) -> None:
    wanted = State.PROPOSED if spare is not None else State.NOTICED
    if (failure.state, failure.spare_id) == (wanted, spare.pk if spare else None) and failure.why == (
        "" if spare else NO_SPARE
    ):
        return
    values = {"spare_name": part_name(spare) if spare else "", "why": "" if spare else NO_SPARE}
    # A person may have decided meanwhile.
    undecided = Failure.objects.filter(pk=failure.pk, state__in=UNDECIDED)
    if undecided.update(state=wanted, spare=spare, **values):
        transaction.on_commit(lambda: inventory_changed.send(Chassis, chassis_id=failure.chassis_id), robust=True)


@two_people(replacement_proposal)
def failure_replace(*, person: User | None, failure: Failure, spare: int | None = None) -> Failure:
    """Replace a failed device by a spare (id; None: the proposed one) in a plan that starts at once.

    `person` consents; None is the site itself, where the policy has the consent. A spare that nobody holds becomes the
    tenant's, in the lease that has the failed device, which goes back to the pool once it is replaced. Raises Conflict
    where the failure has ended, is being replaced, the device has another tenant by now or the spare is taken, and as
    `plan_create` and `plan_apply` do: nothing is changed then.
    """
    with audited(Action.FAILURE_REPLACE, actor=person, target=target_of(failure, failure.device_name)) as act:
        lock_tenants()
        lock_chassis([failure.chassis_id])
        row = _lock(failure)
        _check_open(person, row)
        wanted = spare if spare is not None else row.spare_id
        lock_parts(devices=[row.device_id, wanted], host_ports=[row.host_port_id])
        chosen = next((one for one in spares_of(row) if one.pk == wanted), None)
        if person is None:
            check_not_held([row.device])  # plans of the site itself would ignore that
        if chosen is None:
            raise Conflict(_("That device is no longer free for it. Reload, then choose another one."))
        row.from_pool = chosen.tenant_id is None and row.tenant is not None
        if row.from_pool and row.tenant is not None:
            _take_from_pool(row, chosen, row.tenant, by=actor_name(person))
        plan = plan_create(
            person=person, desired=desired_replacement(row, chosen), title=f"Replace {row.device_name}", origin=ORIGIN
        )
        row.plan = plan_apply(person=person, plan=plan, on_failure="roll_back")
        row.state, row.spare, row.spare_name, row.why = State.REPLACING, chosen, part_name(chosen), ""
        row.decided_by, row.decided_by_name = person, actor_name(person)
        row.save()
        act.after = {"spare": row.spare_name, "plan": str(plan.pk)}
    return row


def _take_from_pool(failure: Failure, spare: Device, tenant: Tenant, *, by: str) -> None:
    """Let the tenant hold the spare, in the lease of the failed device where it is in one."""
    item = LeaseItem.objects.filter(device=failure.device_id, released_at=None, lease__state=Lease.State.ACTIVE).first()
    lease = item.lease if item is not None else None
    if lease is not None:
        items_add(lease, [spare])
        timeline_add(lease, by, f"{part_name(spare)} replaces {failure.device_name}, which has failed.")
    ownership_change([spare], {spare.pk: tenant}, by=by, lease=lease)


def failure_keep(*, person: User, failure: Failure) -> Failure:
    """Keep a failed device attached as it is: nothing is proposed any more. Raises Conflict where it has ended."""
    with audited(Action.FAILURE_KEEP, actor=person, target=target_of(failure, failure.device_name)):
        lock_chassis([failure.chassis_id])
        row = _lock(failure)
        _check_open(person, row)
        row.state, row.decided_by, row.decided_by_name = State.KEPT, person, person.get_username()
        row.save(update_fields=["state", "decided_by", "decided_by_name"])
    return row


def failure_policy_set(*, person: User, tenant: Tenant | None, choice: str) -> FailurePolicy:
    """Set what is done when a device of a tenant (None: of nobody) fails: administrators, and the tenant itself.

    It is consent given before, or the lack of it; it counts for what is noticed already, too.
    """
    target = target_of(tenant) if tenant is not None else Target(kind="tenant")
    with audited(Action.FAILURE_POLICY, actor=person, target=target) as act:
        require_composer(person)
        if not person.is_administrator and (tenant is None or tenant.pk != person.tenant_id):
            raise Forbidden(_("You may set this for your own tenant only."))
        lock_tenants(tenant)
        act.before = {"choice": policy_choice(tenant.pk if tenant else None).value}
        values = {"choice": FailurePolicy.Choice(choice), "set_by_name": person.get_username()}
        row, _created = FailurePolicy.objects.update_or_create(tenant=tenant, defaults=values)
        _reconsider(Failure.objects.open().filter(tenant=tenant))
        act.after = {"choice": row.choice}
    return row


def _lock(failure: Failure) -> Failure:
    rows = Failure.objects.select_related("device__slot", "host_port", "tenant", "chassis")
    row: Failure = lock_rows(rows.filter(pk=failure.pk)).get()
    return row


def _check_open(person: User | None, failure: Failure) -> None:
    """Raise Conflict where a failure waits for no decision, or the site (None) may no longer decide."""
    if person is not None:
        require_composer(person)
    elif failure.state not in UNDECIDED or policy_choice(failure.tenant_id) != FailurePolicy.Choice.REPLACE:
        raise Conflict(_("Somebody has decided otherwise meanwhile."))
    if failure.state in {State.ENDED, State.REPLACING}:
        raise Conflict(_("That has ended, or is being replaced already. Reload the page."))
    if failure.device.tenant_id != failure.tenant_id:
        raise Conflict(_("The tenant of the device has changed. Reload the page."))


def _conclude(failure: Failure) -> None:
    """End a replacement whose plan has ended: what is no longer used goes back to the pool that the spare was from."""
    with transaction.atomic():
        lock_tenants()
        lock_chassis([failure.chassis_id])
        row = _lock(failure)
        plan = row.plan
        if row.state != State.REPLACING or plan is None or not plan.is_final:
            return
        lock_parts(devices=[row.device_id, row.spare_id])
        is_done = plan.state == Plan.State.DONE
        freed = row.device if is_done else row.spare
        if row.from_pool and freed is not None and freed.tenant_id == row.tenant_id and freed.host_port_id is None:
            freed = Device.objects.select_related("tenant", "chassis", "slot__drawer").get(pk=freed.pk)
            ownership_change([freed], {freed.pk: None}, by=SITE_NAME)
        if is_done:
            _end(row, End.REPLACED)
        else:
            row.state, row.why = State.KEPT, (plan.sentence or gettext_noop("The plan did not get to its end."))[:500]
            row.save(update_fields=["state", "why"])
