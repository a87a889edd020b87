"""Failures as a person may see them, the policies, and the devices that could replace a failed one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Prefetch, Q

from accounts.approvals.services import Proposal
from accounts.audit.services import target_of
from accounts.models import Tenant, User
from accounts.visibility import row_or_404
from core.database import natural
from core.language import _, gettext_noop
from fabric.failures.models import Failure, FailurePolicy
from fabric.inventory.labels import part_name
from fabric.inventory.models import Device, HostPort
from fabric.leases.ownership import booked_items
from fabric.leases.rules import TimeSpan
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import projected_drawers
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import desired_dangers
from fabric.plans.services import involved_drawers, steps_plan
from fabric.topology.problems import BAD_HEALTH, DOWN_STATES, Problem, ProblemLevel

Cause, Choice = Failure.Cause, FailurePolicy.Choice
PROPOSED = gettext_noop("replacement proposed")
CSV_COLUMNS: Final = (
    gettext_noop("Device"), gettext_noop("What failed"), gettext_noop("Chassis"), gettext_noop("Host"),
    gettext_noop("Tenant"), gettext_noop("Noticed"), gettext_noop("State"), gettext_noop("Replacement"),
    gettext_noop("Decided by"), gettext_noop("Ended"), gettext_noop("End"), gettext_noop("Why not replaced"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TenantPolicy:
    """The policy of a tenant, or of parts that nobody holds (None), and whether the person may set it."""

    tenant: Tenant | None
    choice: FailurePolicy.Choice
    set_by_name: str = ""
    set_at: datetime | None = None

    @property
    def name(self) -> str:
        """The name of the tenant, in words where there is none."""
        return self.tenant.name if self.tenant is not None else _("no tenant (unassigned)")


def failure_rows(person: User, *, ended: bool | None = None) -> Failure.FailureQuerySet:
    """Return the failures that a person may see, newest first: those that have `ended`, or have not; None for all.

    Each has its plan where they may see that too.
    """
    rows: Failure.FailureQuerySet = Failure.objects.visible_to(person).select_related("chassis", "tenant")
    rows = rows.prefetch_related(Prefetch("plan", Plan.objects.visible_to(person)))
    if ended is None:
        return rows
    return rows.filter(state=Failure.State.ENDED) if ended else rows.open()


def failure_cells(row: Failure) -> tuple[object, ...]:
    """Return the cells of a file, in the order of CSV_COLUMNS; times ISO 8601 in UTC."""
    return (
        row.device_name, row.cause, row.chassis.name, row.host_name, row.tenant.name if row.tenant is not None else "",
        row.noticed_at.isoformat(timespec="seconds"), row.state, row.spare_name, row.decided_by_name,
        row.ended_at.isoformat(timespec="seconds") if row.ended_at is not None else "", row.end, row.why,
    )  # fmt: skip


def failure_get(person: User, pk: int) -> Failure:
    """Return a failure; raises NotFound for one that the person may not see."""
    row: Failure = row_or_404(failure_rows(person), pk, "failure")
    return row


def tenant_get(person: User, pk: object) -> Tenant:
    """Return a tenant whose policy the person may set: any for administrators; raises NotFound for others."""
    rows = Tenant.objects.all() if person.is_administrator else Tenant.objects.filter(pk=person.tenant_id or 0)
    row: Tenant = row_or_404(rows, pk, "tenant")
    return row


def policy_choice(tenant_id: int | None) -> FailurePolicy.Choice:
    """Return what is done when a device of a tenant (None: of nobody) fails."""
    known = FailurePolicy.objects.filter(tenant=tenant_id).values_list("choice", flat=True).first()
    return Choice(known) if known is not None else Choice.ASK


def settable_policies(person: User) -> list[TenantPolicy]:
    """Return the policies that a person may set: those of all for administrators, that of the own tenant for users."""
    if not person.may_compose:
        return []
    tenants: list[Tenant | None] = [None, *Tenant.objects.order_by(natural("name"))]
    if not person.is_administrator:
        tenants = [person.tenant] if person.tenant is not None else []
    known = {row.tenant_id: row for row in FailurePolicy.objects.all()}
    return [_policy(tenant, known.get(tenant.pk if tenant is not None else None)) for tenant in tenants]


def _policy(tenant: Tenant | None, row: FailurePolicy | None) -> TenantPolicy:
    if row is None:
        return TenantPolicy(tenant=tenant, choice=Choice.ASK)
    choice = Choice(row.choice)
    return TenantPolicy(tenant=tenant, choice=choice, set_by_name=row.set_by_name, set_at=row.set_at)


def serving_port(device: Device) -> HostPort | None:
    """Return the host port that a device serves, or served before its chassis reported it no more."""
    return device.host_port if device.missing_since is None else device.approved_host_port


def suspect_devices() -> Q:
    """Return a condition that every failed device in use meets: thousands of healthy ones take long to read."""
    behind = Q(slot__port__link_status__in=DOWN_STATES) | Q(slot__port__switch__health="Critical")
    attached = Q(host_port__isnull=False) & (Q(health="Critical") | behind | Q(host_port__host__health="Critical"))
    return attached | Q(missing_since__isnull=False, approved_host_port__isnull=False)


def failure_cause(device: Device) -> Failure.Cause | None:
    """Return what has failed of an attached device, None where nothing has.

    A missing link status, or a health that a BMC does not tell, is no failure.
    """
    port, serves = device.slot.port if device.slot is not None else None, serving_port(device)
    if serves is None:
        return None
    if device.missing_since is not None or device.health == "Critical":
        return Cause.DEVICE
    if port is not None and port.switch is not None and port.switch.health == "Critical":
        return Cause.SWITCH
    if port is not None and port.link_status in DOWN_STATES:
        return Cause.LINK
    if serves.host is not None and serves.host.health == "Critical":
        return Cause.HOST
    return None


def spares_of(failure: Failure) -> list[Device]:
    """Return the devices that could replace a failed one, best first.

    They are of its model, in the same chassis, well, attached to no host, promised to nobody, and of the failure's
    tenant or of nobody; the rules of their drawers permit them. Those of the tenant come first, then those of the
    same drawer.
    """
    ports = _host_ports(failure)
    failed = failure.device
    rows = (
        Device.objects.filter(chassis=failure.chassis_id, name=failed.name, kind=failed.kind)
        .filter(missing_since=None, host_port=None, slot__drawer__in=[key for key in ports if key is not None])
        .filter(Q(tenant=failure.tenant_id) | Q(tenant=None))
        .exclude(pk=failed.pk)
        .exclude(health__in=BAD_HEALTH)
        .exclude(slot__port__switch__health="Critical")
        .exclude(endpoint_uri="")
        .exclude(pk__in=Operation.objects.open().filter(device__isnull=False).values("device"))
        .exclude(failures__in=Failure.objects.open())
        .select_related("chassis", "slot__drawer", "tenant")
    )
    span = TimeSpan(failure.noticed_at, None)
    promised = {item.device_id for item in booked_items(list(rows), span) if item.lease.tenant_id != failure.tenant_id}
    own = failed.slot.drawer_id if failed.slot is not None else None
    found = sorted(
        (one for one in rows if one.pk not in promised),
        key=lambda one: (
            one.tenant_id != failure.tenant_id,
            one.slot is None or one.slot.drawer_id != own,
            one.slot.number if one.slot is not None else 0,
            one.pk,
        ),
    )
    if not found:
        return []
    drawers = projected_drawers({failure.chassis_id})

    def is_possible(spare: Device) -> bool:
        desired = _desired(failure, spare, ports)
        planned = steps_plan(involved_drawers(drawers, desired), desired)
        return not planned.objections and {step.device for step in planned.steps} <= {spare.pk, failure.device_id}

    return [one for one in found if is_possible(one)]


def _host_ports(failure: Failure) -> dict[int | None, HostPort]:
    """Return the host port for a spare of each drawer: the failed device's own, else another one of its host."""
    port = failure.host_port
    rows = HostPort.objects.filter(chassis=failure.chassis_id, missing_since=None).filter(
        Q(pk=port.pk) | Q(host__isnull=False, host=port.host_id, tenant=port.tenant_id)
    )
    return {row.drawer_id: row for row in sorted(rows, key=lambda row: (row.pk == port.pk, -row.number))}


