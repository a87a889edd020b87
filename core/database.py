"""Rows that nobody else changes until the transaction ends: always taken in one order, so that no two wait in a circle.

1. Of people: those who are changed; the one whose draft grows.
2. All tenants, by id (`holdings_lock`): whoever changes grants, leases or quotas, or removes a chassis.
3. The lease (`lease_locked`). Whoever ends leases of which nothing is left takes theirs later, after devices: all who
   take a lease have the tenants, so that no two of them meet.
4. Chassis, by id (`lock_chassis`), all that the transaction is about at once.
5. The plan (`lock_plan`), then its operations.
6. Devices, by id, then host ports, by id (`lock_held`), all at once too, and before anything is written that refers to
   them. What is kept of them is written under these locks: attachments, tenures, the items of leases, drift.
7. The end of the audit log, which `accounts.audit` takes by itself right before the commit (see `together` there, for
   several actions in one transaction).

Nobody takes all of them, and nothing is asked of a BMC, a host or a broker while one of them is held.

A row that is held may be referred to by new rows of others (FOR NO KEY UPDATE, `locked_rows`): who writes the history
of a device does not wait for whoever holds its chassis, nor who asks for an operation for whoever holds its tenant or
its person, and so never in a circle with them. Only what is about to be deleted is held against that too.

Where a lock is waited for, what was read before may be old by then, and so may be the rows that are joined to the
locked ones: what depends on it is read again under the lock.
"""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, OperationalError, models
from django.db.models import QuerySet


def lock_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return rows as a query that locks them, by id; those that are joined to them are not locked."""
    return rows.select_for_update(of=("self",), no_key=True).order_by("pk")


def without_nul(value: Any) -> Any:
    """Return JSON without NUL characters, which PostgreSQL keeps in no text."""
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return [without_nul(item) for item in value] if isinstance(value, list) else value


def fit_columns(model: type[models.Model], values: dict[str, Any]) -> dict[str, Any]:
    """Return values that the model's columns can hold: one nonsensical value must not keep all others out."""
    found = dict(values)
    for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's documented name
        value = found.get(field.name)
        if isinstance(field, models.CharField) and isinstance(value, str):
            found[field.name] = value.replace("\0", "")[: field.max_length]
        elif isinstance(field, models.PositiveIntegerField) and isinstance(value, int):
            found[field.name] = value if 0 <= value < 2**31 else None if field.null else 0
        elif isinstance(field, models.BigIntegerField) and isinstance(value, int):
            found[field.name] = value if abs(value) < 2**63 else None
    return found


# A database that cannot be reached, or has been locked for too long: whoever meets that writes nothing, and waits.
DATABASE_UNAVAILABLE = (OperationalError, InterfaceError)
