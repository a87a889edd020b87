"""The overview: present problems, capacity, and current activity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from django.db.models import Count

from accounts.models import User
from fabric.bmc.types import Dialect
from fabric.inventory.models import Device
from fabric.leases.selectors import LeaseNotice, lease_notices
from fabric.operations.models import Operation, Plan
from fabric.plans.selectors import PlanSummary, plan_summaries
from fabric.topology.fleet import FleetTile, fleet_tiles
from fabric.topology.problems import (
    DRIFTED,
    Problem,
    ProblemLevel,
    StatusBoard,
    parts_of,
    present_problems,
    worst_first,
)

OPERATIONS_SHOWN = 8
PLANS_SHOWN = 4
MAX_DRIFTS_LISTED = 4  # of a chassis
KIND_ORDER = {label: place for place, label in enumerate(Device.Kind.labels)}  # the order of display


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Visible devices of one kind and model."""

    kind: str
    model: str
    attached: int
    detached: int  # of those that can be attached
    total: int  # including those of services that are monitored only


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The content of the overview."""

    fleet: tuple[FleetTile, ...]
    problems: tuple[Problem, ...]  # worst first
    capacity: tuple[Capacity, ...]
    running: tuple[Operation, ...]
    newest: tuple[Operation, ...]
    running_plans: tuple[PlanSummary, ...]  # including stopped ones, which wait for a decision
    newest_plans: tuple[PlanSummary, ...]
    leases: tuple[LeaseNotice, ...]


def overview_for(person: User) -> Overview:
    """Return the present problems, worst first, the capacity, and the current activity."""
    operations = Operation.objects.visible_to(person)
    plans = Plan.objects.visible_to(person).exclude(state=Plan.State.DRAFT).order_by("-applied_at")
    going = (*Plan.ACTIVE, Plan.State.STOPPED)
    # The steps of a plan are shown with it.
    alone = operations.exclude(plan__in=Plan.objects.visible_to(person).values("pk"))
    notices, found = lease_notices(person), present_problems(person)
    stuck = [
        Problem(level=ProblemLevel.WARNING, word="stuck", sentence=one.sentence, page="fabric:lease", pk=one.lease_id)
        for one in notices
        if one.bad
    ]
    fleet = fleet_tiles(person, StatusBoard(found, parts_of(person)))
    return Overview(
        fleet=fleet,
        problems=_listed((*stuck, *found), {one.id: one.name for one in fleet}),
        capacity=_capacity(person),
        running=tuple(alone.open().order_by("requested_at")),
        newest=tuple(alone.order_by("-requested_at")[:OPERATIONS_SHOWN]),
        running_plans=plan_summaries(plans.filter(state__in=going)[:OPERATIONS_SHOWN]),
        newest_plans=plan_summaries(plans.exclude(state__in=going)[:PLANS_SHOWN]),
        leases=tuple(one for one in notices if not one.bad),
    )


def _capacity(person: User) -> tuple[Capacity, ...]:
    present = Device.objects.visible_to(person).filter(missing_since=None)
    groups = present.order_by().values_list("kind", "model", "name", "chassis__dialect")
    counted: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for kind, model, name, dialect, count, attached in groups.annotate(Count("pk"), Count("host_port")):
        numbers = counted[Device.Kind(kind).label, model or name]
        numbers[0] += attached
        # A device that is only monitored is neither.
        numbers[1 if dialect != Dialect.NONE else 2] += count - attached
    return tuple(
        Capacity(kind=kind, model=model, attached=attached, detached=detached, total=attached + detached + watched)
        for (kind, model), (attached, detached, watched) in sorted(
            counted.items(), key=lambda one: (KIND_ORDER[one[0][0]], one[0])
        )
    )


def _listed(problems: Iterable[Problem], names: Mapping[int, str]) -> tuple[Problem, ...]:
    """Return problems worst first, with one line for the drift of a chassis (`names`, by id) that has much of it."""
    drifts: dict[int, list[Problem]] = defaultdict(list)
    listed = []
    for one in problems:
        if one.word == DRIFTED and one.chassis_id is not None:
            drifts[one.chassis_id].append(one)
        else:
            listed.append(one)
    for pk, here in drifts.items():
        if len(here) > MAX_DRIFTS_LISTED:
            sentence = f"{len(here)} parts of {names[pk]} have drifted."
            listed.append(replace(here[0], sentence=sentence, page="fabric:chassis", pk=pk))
        else:
            listed += here
    return worst_first(listed)
