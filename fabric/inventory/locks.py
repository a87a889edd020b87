"""Rows that nobody else changes until the transaction ends: always taken in one order, so that no two wait in a circle.

1. Of people: those who are changed; the one whose draft grows.
2. All tenants, by id (`lock_tenants`): whoever changes grants, leases or quotas, or removes a chassis.
3. The lease (`lock_lease`). Whoever ends leases of which nothing is left takes theirs later, after devices: all who
   take a lease have the tenants, so that no two of them meet.
4. Chassis, by id (`lock_chassis`), all that the transaction is about at once.
5. The plan (`lock_plan`), then its operations.
6. Devices, by id, then host ports, by id (`lock_parts`), all at once too, and before anything is written that refers to
   them. What is kept of them is written under these locks: attachments, tenures, the items of leases, drift.
7. The end of the audit log, which `accounts.audit` takes by itself right before the commit (see `audit_batch` there,
   for several actions in one transaction).

Nobody takes all of them, and nothing is asked of a BMC, a host or a broker while one of them is held.

A row that is held may be referred to by new rows of others (FOR NO KEY UPDATE, `core.database.lock_rows`): who writes
the history of a device does not wait for whoever holds its chassis, nor who asks for an operation for whoever holds its
tenant or its person, and so never in a circle with them. Only what is about to be deleted is held against that too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from accounts.models import Tenant
from core.database import lock_rows
from core.errors import NotFound
from fabric.inventory.models import Chassis, Device, HostPort


def lock_chassis(chassis: Collection[int]) -> list[Chassis]:
    """Wait until nobody else changes these chassis (ids); returns those that there are."""
    return list(lock_rows(Chassis.objects.filter(pk__in=chassis)))


def lock_parts(*, devices: Iterable[int | None] = (), host_ports: Iterable[int | None] = ()) -> None:
    """Wait until nobody else grants these (ids) away: whose they are stays as it is looked at from now on."""
    list(lock_rows(Device.objects.filter(pk__in={pk for pk in devices if pk is not None})))
    list(lock_rows(HostPort.objects.filter(pk__in={pk for pk in host_ports if pk is not None})))


def lock_tenants(tenant: Tenant | None = None) -> None:
    """Let one change of grants and leases happen at a time: each depends on what all tenants hold, and they are rare.

    Raises NotFound when `tenant` was removed meanwhile.
    """
    # New rows may refer to a tenant meanwhile: who writes an operation holds its device, and must not wait for us.
    held = [row.pk for row in lock_rows(Tenant.objects.all())]
    if tenant is not None and tenant.pk not in held:
        raise NotFound("There is no such tenant any more.")
