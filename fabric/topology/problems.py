"""Present problems and the status of things: one source for the overview, the topology and the lists.

A problem is about one thing; the status of a thing is the worst problem of it and of what it consists of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from django.db.models import F, Q
from django.utils import timezone

from accounts.models import User
from core.language import _, english, gettext_noop
from fabric.drift.selectors import drift_rows, drift_views
from fabric.inventory.models import Chassis, Device, HostPort, Walk
from fabric.inventory.selectors import downgraded, host_link_degradation
from fabric.operations.models import Operation, Plan

DOWN_STATES = {"LinkDown", "NoLink"}
BAD_HEALTH = {"Warning", "Critical"}
FAILED_SHOWN = timedelta(hours=1)  # older failures are history, not present problems
MAX_PARTS_SHOWN = 4
DRIFTED = gettext_noop("drifted")
NOT_ANSWERING = gettext_noop("not answering")
LINK_WORDS = (gettext_noop("narrow link"), gettext_noop("slow link"))
HEALTH_WORDS = {"Warning": gettext_noop("health Warning"), "Critical": gettext_noop("health Critical")}

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
    """A present problem; `word` names it in a picture, in English, `page` and `pk` link to its details."""

    level: ProblemLevel
    word: str
    sentence: str
    page: str
    pk: object
    about: Subject | None = None
    chassis_id: int | None = None
    is_general: bool = False  # that a thing is unwell, and not why
    explains: bool = False  # why a thing is unwell


@dataclass(frozen=True, kw_only=True)
class Status:
    """The problems of a thing and of its parts, worst first; at least one."""

    problems: tuple[Problem, ...]

    @property
    def level(self) -> ProblemLevel:
        """The level of the worst."""
        return self.problems[0].level

    @property
    def word(self) -> str:
        """The worst of it, in a word or two of English."""
        return self.problems[0].word

    @property
    def words(self) -> str:
        """What is wrong, without repetitions: 'missing, drifted'."""
        return ", ".join(dict.fromkeys(_(one.word) for one in self.problems))

    @property
    def sentences(self) -> str:
        """The worst three of it."""
        return " ".join(one.sentence for one in self.problems[:3])


# Of a person's problems, those of the chassis with these ids (None: of all).
ProblemSource = Callable[[User, Collection[int] | None], Iterable[Problem]]
_problem_sources: list[ProblemSource] = []


def register_problem_source(source: ProblemSource) -> None:
    """Register a source of problems in a room above: `source` returns those visible to a user, worst first."""
    if source not in _problem_sources:
        _problem_sources.append(source)


def present_problems(person: User, chassis_ids: Collection[int] | None = None) -> tuple[Problem, ...]:
    """Return the problems that a person may see, worst first: of some chassis, or of all, plans and operations too."""
    # What waits for a decision comes first among equally bad ones.
    found = [] if chassis_ids is not None else [*_work_problems(person)]
    found += _hardware_problems(person, chassis_ids)
    for source in _problem_sources:
        found += source(person, chassis_ids)
    # A chassis is unwell since something in it is.
    explained = {
        (about, level)
        for one in found
        if one.explains
        for about in (one.about, ("chassis", one.chassis_id))
        for level in ProblemLevel
        if level <= one.level
    }
    found = [one for one in found if not one.is_general or (one.about, one.level) not in explained]
    return worst_first(found)


def worst_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems by their levels; equally bad ones stay in order, but that something is wrong comes after what."""
    return tuple(sorted(problems, key=lambda one: (-one.level, one.is_general)))


class StatusBoard:
    """The status of each thing: `above` tells what a thing is a part of. A thing without problems has none."""

    def __init__(self, problems: Iterable[Problem], above: Mapping[Subject, Sequence[Subject]]) -> None:
        self._of: dict[Subject, list[Problem]] = defaultdict(list)
        for problem in problems:
            # A chassis has all its problems, whatever else they are about.
            subjects = {("chassis", problem.chassis_id)} if problem.chassis_id is not None else set()
            coming = [problem.about] if problem.about is not None else []
            while coming:
                if (subject := coming.pop()) not in subjects:
                    subjects.add(subject)
                    coming += above.get(subject, ())
            for subject in subjects:
                self._of[subject].append(problem)

    def of(self, kind: str, pk: int | None) -> Status | None:
        """Return the status of a thing by its kind and id."""
        found = self._of.get((kind, pk)) if pk is not None else None
        return Status(problems=tuple(found)) if found else None


def status_board(person: User, chassis_ids: Collection[int] | None = None) -> StatusBoard:
    """Return the status of the things of some chassis, or of all, that a person may see."""
    return StatusBoard(present_problems(person, chassis_ids), parts_of(person, chassis_ids))


