"""Import and export of records: an import is previewed, then applied as a whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.db.models import Q
from django.http import QueryDict
from django.utils import timezone

from accounts.access import require_composer
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt
from accounts.models import User
from accounts.visibility import visible_or_404
from benchmarks.records.formats import FORMATS, FormatReader, open_format
from benchmarks.records.import_files import (
    MAX_UPLOAD_BYTES,
    ImportFile,
    ImportProblem,
    ProblemLimitReached,
    refuse_problems,
)
from benchmarks.records.jsonl import HEADER_FIELDS, OVERLAPS_KEY, SUMMARISED_KEY, run_identity, run_record_json
from benchmarks.records.schema import (
    MAX_CHAIN_LENGTH,
    EndLine,
    LogLine,
    RecordIdentity,
    RunLine,
    SeriesLine,
    float_column,
)
from benchmarks.records.tables import samples_csv, summary_csv
from benchmarks.runs.isolation import anonymous_overlaps
from benchmarks.runs.models import LogPart, Run
from benchmarks.runs.recording import series_append
from benchmarks.runs.results import Summary, summarise
from benchmarks.runs.topology import ADDRESSES_KEY
from benchmarks.sweeps.models import Sweep
from core.downloads import Download
from core.errors import Conflict, Invalid, NotFound
from core.language import _
from core.strict_json import InvalidDocument

LOOKUP_BATCH: Final = 5000  # records of a batch: databases limit the values of one query
KEPT_SOURCE_FIELDS: Final = ("assumed", ADDRESSES_KEY)  # of the source of a record, as stated by its origin


@dataclass
class RecordPreview:
    """A record in a file. `known` is the existing run of the same record."""

    line: int
    header: RunLine
    series: dict[str, int] = field(default_factory=dict)
    identity: str = ""
    known: Run | None = None

    @property
    def values(self) -> int:
        """The number of its samples."""
        return sum(self.series.values())

    @property
    def provenance(self) -> str:
        """The provenance of its figures before any import."""
        return original_provenance(self.header)


@dataclass(frozen=True)
class ImportCheck:
    """A checked file. Without problems it can be imported."""

    format: str
    runs: tuple[RecordPreview, ...]
    problems: tuple[ImportProblem, ...]
    more: bool
    skipped: int
    notes: tuple[str, ...]

    @property
    def format_name(self) -> str:
        return _(FORMATS[self.format])

    @property
    def new(self) -> list[RecordPreview]:
        return [one for one in self.runs if one.known is None]


@dataclass(frozen=True)
class ImportResult:
    """The result of an import: a run for each record, in the order of the file, and whether it is new."""

    runs: tuple[tuple[Run, bool], ...]

    @property
    def new(self) -> list[Run]:
        return [run for run, is_new in self.runs if is_new]

    @property
    def known(self) -> list[Run]:
        return [run for run, is_new in self.runs if not is_new]


def records_check(
    *,
    person: User,
    content: ImportFile,
    format: str = "",  # noqa: A002 - its name for who calls
    largest: int = MAX_UPLOAD_BYTES,
) -> ImportCheck:
    """Check a file without storing it; `format` '' detects the format.

    Raises Forbidden for read-only users, TooLarge, and Invalid if it is not text or of an unknown format.
    """
    reading, runs = _open_file(person, content, format, largest)
    found = reading.problems
    return ImportCheck(
        reading.format, tuple(runs), tuple(found.found), found.more, reading.skipped, tuple(reading.notes)
    )


def records_import(
    *,
    person: User,
    content: ImportFile,
    format: str = "",  # noqa: A002 - its name for who calls
    largest: int = MAX_UPLOAD_BYTES,
) -> ImportResult:
    """Create runs for the records in a file, all or none; a record that exists already is not imported again.

    The runs belong to the person's tenant and have the provenance imported. Raises as `records_check`, and Invalid with
    `problems` for errors in the file.
    """
    name = content.name[:200] or "pasted text"
    with attempt(Action.RECORDS_IMPORT, actor=person, target=Target("record", name=name)) as act:
        reading, previews = _open_file(person, content, format, largest)
        refuse_problems(tuple(reading.problems.found), reading.problems.more)
        if not previews:
            raise Invalid(_("There is no record in the file."), errors={"file": _("It has no record.")})
        with act.change():
            kept: dict[str, Run] = {}
            made: list[tuple[Run, bool]] = []
            for preview in previews:
                run = preview.known or kept.get(preview.identity)
                is_new = run is None
                if run is None:
                    run = kept[preview.identity] = _create_run(person, preview, reading)
                made.append((run, is_new))
            new = {preview.header.id: run for preview, (run, is_new) in zip(previews, made, strict=True) if is_new}
            _store_samples(reading, new)
            _summarise_runs(previews, new)
            imported = ImportResult(tuple(made))
            act.after = {
                "format": reading.format, "file": name, "sha256": content.sha256, "known": len(imported.known),
                "runs": [str(run.pk) for run in imported.new],
            }  # fmt: skip
    return imported


def original_provenance(header: RunLine) -> str:
    """Return the original provenance of a record, however often it was imported since."""
    origin = header.source.get("provenance")
    return origin if header.provenance == "imported" and isinstance(origin, str) and origin else header.provenance


def _open_file(
    person: User, content: ImportFile, format_: str, largest: int
) -> tuple[FormatReader, list[RecordPreview]]:
    """Open a file in its format, and read all of it once; errors are in the reader's problems."""
    require_composer(person, "import runs")
    content.refuse_unreadable(largest)
    reading = open_format(content, format_)
    runs: list[RecordPreview] = []
    identity: RecordIdentity | None = None
    try:
        for number, line in reading.lines():
            if isinstance(line, RunLine):
                runs.append(RecordPreview(number, line))
                identity = _record_identity(line)
            elif isinstance(line, SeriesLine):
                runs[-1].series[line.key] = runs[-1].series.get(line.key, 0) + len(line.values)
                if identity is not None:
                    identity.add(line)
            elif isinstance(line, EndLine) and identity is not None:
                runs[-1].identity = identity.hexdigest()
    except ProblemLimitReached:
        pass
    whole = [one for one in runs if one.identity]
    _match_known_runs(person, whole)
    return reading, whole


