"""Records on their way to somebody: one or any set of runs, streamed as JSON Lines or CSV."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from accounts.audit.exports import Download
from accounts.models import User
from benchmarks.records.tables import samples_csv, summary_csv
from benchmarks.records.writing import record_text
from benchmarks.runs.models import Run
from benchmarks.sweeps.models import Sweep
from falconweb.errors import Conflict, Invalid, NotFound

Kind = Literal["jsonl", "csv", "summary"]
KINDS: Final = {
    "jsonl": ("application/jsonl; charset=utf-8", "jsonl", "Whole records, JSON Lines"),
    "csv": ("text/csv; charset=utf-8", "csv", "All samples, CSV"),
    "summary": ("text/csv; charset=utf-8", "csv", "Results of each run, CSV"),
}
MOST_NAMED: Final = 500
RUNS_AT_ONCE: Final = 20


@dataclass(frozen=True)
class Wanted:
    """Which runs: those named, or those of a sweep, a workload, a provenance; all that somebody sees without any."""

    runs: tuple[str, ...] = ()
    sweep: str = ""
    workload: str = ""
    provenance: str = ""


def runs_wanted(person: User, wanted: Wanted) -> Any:
    """Return the runs, oldest first, as a queryset.

    Those that are named must have ended (Conflict) and be there (NotFound); of a filter those that have not ended are
    left out. Raises Invalid for what is no id and no provenance.
    """
    seen = Run.objects.visible_to(person)
    if wanted.runs:
        if len(wanted.runs) > MOST_NAMED:
            raise Invalid(f"Name {MOST_NAMED} runs at most.", errors={"run": "Too many."})
        seen = seen.filter(pk__in=[_id(one, "run") for one in wanted.runs])
        found = {str(pk): (state, title) for pk, state, title in seen.values_list("pk", "state", "title")}
        if len(found) < len({_id(one, "run") for one in wanted.runs}):
            raise NotFound("One of these runs is not there.")
        for state, title in found.values():
            if state not in Run.FINAL:
                raise Conflict(f"'{title}' has not ended. Export its record when it has.")
    if wanted.sweep:
        sweep = Sweep.objects.visible_to(person).filter(pk=_id(wanted.sweep, "sweep")).first()
        if sweep is None:
            raise NotFound("There is no such sweep.")
        seen = seen.filter(sweep=sweep)
    if wanted.workload:
        if "\0" in wanted.workload:
            raise Invalid("There is no such workload.", errors={"workload": "It has a NUL."})
        seen = seen.filter(workload=wanted.workload)
    if wanted.provenance:
        if wanted.provenance not in Run.Provenance.values:
            known = ", ".join(Run.Provenance.values)
            raise Invalid("There is no such provenance.", errors={"provenance": f"One of {known}."})
        seen = seen.filter(provenance=wanted.provenance)
    return seen.filter(state__in=Run.FINAL).order_by("queued_at", "position", "pk")


def run_named(person: User, pk: uuid.UUID) -> Run:
    """Return a run that has ended; raises NotFound and Conflict."""
    run: Run = runs_wanted(person, Wanted(runs=(str(pk),))).get()
    return run


def records_download(*, person: User, wanted: Wanted, kind: str, name: str = "runs") -> Download:
    """Return the records as a file that is made while it is sent. Raises as `runs_wanted`, and Invalid."""
    if kind not in KINDS:
        raise Invalid(f"'{kind[:20]}' is no kind of export.", errors={"as": f"One of {', '.join(KINDS)}."})
    pks = list(runs_wanted(person, wanted).values_list("pk", flat=True))
    content_type, suffix, _ = KINDS[kind]
    answer = Download(_parts(pks, kind), content_type=content_type)
    answer["Content-Disposition"] = f'attachment; filename="{name}.{suffix}"'
    return answer


def _parts(pks: Sequence[uuid.UUID], kind: str) -> Iterator[str]:
    """Yield the file; each run is read when its turn comes, one that was removed meanwhile is left out."""
    if kind == "jsonl":
        for run in _each(pks):
            yield from record_text(run)
    else:
        yield from (samples_csv if kind == "csv" else summary_csv)(_each(pks))


def _each(pks: Sequence[uuid.UUID]) -> Iterator[Run]:
    for begin in range(0, len(pks), RUNS_AT_ONCE):
        some = pks[begin : begin + RUNS_AT_ONCE]
        rows = Run.objects.in_bulk(some)
        yield from (rows[pk] for pk in some if pk in rows)


def _id(text: str, field: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise Invalid(f"'{text[:40]}' is no id.", errors={field: "Give the id of one."}) from error
