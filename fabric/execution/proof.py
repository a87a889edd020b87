"""Proof that an operation changed nothing else: its surroundings are read before and after, and compared."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from django.db.models import Q
from django.utils import timezone

from core.database import single
from core.failpoints import failpoint
from core.language import gettext_noop
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import CompositionSnapshot, read_snapshot
from fabric.bmc.errors import BmcError
from fabric.execution.claims import OperationClaim
from fabric.execution.membership import operation_dialect
from fabric.inventory.models import Device, Port
from fabric.inventory.selectors import interrupted_ports
from fabric.operations.models import Operation, Proof
from fabric.operations.selectors import PROOF_UNREAD

logger = logging.getLogger(__name__)

# Another operation: its summary, its device, and the ports whose links it may have changed.
OtherOperation = tuple[str, int | None, set[int]]

PROOF_UNTOUCHED = gettext_noop("Verified: no other zone or link of the chassis changed.")


async def proof_begin(claim: OperationClaim, bmc: BmcClient) -> None:
    """Store the state of everything else in the chassis, unless a previous attempt has stored it."""
    if claim.operation.attempts > 1 and await run_in_thread(_stored_proof, claim.operation) is not None:
        return
    # Before the read, which takes time: an operation that ends meanwhile may or may not be included.
    now = claim.zones.read_at or timezone.now()
    found = await _rest_of_chassis(claim, bmc)
    plain = {} if found is None else msgspec.to_builtins(found)
    proof = Proof(operation=claim.operation, before=plain, before_at=now)
    claim.proof = proof
    claim.meanwhile(run_in_thread(_begin, proof))


def _begin(proof: Proof) -> None:
    Proof.objects.bulk_create([proof], ignore_conflicts=True)
    failpoint("operation.proof.begun")


async def proof_end(claim: OperationClaim, bmc: BmcClient) -> None:
    """Compare the state of everything else with the stored one, and store the conclusion; harmless when repeated."""
    proof = claim.proof or await run_in_thread(_stored_proof, claim.operation)
    if proof is None:
        return  # it ended before it could have changed anything
    claim.at_end(None)  # what was found before is no longer true
    found = await _rest_of_chassis(claim, bmc)
    conclude = partial(_conclude_at_end, proof, claim.operation, found)
    if claim.operation.kind != Operation.Kind.TRIAL and _is_untouched(proof, found):
        claim.at_end(conclude)  # nothing to look up, and nobody asks for it before
    else:
        await run_in_thread(conclude)


def _is_untouched(proof: Proof, found: CompositionSnapshot | None) -> bool:
    return bool(proof.before) and msgspec.convert(proof.before, CompositionSnapshot) == found


def _conclude_at_end(proof: Proof, operation: Operation, found: CompositionSnapshot | None) -> None:
    _conclude(proof, operation, found)
    failpoint("operation.proof.ended")


def proof_mark_unread(operation: Operation) -> None:
    """Mark the proof of an operation that is about to end as unreadable, unless it was read before."""
    proof = _stored_proof(operation)
    if proof is not None and not proof.sentence:
        _conclude(proof, operation, None)


def _stored_proof(operation: Operation) -> Proof | None:
    return single(Proof.objects.filter(operation=operation))


async def _rest_of_chassis(claim: OperationClaim, bmc: BmcClient) -> CompositionSnapshot | None:
    """Return all zones and links of the chassis except the operation's own; None where they cannot be read."""
    operation = claim.operation
    own = operation.device.endpoint_uri if operation.device is not None else ""
    asked: dict[str, Any] = {
        "zone_uris": claim.parts.zones,
        "port_uris": await _other_links(claim),
        "dialect": operation_dialect(operation),
    }
    try:
        found: CompositionSnapshot = await claim.retry(lambda: read_snapshot(bmc, **asked, zones=claim.zones.take()))
    except BmcError as error:
        logger.warning("operation %s: its surroundings could not be read: %s", operation.pk, error.sentence)
        return None
    return msgspec.structs.replace(
        found,
        zones={zone: tuple(one for one in members if one != own) for zone, members in found.zones.items()},
    )


async def _other_links(claim: OperationClaim) -> list[str]:
    """Return the ports of the chassis, without those that are the operation's own."""
    operation, device = claim.operation, claim.operation.device
    own_ports = {operation.port_id}
    if device is not None and device.slot is not None:
        own_ports.add(device.slot.port_id)
    if operation.kind == Operation.Kind.CABLE and operation.source is not None:
        own_ports.add(operation.source.port_id)
    if operation.managed_part is not None:
        own_ports |= await run_in_thread(interrupted_ports, operation.managed_part)
    return [uri for uri, port in claim.parts.ports.items() if port not in own_ports]


