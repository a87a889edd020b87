"""Asking for a change of hardware: may this person, do the rules allow it, has anything changed since they looked?"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import User
from fabric.bmc.types import DrawerMode
from fabric.models import Chassis, Device, Drawer, HostPort, Operation
from fabric.rules import Connection, DrawerState, why_not_attach, why_not_mode
from fabric.signals import operation_changed
from falconweb.errors import Conflict, Forbidden, Invalid, KeyReused, NotFound, RuleViolation


class Expectation(Enum):
    """Whether the person said where they believed the device to be attached."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Expectation.UNKNOWN
LONGEST_KEY = 200
STEPS: Final = {
    "attach": ("Check", "Attach", "Wait for the link", "Read back"),
    "detach": ("Check", "Detach", "Read back"),
    "move": ("Check", "Detach", "Attach", "Wait for the link", "Read back"),
    "mode": ("Check", "Change mode", "Read back"),
}


def operation_request(
    *,
    person: User,
    device: Device,
    target: HostPort | None,
    expected: HostPort | Expectation | None = UNKNOWN,
    idempotency_key: str = "",
) -> tuple[Operation, bool]:
    """Ask for a device to be attached to `target` (None: to no host); returns the operation and whether it is new.

    Raises NotFound for what the person may not see, Forbidden, RuleViolation, and Conflict when somebody else has an
    operation on the device, or it is not attached where `expected` says. The same person and key answer the same
    operation; the key with another request is KeyReused, and one that is too long is Invalid.
    """
    _refuse_unseen(person, device.pk, target)
    if not person.may_compose:
        raise Forbidden("You may look, but not attach or detach. Ask an administrator for the role 'user'.")
    seen_at = "unknown" if isinstance(expected, Expectation) else expected.pk if expected else None
    digest = _digest("device", device.pk, target.pk if target else None, seen_at)
    if replayed := _replayed(person, idempotency_key, digest):
        return replayed, False
    try:
        with transaction.atomic():
            return _create(
                person=person,
                device_id=device.pk,
                target=target,
                expected=expected,
                idempotency_key=idempotency_key,
                digest=digest,
            )
    except IntegrityError as error:
        if replayed := _replayed(person, idempotency_key, digest):
            return replayed, False
        raise _taken(device, person) from error


def mode_request(*, person: User, drawer: Drawer, mode: str, idempotency_key: str = "") -> Operation:
    """Ask for a drawer's mode to be changed; administrators only. Raises and repeats as `operation_request` does."""
    if not Drawer.objects.visible_to(person).filter(pk=drawer.pk).exists():
        raise NotFound("There is no such drawer.")
    if not person.is_administrator:
        raise Forbidden("Only an administrator may change the mode of a drawer.")
    if mode not in {DrawerMode.STANDARD_ONE_HOST, DrawerMode.STANDARD_TWO_HOSTS, DrawerMode.ADVANCED}:
        raise Invalid(f"'{mode}' is no mode of a drawer.", errors={"mode": "Choose one of the three modes."})
    digest = _digest("drawer", drawer.pk, mode)
    if replayed := _replayed(person, idempotency_key, digest):
        return replayed
    try:
        with transaction.atomic():
            return _create_mode(person=person, drawer=drawer, mode=mode, idempotency_key=idempotency_key, digest=digest)
    except IntegrityError as error:
        if replayed := _replayed(person, idempotency_key, digest):
            return replayed
        raise Conflict(f"{drawer.name} was changed at the same moment. Look again.") from error


def drawer_state(drawer: Drawer) -> DrawerState:
    """Return a drawer as the rules see it: the mirrored hardware, as it will be after what was asked for already."""
    ports = list(HostPort.objects.filter(drawer=drawer, missing_since=None).select_related("host"))
    attached = Device.objects.filter(slot__drawer=drawer, host_port__isnull=False, missing_since=None)
    slots = dict(attached.values_list("slot__number", "host_port__label"))
    for operation in (
        Operation.objects.open()
        .filter(drawer=drawer, device__slot__isnull=False)
        .select_related("device__slot", "target")
        .order_by("requested_at")
    ):
        slot = operation.device.slot.number
        slots.pop(slot, None)
        if operation.target is not None:
            slots[slot] = operation.target.label
    return DrawerState(
        mode=DrawerMode(drawer.mode),
        connections=tuple(
            Connection(label=port.label, number=port.number, host=port.host.identity if port.host else "")
            for port in ports
        ),
        attached=slots,
    )


def _create_mode(*, person: User, drawer: Drawer, mode: str, idempotency_key: str, digest: str) -> Operation:
    Chassis.objects.select_for_update().get(pk=drawer.chassis_id)
    # Again, under the lock: the same request may have come twice at once.
    if replayed := _replayed(person, idempotency_key, digest):
        return replayed
    if other := Operation.objects.open().filter(drawer=drawer).first():
        raise Conflict(_held("The drawer", other), operation=str(other.pk))
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
        steps=_steps("mode"),
    )
    transaction.on_commit(lambda: _hand_over(operation), robust=True)
    return operation


