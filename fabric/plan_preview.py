"""What a draft would do, before anybody does it: steps by drawer, what they touch, what objects, how long it takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounts.models import User
from fabric.durations import NONE_YET, Kind, Usually, durations_usual, longest_path
from fabric.hostside import doubt_in_words, holders_in_words, host_sides_of
from fabric.models import Chassis, Device, Drawer, HostAgent, HostPort, Operation, Plan
from fabric.outlook import Place, drawers_seen
from fabric.planning import Wanted
from fabric.plans import OBJECTORS, Entry, entries_of, place_of_device
from fabric.services.plan_rights import parts_of
from fabric.services.plan_words import base_of, differences_of, place_names, rows_seen
from fabric.services.plans import involved
from falconweb.errors import FalconWebError

OF_OTHERS = "It would take out a device that is not yours. Ask an administrator to do it."


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a drawer is busy with: `page` is '' where the person may not see it."""

    words: str
    by: str = ""
    page: str = ""
    pk: object = None
    more: int = 0


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A step that is planned: numbers count from 1."""

    number: int
    sentence: str
    kind: str
    after: str  # 'after 1 to 3', '' for one that waits for none
    usually: str  # '' where there is no history yet
    interrupts: bool
    drawer: int | None


@dataclass(frozen=True, kw_only=True)
class Lane:
    """The steps in one drawer; drawers are worked on side by side."""

    name: str
    steps: tuple[PlannedStep, ...]
    usually: str
    ahead: Ahead | None


@dataclass(frozen=True, kw_only=True)
class Objected:
    """What stands against a plan: a sentence, and the drawer that it is about ('' and None for none)."""

    sentence: str
    drawer: str = ""
    drawer_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class InUse:
    """A device that is taken from its host although somebody uses it there."""

    device: int
    name: str
    where: str
    by: str


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A draft as it is looked at before it is applied."""

    entries: tuple[Entry, ...]
    interrupted: tuple[str, ...]  # devices that are taken out and put back
    hosts: tuple[str, ...]
    links: tuple[str, ...]
    objections: tuple[Objected, ...]
    lanes: tuple[Lane, ...]
    steps: int
    usually: str
    differences: tuple[str, ...]
    chassis: tuple[int, ...]
    away: tuple[str, ...]  # chassis that do not answer now
    in_use: tuple[InUse, ...]

    @property
    def why_not(self) -> str:
        """Return why it cannot be applied, '' where it can."""
        if self.differences:
            return "The state has changed since it was planned: plan anew first."
        if self.objections:
            return "A rule stands against it: change the draft first."
        return "" if self.steps else "There is nothing to change."


def preview_of_plan(person: User, plan: Plan) -> Preview:
    """Return a draft with everything that one should know before it is applied."""
    steps = [step for step in plan.preview if "objection" not in step]
    kinds = {(step["kind"], step["chassis"]) for step in steps}
    usual = durations_usual(kinds)
    moves = [step for step in steps if step["device"] is not None]
    touched = {step["device"] for step in moves}
    devices = rows_seen(Device.objects.select_related("chassis", "slot__drawer"), person, touched)
    chassis = {step["chassis"] for step in steps} | set(_chassis_of(person, plan))
    return Preview(
        entries=entries_of(person, plan),
        interrupted=tuple(
            dict.fromkeys(
                f"{devices[step['device']].name} ({place_of_device(devices[step['device']])})"
                if step["device"] in devices
                else "a device of others"
                for step in steps
                if step["interrupts"]
            )
        ),
        hosts=_hosts(person, steps),
        links=_links(person, steps, devices),
        objections=_objections(person, plan, others=any(step["device"] not in devices for step in moves)),
        lanes=lanes_of(person, steps, devices, usual),
        steps=len(steps),
        usually=total_words(longest_path([_placed(step) for step in steps], usual)),
        differences=tuple(differences_now(person, plan)),
        chassis=tuple(sorted(chassis)),
        away=_away({step["chassis"] for step in steps}),
        in_use=in_use_of(person, plan),
    )


