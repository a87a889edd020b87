"""Imports of records: looked at first, then taken as a whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.db.models import Q
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt
from accounts.models import User
from benchmarks.records.checking import LONGEST_CHAIN
from benchmarks.records.content import LARGEST, Content
from benchmarks.records.formats import FORMATS, Reading, reading_of
from benchmarks.records.identity import Identity, column
from benchmarks.records.problems import Problem, TooManyError, refuse_problems
from benchmarks.records.shapes import EndLine, LogLine, RunLine, SeriesLine
from benchmarks.records.writing import SUMMARISED, identity_of
from benchmarks.runs.models import LogPart, Run
from benchmarks.runs.naming import ADDRESSES
from benchmarks.runs.series import series_append
from benchmarks.runs.summary import Summary, summarise
from benchmarks.strict import BrokenError
from fabric.permissions import refuse_onlooker
from falconweb.errors import Invalid

LOOKED_UP: Final = 5000  # records at once: databases take so many values in one query
KEPT: Final = ("assumed", ADDRESSES)  # of the source of a record, as it was said where it comes from


@dataclass
class Preview:
    """A record in a file: what it will become. `known` is the run that it is already."""

    line: int
    header: RunLine
    series: dict[str, int] = field(default_factory=dict)
    log_bytes: int = 0
    identity: str = ""
    known: Run | None = None

    @property
    def values(self) -> int:
        """How many samples it has."""
        return sum(self.series.values())

    @property
    def provenance(self) -> str:
        """Where its figures came from before they were imported anywhere."""
        return origin_of(self.header)


@dataclass(frozen=True)
class Checked:
    """A file that was looked at. Without problems it can be imported."""

    format: str
    runs: tuple[Preview, ...]
    problems: tuple[Problem, ...]
    more: bool
    skipped: int
    notes: tuple[str, ...]

    @property
    def format_name(self) -> str:
        """The format in words."""
        return FORMATS[self.format]

    @property
    def new(self) -> list[Preview]:
        """Those that are not here yet."""
        return [one for one in self.runs if one.known is None]


@dataclass(frozen=True)
class Imported:
    """What an import came to: a run for each record, in the order of the file, and whether it is new."""

    runs: tuple[tuple[Run, bool], ...]

    @property
    def new(self) -> list[Run]:
        """Those that were made."""
        return [run for run, is_new in self.runs if is_new]

    @property
    def known(self) -> list[Run]:
        """Those that were here already."""
        return [run for run, is_new in self.runs if not is_new]


def records_check(*, person: User, content: Content, format: str = "", largest: int = LARGEST) -> Checked:  # noqa: A002
    """Look at a file, and keep nothing of it; `format` '' finds out which it is.

    Raises Forbidden for those who may only look, TooLarge, and Invalid for what is no text or no known format.
    """
    refuse_onlooker(person, "import runs")
    content.refuse_unreadable(largest)
    reading = reading_of(content, format)
    runs = _surveyed(person, reading)
    found = reading.problems
    return Checked(reading.format, tuple(runs), tuple(found.found), found.more, reading.skipped, tuple(reading.notes))


def records_import(*, person: User, content: Content, format: str = "", largest: int = LARGEST) -> Imported:  # noqa: A002
    """Make runs of the records in a file, all or none; one that is here already is not made again.

    The runs belong to the person's tenant and show as imported. Raises as `records_check`, and Invalid with `problems`
    where something in the file is wrong.
    """
    name = content.name[:200] or "what was pasted"
    with attempt(Action.RECORDS_IMPORT, actor=person, target=Target("record", name=name)) as act:
        refuse_onlooker(person, "import runs")
        content.refuse_unreadable(largest)
        reading = reading_of(content, format)
        previews = _surveyed(person, reading)
        refuse_problems(tuple(reading.problems.found), reading.problems.more)
        if not previews:
            raise Invalid("There is no record in the file.", errors={"file": "It has no record."})
        with act.change():
            kept: dict[str, Run] = {}
            made: list[tuple[Run, bool]] = []
            for preview in previews:
                run = preview.known or kept.get(preview.identity)
                is_new = run is None
                if run is None:
                    run = kept[preview.identity] = _run_made(person, preview, reading)
                made.append((run, is_new))
            new = {preview.header.id: run for preview, (run, is_new) in zip(previews, made, strict=True) if is_new}
            _samples_kept(reading, new)
            _summed_up(previews, new)
            imported = Imported(tuple(made))
            act.after = {
                "format": reading.format, "file": name, "sha256": content.sha256, "known": len(imported.known),
                "runs": [str(run.pk) for run in imported.new],
            }  # fmt: skip
    return imported


def origin_of(header: RunLine) -> str:
    """Return where the figures of a record come from, however often it was imported since."""
    told = header.source.get("provenance")
    return told if header.provenance == "imported" and isinstance(told, str) and told else header.provenance


def _surveyed(person: User, reading: Reading) -> list[Preview]:
    """Read all of a file once; what is wrong with it is in the reading's problems."""
    runs: list[Preview] = []
    try:
        for number, line, identity in _identified(reading):
            if isinstance(line, RunLine):
                runs.append(Preview(number, line))
            elif not runs:
                continue
            elif isinstance(line, SeriesLine):
                runs[-1].series[line.key] = runs[-1].series.get(line.key, 0) + len(line.values)
            elif isinstance(line, LogLine):
                runs[-1].log_bytes += len(line.text.encode())
            else:
                runs[-1].identity = identity
    except TooManyError:
        pass
    whole = [one for one in runs if one.identity]
    _known(person, whole)
    return whole


