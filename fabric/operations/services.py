"""Requests for changes of hardware: checked against permissions, the drawer's rules and changes made meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from accounts.access import require_composer
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.context import request_id
from accounts.audit.services import attempt, audit_record, audited, target_of
from accounts.models import User
from core.database import CompiledQuery, lock_rows, single
from core.enqueue import enqueue
from core.errors import Conflict, FalconWebError, Forbidden, InUse, Invalid, NotFound, RuleViolation
from core.failpoints import failpoint
from core.idempotency import find_replayed, request_digest
from core.language import _, english, gettext_noop
from core.zones import CLOCK, local_words
from fabric.agents.selectors import devices_on_hosts, holders_label, uncertainty_label
from fabric.bmc.chassis_profiles import ALL_MODES
from fabric.bmc.types import DrawerMode
from fabric.inventory.labels import host_port_name, may_name_host, monitored_only_reason, no_endpoint_reason
from fabric.inventory.locks import lock_chassis, lock_parts
from fabric.inventory.models import Device, Drawer, HostPort
from fabric.inventory.selectors import may_change_mode
from fabric.operations.models import Operation
from fabric.operations.projected_state import projected_drawer
from fabric.operations.rules import attach_violation, mode_violation
from fabric.operations.selectors import (
    attachment_obstacle,
    device_proposal,
    may_cancel,
    mode_proposal,
    open_operation_sentence,
    operation_summary,
)
from fabric.signals import operation_changed

DEVICE_IN_PLACE: Final[CompiledQuery[Device]] = CompiledQuery(
    lambda pk: Device.objects.select_related("host_port__host", "slot__drawer", "chassis").filter(pk=pk).order_by()
)
# Those of a device, and of its drawer's mode.
OPEN_OPERATIONS: Final = CompiledQuery(
    lambda device, drawer: (
        Operation.objects.open().filter(Q(device=device) | Q(kind=Operation.Kind.MODE, drawer=drawer)).order_by()
    )
)


class ExpectedUnknown(Enum):
    """Whether the request says where the device is expected to be attached."""

    UNKNOWN = "unknown"


UNKNOWN: Final = ExpectedUnknown.UNKNOWN


@two_people(device_proposal)
def operation_request(
    *,
    person: User,
    device: Device,
    target: HostPort | None,
    expected: HostPort | ExpectedUnknown | None = UNKNOWN,
    idempotency_key: str = "",
    force: bool = False,
    confirmation: str = "",
) -> Operation:
    """Request that a device be attached to `target` (None: to no host).

    `force` detaches it although it is in use on its host; `confirmation` must be the device's name then. Raises
    NotFound for parts that the user may not see, Forbidden, RuleViolation, InUse, and Conflict when another user has
    an operation on the device, or it is not attached where `expected` says. The same user and key return the same
    operation; the key with another request is KeyReused, and one that is too long is Invalid.
    """
    with attempt(Action.OPERATION_REQUEST, actor=person, target=target_of(device)) as act:
        _check_visible(person, device.pk, target)
        require_composer(person, "attach or detach")
        if force:
            check_confirmation(confirmation, wanted=device.name)
        seen_at = "unknown" if isinstance(expected, ExpectedUnknown) else expected.pk if expected else None
        digest = request_digest("device", device.pk, target.pk if target else None, seen_at, force)
        if replayed := find_replayed(Operation, person, idempotency_key, digest):
            return replayed
        try:
            # First without locks: no refusal waits for one, but those by the rules of the drawer, which take long.
            seen = _validated_device(person, device.pk, target, expected, force=force, with_rules=False)
            with act.change():
                operation = _create(person, seen, target, expected, idempotency_key, digest, force=force)
                act.before = {"attached_to": host_port_name(operation.source)}
                act.after = {"attached_to": host_port_name(operation.target), "operation": str(operation.pk)}
        except (Conflict, IntegrityError) as error:
            # Of two simultaneous copies of a request, the second conflicts with the first: return that one.
            if replayed := find_replayed(Operation, person, idempotency_key, digest):
                return replayed
            if isinstance(error, Conflict):
                raise
            if other := Operation.objects.open().filter(device=device).first():
                raise _conflict_with(other, device.name, person) from error
            raise Conflict(
                _("{name} was changed at the same moment. Reload, then try again.", name=device.name)
            ) from error
        return operation


@two_people(mode_proposal)
def mode_request(*, person: User, drawer: Drawer, mode: str, idempotency_key: str = "") -> Operation:
    """Request another mode of a drawer, as an administrator or its only owner; raises and repeats as above."""
    target = target_of(drawer, f"{drawer.chassis.name} {drawer.name}")
    with attempt(Action.DRAWER_MODE, actor=person, target=target) as act:
        if not Drawer.objects.visible_to(person).filter(pk=drawer.pk).exists():
            raise NotFound(_("There is no such drawer."))
        refuse_mode_change(person, drawer)
        if mode not in {one.value for one in ALL_MODES}:
            raise Invalid(
                _("'{mode}' is not a mode of a drawer.", mode=mode),
                errors={"mode": _("Choose one of the three modes.")},
            )
        digest = request_digest("drawer", drawer.pk, mode)
        if replayed := find_replayed(Operation, person, idempotency_key, digest):
            return replayed
        try:
            with act.change():
                operation = _create_mode(person, drawer, mode, idempotency_key, digest)
                act.before, act.after = {"mode": drawer.mode}, {"mode": mode, "operation": str(operation.pk)}
        except IntegrityError as error:
            if replayed := find_replayed(Operation, person, idempotency_key, digest):
                return replayed
            raise Conflict(
                _("{name} was changed at the same moment. Reload, then try again.", name=drawer.name)
            ) from error
        return operation


def refuse_mode_change(person: User, drawer: Drawer) -> None:
    """Raise Forbidden unless the user may change the drawer's mode."""
    if not may_change_mode(person, drawer):
        raise Forbidden(
            _("Only an administrator, or a tenant that all of the drawer is granted to, may change its mode.")
        )


