"""Asking for a change of hardware: may this person, do the rules allow it, has anything changed since they looked?"""

from __future__ import annotations

from enum import Enum
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.context import request_id
from accounts.audit.services import attempt, audited, target_of
from accounts.models import User
from fabric.bmc.types import DrawerMode
from fabric.models import Device, Drawer, HostPort, Operation
from fabric.outlook import drawer_state
from fabric.permissions import may_cancel, may_change_mode, refuse_onlooker, why_returning
from fabric.rules import ABOUT_MODES, why_not_attach, why_not_mode
from fabric.services.asking import hand_over, replayed_of, request_digest, steps_of
from fabric.services.locks import lock_chassis, lock_held, locked_rows
from fabric.services.safety import record_forced, refuse_claimed, refuse_in_use, refuse_unconfirmed
from fabric.services.wording import held, monitored_only, place_of, summary_of, without_endpoint
from fabric.signals import operation_changed
from falconweb.errors import Conflict, Forbidden, Invalid, NotFound, RuleViolation


class Expectation(Enum):
    """Whether the person said where they believed the device to be attached."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Expectation.UNKNOWN


def operation_request(
    *,
    person: User,
    device: Device,
    target: HostPort | None,
    expected: HostPort | Expectation | None = UNKNOWN,
    idempotency_key: str = "",
    force: bool = False,
    confirmation: str = "",
) -> tuple[Operation, bool]:
    """Ask for a device to be attached to `target` (None: to no host); returns the operation and whether it is new.

    `force` takes it although somebody uses it on its host; `confirmation` must be the device's name then. Raises
    NotFound for what the person may not see, Forbidden, RuleViolation, InUse, and Conflict when somebody else has an
    operation on the device, or it is not attached where `expected` says. The same person and key answer the same
    operation; the key with another request is KeyReused, and one that is too long is Invalid.
    """
    with attempt(Action.OPERATION_REQUEST, actor=person, target=target_of(device)) as act:
        _refuse_unseen(person, device.pk, target)
        refuse_onlooker(person, "attach or detach")
        if force:
            refuse_unconfirmed(confirmation, wanted=device.name)
        seen_at = "unknown" if isinstance(expected, Expectation) else expected.pk if expected else None
        digest = request_digest("device", device.pk, target.pk if target else None, seen_at, force)
        if replayed := replayed_of(Operation, person, idempotency_key, digest):
            return replayed, False
        try:
            # Once without locks: nobody waits for what is refused.
            _judged(person, device.pk, target, expected, force=force)
            with act.change():
                operation, created = _create(
                    person=person,
                    device_id=device.pk,
                    target=target,
                    expected=expected,
                    idempotency_key=idempotency_key,
                    digest=digest,
                    force=force,
                )
                act.before, act.after = {"attached_to": place_of(operation.source)}, _asked(operation)
        except Conflict:
            # The same request may have come twice at once: then it stands in its own way.
            if replayed := replayed_of(Operation, person, idempotency_key, digest):
                return replayed, False
            raise
        except IntegrityError as error:
            if replayed := replayed_of(Operation, person, idempotency_key, digest):
                return replayed, False
            raise _taken(device, person) from error
        return operation, created


def mode_request(*, person: User, drawer: Drawer, mode: str, idempotency_key: str = "") -> Operation:
    """Ask for a drawer's mode to be changed by an administrator or its only owner; raises and repeats as above."""
    target = target_of(drawer, f"{drawer.chassis.name} {drawer.name}")
    with attempt(Action.DRAWER_MODE, actor=person, target=target) as act:
        if not Drawer.objects.visible_to(person).filter(pk=drawer.pk).exists():
            raise NotFound("There is no such drawer.")
        refuse_mode_change(person, drawer)
        if mode not in {one.value for one in ABOUT_MODES}:
            raise Invalid(f"'{mode}' is no mode of a drawer.", errors={"mode": "Choose one of the three modes."})
        digest = request_digest("drawer", drawer.pk, mode)
        if replayed := replayed_of(Operation, person, idempotency_key, digest):
            return replayed
        try:
            with act.change():
                operation = _create_mode(
                    person=person, drawer=drawer, mode=mode, idempotency_key=idempotency_key, digest=digest
                )
                act.before, act.after = {"mode": drawer.mode}, {"mode": mode, "operation": str(operation.pk)}
        except IntegrityError as error:
            if replayed := replayed_of(Operation, person, idempotency_key, digest):
                return replayed
            raise Conflict(f"{drawer.name} was changed at the same moment. Look again.") from error
        return operation


