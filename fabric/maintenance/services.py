"""Requests for maintenance, by administrators who know whom it interrupts: resets, updates of firmware, logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction

from accounts.access import actor_name, require_administrator
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.services import AuditedAction, Target, attempt, audited, target_of
from accounts.models import User
from core.downloads import Download
from core.errors import Conflict, InUse, Invalid, NotFound
from core.idempotency import find_replayed, request_digest
from core.language import _, join_words
from fabric.bmc.update_service import RedfishUpdateService
from fabric.inventory.locate import check_answering
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import ManagedPart
from fabric.maintenance.files import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MAX_LOGS,
    IncomingFile,
    image_path,
    log_path,
    read_chunks,
)
from fabric.maintenance.models import CollectedLog, FirmwareImage
from fabric.maintenance.selectors import (
    DRAIN_ORIGIN,
    AffectedDevice,
    affected_devices,
    drain_title,
    firmware_proposal,
    lease_holds,
    reset_choices,
    reset_proposal,
    undrained_devices,
    update_service,
)
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import FirmwareSetting
from fabric.operations.selectors import open_operation_sentence
from fabric.operations.services import check_not_held, operation_store
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_create

MAX_NAMED = 5
MAX_URI_LENGTH = 1000


@two_people(reset_proposal)
def reset_request(
    *,
    person: User,
    part: ManagedPart,
    reset_type: str,
    confirmation: str = "",
    affected: Collection[int] = (),
    idempotency_key: str = "",
) -> Operation:
    """Request a reset of a part, or its power on or off; `confirmation` is its label, typed.

    `affected` are the attached devices (ids) of which the person knows that the reset may interrupt them. Raises
    Forbidden, Invalid, InUse where it may interrupt others (`affected` lists all), and Conflict where its service
    offers no such reset or operations of its chassis have not ended. Replays a key as `operation_request` does.
    """
    with attempt(Action.PART_RESET, actor=person, target=target_of(part, part.label)) as act:
        require_administrator(person)
        check_answering(part.chassis)
        choices = dict(reset_choices(part))
        if part.missing_since is not None or not choices:
            raise Conflict(_("The service of {name} offers no reset of it.", name=part.label))
        if reset_type not in choices:
            raise Invalid(
                _("{name} cannot be reset in this way.", name=part.label),
                errors={"reset_type": _("One of {choices}.", choices=", ".join(choices))},
            )
        _check_typed(part, confirmation)
        request = _PartRequest(person, part, Operation.Kind.RESET, {"reset_type": reset_type}, idempotency_key)

        def check() -> list[AffectedDevice]:
            interrupted = affected_devices(part)
            _check_told(interrupted, affected)
            return interrupted

        return request.store(act, check, summary=f"Reset {part.label} ({reset_type})")


@two_people(firmware_proposal)
def firmware_request(
    *,
    person: User,
    part: ManagedPart,
    image_uri: str = "",
    image: FirmwareImage | None = None,
    version: str = "",
    confirmation: str = "",
    affected: Collection[int] = (),
    idempotency_key: str = "",
) -> Operation:
    """Request an update of a part from an image's URI or an uploaded image; `version` is what it should lead to.

    The devices that it interrupts must be drained (`firmware_drain`); of a BMC, the attached ones can be named as
    `affected` instead. Raises as `reset_request` does.
    """
    with attempt(Action.FIRMWARE_UPDATE, actor=person, target=target_of(part, part.label)) as act:
        require_administrator(person)
        check_answering(part.chassis)
        service = update_service(part)
        if service is None:
            raise Conflict(_("The service of {name} offers no update of it.", name=part.label))
        _check_source(service, image_uri, image)
        _check_typed(part, confirmation)
        setting = FirmwareSetting(
            image_uri=image_uri,
            image=image.pk if image is not None else None,
            image_name=image.name if image is not None else "",
            wanted=version.strip()[:200],
        )
        request = _PartRequest(person, part, Operation.Kind.FIRMWARE, asdict(setting), idempotency_key)

        def check() -> list[AffectedDevice]:
            _check_drained(part)
            interrupted = affected_devices(part, by_update=True)
            _check_told(interrupted, affected)
            return interrupted

        return request.store(act, check, summary=f"Update the firmware of {part.label}")


class _PartRequest:
    """A request of an operation on a part, which a repeated key finds again."""

    def __init__(
        self, person: User, part: ManagedPart, kind: Operation.Kind, setting: Mapping[str, Any], key: str
    ) -> None:
        self.person, self.part, self.kind, self.setting, self.key = person, part, kind, dict(setting), key
        self.digest = request_digest(kind.value, part.pk, *self.setting.values())

    def replayed(self) -> Operation | None:
        return find_replayed(Operation, self.person, self.key, self.digest)

    def store(self, act: AuditedAction, check: Callable[[], list[AffectedDevice]], *, summary: str) -> Operation:
        """Store the operation where `check` passes under the chassis' lock; it returns what is interrupted."""
        if known := self.replayed():
            return known
        part = self.part
        try:
            with act.change():
                lock_chassis([part.chassis_id])
                if known := self.replayed():
                    return known
                _check_idle(self.person, part)
                interrupted = check()
                operation = operation_store(
                    self.person,
                    self.kind,
                    self.key,
                    self.digest,
                    chassis=part.chassis,
                    managed_part=part,
                    drawer=part.drawer,
                    setting=self.setting,
                    summary=summary[:300],
                )
                act.before = {
                    "power": part.power_state, "version": part.version,
                    "interrupted": [one.sentence for one in interrupted],
                }  # fmt: skip
                act.after = {
                    **{name: value for name, value in self.setting.items() if value},
                    "operation": str(operation.pk),
                }
        except IntegrityError:
            if known := self.replayed():
                return known
            raise
        return operation