def operation_cancel(*, person: User, operation: Operation) -> Operation:
    """Cancel an operation: immediately if no worker has claimed it, else as soon as possible.

    Raises NotFound, Forbidden, and Conflict if it has ended, or is a step of a plan, which is cancelled as a whole.
    """
    with audited(Action.OPERATION_CANCEL, actor=person, target=target_of(operation, operation.summary)):
        return _cancel(person, operation)


def _cancel(person: User, operation: Operation) -> Operation:
    if not Operation.objects.visible_to(person).filter(pk=operation.pk).exists():
        raise NotFound(_("There is no such operation."))
    if not may_cancel(person, operation):
        raise Forbidden(_("You can cancel only what members of your tenant requested."))
    # A worker claims it under the same lock.
    lock_chassis([operation.chassis_id])
    row: Operation = lock_rows(Operation.objects.filter(pk=operation.pk)).get()
    if not row.is_open:
        raise Conflict(_("It has ended already: {state}.", state=_(row.state)))
    if row.plan_id is not None:
        raise Conflict(_("It is a step of a plan: cancel the plan."), plan=str(row.plan_id))
    if row.state == Operation.State.REQUESTED and row.lease_until is None:
        row.state, row.finished_at = Operation.State.CANCELLED, timezone.now()
        row.error = f"Cancelled by {person.get_username()} before it started. Nothing was changed."
        row.steps = [{**step, "state": "skipped"} for step in row.steps]
    row.cancel_requested_at = row.cancel_requested_at or timezone.now()
    row.save(update_fields=["state", "finished_at", "error", "steps", "cancel_requested_at"])
    failpoint("operation.cancelled.uncommitted")
    transaction.on_commit(lambda: operation_changed.send(Operation, operation=row), robust=True)
    return row


def _create_mode(person: User, drawer: Drawer, mode: str, idempotency_key: str, digest: str) -> Operation:
    lock_chassis([drawer.chassis_id])
    # Again, under the lock: a copy of the request may have arrived at the same time.
    if replayed := find_replayed(Operation, person, idempotency_key, digest):
        return replayed
    if other := Operation.objects.open().filter(drawer=drawer).first():
        raise _conflict_with(other, _("The drawer"), person)
    now: Drawer | None = single(Drawer.objects.select_related("chassis").filter(pk=drawer.pk))
    if now is None or now.missing_since is not None:
        raise Conflict(_("{name} is missing: the chassis no longer reports it.", name=drawer.name))
    if reason := mode_violation(projected_drawer(now).state(), DrawerMode(mode)):
        raise RuleViolation(reason)
    return operation_store(
        person,
        Operation.Kind.MODE,
        idempotency_key,
        digest,
        chassis=drawer.chassis,
        drawer=drawer,
        mode=mode,
        summary=f"Change {drawer.chassis.name} {drawer.name} to {mode}",
    )