def _create(
    *,
    person: User,
    device_id: int,
    target: HostPort | None,
    expected: HostPort | Expectation | None,
    idempotency_key: str,
    digest: str,
) -> tuple[Operation, bool]:
    # What the rules allow depends on all of a drawer: whoever asks for a change of a chassis waits for the one before.
    if Chassis.objects.select_for_update(of=("self",)).filter(devices=device_id).first() is None:
        raise NotFound("There is no such device or host port.")
    # A grant locks these rows too: what was granted away since it was looked at is no longer the person's.
    list(Device.objects.select_for_update().filter(pk=device_id).order_by("pk"))
    list(HostPort.objects.select_for_update().filter(pk=target.pk if target else None).order_by("pk"))
    _refuse_unseen(person, device_id, target)
    device = Device.objects.select_related("host_port__host", "slot__drawer", "chassis").get(pk=device_id)
    # Again, under the lock: the same request may have come twice at once.
    if replayed := _replayed(person, idempotency_key, digest):
        return replayed, False
    if open_operation := Operation.objects.open().filter(device=device).first():
        raise Conflict(_held(device.name, open_operation), operation=str(open_operation.pk))
    held_by_others = HostPort.objects.filter(pk=device.host_port_id).exclude(pk__in=HostPort.objects.visible_to(person))
    if held_by_others.exists():
        raise Forbidden(f"{device.name} is attached to a host port that is not granted to your tenant.")
    if expected is not UNKNOWN and device.host_port != expected:
        raise Conflict(_moved(device, person))
    _refuse(device, target)
    drawer = device.slot.drawer if device.slot else None
    changing = Operation.objects.open().filter(kind=Operation.Kind.MODE, drawer=drawer).first()
    if drawer is not None and changing is not None:
        raise Conflict(_held(drawer.name, changing), operation=str(changing.pk))
    source = device.host_port
    kind = Operation.Kind.DETACH if target is None else Operation.Kind.MOVE if source else Operation.Kind.ATTACH
    operation = Operation.objects.create(
        kind=kind,
        chassis=device.chassis,
        device=device,
        drawer=drawer,
        source=source,
        target=target,
        summary=_summary(device, source, target),
        requested_by=person,
        requested_by_name=person.get_username(),
        tenant=person.tenant,
        idempotency_key=idempotency_key,
        request_digest=digest,
        steps=_steps(kind),
    )
    transaction.on_commit(lambda: _hand_over(operation), robust=True)
    return operation, True


def _refuse_unseen(person: User, device_id: int, target: HostPort | None) -> None:
    seen = Device.objects.visible_to(person).filter(pk=device_id).exists()
    if not seen or (target is not None and not HostPort.objects.visible_to(person).filter(pk=target.pk).exists()):
        raise NotFound("There is no such device or host port.")


def _refuse(device: Device, target: HostPort | None) -> None:
    if not device.chassis.is_composable:
        raise Conflict("This chassis offers no way to attach or detach: it is monitored only.")
    if device.missing_since is not None:
        raise Conflict(f"{device.name} is missing: the chassis no longer reports it.")
    if not device.endpoint_uri:
        raise Conflict(f"{device.name} has no endpoint in the fabric, so it cannot be attached.")
    if target == device.host_port:
        place = f"attached to {_place(target)}" if target else "attached to no host"
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


def _replayed(person: User, idempotency_key: str, digest: str) -> Operation | None:
    if not idempotency_key:
        return None
    if len(idempotency_key) > LONGEST_KEY or not idempotency_key.isprintable():
        # Cut short, two keys could become one.
        raise Invalid(f"The Idempotency-Key cannot be used. Give at most {LONGEST_KEY} printable characters.")
    known = Operation.objects.filter(requested_by=person, idempotency_key=idempotency_key).first()
    if known is not None and known.request_digest != digest:
        raise KeyReused("This Idempotency-Key was used for another request. Take a new key.")
    return known


def _digest(*wanted: object) -> str:
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


def _taken(device: Device, person: User) -> Conflict:
    other = Operation.objects.open().filter(device=device).first()
    if other is None:
        return Conflict(f"{device.name} was changed at the same moment. Look again.")
    return Conflict(_held(device.name, other), operation=str(other.pk))


def _held(what: str, operation: Operation) -> str:
    when = timezone.localtime(operation.requested_at).strftime("%H:%M:%S %Z")
    return (
        f"{what} is taken: {operation.requested_by_name} asked at {when} to '{operation.summary}', which has not ended."
    )


def _moved(device: Device, person: User) -> str:
    done = Operation.objects.visible_to(person).filter(device=device, state=Operation.State.DONE)
    last = done.order_by("-finished_at").first()
    place = f"attached to {_place(device.host_port)}" if device.host_port else "attached to no host"
    if last is None or last.finished_at is None:
        return f"{device.name} is not where you saw it: it is {place} now."
    when = timezone.localtime(last.finished_at).strftime("%H:%M:%S %Z")
    return f"{device.name} is not where you saw it: {last.requested_by_name} changed it at {when}; it is {place} now."


def _summary(device: Device, source: HostPort | None, target: HostPort | None) -> str:
    """Return what is to happen, for everybody who may see the device: another tenant's host is not named."""

    def place(port: HostPort | None) -> str:
        if port is not None and device.tenant_id not in {None, port.tenant_id}:
            return port.label
        return _place(port)

    slot = f" ({device.slot.name})" if device.slot else ""
    if target is None:
        return f"Detach {device.name}{slot} from {place(source)}"
    if source is None:
        return f"Attach {device.name}{slot} to {place(target)}"
    return f"Move {device.name}{slot} from {place(source)} to {place(target)}"


def _place(port: HostPort | None) -> str:
    if port is None:
        return "no host"
    return f"{port.host.name} ({port.label})" if port.host else port.label


def _steps(kind: str) -> list[dict[str, object]]:
    return [
        {"name": name, "state": "waiting", "started_at": None, "finished_at": None, "sentence": ""}
        for name in STEPS[kind]
    ]


def _hand_over(operation: Operation) -> None:
    operation_changed.send(Operation, operation=operation)
    from fabric.tasks import run_operation

    # A broker that is away loses nothing: recover_operations picks up what no worker has taken.
    run_operation.apply_async(args=(str(operation.pk),), retry=False, ignore_result=True)