def _record_identity(header: RunLine) -> RecordIdentity | None:
    """Return the beginning of a record's identity; None for a header that JSON cannot represent."""
    try:
        return RecordIdentity(header)
    except (InvalidDocument, OverflowError, ValueError):
        return None


def _match_known_runs(person: User, previews: Sequence[RecordPreview]) -> None:
    """Set the existing run of records: imported before, or the one that they were exported from."""
    seen = Run.objects.visible_to(person).filter(state__in=Run.FINAL)
    mine = Q(tenant=person.tenant_id) if person.tenant_id else Q(requested_by=person)
    for first in range(0, len(previews), LOOKUP_BATCH):
        some = previews[first : first + LOOKUP_BATCH]
        ids = [_parse_uuid(one.header.id) for one in some]
        before_or_original = (mine & Q(source__identity__in=[one.identity for one in some])) | Q(
            pk__in=filter(None, ids)
        )
        rows: dict[uuid.UUID | None, Run] = {
            run.pk: run for run in seen.filter(before_or_original).order_by("-queued_at")
        }
        # The oldest of several.
        before = {run.source.get("identity"): run for run in rows.values() if _is_own(run, person)}
        for one, pk in zip(some, ids, strict=True):
            original = rows.get(pk)
            if one.identity in before:
                one.known = before[one.identity]
            elif original is not None and run_identity(original) == one.identity:
                one.known = original


def _is_own(run: Run, person: User) -> bool:
    """Return whether a run belongs to a person's tenant, or to the person if they have none."""
    return run.tenant_id == person.tenant_id if person.tenant_id else run.requested_by_id == person.pk


def _parse_uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _create_run(person: User, preview: RecordPreview, reading: FormatReader) -> Run:
    header, content = preview.header, reading.content
    now = timezone.now()
    before: dict[str, Any] = {
        "id": header.id, "provenance": header.provenance, "executor": header.executor,
        **{name: value for name, value in header.source.items() if name in {"file", "format", "sha256", "imported_at"}},
    }  # fmt: skip
    chain = [*header.source.get("chain", []), before][-MAX_CHAIN_LENGTH:]
    return Run.objects.create(
        **{name: getattr(header, name) for name in HEADER_FIELDS}, results=header.results,
        overlaps=anonymous_overlaps(header.source.get(OVERLAPS_KEY, [])),
        provenance=Run.Provenance.IMPORTED, outcome=header.state, finished_at=now,
        requested_by=person, requested_by_name=person.username, tenant=person.tenant,
        source={
            "provenance": original_provenance(header), "format": reading.format, "file": content.name[:200],
            "sha256": content.sha256, "line": preview.line, "identity": preview.identity,
            "imported_at": now.isoformat(), "chain": chain,
            **{name: header.source[name] for name in KEPT_SOURCE_FIELDS if header.source.get(name)},
        },
    )  # fmt: skip


def _store_samples(reading: FormatReader, runs: dict[str, Run]) -> None:
    """Store the series and logs of new records, by a second reading of the file."""
    for _number, line in reading.lines():
        if isinstance(line, SeriesLine) and (run := runs.get(line.run)) is not None:
            series_append(
                run,
                line.key,
                at=float_column(line.at),
                values=float_column(line.values),
                unit=line.unit,
                source=line.source,
                interval=line.interval,
            )
        elif isinstance(line, LogLine) and (run := runs.get(line.run)) is not None:
            LogPart.objects.create(run=run, first=line.first, text=line.text)