def operation_store(person: User, kind: Operation.Kind, idempotency_key: str, digest: str, **values: Any) -> Operation:
    """Store a new operation, which a worker gets once it is committed."""
    operation = Operation.objects.create(
        kind=kind,
        requested_by=person,
        requested_by_name=person.get_username(),
        tenant=person.tenant,
        idempotency_key=idempotency_key,
        request_digest=digest,
        request_id=request_id(),
        steps=initial_steps(kind),
        **values,
    )
    failpoint("operation.requested.uncommitted")
    transaction.on_commit(lambda: operation_enqueue(operation), robust=True)
    return operation


def _create(  # noqa: PLR0917 - what a request of a device consists of
    person: User,
    seen: Device,
    target: HostPort | None,
    expected: HostPort | ExpectedUnknown | None,
    idempotency_key: str,
    digest: str,
    *,
    force: bool,
) -> Operation:
    # The rules depend on all of a drawer: changes of a chassis are requested one after the other.
    if not lock_chassis([seen.chassis_id]):
        raise NotFound(_("There is no such device or host port."))
    # A grant locks these rows too: parts granted to another tenant since the request are refused here.
    lock_parts(devices=[seen.pk], host_ports=[target.pk if target else None])
    # Again, under the lock: a copy of the request may have arrived at the same time.
    if replayed := find_replayed(Operation, person, idempotency_key, digest):
        return replayed
    _check_visible(person, seen.pk, target)
    device = _validated_device(person, seen.pk, target, expected, force=force)
    drawer = device.slot.drawer if device.slot else None
    source = device.host_port
    if force and source is not None:
        forced_use_record(person, [device])
    kind = Operation.Kind.DETACH if target is None else Operation.Kind.MOVE if source else Operation.Kind.ATTACH
    return operation_store(
        person,
        kind,
        idempotency_key,
        digest,
        chassis=device.chassis,
        device=device,
        device_identity=device.identity,
        drawer=drawer,
        source=source,
        target=target,
        summary=operation_summary(device, source, target),
        forced=force,
    )


def operation_obstacle(
    person: User, device: Device, target: HostPort | None, expected: HostPort | None, *, with_rules: bool = True
) -> str:
    """Return why a request would be refused now, '' where it would not; `with_rules`: also by its drawer's mode."""
    try:
        _check_visible(person, device.pk, target)
        require_composer(person, "attach or detach")
        _validated_device(person, device.pk, target, expected, force=False, with_rules=with_rules)
    except FalconWebError as error:
        return error.sentence
    return ""


def _validated_device(
    person: User,
    device_id: int,
    target: HostPort | None,
    expected: HostPort | ExpectedUnknown | None,
    *,
    force: bool,
    with_rules: bool = True,
) -> Device:
    """Return the device, which the person may see; raises the reason why it may not be attached to `target`."""
    device = DEVICE_IN_PLACE.first(device_id)
    if device is None:
        raise NotFound(_("There is no such device or host port."))
    drawer = device.slot.drawer if device.slot else None
    in_the_way = OPEN_OPERATIONS.objects(device.pk, device.slot.drawer_id if device.slot is not None else None)
    if own := next((one for one in in_the_way if one.device_id == device.pk), None):
        raise _conflict_with(own, device.name, person)
    if target is not None and (reason := attachment_obstacle(person, [device.pk], [target.pk])):
        raise Conflict(reason)
    held_at = device.host_port_id
    if held_at is not None and not HostPort.objects.visible_to(person).filter(pk=held_at).exists():
        raise Forbidden(_("{name} is attached to a host port that is not granted to your tenant.", name=device.name))
    if expected is not UNKNOWN and device.host_port != expected:
        raise Conflict(_moved_sentence(device, person))
    _check_attachable(device, target, with_rules=with_rules)
    if device.host_port is not None:
        check_not_held([device], force=[device.pk] if force else ())
        check_not_in_use([device], force=[device.pk] if force else ())
    if drawer is not None and in_the_way:
        raise _conflict_with(in_the_way[0], drawer.name, person)
    return device


