"""Chassis that are one and the same hardware, followed at two addresses: each would be planned on as if it were two."""

from __future__ import annotations

from django.db.models import Q

from fabric.bmc.values import is_uuid_set
from fabric.models import Chassis


def twins_of(row: Chassis) -> list[Chassis]:
    """Return the other chassis that are the same as this one, by their UUID or by maker, model and serial number."""
    same = of_uuid(row.uuid)
    if row.serial_number:
        same |= Q(serial_number=row.serial_number, manufacturer=row.manufacturer, model=row.model)
    return list(Chassis.objects.filter(same).exclude(pk=row.pk).order_by("name"))


def of_uuid(uuid: str) -> Q:
    """Return what finds the chassis of a UUID: none for '' and for the zeros of firmware that has no id."""
    return Q(uuid__iexact=uuid) if is_uuid_set(uuid) else Q(pk=None)
