"""The end of a trial of a dialect: its write is reverted, and the chassis is composed so if nothing else changed."""

from __future__ import annotations

from django.utils import timezone

from core.language import gettext_noop
from fabric.bmc.client import BmcClient
from fabric.execution.claims import OperationClaim, OperationFailedError
from fabric.execution.membership import operation_dialect, set_membership
from fabric.inventory.dialect_choice import dialect_prove
from fabric.operations.models import Operation, Proof


async def revert_trial(claim: OperationClaim, bmc: BmcClient) -> None:
    """Detach the device of a trial, if it was written; raises as `set_membership` does."""
    device, port = claim.operation.device, claim.operation.target
    write = next(step for step in claim.operation.steps if step["name"] == "Write")
    # Whoever attached it there before that was somebody else.
    if write["state"] not in {"waiting", "skipped"} and device is not None and port is not None:
        await set_membership(claim, bmc, port.uri, device.endpoint_uri, present=False)


def conclude_trial(operation: Operation) -> None:
    """Have the chassis composed by the dialect that was tried; raises OperationFailedError where more has changed."""
    device, port = operation.device, operation.target
    if device is None or port is None or not Proof.objects.get(operation=operation).untouched:
        raise OperationFailedError(
            gettext_noop("It works, but more than that changed meanwhile. Look at it, then choose it or try again.")
        )
    done = f"{device.name} was attached to {port.label} and detached again, and nothing else changed"
    dialect_prove(
        chassis=operation.chassis,
        dialect=operation_dialect(operation),
        by=operation.requested_by,
        evidence=f"Proven by a write on {timezone.localdate():%d %b %Y}: {done}.",
    )