def firmware_drain(*, person: User, part: ManagedPart) -> Plan:
    """Create a draft of a plan that detaches all devices which an update of a part interrupts.

    Raises Forbidden, InUse where a run uses one, and Conflict where a lease holds one or nothing is attached.
    """
    require_administrator(person)
    attached = [one.device for one in affected_devices(part, by_update=True)]
    if not attached:
        raise Conflict(_("Nothing that an update of {name} interrupts is attached.", name=part.label))
    check_not_held(attached)
    if held := lease_holds([one.pk for one in attached]):
        first = held[0]
        raise Conflict(
            _(
                "{device} is in lease {lease} of {tenant}. Ask them to return it, or end the lease; then drain.",
                device=first.device.name if first.device is not None else "",
                lease=first.lease_id,
                tenant=first.lease.tenant_name,
            )
        )
    desired = DesiredState(attachments={one.pk: None for one in attached})
    return plan_create(person=person, desired=desired, title=drain_title(part), origin=DRAIN_ORIGIN)


def firmware_image_add(*, person: User, name: str, chunks: Iterable[bytes]) -> FirmwareImage:
    """Store an uploaded image, for administrators; raises Forbidden, Conflict for too many, Invalid for a bad one."""
    with attempt(Action.FIRMWARE_IMAGE_ADD, actor=person, target=Target(kind="firmware image", name=name)) as act:
        require_administrator(person)
        if FirmwareImage.objects.count() >= MAX_IMAGES:
            raise Conflict(_("There are {count} images. Delete those that you do not need.", count=MAX_IMAGES))
        shown = "".join(one for one in name if one.isprintable() and one not in '/\\"')[:200] or "image"
        with IncomingFile(MAX_IMAGE_BYTES) as file:
            # Before the transaction, which others wait for.
            for chunk in chunks:
                file.write(chunk)
            file.end()
            with act.change():
                image = FirmwareImage.objects.create(
                    name=shown, size=file.size, sha256=file.sha256, uploaded_by_name=actor_name(person)
                )
                file.keep(image_path(image.pk))
                act.target, act.after = target_of(image), {"size": file.size, "sha256": file.sha256}
    return image


def firmware_image_remove(*, person: User, image: FirmwareImage) -> None:
    """Delete an image; raises Forbidden, and Conflict while an update needs it."""
    with audited(Action.FIRMWARE_IMAGE_REMOVE, actor=person, target=target_of(image)) as act:
        require_administrator(person)
        if Operation.objects.open().filter(kind=Operation.Kind.FIRMWARE, setting__image=image.pk).exists():
            raise Conflict(_("An update that has not ended needs {name}.", name=image.name))
        act.before = {"sha256": image.sha256}
        _remove_with_file(image, image_path(image.pk))


def logs_request(*, person: User, part: ManagedPart, idempotency_key: str = "") -> Operation:
    """Request the logs of a BMC as a file; raises Forbidden, and Conflict where it has none or too many are kept."""
    with attempt(Action.LOG_COLLECT, actor=person, target=target_of(part, part.label)) as act:
        require_administrator(person)
        check_answering(part.chassis)
        if part.kind != ManagedPart.Kind.BMC or part.missing_since is not None:
            raise Conflict(_("{name} is no BMC that answers.", name=part.label))
        if CollectedLog.objects.count() >= MAX_LOGS:
            raise Conflict(_("There are {count} files. Delete those that you do not need.", count=MAX_LOGS))
        digest = request_digest("logs", part.pk)
        if known := find_replayed(Operation, person, idempotency_key, digest):
            return known
        with act.change():
            lock_chassis([part.chassis_id])
            if known := find_replayed(Operation, person, idempotency_key, digest):
                return known
            other = Operation.objects.open().filter(kind=Operation.Kind.LOGS, managed_part=part).first()
            if other is not None:
                raise Conflict(open_operation_sentence(part.label, other, person), operation=str(other.pk))
            operation = operation_store(
                person,
                Operation.Kind.LOGS,
                idempotency_key,
                digest,
                chassis=part.chassis,
                managed_part=part,
                summary=f"Collect the logs of {part.label}"[:300],
            )
            act.after = {"operation": str(operation.pk)}
    return operation


