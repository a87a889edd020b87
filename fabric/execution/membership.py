"""The zones of a chassis as an operation reads and changes them, in the dialect of the chassis or of a trial."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record, target_of
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zones
from fabric.bmc.errors import CompositionRefused
from fabric.bmc.types import Dialect
from fabric.execution.claims import OperationClaim
from fabric.operations.models import Operation


def operation_dialect(operation: Operation) -> Dialect:
    """Return the dialect in which an operation reads and changes zones: of a trial, the one that is tried."""
    return Dialect(operation.setting.get("dialect") or operation.chassis.dialect)


async def zones_of(claim: OperationClaim, bmc: BmcClient, member: str) -> list[str]:
    """Return the zones of the device on the BMC: several where somebody else attached it, too, and the BMC let them."""
    read_at = timezone.now()
    found = await read_zones(bmc, claim.parts.zones, operation_dialect(claim.operation))
    claim.zones.keep(found, read_at)
    return [uri for uri, zone in found.items() if member in zone.members]


async def set_membership(claim: OperationClaim, bmc: BmcClient, zone_uri: str, member: str, *, present: bool) -> None:
    """Add the device to a zone, or remove it, if it is not so yet; raises as `attach` does.

    What the BMC dropped from the zone at that, and was put back or not, goes to the audit log.
    """
    try:
        change = attach if present else detach
        await change(bmc, operation_dialect(claim.operation), zone=zone_uri, endpoint_uri=member)
    except CompositionRefused as error:
        if lost := error.details.get("lost"):
            await run_in_thread(_record_restoration, claim.operation, error.details.get("zone"), lost, error)
        raise


def _record_restoration(operation: Operation, zone: object, lost: object, error: CompositionRefused) -> None:
    left = error.details.get("left")
    with transaction.atomic():
        audit_record(
            action=Action.ZONE_RESTORE,
            actor=operation.requested_by,
            target=target_of(operation.chassis),
            before={"zone": zone, "dropped by the BMC": lost},
            after={"not put back": left},
            outcome=Outcome.FAILED if left else Outcome.DONE,
            sentence=error.sentence,
            request_id=operation.request_id,
        )