def refuse_mode_change(person: User, drawer: Drawer) -> None:
    """Raise Forbidden unless the drawer's mode is the person's to change."""
    if not may_change_mode(person, drawer):
        raise Forbidden("Only an administrator, or a tenant that holds all of the drawer, may change its mode.")


def operation_cancel(*, person: User, operation: Operation) -> Operation:
    """End an operation: at once if nobody has begun it, else as soon as it honestly can.

    Raises NotFound, Forbidden, and Conflict for what has ended, or is a step of a plan, which is cancelled as a whole.
    """
    with audited(Action.OPERATION_CANCEL, actor=person, target=target_of(operation, operation.summary)):
        return _cancel(person, operation)


def _cancel(person: User, operation: Operation) -> Operation:
    if not Operation.objects.visible_to(person).filter(pk=operation.pk).exists():
        raise NotFound("There is no such operation.")
    if not may_cancel(person, operation):
        raise Forbidden("Only what people of your tenant asked for is yours to cancel.")
    # A worker claims it under the same lock.
    lock_chassis([operation.chassis_id])
    row: Operation = locked_rows(Operation.objects.filter(pk=operation.pk)).get()
    if not row.is_open:
        raise Conflict(f"It has ended already: {row.get_state_display().lower()}.")
    if row.plan_id is not None:
        raise Conflict("It is a step of a plan: cancel the plan.", plan=str(row.plan_id))
    if row.state == Operation.State.REQUESTED and row.lease_until is None:
        row.state, row.finished_at = Operation.State.CANCELLED, timezone.now()
        row.error = f"Cancelled by {person.get_username()} before it began. Nothing was changed."
        row.steps = [{**step, "state": "skipped"} for step in row.steps]
    row.cancel_requested_at = row.cancel_requested_at or timezone.now()
    row.save(update_fields=["state", "finished_at", "error", "steps", "cancel_requested_at"])
    transaction.on_commit(lambda: operation_changed.send(Operation, operation=row), robust=True)
    return row


def _create_mode(*, person: User, drawer: Drawer, mode: str, idempotency_key: str, digest: str) -> Operation:
    lock_chassis([drawer.chassis_id])
    # Again, under the lock: the same request may have come twice at once.
    if replayed := replayed_of(Operation, person, idempotency_key, digest):
        return replayed
    if other := Operation.objects.open().filter(drawer=drawer).first():
        raise Conflict(held("The drawer", other, person), operation=str(other.pk))
    if drawer.missing_since is not None:
        raise Conflict(f"{drawer.name} is missing: the chassis no longer reports it.")
    if reason := why_not_mode(drawer_state(drawer), DrawerMode(mode)):
        raise RuleViolation(reason)
    operation = Operation.objects.create(
        kind=Operation.Kind.MODE,
        chassis=drawer.chassis,
        drawer=drawer,
        mode=mode,
        summary=f"Change {drawer.chassis.name} {drawer.name} to {mode}",
        requested_by=person,
        requested_by_name=person.get_username(),
        tenant=person.tenant,
        idempotency_key=idempotency_key,
        request_digest=digest,
        request_id=request_id(),
        steps=steps_of("mode"),
    )
    transaction.on_commit(lambda: hand_over(operation), robust=True)
    return operation


def _create(
    *,
    person: User,
    device_id: int,
    target: HostPort | None,
    expected: HostPort | Expectation | None,
    idempotency_key: str,
    digest: str,
    force: bool,
) -> tuple[Operation, bool]:
    # What the rules allow depends on all of a drawer: whoever asks for a change of a chassis waits for the one before.
    if not lock_chassis(Device.objects.filter(pk=device_id).values_list("chassis", flat=True)):
        raise NotFound("There is no such device or host port.")
    # A grant locks these rows too: what was granted away since it was looked at is no longer the person's.
    lock_held(devices=[device_id], host_ports=[target.pk if target else None])
    # Again, under the lock: the same request may have come twice at once.
    if replayed := replayed_of(Operation, person, idempotency_key, digest):
        return replayed, False
    device = _judged(person, device_id, target, expected, force=force)
    drawer = device.slot.drawer if device.slot else None
    source = device.host_port
    if force and source is not None:
        record_forced(person, [device])
    kind = Operation.Kind.DETACH if target is None else Operation.Kind.MOVE if source else Operation.Kind.ATTACH
    operation = Operation.objects.create(
        kind=kind,
        chassis=device.chassis,
        device=device,
        device_identity=device.identity,
        drawer=drawer,
        source=source,
        target=target,
        summary=summary_of(device, source, target),
        requested_by=person,
        requested_by_name=person.get_username(),
        tenant=person.tenant,
        idempotency_key=idempotency_key,
        request_digest=digest,
        request_id=request_id(),
        forced=force,
        steps=steps_of(kind),
    )
    transaction.on_commit(lambda: hand_over(operation), robust=True)
    return operation, True


