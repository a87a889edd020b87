"""Row locks until the end of a transaction, always taken in one order, so that transactions cannot deadlock.

1. Users: those who are changed; the one whose draft is changed.
2. All tenants, by id (`lock_tenants`): for changes of grants, leases or quotas, and the removal of a chassis.
3. The lease (`lock_lease`). Leases that end because nothing is left of them are locked later, after devices: every
   transaction that locks a lease has locked the tenants, so that no two of them conflict.
4. Chassis, by id (`lock_chassis`), all that the transaction needs together.
5. The plan (`lock_plan`), then its operations.
6. Devices, by id, then host ports, by id (`lock_parts`), also all together, and before anything is written that refers
   to them. Their attachments, tenures, lease items and drift are written under these locks.
7. The end of the audit log, which `accounts.audit` locks itself right before the commit (see `audit_batch` there, for
   several actions in one transaction).

No transaction takes all of them, and none sends a request to a BMC, a host or a broker while it has one.

New rows may refer to a locked row (FOR NO KEY UPDATE, `core.database.lock_rows`): writing the history of a device does
not wait for the lock of its chassis, nor requesting an operation for that of its tenant or user, and so they cannot
deadlock. Only rows that are about to be deleted are locked against that too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.db.models import QuerySet

from accounts.models import Tenant
from core.database import Row, lock_row, lock_rows
from core.errors import NotFound
from core.language import _
from fabric.inventory.models import Chassis, Device, HostPort


def lock_chassis(chassis: Collection[int]) -> list[Chassis]:
    """Lock these chassis (ids); returns those that exist."""
    return _locked(Chassis.objects.all(), set(chassis))


def lock_parts(*, devices: Iterable[int | None] = (), host_ports: Iterable[int | None] = ()) -> None:
    """Lock these parts (ids), so that their grants do not change until the end of the transaction."""
    _locked(Device.objects.only("pk"), {pk for pk in devices if pk is not None})
    _locked(HostPort.objects.only("pk"), {pk for pk in host_ports if pk is not None})


def _locked(rows: QuerySet[Row], pks: Collection[int]) -> list[Row]:
    if len(pks) == 1:
        return [row for pk in pks if (row := lock_row(rows.model, pk)) is not None]
    return list(lock_rows(rows.filter(pk__in=pks)))


def lock_tenants(tenant: Tenant | None = None) -> None:
    """Serialise changes of grants and leases: each depends on the grants of all tenants, and they are rare.

    Raises NotFound when `tenant` was removed meanwhile.
    """
    # New rows may refer to a tenant meanwhile: an operation is written with its device locked, and must not wait.
    held = [row.pk for row in lock_rows(Tenant.objects.all())]
    if tenant is not None and tenant.pk not in held:
        raise NotFound(_("There is no such tenant any more."))