def _check_visible(person: User, device_id: int, target: HostPort | None) -> None:
    visible = Device.objects.visible_to(person).filter(pk=device_id).exists()
    if not visible or (target is not None and not HostPort.objects.visible_to(person).filter(pk=target.pk).exists()):
        raise NotFound(_("There is no such device or host port."))


def _check_attachable(device: Device, target: HostPort | None, *, with_rules: bool) -> None:
    if not device.chassis.is_composable:
        raise Conflict(monitored_only_reason(device.chassis))
    if device.missing_since is not None:
        raise Conflict(_("{name} is missing: the chassis no longer reports it.", name=device.name))
    if not device.endpoint_uri:
        raise Conflict(no_endpoint_reason(device))
    if target == device.host_port:
        raise Conflict(_("{name} is already {place}.", name=device.name, place=_place(target)))
    if target is None:
        return
    if target.chassis_id != device.chassis_id:
        raise RuleViolation(
            _("{name} and host port {label} are in different chassis.", name=device.name, label=target.label)
        )
    drawer = device.slot.drawer if device.slot else None
    if drawer is not None and device.slot is not None:
        if target.drawer_id != drawer.pk:
            raise RuleViolation(
                _(
                    "Host port {label} is not cabled to {drawer}, where {name} is.",
                    label=target.label, drawer=drawer.name, name=device.name,
                )
            )  # fmt: skip
        drawer.chassis = device.chassis
        state = projected_drawer(drawer).state() if with_rules else None
        if state and (reason := attach_violation(state, slot=device.slot.number, label=target.label)):
            raise RuleViolation(reason)


def _conflict_with(operation: Operation, what: str, person: User) -> Conflict:
    """Return the refusal of a request because an operation has not ended."""
    return Conflict(open_operation_sentence(what, operation, person), operation=str(operation.pk))


def _place(port: HostPort | None) -> str:
    return _("attached to {place}", place=_(host_port_name(port)))


def _moved_sentence(device: Device, person: User) -> str:
    done = Operation.objects.visible_to(person).filter(device=device, state=Operation.State.DONE)
    last = done.order_by("-finished_at").first()
    if last is None or last.finished_at is None:
        return _("{name} is not where you saw it: it is {place} now.", name=device.name, place=_place(device.host_port))
    return _(
        "{name} is not where you saw it: {person} changed it at {time}; it is {place} now.",
        name=device.name, person=last.requested_by_name, time=local_words(last.finished_at, CLOCK),
        place=_place(device.host_port),
    )  # fmt: skip


# Sources of claims on devices in rooms above: of ids of devices, the claimed ones, each with a sentence on its claim.
# The second argument is the claimant, whose own claims do not count.
DEVICE_HOLD_SOURCES: Final[list[Callable[[Collection[int], str], Mapping[int, str]]]] = []


def check_not_held(devices: Collection[Device], *, force: Collection[int] = (), claimant: str = "") -> None:
    """Raise InUse where one of the devices is claimed by another than `claimant`, except for those of `force`."""
    checked = {one.pk: one for one in devices if one.pk not in force}
    for claims in DEVICE_HOLD_SOURCES if checked else ():
        for pk, sentence in claims(list(checked), claimant).items():
            said = _("{name} is in use: {who}.", name=checked[pk].name, who=sentence)
            raise InUse(said, device=pk, holders=sentence)


def check_confirmation(confirmation: str, *, wanted: str) -> None:
    """Raise Invalid unless the typed confirmation of a forced change is correct."""
    if confirmation.strip() != wanted.strip():
        raise Invalid(
            _("Programs that use what is detached by force lose it. Type '{name}' to confirm that.", name=wanted),
            errors={"confirmation": _("Type exactly: {name}", name=wanted)},
        )


