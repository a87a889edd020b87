"""Whether whoever requested an operation may still do it: checked again before the hardware is touched."""

from __future__ import annotations

from accounts.models import User
from core.database import find_row
from fabric.execution.claims import OperationFailedError
from fabric.inventory.models import Device, HostPort
from fabric.inventory.selectors import may_change_mode, may_configure, may_move_cable
from fabric.operations.models import Operation


def check_still_allowed(operation: Operation) -> None:
    """Raise if the requester has lost the permission since the request."""
    if operation.plan is not None and operation.plan.by_site and operation.requested_by_id is None:
        return
    # Read anew: since the claim the operation may have waited for its BMC.
    person = find_row(User, operation.requested_by_id)
    if person is None or not person.may_compose or not _is_still_permitted(person, operation):
        raise OperationFailedError(
            f"{operation.requested_by_name} may no longer do this.{nothing_changed_note(operation)}"
        )


def nothing_changed_note(operation: Operation) -> str:
    """Return that nothing was changed, for an operation in its check; '' where a previous worker may have started."""
    return " Nothing was changed." if operation.attempts <= 1 else ""


def _is_still_permitted(person: User, operation: Operation) -> bool:
    match operation.kind:
        case Operation.Kind.MODE:
            return operation.drawer is not None and may_change_mode(person, operation.drawer)
        case Operation.Kind.PORT:
            return operation.port is not None and may_configure(person, operation.port)
        case Operation.Kind.CABLE:
            return may_move_cable(person)
        case Operation.Kind.RESET | Operation.Kind.FIRMWARE | Operation.Kind.LOGS:
            return person.is_administrator
        case Operation.Kind.TRIAL:
            parts = (
                Device.objects.filter(pk=operation.device_id or 0),
                HostPort.objects.filter(pk=operation.target_id or 0),
            )
            return person.is_administrator and all(rows.filter(tenant=None).exists() for rows in parts)
    if person.is_administrator:
        return True  # who sees everything
    ports = {port.pk for port in (operation.source, operation.target) if port is not None}
    return Device.objects.visible_to(person).filter(pk=operation.device_id).exists() and HostPort.objects.visible_to(
        person
    ).filter(pk__in=ports).count() == len(ports)
