"""Present problems and the status of things: one source for the overview, the topology and the lists.

A problem is about one thing; the status of a thing is the worst problem of it and of what it consists of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from django.utils import timezone

from accounts.models import User
from fabric.drift.selectors import DriftView, drift_rows, drift_views
from fabric.inventory.models import Chassis, Device, HostPort, Walk
from fabric.inventory.selectors import downgraded, host_link_degradation
from fabric.operations.models import Operation, Plan
from fabric.topology.presentation import ChassisView

DOWN_STATES = {"LinkDown", "NoLink"}
BAD_HEALTH = {"Warning", "Critical"}
FAILED_SHOWN = timedelta(hours=1)  # older failures are history, not present problems
MAX_PARTS_SHOWN = 4
MAX_DRIFTS = 200

Subject = tuple[str, int]  # 'chassis', 'drawer', 'device', 'port' or 'host-port', and its id


class ProblemLevel(IntEnum):
    """How bad a problem is."""

    WARNING = 1
    CRITICAL = 2

    @property
    def mark(self) -> str:
        """The icon that stands beside its word."""
        return "▲" if self == ProblemLevel.CRITICAL else "△"

    @property
    def css(self) -> str:
        """The name of its class in pages."""
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A present problem; `word` names it in a picture, `page` and `pk` link to its details."""

    level: ProblemLevel
    word: str
    sentence: str
    page: str
    pk: object
    about: Subject | None = None
    is_general: bool = False  # that something is wrong, and not what: another problem of the same thing says more


@dataclass(frozen=True, kw_only=True)
class Status:
    """The problems of a thing and of its parts, worst first; at least one."""

    problems: tuple[Problem, ...]

    @property
    def level(self) -> ProblemLevel:
        """The level of the worst."""
        return self.problems[0].level

    @property
    def words(self) -> str:
        """What is wrong, without repetitions: 'missing, drifted'."""
        return ", ".join(dict.fromkeys(one.word for one in self.problems))

    @property
    def sentences(self) -> str:
        """All of it."""
        return " ".join(one.sentence for one in self.problems)


# Of a person's problems, those of the chassis with these ids (None: of all).
ProblemSource = Callable[[User, Collection[int] | None], Iterable[Problem]]
_problem_sources: list[ProblemSource] = []


def register_problem_source(source: ProblemSource) -> None:
    """Register a source of problems in a room above: `source` returns those visible to a user, worst first."""
    if source not in _problem_sources:
        _problem_sources.append(source)


def present_problems(person: User, chassis_ids: Collection[int] | None = None) -> tuple[Problem, ...]:
    """Return the problems that a person may see, worst first: of some chassis, or of all, plans and operations too."""
    found = [*_hardware_problems(person, chassis_ids)]
    for source in _problem_sources:
        found += source(person, chassis_ids)
    if chassis_ids is None:
        found += _work_problems(person)
    explained = {
        (one.about, level) for one in found if not one.is_general for level in ProblemLevel if level <= one.level
    }
    found = [one for one in found if not one.is_general or (one.about, one.level) not in explained]
    return tuple(sorted(found, key=lambda one: (-one.level, one.is_general)))


class StatusBoard:
    """The status of each thing of some chassis; a thing without problems has none."""

    def __init__(self, views: Iterable[ChassisView], problems: Iterable[Problem]) -> None:
        self._of: dict[Subject, list[Problem]] = defaultdict(list)
        above = dict(_above(views))
        for problem in problems:
            subject = problem.about
            while subject is not None:
                if problem not in self._of[subject]:
                    self._of[subject].append(problem)
                subject = above.get(subject)

    def of(self, kind: str, pk: int | None) -> Status | None:
        """Return the status of a thing by its kind and id."""
        found = self._of.get((kind, pk)) if pk is not None else None
        return Status(problems=tuple(found)) if found else None


def _above(views: Iterable[ChassisView]) -> Iterator[tuple[Subject, Subject]]:
    """Yield each thing with what it is a part of: a port of a device or host port, these of a drawer or the chassis."""
    for chassis in views:
        for drawer in chassis.drawers:
            holder = ("drawer", drawer.id) if drawer.id is not None else ("chassis", chassis.id)
            if drawer.id is not None:
                yield ("drawer", drawer.id), ("chassis", chassis.id)
            for slot in drawer.slots:
                if slot.device is not None:
                    yield ("device", slot.device.id), holder
                    if slot.port_id is not None:
                        yield ("port", slot.port_id), ("device", slot.device.id)
        for port in chassis.host_ports:
            drawer_of = ("drawer", port.drawer_id) if port.drawer_id is not None else ("chassis", chassis.id)
            yield ("host-port", port.id), drawer_of
            if port.port_id is not None:
                yield ("port", port.port_id), ("host-port", port.id)


def _hardware_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    chassis = Chassis.objects.visible_to(person)
    devices = Device.objects.visible_to(person).select_related("chassis", "slot__port", "slot__drawer")
    ports = HostPort.objects.visible_to(person).filter(missing_since=None, port__isnull=False)
    if chassis_ids is not None:
        chassis = chassis.filter(pk__in=chassis_ids)
        devices, ports = devices.filter(chassis__in=chassis_ids), ports.filter(chassis__in=chassis_ids)
    yield from _chassis_problems(person, chassis)
    yield from _drift_problems(person, chassis_ids)
    for device in devices:
        yield from _device_problems(device)
    for row in ports.select_related("chassis", "port", "host"):
        place = f"host port {row.label} of {row.chassis.name}" + (f" to {row.host.name}" if row.host else "")
        down = row.host is not None and row.port.link_status in DOWN_STATES
        yield from _link_problems(
            place, is_down=down, below=host_link_degradation(row.port), page="fabric:port", about=("port", row.port_id)
        )


