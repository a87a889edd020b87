"""The zones and ports of a chassis that operations read: kept by a worker until a walk has read the chassis again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from django.db.models import Q

from fabric.inventory.models import Chassis, HostPort, Port

KEPT_CHASSIS = 64  # some KB each


class ChassisParts(NamedTuple):
    """The ids of the host ports by the URIs of their zones, and those of the ports of slots and host ports by URI."""

    zones: Mapping[str, int]
    ports: Mapping[str, int]


NO_PARTS = ChassisParts({}, {})


def chassis_parts(chassis: Chassis) -> ChassisParts:
    """Return the parts that the chassis reports now, in its dialect.

    Only walks change that, each of which sets `inventory_at`, and the choice of another dialect.
    """
    if chassis.inventory_at is None:
        return _read(chassis.pk)
    return _read_as_of(chassis.pk, chassis.dialect, chassis.inventory_at)


@lru_cache(KEPT_CHASSIS)
def _read_as_of(chassis: int, _dialect: str, _walked_at: datetime) -> ChassisParts:
    return _read(chassis)


def _read(chassis: int) -> ChassisParts:
    zones = HostPort.objects.filter(chassis=chassis, missing_since=None)
    ports = Port.objects.filter(Q(slot__isnull=False) | Q(host_port__isnull=False), chassis=chassis, missing_since=None)
    return ChassisParts(*(dict(rows.order_by().values_list("uri", "pk")) for rows in (zones, ports)))