def _judged(
    person: User, device_id: int, target: HostPort | None, expected: HostPort | Expectation | None, *, force: bool
) -> Device:
    """Return the device as it is; raises what stands against its going to `target`."""
    _refuse_unseen(person, device_id, target)
    found = Device.objects.select_related("host_port__host", "slot__drawer", "chassis").filter(pk=device_id)
    device: Device | None = found.first()
    if device is None:
        raise NotFound("There is no such device or host port.")
    if open_operation := Operation.objects.open().filter(device=device).first():
        raise Conflict(held(device.name, open_operation, person), operation=str(open_operation.pk))
    if target is not None and (reason := why_returning(person, [device.pk], [target.pk])):
        raise Conflict(reason)
    held_by_others = HostPort.objects.filter(pk=device.host_port_id or 0).exclude(
        pk__in=HostPort.objects.visible_to(person)
    )
    if held_by_others.exists():
        raise Forbidden(f"{device.name} is attached to a host port that is not granted to your tenant.")
    if expected is not UNKNOWN and device.host_port != expected:
        raise Conflict(_moved(device, person))
    _refuse(device, target)
    if device.host_port is not None:
        refuse_claimed([device], force=[device.pk] if force else ())
        refuse_in_use([device], force=[device.pk] if force else ())
    drawer = device.slot.drawer if device.slot else None
    changing = Operation.objects.open().filter(kind=Operation.Kind.MODE, drawer=drawer).first()
    if drawer is not None and changing is not None:
        raise Conflict(held(drawer.name, changing, person), operation=str(changing.pk))
    return device


def _asked(operation: Operation) -> dict[str, str]:
    return {"attached_to": place_of(operation.target), "operation": str(operation.pk)}


def _refuse_unseen(person: User, device_id: int, target: HostPort | None) -> None:
    seen = Device.objects.visible_to(person).filter(pk=device_id).exists()
    if not seen or (target is not None and not HostPort.objects.visible_to(person).filter(pk=target.pk).exists()):
        raise NotFound("There is no such device or host port.")


def _refuse(device: Device, target: HostPort | None) -> None:
    if not device.chassis.is_composable:
        raise Conflict(monitored_only(device.chassis))
    if device.missing_since is not None:
        raise Conflict(f"{device.name} is missing: the chassis no longer reports it.")
    if not device.endpoint_uri:
        raise Conflict(without_endpoint(device))
    if target == device.host_port:
        place = f"attached to {place_of(target)}" if target else "attached to no host"
        raise Conflict(f"{device.name} is already {place}.")
    if target is None:
        return
    if target.chassis_id != device.chassis_id:
        raise RuleViolation(f"{device.name} and host port {target.label} are in different chassis.")
    drawer = device.slot.drawer if device.slot else None
    if drawer is not None and device.slot is not None:
        if target.drawer_id != drawer.pk:
            raise RuleViolation(f"Host port {target.label} is not cabled to {drawer.name}, where {device.name} is.")
        if reason := why_not_attach(drawer_state(drawer), slot=device.slot.number, label=target.label):
            raise RuleViolation(reason)


def _taken(device: Device, person: User) -> Conflict:
    other = Operation.objects.open().filter(device=device).first()
    if other is None:
        return Conflict(f"{device.name} was changed at the same moment. Look again.")
    return Conflict(held(device.name, other, person), operation=str(other.pk))


def _moved(device: Device, person: User) -> str:
    done = Operation.objects.visible_to(person).filter(device=device, state=Operation.State.DONE)
    last = done.order_by("-finished_at").first()
    place = f"attached to {place_of(device.host_port)}" if device.host_port else "attached to no host"
    if last is None or last.finished_at is None:
        return f"{device.name} is not where you saw it: it is {place} now."
    when = timezone.localtime(last.finished_at).strftime("%H:%M:%S %Z")
    return f"{device.name} is not where you saw it: {last.requested_by_name} changed it at {when}; it is {place} now."
