"""The runs that a person sees: the list, one run, and the catalogue with the last run of each workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet

from accounts.models import User
from accounts.visibility import visible_or_404
from benchmarks.runs.models import Run, RunNode
from benchmarks.runs.results import Summary, summary_of
from benchmarks.workloads.catalogue import CATALOGUE
from benchmarks.workloads.definitions import Workload
from core.api.fields import MAX_ID
from core.errors import Invalid
from core.language import _, gettext_noop
from fabric.topology.readings import RunningWork

ROWS_A_BATCH: Final = 200
MAX_TEXT_LENGTH: Final = 200
# Groups of states, besides each by itself.
STATE_GROUPS: Final = {"open": gettext_noop("Not ended"), "ended": gettext_noop("Ended")}
EXECUTOR_LABELS: Final = {"torch": "PyTorch", "simulated": gettext_noop("Simulated")}
SORT_FIELDS: Final = {
    "title": "title", "workload": "workload", "state": "state", "host": "host__name", "person": "requested_by_name",
    "queued": "queued_at", "finished": "finished_at",
}  # fmt: skip
CSV_COLUMNS: Final = (
    "id", "title", "workload", "preset", "state", "provenance", "executor", "host", "devices", "precision", "strategy",
    "global_batch", "step_seconds_median", "step_seconds_p5", "step_seconds_p95", "samples_per_second", "person",
    "queued_at", "started_at", "finished_at", "trouble", "sentence", "spec_hash", "overlapped",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """The filter of a list of runs; '' leaves a field out. `state` is a state, 'open' or 'ended'."""

    q: str = ""
    workload: str = ""
    provenance: str = ""
    state: str = ""
    host: str = ""
    executor: str = ""
    sweep: str = ""
    person: str = ""
    sort: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunFilter:
        """Parse query parameters; unknown ones are ignored."""
        return cls(**{one.name: str(given.get(one.name, ""))[:MAX_TEXT_LENGTH].strip() for one in fields(cls)})

    @property
    def narrows(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self) if one.name != "sort")


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A workload with the number of runs the person sees, and the last one."""

    workload: Workload
    count: int
    last: Run | None
    last_summary: Summary


def run_list(person: User, filters: RunFilter) -> QuerySet[Run]:
    """Return the matching runs that a person sees, newest first unless sorted; raises Invalid."""
    rows = Run.objects.visible_to(person).select_related("host", "sweep")
    for field in ("q", "person", "workload"):
        if "\0" in getattr(filters, field):  # a database refuses it
            raise Invalid(_("The text to search for cannot be used."), errors={field: _("It has a NUL.")})
    for word in filters.q.split():
        rows = rows.filter(Q(title__icontains=word) | Q(workload__icontains=word) | Q(error__icontains=word))
    if filters.state == "open":
        rows = rows.open()
    elif filters.state == "ended":
        rows = rows.filter(state__in=Run.FINAL)
    elif filters.state:
        rows = rows.filter(state=_validated_choice(filters.state, [*Run.State.values, *STATE_GROUPS], "state"))
    if filters.host:
        host = _parse_number(filters.host, "host")
        rows = rows.filter(Q(host=host) | Q(pk__in=RunNode.objects.filter(host=host).values("run")))
    if filters.sweep:
        rows = rows.filter(sweep=_parse_uuid(filters.sweep, "sweep"))
    equal = {
        "workload": filters.workload,
        "provenance": filters.provenance and _validated_choice(filters.provenance, Run.Provenance.values, "provenance"),
        "executor": filters.executor and _validated_choice(filters.executor, list(EXECUTOR_LABELS), "executor"),
        "requested_by_name": filters.person,
    }
    rows = rows.filter(**{column: value for column, value in equal.items() if value})
    return rows.order_by(*_order_by(filters.sort))


def running_runs(person: User) -> Iterator[RunningWork]:
    """Yield the runs that have begun and not ended, as far as a person may see them."""
    going = Run.objects.visible_to(person).open().exclude(state=Run.State.QUEUED).select_related("host")
    for run in going.order_by("queued_at"):
        note = " · ".join(filter(None, (run.get_state_display(), run.host_names)))
        yield RunningWork(state=run.state, title=run.title, note=note, page="runs:run", pk=run.pk)


def run_get(person: User, pk: UUID) -> Run:
    """Return a run; raises NotFound for one that the person may not see."""
    rows = Run.objects.select_related("host", "plan", "plan_back", "sweep", "tenant")
    row: Run = visible_or_404(rows, person, pk, "run")
    return row


def catalogue_list(person: User) -> tuple[CatalogueEntry, ...]:
    """Return the catalogue, each workload with the last run that the person sees of it; two queries and one each."""
    rows = Run.objects.visible_to(person)
    counts = dict(rows.order_by().values_list("workload").annotate(count=Count("pk", distinct=True)))
    found = []
    for workload in CATALOGUE.values():
        count, last = counts.get(workload.name, 0), None
        if count:
            last = rows.filter(workload=workload.name).select_related("host").order_by("-queued_at").first()
        summary = summary_of(last) if last is not None else Summary()
        found.append(CatalogueEntry(workload=workload, count=count, last=last, last_summary=summary))
    return tuple(found)


def run_rows(rows: QuerySet[Run]) -> Iterator[tuple[object, ...]]:
    # Page by page: each chunk of a download may run in another thread, and a cursor belongs to one.
    for number in (pages := Paginator(rows, ROWS_A_BATCH)).page_range:
        for run in pages.page(number).object_list:
            yield run_row(run)


def run_row(run: Run) -> tuple[object, ...]:
    summary = summary_of(run)
    steps, rate, spec = summary.step_seconds, summary.samples_per_second, run.spec
    step_cells = ("", "", "") if steps is None else (steps.value, steps.low, steps.high)
    batch = spec.get("devices", 1) * spec.get("batch", 1) * spec.get("accumulation", 1) if spec else ""
    return (
        run.pk,
        run.title,
        run.workload,
        run.preset,
        run.state,
        run.provenance,
        run.executor,
        run.host_names,
        spec.get("devices", ""),
        spec.get("precision", ""),
        spec.get("strategy", ""),
        batch,
        *step_cells,
        rate.value if rate else "",
        run.requested_by_name,
        _timestamp(run.queued_at),
        _timestamp(run.started_at),
        _timestamp(run.finished_at),
        run.trouble,
        run.error or run.sentence,
        run.spec_hash,
        bool(run.overlaps),
    )


def _timestamp(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if at is not None else ""


def _order_by(sort: str) -> tuple[str, ...]:
    name = sort.removeprefix("-")
    if not name:
        return ("-queued_at", "-position", "pk")
    sign = "-" if sort.startswith("-") else ""
    return (f"{sign}{SORT_FIELDS[_validated_choice(name, list(SORT_FIELDS), 'sort')]}", "-queued_at", "pk")


def _validated_choice(value: str, known: Iterable[str], field: str) -> str:
    if value not in known:
        raise Invalid(
            _("'{value}' is no {field}.", value=value[:50], field=field),
            errors={field: _("One of {choices}.", choices=", ".join(known))},
        )
    return value


def _parse_number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MAX_ID):
        raise Invalid(
            _("'{value}' is no {field}.", value=text[:50], field=field), errors={field: _("Give its number.")}
        )
    return int(text)


def _parse_uuid(text: str, field: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise Invalid(
            _("'{value}' is no {field}.", value=text[:50], field=field), errors={field: _("Give its id.")}
        ) from error