def parts_of(person: User, chassis_ids: Collection[int] | None = None) -> dict[Subject, list[Subject]]:
    """Return what visible things are parts of: ports of devices or host ports, and these of drawers."""
    above: dict[Subject, list[Subject]] = defaultdict(list)
    devices, ports = Device.objects.visible_to(person), HostPort.objects.visible_to(person)
    if chassis_ids is not None:
        devices, ports = devices.filter(chassis__in=chassis_ids), ports.filter(chassis__in=chassis_ids)
    for kind, rows in (
        ("device", devices.values_list("pk", "slot__drawer", "slot__port")),
        ("host-port", ports.values_list("pk", "drawer", "port")),
    ):
        for pk, drawer, port in rows:
            if drawer is not None:
                above[kind, pk].append(("drawer", drawer))
            if port is not None:
                above["port", port].append((kind, pk))
    return above


def _hardware_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    chassis = Chassis.objects.visible_to(person)
    devices = Device.objects.visible_to(person).select_related("chassis", "slot__port", "slot__drawer")
    ports = HostPort.objects.visible_to(person).filter(missing_since=None, port__isnull=False)
    if chassis_ids is not None:
        chassis = chassis.filter(pk__in=chassis_ids)
        devices, ports = devices.filter(chassis__in=chassis_ids), ports.filter(chassis__in=chassis_ids)
    yield from _chassis_problems(person, chassis)
    yield from _drift_problems(person, chassis_ids)
    for device in devices.filter(_suspect_devices()):
        yield from _device_problems(device)
    for row in ports.filter(_suspect_ports()).select_related("chassis", "port", "host"):
        names = {"label": row.label, "chassis": row.chassis.name}
        place = (
            _("host port {label} of {chassis} to {host}", host=row.host.name, **names)
            if row.host
            else _("host port {label} of {chassis}", **names)
        )
        down = row.host is not None and row.port.link_status in DOWN_STATES
        below = host_link_degradation(row.port)
        yield from _link_problems(
            row, place, is_down=down, below=below, page="fabric:port", about=("port", row.port_id)
        )


def _suspect_devices() -> Q:
    """Return a condition that every device with a problem meets: thousands of healthy ones take long to read."""
    is_down = Q(host_port__isnull=False, slot__port__link_status__in=DOWN_STATES)
    lanes = Q(lanes_in_use__lt=F("max_lanes")) | Q(lanes_in_use__lt=F("slot__port__configured_width"))
    below = lanes | ~Q(pcie_type=F("max_pcie_type"))
    return Q(missing_since__isnull=False) | Q(health__in=BAD_HEALTH) | is_down | below


def _suspect_ports() -> Q:
    """Return a condition that every host port with a problem meets."""
    lanes = Q(port__active_width__lt=F("port__width")) | Q(port__active_width__lt=F("port__configured_width"))
    return Q(port__link_status__in=DOWN_STATES) | lanes | Q(port__speed_gbps__lt=F("port__max_speed_gbps"))


def _chassis_problems(person: User, chassis: Iterable[Chassis]) -> Iterator[Problem]:
    rows = list(chassis)
    unhealthy = _unhealthy_parts([one.pk for one in rows if one.health in BAD_HEALTH and person.is_administrator])
    for one in rows:
        about = ("chassis", one.pk)
        if one.last_error and one.enabled:
            what = _("{name} is not answering.", name=one.name)
            yield Problem(
                level=ProblemLevel.CRITICAL, word=NOT_ANSWERING, page="fabric:chassis", pk=one.pk,
                sentence=f"{what} {one.last_error}" if person.is_administrator else what,
                about=about, chassis_id=one.pk,
            )  # fmt: skip
        elif one.pk in unhealthy:
            parts = ", ".join(unhealthy[one.pk])
            sentence = (
                _("{name} reports its health as {health}: {parts}.", name=one.name, health=_(one.health), parts=parts)
                if parts
                else _("{name} reports its health as {health}.", name=one.name, health=_(one.health))
            )
            yield Problem(
                level=level_of(one.health), word=HEALTH_WORDS[one.health], is_general=True,
                sentence=sentence, page="fabric:chassis", pk=one.pk,
                about=about, chassis_id=one.pk,
            )  # fmt: skip


