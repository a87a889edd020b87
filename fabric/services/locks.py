"""Rows that nobody else changes until the transaction ends: always taken in one order, so that no two wait in a circle.

First the chassis, by id; then the plan; then operations, devices and host ports, by id; last of all the end of the
audit log, which `accounts.audit` takes by itself right before the commit. Nothing is asked of a BMC, a host or a
broker while one of them is held.

A row that is held may be referred to by new rows of others (FOR NO KEY UPDATE): who writes the history of a device does
not wait for whoever holds its chassis, and so never in a circle with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from fabric.models import Chassis, Device, HostPort, Plan
from falconweb.errors import NotFound


def lock_chassis(chassis: Collection[int]) -> list[Chassis]:
    """Wait until nobody else changes these chassis (ids); returns those that there are."""
    return list(locked_rows(Chassis.objects.filter(pk__in=chassis)))


def lock_plan(pk: UUID | str) -> Plan:
    """Wait until nobody else changes a plan, and return it; raises NotFound."""
    row: Plan | None = locked_rows(Plan.objects.filter(pk=pk)).first()
    if row is None:
        raise NotFound("There is no such plan.")
    return row


def lock_held(*, devices: Iterable[int] = (), host_ports: Iterable[int | None] = ()) -> None:
    """Wait until nobody else grants these (ids) away: whose they are stays as it is looked at from now on."""
    list(locked_rows(Device.objects.filter(pk__in=set(devices))))
    list(locked_rows(HostPort.objects.filter(pk__in={pk for pk in host_ports if pk is not None})))


def locked_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return rows as a query that locks them, by id; those that are joined to them are not locked."""
    return rows.select_for_update(of=("self",), no_key=True).order_by("pk")
