"""Finding how a chassis attaches devices by one write that is reverted: what would be written, and its request.

Only a device that belongs to nobody and is attached to no host is written, into a host port that belongs to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import msgspec
from django.db.models import Count

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import attempt, target_of
from accounts.models import User
from accounts.visibility import row_or_404
from core.errors import Conflict, FalconWebError, Invalid
from core.language import _
from fabric.bmc.dialects import host_port_zones
from fabric.bmc.types import Dialect, Inventory
from fabric.inventory.labels import dialect_label, slot_label
from fabric.inventory.locks import lock_chassis, lock_parts
from fabric.inventory.models import Chassis, Device, HostPort, Walk
from fabric.operations.models import Operation
from fabric.operations.projected_state import projected_drawer
from fabric.operations.rules import attachment_violation
from fabric.operations.services import check_not_held, operation_store

# Dialects that a service may have without showing it, so that only a write tells.
TRIABLE_DIALECTS = (Dialect.ZONE_PATCH, Dialect.CONNECTIONS)
# Pairs of a device and a host port that are looked at for a proposal: each takes several queries.
MAX_CHECKED_PAIRS = 24


@dataclass(frozen=True, kw_only=True)
class DialectTrial:
    """One write that would be reverted: the device is added to the zone of the host port by the dialect."""

    dialect: Dialect
    device: Device
    port: HostPort

    @property
    def label(self) -> str:
        """The dialect in words."""
        return dialect_label(self.dialect)

    @property
    def where(self) -> str:
        """The location of the device."""
        return slot_label(self.device)


def trial_obstacle(chassis: Chassis) -> str:
    """Return why no way to attach can be tried on a chassis, '' where it can."""
    if not chassis.enabled:
        return _("{name} is not polled: nothing is sent to it.", name=chassis.name)
    walk = Walk.objects.filter(chassis=chassis).first()
    if walk is None or chassis.inventory_at is None:
        return _("{name} has not answered yet.", name=chassis.name)
    if chassis.dialect_choice or walk.found.get("dialect", Dialect.NONE) != Dialect.NONE:
        return _("How {name} attaches devices is known or chosen: there is nothing to try.", name=chassis.name)
    return ""


def proposed_trial(chassis: Chassis) -> DialectTrial | None:
    """Return the write that touches the least, in the first way that was not tried; None where nothing is free."""
    tried = Operation.objects.filter(chassis=chassis, kind=Operation.Kind.TRIAL).values_list(
        "setting__dialect", flat=True
    )
    for dialect in sorted(TRIABLE_DIALECTS, key=lambda one: one in set(tried)):
        ports = HostPort.objects.filter(
            chassis=chassis, missing_since=None, tenant=None, uri__in=_uris_of(chassis, dialect)
        )
        # Without a cable no host sees the device come and go.
        in_order = sorted(
            ports.annotate(used=Count("devices")).select_related("host"),
            key=lambda port: (port.host_id is not None, port.used, port.pk),
        )
        devices = Device.objects.filter(chassis=chassis, missing_since=None, tenant=None, host_port=None)
        pairs = (
            (device, port)
            for device in devices.exclude(endpoint_uri="").select_related("slot__drawer")
            for port in in_order
            if device.slot is None or device.slot.drawer_id in {None, port.drawer_id}
        )
        for device, port in islice(pairs, MAX_CHECKED_PAIRS):
            if not _device_obstacle(device, port):
                return DialectTrial(dialect=dialect, device=device, port=port)
    return None


def _uris_of(chassis: Chassis, dialect: Dialect) -> set[str]:
    """Return the host ports that the last walk of a chassis has in a dialect: others are not written in it."""
    walk = Walk.objects.filter(chassis=chassis).first()
    if walk is None:
        return set()
    return {port.uri for port in host_port_zones(msgspec.convert(walk.found, Inventory), dialect)}


def _device_obstacle(device: Device, port: HostPort) -> str:
    """Return why a device may not be written into a host port's zone for a moment, '' where it may."""
    free = device.tenant_id is None and device.host_port_id is None and device.missing_since is None
    held = port.devices.filter(tenant__isnull=False).exists()  # what a tenant uses there is not put at risk
    if not free or held or port.tenant_id is not None or port.missing_since is not None:
        return _("{name} or host port {label} is not free.", name=device.name, label=port.label)
    if open_operation := Operation.objects.open().filter(device=device).first():
        return _("'{what}' has not ended: wait for it, or cancel it.", what=open_operation.summary)
    try:
        check_not_held([device])
    except FalconWebError as error:
        return error.sentence
    slot = device.slot
    if slot is None or slot.drawer is None:
        return ""
    if port.drawer_id != slot.drawer_id:
        return _("{name} and host port {label} are in different drawers.", name=device.name, label=port.label)
    return attachment_violation(projected_drawer(slot.drawer).state(), slot=slot.number, label=port.label)


def trial_request(*, person: User, chassis: Chassis, dialect: str, device: Device, port: HostPort) -> Operation:
    """Request a write that is reverted, to find whether a chassis attaches devices by a dialect.

    Raises Forbidden, Invalid for a dialect that needs no trial, and Conflict where device or host port belongs to
    somebody, is in use, or where the chassis is busy.
    """
    with attempt(Action.CHASSIS_TRIAL, actor=person, target=target_of(chassis)) as act:
        require_administrator(person)
        if dialect not in TRIABLE_DIALECTS:
            sentence = _("'{choice}' cannot be tried.", choice=dialect)
            raise Invalid(sentence, errors={"dialect": sentence})
        with act.change():
            lock_chassis([chassis.pk])
            row = Chassis.objects.get(pk=chassis.pk)
            if reason := trial_obstacle(row):
                raise Conflict(reason)
            lock_parts(devices=[device.pk], host_ports=[port.pk])
            device = row_or_404(Device.objects.select_related("slot__drawer").filter(chassis=row), device.pk, "device")
            port = row_or_404(HostPort.objects.select_related("host").filter(chassis=row), port.pk, "host port")
            if port.uri not in _uris_of(row, Dialect(dialect)):
                raise Conflict(_("Host port {label} cannot be written in this way.", label=port.label))
            if reason := _device_obstacle(device, port):
                raise Conflict(reason)
            operation = operation_store(
                person, Operation.Kind.TRIAL, "", "", chassis=row, device=device, device_identity=device.identity,
                drawer=device.slot.drawer if device.slot else None, target=port, setting={"dialect": dialect},
                summary=f"Try a way to attach on {row.name}: attach {device.name} to {port.label} and detach it"[:300],
            )  # fmt: skip
            act.after = {
                "dialect": dialect, "device": device.name, "host port": port.label,
                "operation": str(operation.pk),
            }  # fmt: skip
        return operation
