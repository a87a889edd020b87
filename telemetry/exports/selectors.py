"""Reads definitions and runs, for administrators alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.core.paginator import Paginator
from django.db.models import Prefetch, Q

from accounts.models import User
from accounts.visibility import visible_or_404
from core.errors import Invalid
from core.language import _, gettext_noop
from telemetry.events.filters import EventFilter
from telemetry.events.models import Event
from telemetry.exports.formats import rfc3339
from telemetry.exports.models import (
    AdministratorOnlyQuerySet,
    ExportDefinition,
    ExportFormat,
    ExportRun,
    ExportRunQuerySet,
    ExportTarget,
)
from telemetry.exports.options import ExportSpec

SAMPLE_ROWS = 20
CSV_ROWS_PER_QUERY = 500
EXPORT_SORTS = {"name": "name", "format": "format", "target": "target", "next": "next_at", "changed": "changed_at"}
RUN_SORTS = {
    gettext_noop("number"): "pk", gettext_noop("name"): "name", gettext_noop("state"): "state",
    gettext_noop("events"): "counted", gettext_noop("bytes"): "bytes", gettext_noop("begun"): "started_at",
    gettext_noop("ended"): "ended_at",
}  # fmt: skip
RUN_COLUMNS: dict[str, Callable[[ExportRun], object]] = {
    "number": lambda run: run.pk,
    "export": lambda run: run.name,
    "state": lambda run: run.state,
    "asked_by": lambda run: run.requested_by_name or run.get_trigger_display(),
    "asked_at": lambda run: rfc3339(run.created_at),
    "started_at": lambda run: rfc3339(run.started_at),
    "ended_at": lambda run: rfc3339(run.ended_at),
    "events": lambda run: run.counted,
    "of": lambda run: run.total,
    "bytes": lambda run: run.bytes,
    "sha256": lambda run: run.checksum,
    "file": lambda run: run.file,
    "sentence": lambda run: run.error,
}
EXPORT_COLUMNS = ("number", "name", "format", "target", "to", "schedule", "cron", "enabled", "owner", "next_at")


@dataclass(frozen=True)
class ExportSample:
    """The first lines of an export, and the current number of matching events."""

    lines: tuple[str, ...]
    count: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def find_definitions(
    person: User, *, search: str = "", sort: str = "name", format_: str = "", target: str = ""
) -> AdministratorOnlyQuerySet:
    """Return definitions with their runs as `newest_first`; a sort with '-' in front is descending.

    Raises Invalid for an unknown format, target or sort.
    """
    _one_of(format_, ExportFormat.values, "format")
    _one_of(target, ExportTarget.values, "target")
    rows = ExportDefinition.objects.visible_to(person)
    for word in _words(search):
        rows = rows.filter(Q(name__icontains=word) | Q(owner_name__icontains=word))
    if format_:
        rows = rows.filter(format=format_)
    if target:
        rows = rows.filter(target=target)
    newest = ExportRun.objects.visible_to(person).order_by("definition", "-pk")
    return rows.order_by(*_order(sort, EXPORT_SORTS)).prefetch_related(Prefetch("runs", newest, to_attr="newest_first"))


def find_runs(
    person: User, *, search: str = "", sort: str = "-number", state: str = "", definition: int | None = None
) -> ExportRunQuerySet:
    """Return runs, the newest first unless sorted; raises Invalid for an unknown state or sort."""
    _one_of(state, ExportRun.State.values, "state")
    rows = ExportRun.objects.visible_to(person).select_related("definition")
    for word in _words(search):
        rows = rows.filter(Q(name__icontains=word) | Q(requested_by_name__icontains=word) | Q(error__icontains=word))
    if state:
        rows = rows.filter(state=state)
    if definition is not None:
        rows = rows.filter(definition=definition)
    return rows.order_by(*_order(sort, RUN_SORTS))


def definition_get(person: User, pk: int) -> ExportDefinition:
    """Return a definition; raises NotFound."""
    row: ExportDefinition = visible_or_404(ExportDefinition.objects, person, pk, gettext_noop("export"))
    return row


def run_get(person: User, pk: int) -> ExportRun:
    """Return a run; raises NotFound."""
    rows = ExportRun.objects.select_related("definition")
    row: ExportRun = visible_or_404(rows, person, pk, gettext_noop("run"))
    return row


def build_preview(person: User, spec: ExportSpec) -> ExportSample:
    """Return a sample of a definition's output, from its first events; raises Invalid."""
    shape = spec.shape()
    rows = EventFilter.of(spec.filter).apply(Event.objects.visible_to(person))
    events = list(shape.select(rows).order_by("pk")[:SAMPLE_ROWS])
    lines = [shape.heading, *shape.lines(events)] if shape.heading else shape.lines(events)
    texts = tuple(line.decode().removeprefix("\ufeff").rstrip("\r\n") for line in lines)
    return ExportSample(texts, rows.order_by().count())


def run_lines(rows: ExportRunQuerySet) -> Iterator[list[object]]:
    # Page by page: each part of a download may be produced in another thread, which cannot use the same cursor.
    for page in Paginator(rows, CSV_ROWS_PER_QUERY):
        for run in page.object_list:
            yield [column(run) for column in RUN_COLUMNS.values()]


def definition_lines(rows: AdministratorOnlyQuerySet) -> Iterator[tuple[object, ...]]:
    for row in rows:
        yield (
            row.pk, row.name, row.format, row.target, row.options.get("address") or row.options.get("folder") or "",
            row.schedule, row.cron, row.enabled, row.owner_name, rfc3339(row.next_at),
        )  # fmt: skip


def _words(search: str) -> list[str]:
    return search.replace("\0", " ").split()[:20]


def _order(sort: str, known: dict[str, str]) -> tuple[str, str]:
    name = sort.removeprefix("-")
    _one_of(name, list(known), "sort")
    minus = "-" if sort.startswith("-") else ""
    return f"{minus}{known[name]}", f"{minus}pk"


def _one_of(value: str, known: list[str], name: str) -> None:
    if value and value not in known:
        errors = {name: _("One of {choices}.", choices=", ".join(known))}
        raise Invalid(_("'{value}' is no {name}.", value=value[:40], name=name), errors=errors)