def collected_log_store(*, operation: Operation, file: IncomingFile, name: str) -> CollectedLog:
    """Keep a downloaded file as the result of an operation; of a worker that took over, in place of an earlier one."""
    with transaction.atomic():
        for earlier in CollectedLog.objects.filter(operation=operation):
            _remove_with_file(earlier, log_path(earlier.pk))
        row = CollectedLog.objects.create(
            managed_part=operation.managed_part,
            operation=operation,
            name=name,
            size=file.size,
            sha256=file.sha256,
            collected_by_name=operation.requested_by_name,
        )
        file.keep(log_path(row.pk))
    return row


def log_download(person: User, log: CollectedLog) -> Download:
    """Return a collected log as a download, which is audited; raises Forbidden, and NotFound where its file is gone."""
    with audited(Action.LOG_DOWNLOAD, actor=person, target=target_of(log)):
        require_administrator(person)
        path = log_path(log.pk)
        if not path.exists():
            raise NotFound(_("The file {name} is gone.", name=log.name))
    headers = {"Content-Disposition": f'attachment; filename="{log.name}"', "Content-Length": str(log.size)}
    return Download(read_chunks(path), content_type="application/octet-stream", headers=headers)


def collected_log_remove(*, person: User, log: CollectedLog) -> None:
    """Delete a collected log; raises Forbidden."""
    with audited(Action.LOG_REMOVE, actor=person, target=target_of(log)) as act:
        require_administrator(person)
        act.before = {"sha256": log.sha256}
        _remove_with_file(log, log_path(log.pk))


def _remove_with_file(row: FirmwareImage | CollectedLog, path: Path) -> None:
    row.delete()
    transaction.on_commit(lambda: path.unlink(missing_ok=True), robust=True)


def _check_source(service: RedfishUpdateService, image_uri: str, image: FirmwareImage | None) -> None:
    if (image is None) == (not image_uri):
        sentence = _("Give either the URI of an image or an uploaded image.")
        raise Invalid(sentence, errors={"image_uri": sentence})
    if image is not None:
        if not service.takes_pushes:
            raise Conflict(_("Its service takes no image that is pushed: give the URI of an image."))
        if service.max_image_bytes and image.size > service.max_image_bytes:
            raise Conflict(_("Its service takes images of at most {most} MB.", most=service.max_image_bytes >> 20))
        return
    if not service.simple_update_target:
        raise Conflict(_("Its service takes no URI of an image: upload the image."))
    try:
        uri = urlsplit(image_uri)
        scheme = uri.scheme if uri.hostname and uri.username is None else ""
    except ValueError:
        scheme = ""
    is_written_well = len(image_uri) <= MAX_URI_LENGTH and image_uri.isprintable() and " " not in image_uri
    if scheme not in {"http", "https"} or not is_written_well:
        sentence = _("Give an http or https URI without a user or password, such as https://images.example/bmc.bin.")
        raise Invalid(sentence, errors={"image_uri": sentence})
    if service.protocols and scheme.upper() not in service.protocols:
        sentence = _("Its service fetches images by {protocols}.", protocols=join_words(list(service.protocols)))
        raise Invalid(sentence, errors={"image_uri": sentence})


def _check_typed(part: ManagedPart, confirmation: str) -> None:
    """Raise Invalid unless the label of a part was typed."""
    if confirmation.strip() != part.label.strip():
        sentence = _("Type exactly: {name}", name=part.label)
        raise Invalid(_("This is not the name of the part. {hint}", hint=sentence), errors={"confirmation": sentence})


def _check_idle(person: User, part: ManagedPart) -> None:
    """Raise Conflict where an operation of the part's chassis has not ended."""
    other = Operation.objects.open().filter(chassis=part.chassis_id).in_turn().first()
    if other is not None:
        raise Conflict(open_operation_sentence(part.chassis.name, other, person), operation=str(other.pk))


def _check_drained(part: ManagedPart) -> None:
    """Raise InUse where an attached device keeps the part from an update."""
    if attached := undrained_devices(part):
        raise InUse(
            _("An update may interrupt what is attached: {devices}. Drain it first.", devices=_named(attached)),
            affected=_as_details(attached),
        )


def _check_told(interrupted: Collection[AffectedDevice], told: Collection[int]) -> None:
    """Raise InUse where a device may be interrupted of which the person was not told."""
    untold = [one for one in interrupted if one.device.pk not in told]
    if untold:
        raise InUse(
            _(
                "It may interrupt what is attached: {devices}. Detach it first, or confirm that it may be interrupted.",
                devices=_named(untold),
            ),
            affected=_as_details(interrupted),
        )


def _named(devices: Collection[AffectedDevice]) -> str:
    named = [one.sentence for one in [*devices][:MAX_NAMED]]
    return join_words(
        named if len(devices) <= MAX_NAMED else [*named, _("{count} more", count=len(devices) - MAX_NAMED)]
    )


def _as_details(devices: Collection[AffectedDevice]) -> list[dict[str, object]]:
    return [{"device_id": one.device.pk, "sentence": one.sentence} for one in devices]