def _summarise_runs(previews: Sequence[RecordPreview], runs: dict[str, Run]) -> None:
    """Compute the results of runs whose records have samples but no results, for lists and pages."""
    for preview in previews:
        run = runs.get(preview.header.id)
        if run is None or preview.header.results or not preview.values:
            continue
        summary = summarise(run)
        if summary != Summary():
            run.results = msgspec.to_builtins(summary)
            run.source[SUMMARISED_KEY] = True
            run.save(update_fields=["results", "source"])


# Whole records, all samples, or the results of each run: the type and the suffix of the file.
EXPORT_KINDS: Final = {
    "jsonl": ("application/jsonl; charset=utf-8", "jsonl"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "summary": ("text/csv; charset=utf-8", "csv"),
}
MAX_NAMED_RUNS: Final = 500
RUNS_A_BATCH: Final = 20


@dataclass(frozen=True)
class ExportFilter:
    """The runs to export: by id, sweep, workload or provenance; all visible ones without any of these."""

    runs: tuple[str, ...] = ()
    sweep: str = ""
    workload: str = ""
    provenance: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> ExportFilter:
        """Return the filter in query parameters."""
        texts = {name: given.get(name, "") for name in ("sweep", "workload", "provenance")}
        return cls(runs=tuple(given.getlist("run")), **texts)


def export_run_list(person: User, wanted: ExportFilter) -> Any:
    """Return the runs, oldest first, as a queryset.

    Runs that are named by id must exist (NotFound) and have ended (Conflict); a filter leaves out open runs. Raises
    Invalid for a malformed id and an unknown provenance.
    """
    seen = Run.objects.visible_to(person)
    if wanted.runs:
        if len(wanted.runs) > MAX_NAMED_RUNS:
            raise Invalid(_("Name {most} runs at most.", most=MAX_NAMED_RUNS), errors={"run": _("Too many.")})
        seen = seen.filter(pk__in=[_parse_id(one, "run") for one in wanted.runs])
        found = {str(pk): (state, title) for pk, state, title in seen.values_list("pk", "state", "title")}
        if len(found) < len({_parse_id(one, "run") for one in wanted.runs}):
            raise NotFound(_("One of these runs is not there."))
        for state, title in found.values():
            if state not in Run.FINAL:
                raise Conflict(_("'{run}' has not ended. Export its record when it has.", run=title))
    if wanted.sweep:
        seen = seen.filter(sweep=visible_or_404(Sweep.objects, person, _parse_id(wanted.sweep, "sweep"), "sweep"))
    if wanted.workload:
        if "\0" in wanted.workload:
            raise Invalid(_("There is no such workload."), errors={"workload": _("It has a NUL.")})
        seen = seen.filter(workload=wanted.workload)
    if wanted.provenance:
        if wanted.provenance not in Run.Provenance.values:
            known = ", ".join(Run.Provenance.values)
            raise Invalid(
                _("There is no such provenance."), errors={"provenance": _("One of {choices}.", choices=known)}
            )
        seen = seen.filter(provenance=wanted.provenance)
    return seen.filter(state__in=Run.FINAL).order_by("queued_at", "position", "pk")


def finished_run_get(person: User, pk: uuid.UUID) -> Run:
    """Return a run that has ended; raises NotFound and Conflict."""
    run: Run = export_run_list(person, ExportFilter(runs=(str(pk),))).get()
    return run


def records_download(*, person: User, wanted: ExportFilter, kind: str, name: str = "runs") -> Download:
    """Return the records as a streamed file. Raises as `export_run_list`, and Invalid."""
    if kind not in EXPORT_KINDS:
        raise Invalid(
            _("'{kind}' is no kind of export.", kind=kind[:20]),
            errors={"as": _("One of {choices}.", choices=", ".join(EXPORT_KINDS))},
        )
    pks = list(export_run_list(person, wanted).values_list("pk", flat=True))
    content_type, suffix = EXPORT_KINDS[kind]
    answer = Download(_export_parts(pks, kind), content_type=content_type)
    answer["Content-Disposition"] = f'attachment; filename="{name}.{suffix}"'
    return answer


def _export_parts(pks: Sequence[uuid.UUID], kind: str) -> Iterator[str]:
    """Yield the file; each run is read just before it is written, and left out if it was deleted meanwhile."""
    if kind == "jsonl":
        for run in _runs_in_batches(pks):
            yield from run_record_json(run)
    else:
        yield from (samples_csv if kind == "csv" else summary_csv)(_runs_in_batches(pks))


def _runs_in_batches(pks: Sequence[uuid.UUID]) -> Iterator[Run]:
    for begin in range(0, len(pks), RUNS_A_BATCH):
        some = pks[begin : begin + RUNS_A_BATCH]
        rows = Run.objects.in_bulk(some)
        yield from (rows[pk] for pk in some if pk in rows)


def _parse_id(text: str, field: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise Invalid(_("'{value}' is no id.", value=text[:40]), errors={field: _("Give the id of one.")}) from error