def _away(chassis: Collection[int]) -> tuple[str, ...]:
    rows = Chassis.objects.filter(pk__in=chassis).exclude(last_error="").order_by("name")
    return tuple(rows.values_list("name", flat=True))


def in_use_of(person: User, plan: Plan) -> tuple[InUse, ...]:
    """Return the devices that a draft takes from hosts where, as agents there tell, somebody uses them, or may."""
    taken = {step["device"] for step in plan.preview if step.get("source") and step.get("device")}
    hosts = HostAgent.objects.values("host")
    rows = Device.objects.select_related("chassis", "slot", "host_port__host").filter(
        host_port__host__in=hosts,
        # Who works on a host that is another tenant's by now is told to nobody else.
        host_port__in=HostPort.objects.visible_to(person),
    )
    found = rows_seen(rows, person, taken)
    sides = host_sides_of(found.values())
    return tuple(
        InUse(
            device=pk,
            name=row.name,
            where=place_of_device(row),
            by=f"not known: {doubt_in_words(side)}" if side.unsure else holders_in_words(side.holders),
        )
        for pk, row in found.items()
        if (side := sides[pk]).holders or side.unsure
    )


def differences_now(person: User, plan: Plan) -> list[str]:
    """Return in sentences what has changed since a draft was planned, or what of it is not the person's any more."""
    wanted = Wanted.from_json(plan.wanted)
    try:
        drawers = involved(drawers_seen(parts_of(person, wanted).chassis), wanted)
    except FalconWebError as error:
        return [error.sentence]
    return differences_of(plan.base, base_of(drawers), person)


def lanes_of(
    person: User, steps: Sequence[Mapping[str, Any]], devices: Mapping[int, Any], usual: Mapping[Kind, Usually]
) -> tuple[Lane, ...]:
    """Return planned steps by the drawers they are in."""
    places = list(dict.fromkeys((step["chassis"], step["drawer"]) for step in steps))
    names = names_of_places(places)
    busy = ahead_of(person, places)
    return tuple(
        Lane(
            name=names[place],
            steps=tuple(
                _step(step, devices, usual) for step in steps if (step["chassis"], step["drawer"]) == place
            ),
            usually=total_words(
                longest_path([_placed(step) for step in steps if (step["chassis"], step["drawer"]) == place],
                             dict(usual))
            ),
            ahead=busy.get(place),
        )
        for place in places
    )  # fmt: skip


def _step(step: Mapping[str, Any], devices: Mapping[int, Any], usual: Mapping[Kind, Usually]) -> PlannedStep:
    usually = usual.get((step["kind"], step["chassis"]))
    hidden = step["device"] is not None and step["device"] not in devices
    return PlannedStep(
        number=step["position"] + 1,
        sentence="Something is done to a device of others" if hidden else step["sentence"],
        kind=step["kind"],
        after=after_words([position + 1 for position in step["after"]]),
        usually=usually.words if usually is not None else "",
        interrupts=step["interrupts"],
        drawer=step["drawer"],
    )