def _unhealthy_parts(chassis: Collection[int]) -> dict[int, list[str]]:
    """Return some unhealthy fans, sensors and components of each of the chassis (ids), worst first."""
    found: dict[int, list[str]] = {pk: [] for pk in chassis}
    kinds = (f"found__{name}" for name in ("fans", "sensors", "components"))
    walks = Walk.objects.filter(chassis__in=chassis).values_list("chassis", *kinds)
    for pk, *found_kinds in walks:
        unhealthy = [part for parts in found_kinds for part in parts or () if part.get("health") in BAD_HEALTH]
        unhealthy.sort(key=lambda part: part["health"])
        found[pk] = [f"{part['name']} ({_(part['health'])})" for part in unhealthy[:MAX_PARTS_SHOWN]]
    return found


def _drift_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    rows = drift_rows(person, is_open=True)
    for view in drift_views(person, rows if chassis_ids is None else rows.filter(chassis__in=chassis_ids)):
        about = (view.page.rpartition(":")[2], view.part_id) if view.part_id else None
        yield Problem(
            level=ProblemLevel.WARNING, word=DRIFTED, sentence=f"{view.chassis_name}: {view.sentence}",
            page="fabric:drift", pk=view.id, about=about, chassis_id=view.chassis_id,
        )  # fmt: skip


def _device_problems(device: Device) -> Iterator[Problem]:
    # '/redfish/v1/Chassis/CXL1/PCIeDevices/1': its number alone would be ambiguous.
    steps = device.uri.split("/")
    where = device.slot.name if device.slot else f"{''.join(steps[-3:-2])} {steps[-1]}"
    place = _("{device} in {chassis}, {slot}", device=device.name, chassis=device.chassis.name, slot=where)
    port = device.slot.port if device.slot is not None else None
    about = ("device", device.pk)
    if device.missing_since is not None:
        yield Problem(
            level=ProblemLevel.CRITICAL, word=gettext_noop("missing"), page="fabric:device",
            sentence=_("{device} is missing.", device=place), pk=device.pk, about=about, chassis_id=device.chassis_id,
        )  # fmt: skip
        return
    is_down = bool(device.host_port_id) and port is not None and port.link_status in DOWN_STATES
    below = downgraded(device)
    yield from _link_problems(device, place, is_down=is_down, below=below, page="fabric:device", about=about)
    if device.health in BAD_HEALTH:
        yield Problem(
            level=level_of(device.health), word=HEALTH_WORDS[device.health], is_general=True,
            sentence=_("{name} reports its health as {health}.", name=place, health=_(device.health)),
            page="fabric:device", pk=device.pk, about=about, chassis_id=device.chassis_id,
        )  # fmt: skip


def _link_problems(
    part: Device | HostPort, place: str, *, is_down: bool, below: str, page: str, about: Subject
) -> Iterator[Problem]:
    if is_down:
        yield Problem(
            level=ProblemLevel.CRITICAL, word=gettext_noop("link down"), page=page,
            sentence=_("The link of {place} is down.", place=place), pk=about[1], about=about,
            chassis_id=part.chassis_id, explains=True,
        )  # fmt: skip
    elif below:
        yield Problem(
            level=ProblemLevel.WARNING, word=LINK_WORDS["of x" not in english(below)],
            sentence=_("The link of {place} runs below its maximum width or speed: {below}.", place=place, below=below),
            page=page, pk=about[1], about=about, chassis_id=part.chassis_id, explains=True,
        )  # fmt: skip


def _work_problems(person: User) -> Iterator[Problem]:
    """Yield stopped plans and failed operations."""
    visible = Plan.objects.visible_to(person)
    for plan in visible.filter(state=Plan.State.STOPPED).order_by("-applied_at")[:5]:
        what = _("The plan ‘{title}’ stopped and waits for a decision.", title=plan.title)
        sentence = f"{what} {_(plan.sentence)}"
        yield Problem(
            level=ProblemLevel.WARNING, word=gettext_noop("stopped"), sentence=sentence, page="fabric:plan", pk=plan.pk
        )
    since = timezone.now() - FAILED_SHOWN
    # The steps of a plan are shown with it.
    alone = Operation.objects.visible_to(person).exclude(plan__in=visible.values("pk"))
    for operation in alone.filter(state="failed", finished_at__gt=since).order_by("-finished_at")[:5]:
        what = _("‘{summary}’ failed.", summary=operation.summary)
        sentence = f"{what} {_(operation.error)}"
        yield Problem(
            level=ProblemLevel.WARNING, word=gettext_noop("failed"), sentence=sentence, page="fabric:operation",
            pk=operation.pk,
        )  # fmt: skip


def level_of(health: str) -> ProblemLevel:
    """Return the level of a health, or of an alert's severity."""
    return ProblemLevel.CRITICAL if health == "Critical" else ProblemLevel.WARNING
