"""The query of a figure page, the runs that it selects with their series, and the figure rendered of them.

A URL shows the same to everybody with the same visibility.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
import numpy as np
from django.db.models import Q
from django.http import QueryDict
from django.utils.dateparse import parse_date, parse_datetime
from numpy.typing import NDArray

from accounts.models import User
from benchmarks.figures.catalogue import (
    FIGURES,
    FigureDefinition,
    FigureOptions,
    figure_availability,
    limit_marks,
    validate_options,
)
from benchmarks.figures.charts import Chart
from benchmarks.figures.comparison import predict_runs, published_predictions
from benchmarks.figures.rows import MARK_SOURCES, Floats, MarkSource, RunData, no_values, title_list
from benchmarks.model.topology import Topology
from benchmarks.runs.models import Chunk, Run, Series
from benchmarks.runs.results import Summary
from benchmarks.runs.selectors import EXECUTOR_LABELS, STATE_GROUPS, RunFilter, run_list
from benchmarks.sweeps.models import Sweep
from benchmarks.workloads.catalogue import CATALOGUE, workload_title
from core.database import natural
from core.errors import Invalid, NotFound
from core.language import _, _n, gettext_noop, joined
from core.text import parse_id
from fabric.inventory.models import Host
from hostwire.training import Spec

MAX_RUNS: Final = 200
RUN_STATES: Final = (*Run.State.values, *STATE_GROUPS)
MAX_VALUE_LENGTH: Final = 200  # characters of a value
LIST_PARAMETERS: Final = (
    "q",
    gettext_noop("state"),
    gettext_noop("executor"),
    gettext_noop("person"),
)  # that only the list of runs has fields for
SELECTION_PARAMETERS: Final = (
    *LIST_PARAMETERS, gettext_noop("workload"), gettext_noop("provenance"), gettext_noop("host"), gettext_noop("sweep"),
    gettext_noop("run"), gettext_noop("since"),
)  # fmt: skip
OPTION_PARAMETERS: Final = (gettext_noop("baseline"), gettext_noop("time"), gettext_noop("reading"), "with")
PARAMETERS: Final = (*SELECTION_PARAMETERS, *OPTION_PARAMETERS)
# Optional additions to runs, with their labels.
OVERLAYS: Final = {"predicted": gettext_noop("Predictions of the same"), "published": gettext_noop("Published figures")}


@dataclass(frozen=True, kw_only=True)
class FigureQuery:
    """Runs by ids or sweeps, else all that match; several values of one member are alternatives.

    Without a `state`, completed runs.
    """

    runs: tuple[uuid.UUID, ...] = ()
    sweeps: tuple[uuid.UUID, ...] = ()
    workloads: tuple[str, ...] = ()
    provenances: tuple[str, ...] = ()
    hosts: tuple[int, ...] = ()
    since: datetime | None = None
    words: str = ""
    state: str = ""
    executor: str = ""
    person: str = ""
    overlays: tuple[str, ...] = ()
    options: FigureOptions = field(default_factory=FigureOptions)

    @property
    def is_filtered(self) -> bool:
        """Whether it restricts the runs."""
        return self != replace(FigureQuery(), overlays=self.overlays, options=self.options)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The names and values of its query parameters."""
        usual, options = FigureOptions(), self.options
        given: dict[str, Iterable[object]] = {
            "q": [self.words],
            "state": [self.state],
            "executor": [self.executor],
            "person": [self.person],
            "run": self.runs,
            "sweep": self.sweeps,
            "workload": self.workloads,
            "provenance": self.provenances,
            "host": self.hosts,
            "since": [self.since_text],
            "baseline": [options.baseline],
            "time": [options.time] if options.time != usual.time else [],
            "reading": [options.reading] if options.reading != usual.reading else [],
            "with": self.overlays,
        }
        return [(name, str(value)) for name, values in given.items() for value in values if value]

    def urlencode(self, *, but: Collection[str] = ()) -> str:
        """Return it as query parameters, without those in `but`."""
        return urlencode([(name, value) for name, value in self.pairs if name not in but])

    def with_first(self, run: str) -> str:
        """Return it as query parameters with one of its runs first."""
        return replace(self, runs=tuple(sorted(self.runs, key=lambda one: str(one) != run))).urlencode()

    @property
    def since_text(self) -> str:
        """The start as a query parameter, UTC."""
        if self.since is None:
            return ""
        is_day = self.since.time() == time()
        return self.since.date().isoformat() if is_day else self.since.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_figure_query(given: QueryDict) -> FigureQuery:
    """Parse query parameters; raises Invalid with the wrong parameters."""
    errors: dict[str, str] = {}
    values = {name: list(dict.fromkeys(filter(None, map(str.strip, given.getlist(name))))) for name in PARAMETERS}
    for name, texts in values.items():
        if len(texts) > MAX_RUNS or any(len(text) > MAX_VALUE_LENGTH or "\0" in text for text in texts):
            errors[name] = _(
                "Give {most} at most, of {length} characters at most, and no NUL.",
                most=MAX_RUNS,
                length=MAX_VALUE_LENGTH,
            )
            values[name] = []
    one = {name: texts[-1] if texts else "" for name, texts in values.items()}
    options = FigureOptions(
        baseline=one["baseline"],
        time=one["time"] or FigureOptions().time,
        reading=one["reading"] or FigureOptions().reading,
        published="published" in values["with"],
    )
    try:
        validate_options(options)
    except Invalid as error:
        errors |= error.details["errors"]
    found = FigureQuery(
        runs=_parse_ids(values["run"], "run", errors),
        sweeps=_parse_ids(values["sweep"], "sweep", errors),
        workloads=tuple(values["workload"]),
        provenances=_parse_choices(values["provenance"], "provenance", Run.Provenance.values, errors),
        hosts=_parse_numbers(values["host"], "host", errors),
        since=_parse_moment(values["since"], errors),
        words=one["q"],
        state=next(iter(_parse_choices(values["state"][-1:], "state", RUN_STATES, errors)), ""),
        executor=next(iter(_parse_choices(values["executor"][-1:], "executor", list(EXECUTOR_LABELS), errors)), ""),
        person=one["person"],
        overlays=_parse_choices(values["with"], "with", OVERLAYS, errors),
        options=options,
    )
    if errors:
        raise Invalid(joined(dict.fromkeys(errors.values())), errors=errors)
    return found