def after_words(numbers: Iterable[int]) -> str:
    """Return 'after 1, 3 to 5' for the numbers of steps, '' for none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(str(one) for one in run)
        for run in runs
    ]  # fmt: skip
    return f"after {', '.join(told)}" if told else ""


def total_words(total: Usually | None) -> str:
    """Return how long something usually takes, or that nobody knows yet."""
    return total.words if total is not None else NONE_YET


def names_of_places(places: Iterable[Place]) -> dict[Place, str]:
    """Return drawers in words: 'falcon-1 Drawer 1'; what is in no drawer by its chassis alone."""
    known = list(places)
    chassis = dict(Chassis.objects.filter(pk__in={one for one, _ in known}).values_list("pk", "name"))
    drawers = dict(Drawer.objects.filter(pk__in={one for _, one in known if one}).values_list("pk", "name"))
    return {
        (one, drawer): " ".join(word for word in (chassis.get(one, ""), drawers.get(drawer or 0, "")) if word)
        for one, drawer in known
    }


def ahead_of(person: User, places: Iterable[Place], plan: Plan | None = None) -> dict[Place, Ahead]:
    """Return what drawers are busy with before it is the turn of `plan` (None: of what would be asked for now)."""
    wanted = set(places)
    found: dict[Place, list[Operation]] = {}
    rows = Operation.objects.open().filter(chassis__in={chassis for chassis, _ in wanted})
    seen = set(rows.filter(pk__in=Operation.objects.visible_to(person)).values_list("pk", flat=True))
    plans = set(Plan.objects.visible_to(person).filter(operations__in=rows).values_list("pk", flat=True))
    passed: set[Place] = set()
    for row in rows.select_related("plan").in_turn():
        place = (row.chassis_id, row.drawer_id)
        if plan is not None and row.plan_id == plan.pk:
            passed.add(place)
        if place in wanted and place not in passed:
            found.setdefault(place, []).append(row)
    return {
        place: _ahead(rows_of_place, seen, plans)
        for place, rows_of_place in found.items()
        if plan is None or place in passed
    }


def _ahead(rows: list[Operation], seen: set[Any], plans: set[Any]) -> Ahead:
    first = rows[0]
    others = len({row.plan_id or row.pk for row in rows}) - 1
    if first.plan is not None and first.plan_id in plans:
        return Ahead(
            words=first.plan.title, by=first.plan.acting_name, page="fabric:plan", pk=first.plan_id, more=others
        )
    if first.pk in seen:
        return Ahead(words=first.summary, by=first.requested_by_name, page="fabric:operation", pk=first.pk, more=others)
    return Ahead(words="another operation", more=others)


def _placed(step: Mapping[str, Any]) -> tuple[Place, str]:
    return (step["chassis"], step["drawer"]), step["kind"]


def _hosts(person: User, steps: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the hosts that gain or lose something."""
    ports = {step[end] for step in steps for end in ("source", "target") if step[end] is not None}
    return tuple(sorted({name for pk, name in place_names(ports, person).items() if pk is not None}))


def _links(person: User, steps: Sequence[Mapping[str, Any]], devices: Mapping[int, Any]) -> tuple[str, ...]:
    """Return the links that go down or are trained anew."""
    links = [place_of_device(row) for row in devices.values()]
    cables = {step["source"] for step in steps if step["kind"] == "cable"}
    ports = {step["port"] for step in steps if step["kind"] == "port"}
    host_ports = HostPort.objects.visible_to(person).select_related("chassis")
    links += [f"{row.chassis.name} · {row.label}" for row in host_ports.filter(pk__in=cables)]
    links += [f"{row.chassis.name} · {row.label}" for row in host_ports.filter(port__in=ports).exclude(pk__in=cables)]
    return tuple(dict.fromkeys(links))


def _objections(person: User, plan: Plan, *, others: bool) -> tuple[Objected, ...]:
    told: list[tuple[str, int | None]] = [(OF_OTHERS, None)] if others else []
    told += [(step["objection"], step.get("drawer")) for step in plan.preview if "objection" in step]
    wanted = Wanted.from_json(plan.wanted)
    told += [(one.sentence, one.drawer) for objector in OBJECTORS for one in objector(person, wanted)]
    drawers = rows_seen(Drawer.objects.select_related("chassis"), person, {one for _, one in told if one})
    return tuple(
        Objected(
            sentence=sentence,
            drawer=f"{drawers[drawer].chassis.name} {drawers[drawer].name}" if drawer in drawers else "",
            drawer_id=drawer if drawer in drawers else None,
        )
        for sentence, drawer in told
    )


def _chassis_of(person: User, plan: Plan) -> set[int]:
    """Return the chassis that a plan is about, so that the page follows them, steps or not."""
    wanted = Wanted.from_json(plan.wanted)
    devices = Device.objects.visible_to(person).filter(pk__in=list(wanted.attachments))
    drawers = Drawer.objects.visible_to(person).filter(pk__in=list(wanted.modes))
    return set(devices.values_list("chassis", flat=True)) | set(drawers.values_list("chassis", flat=True))