def check_not_in_use(devices: Collection[Device], *, force: Collection[int] = ()) -> None:
    """Raise InUse where an agent reports one of the devices in use on its host, except for those of `force` (ids).

    It is raised too where the host has cards that may be the device: an ambiguous card cannot be released. Without a
    report of an agent the use is unknown, and the operation says so. Best read with `host_port__host`.
    """
    sides = devices_on_hosts(devices)
    for device in devices:
        side = sides[device.pk]
        if device.pk in force or not (side.holders or side.unsure):
            continue
        # Members of the device's tenant read the sentence, also where the site or an administrator asked.
        is_named = device.host_port is None or may_name_host(device, device.host_port)
        if side.unsure:
            doubt = uncertainty_label(side, names=is_named)
            said = _("{name} may be in use: {doubt}.", name=device.name, doubt=doubt)
            raise InUse(said, device=device.pk, holders=_("not known: {doubt}", doubt=doubt))
        who = holders_label(side.holders) if is_named else _("a process on its host")
        raise InUse(_("{name} is in use: {who}.", name=device.name, who=who), device=device.pk, holders=who)


def forced_use_record(person: User | None, devices: Collection[Device]) -> None:
    """Write the audit entries of forced changes: who uses each device; to be called in the requesting transaction.

    Processes that start before it is carried out are interrupted too, so devices without a known use are recorded.
    """
    sides = devices_on_hosts(devices) if devices else {}
    for device in devices:
        side = sides[device.pk]
        who = english(holders_label(side.holders)) or ("nobody" if side.reported else "not known")
        if side.unsure:
            who = f"not known: {english(uncertainty_label(side))}"
        audit_record(action=Action.OPERATION_FORCE, actor=person, target=target_of(device), before={"in_use_by": who})


# Steps of the host's agent are skipped, with a sentence, where no agent runs.
STEP_NAMES: Final = {
    "attach": (
        gettext_noop("Check"),
        gettext_noop("Attach"),
        gettext_noop("Wait for the link"),
        gettext_noop("Seen by the host"),
        gettext_noop("Read back"),
    ),
    "detach": (
        gettext_noop("Check"),
        gettext_noop("Release on the host"),
        gettext_noop("Detach"),
        gettext_noop("Read back"),
    ),
    "move": (
        gettext_noop("Check"),
        gettext_noop("Release on the host"),
        gettext_noop("Detach"),
        gettext_noop("Attach"),
        gettext_noop("Wait for the link"),
        gettext_noop("Seen by the host"),
        gettext_noop("Read back"),
    ),
    "mode": (gettext_noop("Check"), gettext_noop("Change mode"), gettext_noop("Read back")),
    "port": (
        gettext_noop("Check"),
        gettext_noop("Configure"),
        gettext_noop("Wait for the link"),
        gettext_noop("Read back"),
    ),
    "cable": (gettext_noop("Check"), gettext_noop("Wait for the cable"), gettext_noop("Read back")),
    "reset": (
        gettext_noop("Check"),
        gettext_noop("Reset"),
        gettext_noop("Wait for its end"),
        gettext_noop("Read back"),
    ),
    "trial": (gettext_noop("Check"), gettext_noop("Write"), gettext_noop("Revert"), gettext_noop("Read back")),
    "logs": (gettext_noop("Check"), gettext_noop("Collect"), gettext_noop("Download")),
    "firmware": (
        gettext_noop("Check"),
        gettext_noop("Send the image"),
        gettext_noop("Update"),
        gettext_noop("Wait for the new version"),
        gettext_noop("Read back"),
    ),
}


def initial_steps(kind: str) -> list[dict[str, object]]:
    """Return the waiting steps of a kind of operation."""
    return [
        {"name": name, "state": "waiting", "started_at": None, "finished_at": None, "sentence": ""}
        for name in STEP_NAMES[kind]
    ]


def operation_enqueue(operation: Operation) -> None:
    """Enqueue a new operation for a worker, and publish it; to be called once it is committed."""
    failpoint("operation.requested")
    try:
        # An unreachable broker loses nothing: recover_operations picks up what no worker has claimed.
        enqueue("fabric.run_operation", str(operation.pk))
    finally:
        operation_changed.send(Operation, operation=operation)