def _parse_ids(texts: Collection[str], name: str, errors: dict[str, str]) -> tuple[uuid.UUID, ...]:
    try:
        return tuple(dict.fromkeys(uuid.UUID(text) for text in texts))
    except ValueError:
        errors[name] = _("Give the id of a {name}, as its address has it.", name=_(name))
        return ()


def _parse_numbers(texts: Collection[str], name: str, errors: dict[str, str]) -> tuple[int, ...]:
    numbers = tuple(parse_id(text) for text in texts)
    if 0 in numbers:
        errors[name] = _("Give the id of a {name}, a whole number.", name=_(name))
        return ()
    return numbers


def _parse_choices(
    texts: Collection[str], name: str, known: Collection[str], errors: dict[str, str]
) -> tuple[str, ...]:
    if any(text not in known for text in texts):
        errors[name] = _("One of {choices}.", choices=", ".join(known))
        return ()
    return tuple(texts)


def _parse_moment(texts: list[str], errors: dict[str, str]) -> datetime | None:
    if not texts:
        return None
    try:
        moment = parse_datetime(texts[-1])
        day = parse_date(texts[-1]) if moment is None else None
    except ValueError:
        moment = day = None
    if day is not None:
        moment = datetime.combine(day, time(), UTC)
    if moment is None:
        errors["since"] = _("Give a day such as 2026-11-01, or a moment such as 2026-11-01T10:00Z.")
        return None
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        errors["since"] = _("Give a moment within the calendar.")
        return None


Shape = TypeVar("Shape")
MIN_COMPARED, MAX_COMPARED = 2, 8
# The columns of a run besides its results; the others are not fetched.
RUN_FIELDS: Final = (
    "pk", "title", "workload", "provenance", "state", "spec", "topology", "software", "results", "host", "queued_at",
    "overlaps",
)  # fmt: skip


@dataclass(frozen=True)
class RunSelection:
    """Runs with results, newest first or in the requested order; `found` is the number of all matches.

    `without` are runs that were requested by id and have no results.
    """

    rows: list[RunData]
    found: int
    without: list[RunData]

    @property
    def left_out(self) -> int:
        """The number of runs above the limit."""
        return self.found - len(self.rows)