def _conclude(proof: Proof, operation: Operation, found: CompositionSnapshot | None) -> None:
    proof.after_at = timezone.now()
    if found is None or not proof.before:
        proof.untouched, proof.sentence = None, PROOF_UNREAD
    else:
        proof.after = msgspec.to_builtins(found)
        proof.differences = _differences(operation, proof)
        unexplained = [one for one in proof.differences if not one["because"]]
        proof.untouched = not unexplained
        proof.sentence = _sentence(len(unexplained), len(proof.differences) - len(unexplained))
    proof.save(update_fields=["after", "after_at", "untouched", "differences", "sentence"])


def _sentence(unexplained: int, explained: int) -> str:
    if unexplained == 1:
        return gettext_noop("One thing changed meanwhile that no operation explains. Administrators see the details.")
    if unexplained:
        return f"{unexplained} things changed meanwhile that no operation explains. Administrators see the details."
    if explained:
        return f"Verified: no zone or link changed except by other operations ({explained})."
    return PROOF_UNTOUCHED


def _differences(operation: Operation, proof: Proof) -> list[dict[str, Any]]:
    """Return the differences around the operation, each with the operation that explains it, '' where none does."""
    before, after = (msgspec.convert(one, CompositionSnapshot) for one in (proof.before, proof.after))
    if before == after:
        return []
    since = proof.before_at or operation.requested_at
    ran = Operation.objects.filter(chassis=operation.chassis_id, started_at__isnull=False).exclude(pk=operation.pk)
    meanwhile = ran.filter(Q(finished_at=None) | Q(finished_at__gte=since)).select_related("source", "managed_part")
    others = [(one.summary, one.device_id, _affected_ports(one)) for one in meanwhile]
    rows = Device.objects.filter(chassis=operation.chassis_id).select_related("tenant", "slot")
    devices = {row.endpoint_uri: row for row in rows}
    behind = {row.slot.port_id: row for row in rows if row.slot is not None and row.slot.port_id is not None}
    ports = dict(Port.objects.filter(chassis=operation.chassis_id).values_list("uri", "pk"))
    found = []
    for zone in sorted({*before.zones, *after.zones}):
        then, now = set(before.zones.get(zone, ())), set(after.zones.get(zone, ()))
        for member in sorted(then ^ now):
            device = devices.get(member)
            was, now_is = ("was in", "is not in") if member in then else ("was not in", "is in")
            found.append(_difference(zone, device, was, now_is, _explaining_operation(others, device)))
    for uri in sorted({*before.links, *after.links}):
        if before.links.get(uri) != after.links.get(uri):
            port = ports.get(uri)
            device = behind.get(port) if port is not None else None
            was, now_is = (_link_label(one.links.get(uri)) for one in (before, after))
            found.append(_difference(uri, device, was, now_is, _explaining_operation(others, device, port)))
    return found


def _explaining_operation(others: Iterable[OtherOperation], device: Device | None, port: int | None = None) -> str:
    """Return the other operation that explains a change of a device's zone, or of its or a port's link; '' for none."""
    for summary, its_device, its_ports in others:
        if (device is not None and its_device == device.pk) or (port is not None and port in its_ports):
            return summary
    return ""


def _affected_ports(operation: Operation) -> set[int]:
    """Return the ports whose links an operation may change, besides its device's."""
    if operation.kind == Operation.Kind.MODE:
        # A change of mode may take down and retrain every link of its drawer.
        in_drawer = Q(slot__drawer=operation.drawer_id) | Q(host_port__drawer=operation.drawer_id)
        return set(Port.objects.filter(in_drawer).values_list("pk", flat=True))
    if operation.managed_part is not None:
        return interrupted_ports(operation.managed_part)
    cabled = operation.source.port_id if operation.kind == Operation.Kind.CABLE and operation.source else None
    return {port for port in (operation.port_id, cabled) if port is not None}


def _difference(uri: str, device: Device | None, before: str, after: str, because: str) -> dict[str, Any]:
    return {
        "uri": uri,
        "name": device.name if device is not None else "",
        "tenant": device.tenant.name if device is not None and device.tenant is not None else "",
        "before": before,
        "after": after,
        "because": because,
    }


def _link_label(facts: Any) -> str:
    if facts is None:
        return "not there"
    status, _, active, speed = facts
    return f"{status}, x{active or 0}, {speed or 0:g} Gb/s"
