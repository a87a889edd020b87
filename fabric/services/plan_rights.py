"""Whose a wanted allocation is to have: the rows that it names, and what stands against the person who wants it."""

from __future__ import annotations

from typing import Final

from accounts.models import Tenant, User
from fabric.models import Device, Drawer, Host, HostPort, Plan, Port, Slot
from fabric.permissions import drawers_changeable, may_move_cable, ports_configurable, refuse_onlooker, why_returning
from fabric.planning import Planned, Wanted, port_types
from fabric.services.plan_words import Parts, rows_seen
from fabric.services.wording import monitored_only, without_endpoint
from falconweb.errors import Conflict, Forbidden, Invalid, NotFound

MOST_CHANGES: Final = 2000


def parts_of(person: User | None, wanted: Wanted) -> Parts:
    """Return the rows that are wanted to change; raises NotFound for one that the person may not see, Invalid."""
    sizes = (wanted.attachments, wanted.modes, wanted.cables, wanted.settings)
    if sum(len(one) for one in sizes) > MOST_CHANGES:
        raise Invalid(f"A plan can change at most {MOST_CHANGES} things at once.")
    ports = set(wanted.cables) | {port for port in wanted.attachments.values() if port is not None}
    hosts = {host for host in wanted.cables.values() if host is not None}
    found = Parts(
        devices=rows_seen(Device.objects.select_related("chassis", "slot__drawer"), person, set(wanted.attachments)),
        host_ports=rows_seen(HostPort.objects.select_related("chassis"), person, ports),
        drawers=rows_seen(Drawer.objects.select_related("chassis"), person, set(wanted.modes)),
        ports=rows_seen(Port.objects.select_related("chassis"), person, set(wanted.settings)),
        hosts=rows_seen(Host.objects.all(), person, hosts),
    )
    asked = {
        "device": set(wanted.attachments), "host port": ports, "drawer": set(wanted.modes),
        "port": set(wanted.settings), "host": hosts,
    }  # fmt: skip
    for (what, pks), rows in zip(
        asked.items(), (found.devices, found.host_ports, found.drawers, found.ports, found.hosts), strict=True
    ):
        if missing := sorted(pks - set(rows)):
            raise NotFound(f"There is no {what} {missing[0]}.")
    return found


def refuse_forbidden(person: User | None, wanted: Wanted, parts: Parts) -> None:
    """Raise Forbidden for what is not the person's to change, Conflict or Invalid for what nobody can."""
    _refuse_impossible(parts)
    _refuse_wrong_types(wanted, parts)
    if person is None:
        return
    refuse_onlooker(person, "attach or detach")
    held = {device.host_port_id: device for device in parts.devices.values() if device.host_port_id is not None}
    unseen = set(held) - set(HostPort.objects.visible_to(person).filter(pk__in=held).values_list("pk", flat=True))
    if unseen:
        raise Forbidden(f"{held[min(unseen)].name} is attached to a host port that is not granted to your tenant.")
    attached = {pk: port for pk, port in wanted.attachments.items() if port is not None}
    if reason := why_returning(person, list(attached), list(attached.values())):
        raise Conflict(reason)
    if others := set(parts.drawers) - drawers_changeable(person, parts.drawers):
        drawer = parts.drawers[min(others)]
        raise Forbidden(
            f"The mode of {drawer.chassis.name} {drawer.name} is an administrator's to change, or that of a tenant "
            "that holds all of the drawer."
        )
    if others := set(parts.ports) - ports_configurable(person, parts.ports):
        raise Forbidden(f"{parts.ports[min(others)].name} is not yours to configure.")
    if wanted.cables and not may_move_cable(person):
        raise Forbidden("Only an administrator may have a cable moved.")


def refuse_others(tenant: Tenant | None, planned: Planned) -> None:
    """Raise Forbidden where a tenant's plan would touch a device of others, such as one that is in the way.

    All people of the tenant read its plans, whoever made, changed or applied them: nothing in them names such a device.
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
        raise Forbidden(f"It would touch something that is not granted to {tenant.name}, whose plan it is.")


def _refuse_impossible(parts: Parts) -> None:
    for device in parts.devices.values():
        if not device.endpoint_uri:
            raise Conflict(without_endpoint(device))
    for row in (*parts.devices.values(), *parts.drawers.values(), *parts.ports.values(), *parts.host_ports.values()):
        if row.missing_since is not None:
            raise Conflict(f"{row.name} of {row.chassis.name} is missing: the chassis no longer reports it.")
        if not row.chassis.is_composable:
            raise Conflict(monitored_only(row.chassis))


def _refuse_wrong_types(wanted: Wanted, parts: Parts) -> None:
    """Raise Invalid for a type that the BMC would refuse: by then the devices behind the port are taken out."""
    typed = {pk: setting.port_type for pk, setting in wanted.settings.items() if setting.port_type}
    of_hosts = set(HostPort.objects.filter(port__in=typed).values_list("port", flat=True))
    of_slots = set(Slot.objects.filter(port__in=typed).values_list("port", flat=True))
    for pk in sorted((of_hosts | of_slots) & set(typed)):
        port, types = parts.ports[pk], port_types(of_host=pk in of_hosts)
        # What it was once is what its BMC has taken: so it can be again.
        if typed[pk] not in {*types, port.port_type, port.approved_type}:
            leads = "a host" if pk in of_hosts else "a slot"
            raise Invalid(
                f"{port.name} of {port.chassis.name} leads to {leads}: it can be {' or '.join(types)}, "
                f"not {typed[pk]}.",
                errors={"port_settings": f"port_id {pk} can be {' or '.join(types)}."},
            )


def refuse_stranger(person: User | None, plan: Plan) -> None:
    """Raise NotFound or Forbidden unless the plan is the person's own, their tenant's, or they administer the site."""
    if person is None:
        return
    if not Plan.objects.visible_to(person).filter(pk=plan.pk).exists():
        raise NotFound("There is no such plan.")
    refuse_onlooker(person)
