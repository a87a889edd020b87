"""What a person should know first: what is wrong now, what is free, and what is going on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from accounts.models import User
from fabric.models import Chassis, Device, HostPort, Operation, Walk
from fabric.selectors import below_capability, downgraded

DOWN = {"LinkDown", "NoLink"}
BAD_HEALTH = {"Warning", "Critical"}
FAILED_SHOWN = timedelta(hours=1)  # what failed earlier is history, not wrong now
NEWEST = 8
MOST_PARTS = 4
KINDS = {label: place for place, label in enumerate(Device.Kind.labels)}  # in the order people look for them


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One thing that is wrong now; `page` and `pk` say where to look."""

    sentence: str
    page: str
    pk: object


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Devices of one kind and model that a person may see."""

    kind: str
    model: str
    attached: int
    free: int
    total: int  # with those of services that are monitored only


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What a person should know first."""

    chassis_count: int
    troubles: tuple[Trouble, ...]
    capacity: tuple[Capacity, ...]
    running: tuple[Operation, ...]
    newest: tuple[Operation, ...]


def overview_of(person: User) -> Overview:
    """Return what is wrong now, worst first, what is free, and what is going on."""
    chassis = list(Chassis.objects.visible_to(person))
    devices = list(Device.objects.visible_to(person).select_related("chassis", "slot__port", "slot__drawer"))
    operations = Operation.objects.visible_to(person)
    counted: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for device in devices:
        if device.missing_since is None:
            # What nobody can attach is not free.
            place = 0 if device.host_port_id else 1 if device.chassis.is_composable else 2
            counted[device.get_kind_display(), device.model or device.name][place] += 1
    return Overview(
        chassis_count=len(chassis),
        troubles=tuple(_troubles(person, chassis, devices, operations)),
        capacity=tuple(
            Capacity(kind=kind, model=model, attached=attached, free=free, total=attached + free + watched)
            for (kind, model), (attached, free, watched) in sorted(
                counted.items(), key=lambda one: (KINDS[one[0][0]], one[0])
            )
        ),
        running=tuple(operations.open().order_by("requested_at")),
        newest=tuple(operations.order_by("-requested_at")[:NEWEST]),
    )


def _troubles(
    person: User, chassis: list[Chassis], devices: list[Device], operations: Operation.OperationQuerySet
) -> Iterator[Trouble]:
    for one in chassis:
        if one.last_error:
            why = f" {one.last_error}" if person.is_administrator else ""
            yield Trouble(sentence=f"{one.name} is not answering.{why}", page="fabric:chassis", pk=one.pk)
        elif one.health in BAD_HEALTH and person.is_administrator:
            parts = _ill_parts(one)
            why = f": {', '.join(parts)}" if parts else ""
            yield Trouble(
                sentence=f"{one.name} reports its health as {one.health}{why}.", page="fabric:chassis", pk=one.pk
            )
    for device in devices:
        # '/redfish/v1/Chassis/CXL1/PCIeDevices/1': one number alone would be many devices.
        steps = device.uri.split("/")
        where = device.slot.name if device.slot else f"{''.join(steps[-3:-2])} {steps[-1]}"
        place = f"{device.name} in {device.chassis.name}, {where}"
        port = device.slot.port if device.slot is not None else None
        if device.missing_since is not None:
            yield Trouble(sentence=f"{place} is missing.", page="fabric:device", pk=device.pk)
        elif device.host_port_id and port is not None and port.link_status in DOWN:
            yield Trouble(sentence=f"The link of {place} is down.", page="fabric:device", pk=device.pk)
        elif below := downgraded(device):
            yield Trouble(
                sentence=f"The link of {place} runs below its capability: {below}.", page="fabric:device", pk=device.pk
            )
        elif device.health in BAD_HEALTH:
            yield Trouble(
                sentence=f"{place} reports its health as {device.health}.", page="fabric:device", pk=device.pk
            )
    yield from _troubles_of_host_ports(person)
    since = timezone.now() - FAILED_SHOWN
    for operation in operations.filter(state="failed", finished_at__gt=since).order_by("-finished_at")[:5]:
        yield Trouble(
            sentence=f"‘{operation.summary}’ failed. {operation.error}", page="fabric:operation", pk=operation.pk
        )


def _ill_parts(chassis: Chassis) -> list[str]:
    """Return the fans and sensors that the chassis reports as ill, worst first, a few of them."""
    walk = Walk.objects.filter(chassis=chassis).first()
    parts = [part for kind in ("fans", "sensors") for part in (walk.found.get(kind, []) if walk else [])]
    ill = [part for part in parts if part.get("health") in BAD_HEALTH]
    ill.sort(key=lambda part: part["health"])
    return [f"{part['name']} ({part['health']})" for part in ill[:MOST_PARTS]]


def _troubles_of_host_ports(person: User) -> Iterator[Trouble]:
    rows = HostPort.objects.visible_to(person).filter(missing_since=None, port__isnull=False)
    for row in rows.select_related("chassis", "port", "host"):
        place = f"host port {row.label} of {row.chassis.name}" + (f" to {row.host.name}" if row.host else "")
        if row.host and row.port.link_status in DOWN:
            yield Trouble(sentence=f"The link of {place} is down.", page="fabric:port", pk=row.port_id)
        elif below := below_capability(row.port):
            yield Trouble(
                sentence=f"The link of {place} runs below its capability: {below}.", page="fabric:port", pk=row.port_id
            )