def select_runs(person: User, query: FigureQuery) -> RunSelection:
    """Return the requested runs: by id in any state, else completed ones.

    Five queries, and one a series that a figure reads. Raises NotFound for a run or sweep that the person may not see.
    """
    _refuse_invisible(person, query)
    completed = Q() if query.state else Q(state=Run.State.COMPLETED)
    wanted = Q(pk__in=query.runs) | (completed & Q(sweep__in=query.sweeps))
    listed = RunFilter(q=query.words, state=query.state, executor=query.executor, person=query.person)
    rows = run_list(person, listed).filter(wanted if query.runs or query.sweeps else completed)
    if query.workloads:
        rows = rows.filter(workload__in=query.workloads)
    if query.provenances:
        rows = rows.filter(provenance__in=query.provenances)
    if query.hosts:
        rows = rows.filter(host__in=query.hosts)
    if query.since:
        rows = rows.filter(queued_at__gte=query.since)
    count = rows.count()
    runs = list(
        rows.order_by("-queued_at", "pk").select_related(None).select_related("host").only(*RUN_FIELDS)[:MAX_RUNS]
    )
    place = {pk: number for number, pk in enumerate(query.runs)}
    runs.sort(key=lambda run: place.get(run.pk, len(place)))
    made = load_run_data(runs)
    without = [row for row in made if not row.keys and row.summary == Summary()]
    return RunSelection([row for row in made if row not in without], count - len(without), without)


def runs_to_compare(person: User, query: FigureQuery) -> list[RunData]:
    """Return the runs to compare, in the requested order and any state.

    Raises NotFound for one that the person may not see.
    """
    _refuse_invisible(person, query)
    runs = Run.objects.visible_to(person).filter(pk__in=query.runs).only(*RUN_FIELDS).select_related("host")
    place = {pk: number for number, pk in enumerate(query.runs)}
    return load_run_data(sorted(runs, key=lambda run: place[run.pk])[:MAX_COMPARED])


def load_run_data(runs: Sequence[Run]) -> list[RunData]:
    """Return runs as input of figures; a series is loaded lazily, for all runs together."""
    keys: dict[Any, set[str]] = {run.pk: set() for run in runs}
    for pk, key in Series.objects.filter(run__in=keys).values_list("run", "key"):
        keys[pk].add(key)
    recorded = SeriesReader(keys)
    return [
        RunData(
            id=str(run.pk),
            title=run.title,
            workload=run.workload,
            workload_title=_(workload_title(run.workload)) if run.workload in CATALOGUE else run.workload,
            is_training=CATALOGUE[run.workload].is_training if run.workload in CATALOGUE else True,
            provenance=_mark_source(run.provenance),
            state=run.state,
            spec=_converted(run.spec, Spec),
            topology=_converted(run.topology, Topology),
            software=run.software,
            summary=_converted(run.results, Summary) or Summary(),
            host=run.host_names,
            queued_at=run.queued_at,
            is_overlapped=bool(run.overlaps),
            keys=frozenset(keys[run.pk]),
            read=partial(recorded.read, run.pk),
        )
        for run in runs
    ]


def visible_workloads(person: User) -> list[tuple[str, str]]:
    """Return the workloads of completed runs that a person sees: name and title, by title."""
    seen = Run.objects.visible_to(person).filter(state=Run.State.COMPLETED)
    names = set(seen.order_by().values_list("workload", flat=True).distinct())
    titles = {name: _(workload_title(name)) if name in CATALOGUE else name for name in names}
    return sorted(titles.items(), key=lambda one: one[1].casefold())


def visible_hosts(person: User) -> list[Host]:
    """Return the hosts of completed runs that a person sees, by name."""
    seen = Run.objects.visible_to(person).filter(state=Run.State.COMPLETED).exclude(host=None)
    return list(Host.objects.filter(pk__in=seen.order_by().values("host")).order_by(natural("name")))


def requested_sweeps(person: User, query: FigureQuery) -> list[Sweep]:
    return list(Sweep.objects.visible_to(person).filter(pk__in=query.sweeps).order_by("-created_at"))


def _mark_source(provenance: str) -> MarkSource:
    return next((source for source in MARK_SOURCES if source == provenance), "imported")