def _identified(reading: Reading) -> Iterator[tuple[int, RunLine | SeriesLine | LogLine | EndLine, str]]:
    """Yield the lines of a file; with the end of each record its identity, else ''."""
    identity: Identity | None = None
    for number, line in reading.lines():
        if isinstance(line, RunLine):
            try:
                identity = Identity(line)
            except (BrokenError, OverflowError, ValueError):
                identity = None
        elif isinstance(line, SeriesLine) and identity is not None:
            identity.add(line)
        told = identity.hexdigest() if isinstance(line, EndLine) and identity is not None else ""
        yield number, line, told


def _known(person: User, previews: Sequence[Preview]) -> None:
    """Note with records which run they are already: imported before, or the very one that they were exported from."""
    seen = Run.objects.visible_to(person).filter(state__in=Run.FINAL)
    mine = Q(tenant=person.tenant_id) if person.tenant_id else Q(requested_by=person)
    for first in range(0, len(previews), LOOKED_UP):
        some = previews[first : first + LOOKED_UP]
        ids = [_uuid(one.header.id) for one in some]
        before_or_original = (mine & Q(source__identity__in=[one.identity for one in some])) | Q(
            pk__in=filter(None, ids)
        )
        rows: dict[uuid.UUID | None, Run] = {
            run.pk: run for run in seen.filter(before_or_original).order_by("-queued_at")
        }
        # Of several the oldest.
        before = {run.source.get("identity"): run for run in rows.values() if _is_of(run, person)}
        for one, pk in zip(some, ids, strict=True):
            original = rows.get(pk)
            if one.identity in before:
                one.known = before[one.identity]
            elif original is not None and identity_of(original) == one.identity:
                one.known = original


def _is_of(run: Run, person: User) -> bool:
    """Tell whether a run is one of a person's own tenant, or of theirs where they have none."""
    return run.tenant_id == person.tenant_id if person.tenant_id else run.requested_by_id == person.pk


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _run_made(person: User, preview: Preview, reading: Reading) -> Run:
    header, content = preview.header, reading.content
    now = timezone.now()
    before: dict[str, Any] = {
        "id": header.id, "provenance": header.provenance, "executor": header.executor,
        **{name: value for name, value in header.source.items() if name in {"file", "format", "sha256", "imported_at"}},
    }  # fmt: skip
    chain = [*header.source.get("chain", []), before][-LONGEST_CHAIN:]
    return Run.objects.create(
        title=header.title, state=header.state, workload=header.workload, preset=header.preset, spec=header.spec,
        spec_hash=header.spec_hash, provenance=Run.Provenance.IMPORTED, topology=header.topology,
        software=header.software, results=header.results, point=header.point,
        # A run that has ended: what is not known of its ending is left open.
        outcome=header.state, trouble=header.trouble, error=header.error, exit_code=header.exit_code,
        steps_done=header.steps_done, started_at=header.started_at, ended_at=header.ended_at, finished_at=now,
        requested_by=person, requested_by_name=person.username, tenant=person.tenant,
        source={
            "provenance": origin_of(header), "format": reading.format, "file": content.name[:200],
            "sha256": content.sha256, "line": preview.line, "identity": preview.identity,
            "imported_at": now.isoformat(), "chain": chain,
            **{name: header.source[name] for name in KEPT if header.source.get(name)},
        },
    )  # fmt: skip


def _samples_kept(reading: Reading, runs: dict[str, Run]) -> None:
    """Keep the series and logs of those records that become runs, by a second reading of the file."""
    for _, line in reading.lines():
        if isinstance(line, SeriesLine) and (run := runs.get(line.run)) is not None:
            series_append(
                run, line.key, at=column(line.at), values=column(line.values), unit=line.unit, source=line.source,
                interval=line.interval,
            )  # fmt: skip
        elif isinstance(line, LogLine) and (run := runs.get(line.run)) is not None:
            LogPart.objects.create(run=run, first=line.first, text=line.text)


def _summed_up(previews: Sequence[Preview], runs: dict[str, Run]) -> None:
    """Make the results of those runs whose records have samples and no results, so that lists and pages show some."""
    for preview in previews:
        run = runs.get(preview.header.id)
        if run is None or preview.header.results or not preview.values:
            continue
        summary = summarise(run)
        if summary != Summary():
            run.results = msgspec.to_builtins(summary)
            run.source[SUMMARISED] = True
            run.save(update_fields=["results", "source"])
