"""The runs that figures are made of, on somebody's behalf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from django.db.models import Q

from accounts.models import User
from benchmarks.figures.asked import MOST_RUNS, Asked
from benchmarks.figures.reading import Recorded
from benchmarks.figures.rows import Row
from benchmarks.figures.shapes import SOURCES, Source
from benchmarks.model.shapes import Topology
from benchmarks.runs.models import Run, Series
from benchmarks.runs.selectors import RunFilter, runs_found
from benchmarks.runs.summary import Summary
from benchmarks.sweeps.models import Sweep
from benchmarks.workloads.catalogue import CATALOGUE
from fabric.models import Host
from falconweb.errors import NotFound
from hostwire.training import Spec

Shape = TypeVar("Shape")
FEWEST_COMPARED, MOST_COMPARED = 2, 8
# What a run has besides its results; the rest is not asked for.
FIELDS: Final = (
    "pk", "title", "workload", "provenance", "state", "spec", "topology", "software", "results", "host", "queued_at",
)  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Runs with results, the newest first, or in the order that was asked for; `found` is how many there are in all.

    `without` are those that were asked for by their ids and have no results.
    """

    rows: list[Row]
    found: int
    without: list[Row]

    @property
    def left_out(self) -> int:
        """How many are too many."""
        return self.found - len(self.rows)


def selection_of(person: User, asked: Asked) -> Selection:
    """Return the runs that are asked for: by their ids whatever became of them, else those that completed.

    Five queries, and one a series that a figure reads. Raises NotFound for a run or sweep that the person may not see.
    """
    _refuse_unseen(person, asked)
    completed = Q() if asked.state else Q(state=Run.State.COMPLETED)
    wanted = Q(pk__in=asked.runs) | (completed & Q(sweep__in=asked.sweeps))
    listed = RunFilter(q=asked.words, state=asked.state, executor=asked.executor, person=asked.person)
    rows = runs_found(person, listed).filter(wanted if asked.runs or asked.sweeps else completed)
    if asked.workloads:
        rows = rows.filter(workload__in=asked.workloads)
    if asked.provenances:
        rows = rows.filter(provenance__in=asked.provenances)
    if asked.hosts:
        rows = rows.filter(host__in=asked.hosts)
    if asked.since:
        rows = rows.filter(queued_at__gte=asked.since)
    count = rows.count()
    runs = list(rows.order_by("-queued_at", "pk").select_related(None).select_related("host").only(*FIELDS)[:MOST_RUNS])
    place = {pk: number for number, pk in enumerate(asked.runs)}
    runs.sort(key=lambda run: place.get(run.pk, len(place)))
    made = rows_of(runs)
    without = [row for row in made if not row.keys and row.summary == Summary()]
    return Selection([row for row in made if row not in without], count - len(without), without)


def compared(person: User, asked: Asked) -> list[Row]:
    """Return the runs to compare, in the order that was asked for, whatever came of them.

    Raises NotFound for one that the person may not see.
    """
    _refuse_unseen(person, asked)
    runs = Run.objects.visible_to(person).filter(pk__in=asked.runs).only(*FIELDS).select_related("host")
    place = {pk: number for number, pk in enumerate(asked.runs)}
    return rows_of(sorted(runs, key=lambda run: place[run.pk])[:MOST_COMPARED])


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Return runs as figures read them; their series are read once something asks, of all of them at a time."""
    keys: dict[Any, set[str]] = {run.pk: set() for run in runs}
    for pk, key in Series.objects.filter(run__in=keys).values_list("run", "key"):
        keys[pk].add(key)
    recorded = Recorded(keys)
    return [
        Row(
            id=str(run.pk),
            title=run.title,
            workload=run.workload,
            workload_title=CATALOGUE[run.workload].title if run.workload in CATALOGUE else run.workload,
            is_training=CATALOGUE[run.workload].is_training if run.workload in CATALOGUE else True,
            provenance=_source(run.provenance),
            state=run.state,
            spec=_shaped(run.spec, Spec),
            topology=_shaped(run.topology, Topology),
            software=run.software,
            summary=_shaped(run.results, Summary) or Summary(),
            host=run.host.name if run.host else "",
            queued_at=run.queued_at,
            keys=frozenset(keys[run.pk]),
            read=recorded.reader(run.pk),
        )
        for run in runs
    ]


def workloads_seen(person: User) -> list[tuple[str, str]]:
    """Return the workloads of completed runs that a person sees: name and title, by title."""
    seen = Run.objects.visible_to(person).filter(state=Run.State.COMPLETED)
    names = set(seen.order_by().values_list("workload", flat=True).distinct())
    titles = {name: CATALOGUE[name].title if name in CATALOGUE else name for name in names}
    return sorted(titles.items(), key=lambda one: one[1].casefold())


def hosts_seen(person: User) -> list[Host]:
    """Return the hosts of completed runs that a person sees, by name."""
    seen = Run.objects.visible_to(person).filter(state=Run.State.COMPLETED).exclude(host=None)
    return list(Host.objects.filter(pk__in=seen.order_by().values("host")).order_by("name"))


def sweeps_named(person: User, asked: Asked) -> list[Sweep]:
    """Return the sweeps that are asked for."""
    return list(Sweep.objects.visible_to(person).filter(pk__in=asked.sweeps).order_by("-created_at"))


def _source(provenance: str) -> Source:
    return next((source for source in SOURCES if source == provenance), "imported")


def _refuse_unseen(person: User, asked: Asked) -> None:
    if Run.objects.visible_to(person).filter(pk__in=asked.runs).count() < len(asked.runs):
        raise NotFound("There is no such run.")
    if Sweep.objects.visible_to(person).filter(pk__in=asked.sweeps).count() < len(asked.sweeps):
        raise NotFound("There is no such sweep.")


def _shaped(plain: Any, shape: type[Shape]) -> Shape | None:
    """Return JSON as what it was; None where there is none, or it came from elsewhere in another shape."""
    if not plain:
        return None
    try:
        return msgspec.convert(plain, shape)
    except msgspec.ValidationError:
        return None