def _chassis_problems(person: User, chassis: Iterable[Chassis]) -> Iterator[Problem]:
    for one in chassis:
        about = ("chassis", one.pk)
        if one.last_error:
            why = f" {one.last_error}" if person.is_administrator else ""
            yield Problem(
                level=ProblemLevel.CRITICAL, word="not answering", sentence=f"{one.name} is not answering.{why}",
                page="fabric:chassis", pk=one.pk, about=about,
            )  # fmt: skip
        elif one.health in BAD_HEALTH and person.is_administrator:
            parts = _unhealthy_parts(one)
            why = f": {', '.join(parts)}" if parts else ""
            yield Problem(
                level=_level_of(one.health), word=f"health {one.health}", is_general=True,
                sentence=f"{one.name} reports its health as {one.health}{why}.", page="fabric:chassis", pk=one.pk,
                about=about,
            )  # fmt: skip


def _unhealthy_parts(chassis: Chassis) -> list[str]:
    """Return some unhealthy fans and sensors of the chassis, worst first."""
    walk = Walk.objects.filter(chassis=chassis).first()
    parts = [part for kind in ("fans", "sensors") for part in (walk.found.get(kind, []) if walk else [])]
    unhealthy = [part for part in parts if part.get("health") in BAD_HEALTH]
    unhealthy.sort(key=lambda part: part["health"])
    return [f"{part['name']} ({part['health']})" for part in unhealthy[:MAX_PARTS_SHOWN]]


def _drift_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    """Yield the drift; of a chassis with much of it only the number, unless some chassis are asked for."""
    rows = drift_rows(person, is_open=True)
    views = drift_views(person, (rows if chassis_ids is None else rows.filter(chassis__in=chassis_ids))[:MAX_DRIFTS])
    by_chassis: dict[int, list[DriftView]] = defaultdict(list)
    for view in views:
        by_chassis[view.chassis_id].append(view)
    for pk, here in by_chassis.items():
        if chassis_ids is None and len(here) > MAX_PARTS_SHOWN:
            many = f"{len(here)}{' and more' if len(views) == MAX_DRIFTS else ''} parts"
            yield _drifted(f"{many} of {here[0].chassis_name} have drifted.", "fabric:chassis", pk, ("chassis", pk))
            continue
        for view in here:
            about = (view.page.rpartition(":")[2], view.part_id) if view.part_id else ("chassis", pk)
            yield _drifted(f"{view.chassis_name}: {view.sentence}", "fabric:drift", view.id, about)


def _drifted(sentence: str, page: str, pk: int, about: Subject) -> Problem:
    return Problem(level=ProblemLevel.WARNING, word="drifted", sentence=sentence, page=page, pk=pk, about=about)


def _device_problems(device: Device) -> Iterator[Problem]:
    # '/redfish/v1/Chassis/CXL1/PCIeDevices/1': its number alone would be ambiguous.
    steps = device.uri.split("/")
    where = device.slot.name if device.slot else f"{''.join(steps[-3:-2])} {steps[-1]}"
    place = f"{device.name} in {device.chassis.name}, {where}"
    port = device.slot.port if device.slot is not None else None
    about = ("device", device.pk)
    if device.missing_since is not None:
        yield Problem(
            level=ProblemLevel.CRITICAL, word="missing", sentence=f"{place} is missing.", page="fabric:device",
            pk=device.pk, about=about,
        )  # fmt: skip
        return
    is_down = bool(device.host_port_id) and port is not None and port.link_status in DOWN_STATES
    yield from _link_problems(place, is_down=is_down, below=downgraded(device), page="fabric:device", about=about)
    if device.health in BAD_HEALTH:
        yield Problem(
            level=_level_of(device.health), word=f"health {device.health}", is_general=True,
            sentence=f"{place} reports its health as {device.health}.", page="fabric:device", pk=device.pk, about=about,
        )  # fmt: skip


def _link_problems(place: str, *, is_down: bool, below: str, page: str, about: Subject) -> Iterator[Problem]:
    if is_down:
        yield Problem(
            level=ProblemLevel.CRITICAL, word="link down", sentence=f"The link of {place} is down.", page=page,
            pk=about[1], about=about,
        )  # fmt: skip
    elif below:
        yield Problem(
            level=ProblemLevel.WARNING, word=below,
            sentence=f"The link of {place} runs below its maximum width or speed: {below}.", page=page, pk=about[1],
            about=about,
        )  # fmt: skip


def _work_problems(person: User) -> Iterator[Problem]:
    """Yield stopped plans and failed operations."""
    visible = Plan.objects.visible_to(person)
    for plan in visible.filter(state=Plan.State.STOPPED).order_by("-applied_at")[:5]:
        sentence = f"The plan ‘{plan.title}’ stopped and waits for a decision. {plan.sentence}"
        yield Problem(level=ProblemLevel.WARNING, word="stopped", sentence=sentence, page="fabric:plan", pk=plan.pk)
    since = timezone.now() - FAILED_SHOWN
    # The steps of a plan are shown with it.
    alone = Operation.objects.visible_to(person).exclude(plan__in=visible.values("pk"))
    for operation in alone.filter(state="failed", finished_at__gt=since).order_by("-finished_at")[:5]:
        sentence = f"‘{operation.summary}’ failed. {operation.error}"
        yield Problem(
            level=ProblemLevel.WARNING, word="failed", sentence=sentence, page="fabric:operation", pk=operation.pk
        )


def _level_of(health: str) -> ProblemLevel:
    return ProblemLevel.CRITICAL if health == "Critical" else ProblemLevel.WARNING