def _refuse_invisible(person: User, query: FigureQuery) -> None:
    if Run.objects.visible_to(person).filter(pk__in=query.runs).count() < len(query.runs):
        raise NotFound(_("There is no such run."))
    if Sweep.objects.visible_to(person).filter(pk__in=query.sweeps).count() < len(query.sweeps):
        raise NotFound(_("There is no such sweep."))


def _converted(plain: Any, shape: type[Shape]) -> Shape | None:
    """Convert JSON to its type; None without a value, or for an imported one of another shape."""
    if not plain:
        return None
    try:
        return msgspec.convert(plain, shape)
    except msgspec.ValidationError:
        return None


STORED_DTYPE: Final = np.dtype("<f8")
SeriesColumn = tuple[Floats, Floats]


class SeriesReader:
    """The recorded series of some runs; `keys` are those of their series."""

    def __init__(self, keys: Mapping[Any, Collection[str]]) -> None:
        self._keys = keys
        self._read: dict[str, dict[Any, SeriesColumn]] = {}

    def read(self, run: Any, key: str) -> SeriesColumn:
        """Return a series of a run: times (Unix s) and values, in the order of writing."""
        if key not in self._read:
            self._read[key] = self._all(key)
        return self._read[key].get(run, no_values(key))

    def _all(self, key: str) -> dict[Any, SeriesColumn]:
        having = [run for run, keys in self._keys.items() if key in keys]
        parts: dict[Any, list[tuple[bytes, bytes]]] = {}
        chunks = Chunk.objects.filter(series__run__in=having, series__key=key).order_by("series", "first")
        for run, at, values in chunks.values_list("series__run", "at", "values"):
            parts.setdefault(run, []).append((bytes(at), bytes(values)))
        return {
            run: (_joined([at for at, _ in pieces]), _joined([values for _, values in pieces]))
            for run, pieces in parts.items()
        }


def _joined(pieces: list[bytes]) -> NDArray[np.float64]:
    return np.frombuffer(b"".join(pieces), dtype=STORED_DTYPE).astype(np.float64)


@dataclass(frozen=True)
class RenderedFigure:
    """The charts of an entry of the catalogue over a selection; `notes` are sentences on all of them."""

    entry: FigureDefinition
    selection: RunSelection
    figures: tuple[Chart, ...]
    notes: tuple[str, ...]


def render_figure(person: User, name: str, query: FigureQuery) -> RenderedFigure:
    """Return a figure over the requested runs.

    Raises NotFound for an unknown figure and for a run that the person may not see, Invalid for invalid options.
    """
    if name not in FIGURES:
        raise NotFound(_("There is no such figure."))
    selection = select_runs(person, query)
    entry = FIGURES[name]
    rows, notes = selection.rows, list[str]()
    if "predicted" in query.overlays and "predicted" in entry.overlays:
        is_ready = query.is_filtered or any(one.is_ready for one in figure_availability(rows) if one.entry is entry)
        predicted, notes = predict_runs(rows) if is_ready else published_predictions(name)
        rows = [*rows, *predicted]
    charts = tuple(
        limit_marks(chart).with_notes(_overlap_note(chart, rows)) for chart in entry.draw(rows, query.options)
    )
    return RenderedFigure(entry, selection, charts, (*notes, *selection_notes(selection)))


def _overlap_note(chart: Chart, rows: Sequence[RunData]) -> str:
    """Return a sentence on the runs in a chart that were not alone on their hosts and links; '' for none."""
    drawn = {run for runs in (*(one.runs for one in chart.marks), *(one.runs for one in chart.lines)) for run in runs}
    found = [row for row in rows if row.is_overlapped and row.id in drawn]
    if not found:
        return ""
    return _n(
        "{count} run was not alone on its host and links: {titles}.",
        "{count} runs were not alone on their hosts and links: {titles}.",
        len(found),
        titles=title_list(found),
    )


def selection_notes(selection: RunSelection) -> list[str]:
    """Return sentences on runs that are not in a selection."""
    notes: list[str] = []
    if selection.left_out:
        notes.append(
            _(
                "There are {count} runs: the newest {shown} are shown. Choose fewer.",
                count=selection.found,
                shown=len(selection.rows),
            )
        )
    if selection.without:
        notes.append(
            _n(
                "{count} run without results: {titles}.",
                "{count} runs without results: {titles}.",
                len(selection.without),
                titles=title_list(selection.without),
            )
        )
    return notes
