"""Permissions of a plan: the rows that its desired state names, and why the user may not change them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from accounts.access import require_composer
from accounts.models import Tenant, User
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.language import _, joined
from fabric.inventory.labels import monitored_only_reason, no_endpoint_reason
from fabric.inventory.models import Device, Drawer, Host, HostPort, Port, Slot
from fabric.inventory.selectors import drawers_changeable, may_move_cable, ports_configurable
from fabric.operations.models import Plan
from fabric.operations.rules import allowed_port_types
from fabric.operations.selectors import attachment_obstacle
from fabric.plans.rules import DesiredState, PlannedSteps
from fabric.plans.serialization import DesiredParts, visible_rows

MAX_CHANGES: Final = 2000


def desired_parts(person: User | None, desired: DesiredState) -> DesiredParts:
    """Return the rows that the desired state changes; raises NotFound for one that the user may not see, Invalid."""
    ports = set(desired.cables) | {port for port in desired.attachments.values() if port is not None}
    hosts = {host for host in desired.cables.values() if host is not None}
    if len(desired.attachments) + len(desired.modes) + len(desired.cables) + len(desired.settings) > MAX_CHANGES:
        raise Invalid(_("A plan can contain at most {count} changes.", count=MAX_CHANGES))

    def named(what: str, rows: Any, pks: Collection[int]) -> dict[int, Any]:
        found = visible_rows(rows, person, pks)
        if missing := sorted(set(pks) - set(found)):
            raise NotFound(_("There is no {kind} {id}.", kind=what, id=missing[0]))
        return found

    return DesiredParts(
        devices=named(_("device"), Device.objects.select_related("chassis", "slot__drawer"), set(desired.attachments)),
        host_ports=named(_("host port"), HostPort.objects.select_related("chassis"), ports),
        drawers=named(_("drawer"), Drawer.objects.select_related("chassis"), set(desired.modes)),
        ports=named(_("port"), Port.objects.select_related("chassis"), set(desired.settings)),
        hosts=named(_("host"), Host.objects.all(), hosts),
    )


def check_permitted(person: User | None, desired: DesiredState, parts: DesiredParts) -> None:
    """Raise Forbidden for changes that the user may not make, Conflict or Invalid for impossible ones."""
    _check_composable(parts)
    _check_port_types(desired, parts)
    if person is None:
        return
    require_composer(person, "attach or detach")
    held = {device.host_port_id: device for device in parts.devices.values() if device.host_port_id is not None}
    unseen = set(held) - set(HostPort.objects.visible_to(person).filter(pk__in=held).values_list("pk", flat=True))
    if unseen:
        device = held[min(unseen)].name
        raise Forbidden(_("{device} is attached to a host port that is not granted to your tenant.", device=device))
    attached = {pk: port for pk, port in desired.attachments.items() if port is not None}
    if reason := attachment_obstacle(person, list(attached), list(attached.values())):
        raise Conflict(reason)
    if others := set(parts.drawers) - drawers_changeable(person, parts.drawers):
        drawer = parts.drawers[min(others)]
        raise Forbidden(
            _(
                "The mode of {chassis} {drawer} can be changed only by an administrator, or by a tenant that all of "
                "the drawer is granted to.",
                chassis=drawer.chassis.name,
                drawer=drawer.name,
            )
        )
    if others := set(parts.ports) - ports_configurable(person, parts.ports):
        raise Forbidden(_("{port} is not yours to configure.", port=parts.ports[min(others)].name))
    if desired.cables and not may_move_cable(person):
        raise Forbidden(_("Only an administrator may change a cable."))


def check_no_foreign_parts(tenant: Tenant | None, planned: PlannedSteps) -> None:
    """Raise Forbidden where a tenant's plan would touch a device of others, such as one that blocks a change.

    All members of the tenant read its plans, whoever made, changed or applied them, so no plan may name such a device.
    """
    if tenant is None:
        return
    named = [step.device for step in planned.steps] + [one.device for one in planned.objections]
    devices = [device for device in named if device is not None]
    hosts = {step.host for step in planned.steps if step.host is not None}
    if (
        Device.objects.filter(pk__in=devices).exclude(tenant=tenant).exists()
        or Host.objects.filter(pk__in=hosts).exclude(host_ports__tenant=tenant).exists()
    ):
        raise Forbidden(
            _("It would touch something that is not granted to {tenant}, whose plan it is.", tenant=tenant.name)
        )


def _check_composable(parts: DesiredParts) -> None:
    for device in parts.devices.values():
        if not device.endpoint_uri:
            raise Conflict(no_endpoint_reason(device))
    for row in (*parts.devices.values(), *parts.drawers.values(), *parts.ports.values(), *parts.host_ports.values()):
        if row.missing_since is not None:
            raise Conflict(
                _(
                    "{part} of {chassis} is missing: the chassis no longer reports it.",
                    part=row.name,
                    chassis=row.chassis.name,
                )
            )
        if not row.chassis.is_composable:
            raise Conflict(monitored_only_reason(row.chassis))


def _check_port_types(desired: DesiredState, parts: DesiredParts) -> None:
    """Raise Invalid for a type that the BMC would refuse, which it would do after the port's devices are detached."""
    typed = {pk: setting.port_type for pk, setting in desired.settings.items() if setting.port_type}
    of_hosts = set(HostPort.objects.filter(port__in=typed).values_list("port", flat=True))
    of_slots = set(Slot.objects.filter(port__in=typed).values_list("port", flat=True))
    for pk in sorted((of_hosts | of_slots) & set(typed)):
        port, types = parts.ports[pk], allowed_port_types(of_host=pk in of_hosts)
        # The BMC has accepted the port's initial type, so it accepts it again.
        if typed[pk] not in {*types, port.port_type, port.approved_type}:
            values = {
                "port": port.name,
                "chassis": port.chassis.name,
                "types": joined(types, _(" or ")),
                "type": typed[pk],
            }
            to_host = _("{port} of {chassis} leads to a host: it can be {types}, not {type}.", **values)
            to_slot = _("{port} of {chassis} leads to a slot: it can be {types}, not {type}.", **values)
            raise Invalid(
                to_host if pk in of_hosts else to_slot,
                errors={"port_settings": f"port_id {pk} can be {' or '.join(types)}."},
            )


def check_own_plan(person: User | None, plan: Plan) -> None:
    """Raise NotFound or Forbidden unless the plan is the user's or their tenant's, or they are an administrator."""
    if person is None:
        return
    if not Plan.objects.visible_to(person).filter(pk=plan.pk).exists():
        raise NotFound(_("There is no such plan."))
    require_composer(person)