def desired_replacement(failure: Failure, spare: Device) -> DesiredState:
    """Return the state in which the spare is attached to the host in place of the failed device.

    A device that the chassis no longer reports cannot be detached: its place in the zone stays as it is.
    """
    return _desired(failure, spare, _host_ports(failure))


def _desired(failure: Failure, spare: Device, ports: Mapping[int | None, HostPort]) -> DesiredState:
    drawer = spare.slot.drawer_id if spare.slot is not None else None
    attachments: dict[int, int | None] = {spare.pk: ports[drawer].pk}
    if failure.device.missing_since is None and failure.device.host_port_id is not None:
        attachments[failure.device_id] = None
    return DesiredState(attachments=attachments)


def replacement_proposal(*, person: User, failure: Failure, spare: int | None = None) -> Proposal:
    """Return what the replacement of a failed device by a spare (id; None: the proposed one) would do."""
    wanted = spare if spare is not None else failure.spare_id
    chosen = next((one for one in spares_of(failure) if one.pk == wanted), None)
    desired = desired_replacement(failure, chosen) if chosen is not None else DesiredState()
    name = part_name(chosen) if chosen is not None else ""
    return Proposal(
        dangers=desired_dangers(person, desired),
        target=target_of(failure, failure.device_name),
        sentence=f"Replace {failure.device_name}, which has failed, by {name}.",
        facts={"state": failure.state, "changes by id": desired.as_json()},
    )


def failure_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    """Yield the replacements that wait for consent; that a device has failed is a problem of its own."""
    rows = Failure.objects.visible_to(person).filter(state=Failure.State.PROPOSED)
    if chassis_ids is not None:
        rows = rows.filter(chassis__in=chassis_ids)
    for row in rows:
        yield Problem(
            level=ProblemLevel.WARNING, word=PROPOSED, page="fabric:failure", pk=row.pk,
            sentence=_("{device} could be replaced by {spare}.", device=row.device_name, spare=row.spare_name),
            about=("device", row.device_id), chassis_id=row.chassis_id,
        )  # fmt: skip
