"""Reading and writing of records as JSON Lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from benchmarks.records.import_files import ImportFile, ImportProblems
from benchmarks.records.schema import (
    CHARACTERS_A_LINE,
    RECORD_FORMAT,
    STORED_DTYPE,
    VALUES_A_LINE,
    EndLine,
    LogLine,
    RecordIdentity,
    RecordLine,
    RunLine,
    SeriesLine,
    header_problems,
)
from benchmarks.runs.isolation import anonymous_overlaps
from benchmarks.runs.models import Chunk, LogPart, Run, Series
from core.language import _
from core.strict_json import InvalidDocument, convert_value, loads_strict

MAX_SERIES: Final = 5000  # of a run
MAX_RUNS: Final = 500  # of a file
LINE_TYPES: Final = {"run": RunLine, "series": SeriesLine, "log": LogLine, "end": EndLine}


@dataclass
class _OpenRecord:
    line: int
    header: RunLine | None  # None: it was invalid, and its lines are skipped
    lines: int = 1
    counts: dict[str, int] = field(default_factory=dict)
    about: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    log_end: int = 0


def read_record_lines(content: ImportFile, problems: ImportProblems) -> Iterator[tuple[int, RecordLine]]:
    """Yield the valid lines of records with their numbers.

    Raises ProblemLimitReached after too many problems.
    """
    reader = RecordReader(problems)
    try:
        for number, text in content.lines():
            line = reader.read_text(number, text)
            if line is not None:
                yield number, line
    except InvalidDocument as error:  # of the file's bytes, whose field is the line
        problems.note(int(error.where), "", error.sentence)
        return
    reader.finish()


class RecordReader:
    """The state of reading: the current record, and the records so far."""

    def __init__(self, problems: ImportProblems) -> None:
        self.problems = problems
        self.open: _OpenRecord | None = None
        self.ids: set[str] = set()

    def read_text(self, number: int, text: str) -> RecordLine | None:
        """Return the line, None if it or its record is invalid."""
        try:
            line = _parse_line(text)
        except InvalidDocument as error:
            self.problems.note(number, error.where, error.sentence)
            # Avoids a problem for each line after an unreadable header.
            if self.open is None or '"run"' in text[:200]:
                self.open = _OpenRecord(number, None)
            elif self.open is not None:
                self.open.header = None
            return None
        return self.add_line(number, line)

    def add_line(self, number: int, line: RecordLine) -> RecordLine | None:
        """Add a line to its record and return it, None if it or its record is invalid."""
        if isinstance(line, RunLine):
            return self._begin(number, line)
        if self.open is None:
            self.problems.note(number, "kind", _("No record has begun: a line of kind 'run' comes first."))
            self.open = _OpenRecord(number, None)
            return None
        if self.open.header is None:
            if isinstance(line, EndLine):
                self.open = None
            return None
        return self._within(number, line, self.open, self.open.header)

    def finish(self) -> None:
        """Report a record without an end."""
        if self.open is not None and self.open.header is not None:
            self.problems.note(self.open.line, "", _("The record has no end: the file was cut off."))

    def _begin(self, number: int, header: RunLine) -> RunLine | None:
        self.finish()
        before = len(self.problems.found)
        if header.id in self.ids:
            self.problems.note(number, "id", _("A record of this id came before in this file."))
        if len(self.ids) >= MAX_RUNS:
            self.problems.note(number, "", _("A file has {most} records at most.", most=MAX_RUNS))
        self.ids.add(header.id)
        for error in header_problems(header):
            self.problems.note(number, error.where, error.sentence)
        right = len(self.problems.found) == before
        self.open = _OpenRecord(number, header if right else None)
        return header if right else None

    def _within(
        self, number: int, line: SeriesLine | LogLine | EndLine, record: _OpenRecord, header: RunLine
    ) -> RecordLine | None:
        if line.run != header.id:
            self.problems.note(
                number, "run", _("The record of {run} has not ended, and this is of another.", run=header.id[:40])
            )
            return None
        if isinstance(line, EndLine):
            self.open = None
            if line.lines != record.lines:
                self.problems.note(
                    number,
                    "lines",
                    _(
                        "The record has {count} lines and should have {expected}: some are lost.",
                        count=record.lines,
                        expected=line.lines,
                    ),
                )
                return None
            return line
        record.lines += 1
        error = _series_error(line, record) if isinstance(line, SeriesLine) else _log_error(line, record)
        if error is not None:
            self.problems.note(number, error.where, error.sentence)
            record.header = None
            return None
        return line


def _parse_line(text: str) -> RecordLine:
    value = loads_strict(text)
    if not isinstance(value, dict):
        raise InvalidDocument(_("A line is an object."))
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in LINE_TYPES:
        raise InvalidDocument(_("It is one of {choices}.", choices=", ".join(LINE_TYPES)), "kind")
    version = value.get("format", RECORD_FORMAT)
    if version != RECORD_FORMAT:
        raise InvalidDocument(
            _("This site reads {format}, and this is '{version}'.", format=RECORD_FORMAT, version=str(version)[:40]),
            "format",
        )
    line: RecordLine = convert_value(value, LINE_TYPES[kind])
    return line


def _series_error(line: SeriesLine, record: _OpenRecord) -> InvalidDocument | None:
    if len(line.at) != len(line.values):
        return InvalidDocument(
            _("There are {times} times and {values} values.", times=len(line.at), values=len(line.values)), "values"
        )
    if not line.key.isprintable():
        return InvalidDocument(_("It has a character that cannot be shown."), "key")
    count = record.counts.get(line.key)
    about = (line.unit, line.source, line.interval)
    if count is None:
        if len(record.counts) >= MAX_SERIES:
            return InvalidDocument(_("A run has {most} series at most.", most=MAX_SERIES), "key")
        record.about[line.key] = about
    elif record.about[line.key] != about:
        return InvalidDocument(_("Unit, source or interval is not as before in this series."), "unit")
    if line.first != (count or 0):
        return InvalidDocument(
            _("Number {next} of the series is next, and this begins with {first}.", next=count or 0, first=line.first),
            "first",
        )
    record.counts[line.key] = (count or 0) + len(line.values)
    return None


def _log_error(line: LogLine, record: _OpenRecord) -> InvalidDocument | None:
    if line.first < record.log_end:
        return InvalidDocument(_("The log went on to byte {byte} already.", byte=record.log_end), "first")
    # Invalid UTF-8 was replaced when received, which may have made it longer.
    record.log_end = line.first + 1 if line.text else line.first
    return None


CHUNKS_AT_ONCE: Final = 64
# Fields that a run and the header of its record share, besides `results`.
HEADER_FIELDS: Final = (
    "title", "workload", "preset", "state", "trouble", "error", "exit_code", "steps_done", "spec", "spec_hash",
    "topology", "software", "point", "started_at", "ended_at",
)  # fmt: skip
OVERLAPS_KEY: Final = "overlaps"  # of the source of a record, without the ids of the other runs
SUMMARISED_KEY: Final = "summarised"  # of a run's source: its results were computed here from the samples of its record


def run_record(run: Run) -> Iterator[RecordLine]:
    """Yield the record of a run that has ended: its header, series by key, log, and end."""
    lines: Iterator[RecordLine] = itertools.chain([run_header(run)], run_series_lines(run), _log_lines(run))
    count = 0
    for line in lines:
        count += 1
        yield line
    yield EndLine(run=str(run.pk), lines=count)


def run_record_json(run: Run) -> Iterator[str]:
    """Yield the lines of a run's record as JSON."""
    for line in run_record(run):
        yield f"{msgspec.json.encode(line).decode()}\n"


def run_header(run: Run) -> RunLine:
    """Return a run without its samples."""
    return RunLine(
        id=str(run.pk),
        provenance=run.provenance,  # type: ignore[arg-type]  # the choices are the same words
        executor=run.executor,
        # Results that were computed here are not part of the record, which is exported as it was imported.
        results={} if run.source.get(SUMMARISED_KEY) else run.results,
        source={**run.source, **({OVERLAPS_KEY: anonymous_overlaps(run.overlaps)} if run.overlaps else {})},
        **{name: getattr(run, name) for name in HEADER_FIELDS},
    )


def run_identity(run: Run) -> str:
    """Return the identity of a run's record."""
    identity = RecordIdentity(run_header(run))
    for line in run_series_lines(run):
        identity.add(line)
    return identity.hexdigest()


def run_series_lines(run: Run) -> Iterator[SeriesLine]:
    """Yield the series of a run by key, one without values too."""
    for series in Series.objects.filter(run=run).order_by("key"):
        first = 0
        for at, values in _blocks(series):
            yield SeriesLine(
                run=str(run.pk), key=series.key, unit=series.unit, source=series.source, interval=series.interval,
                first=first, at=_json_numbers(at), values=_json_numbers(values),
            )  # fmt: skip
            first += len(values)


def _blocks(series: Series) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield times and values in lines of constant size, independent of chunks in the database; at least one line."""
    at, values, is_empty = np.zeros(0), np.zeros(0), True
    chunks = Chunk.objects.filter(series=series).order_by("first").values_list("at", "values")
    for more_at, more_values in chunks.iterator(chunk_size=CHUNKS_AT_ONCE):
        at = np.concatenate([at, np.frombuffer(bytes(more_at), dtype=STORED_DTYPE)])
        values = np.concatenate([values, np.frombuffer(bytes(more_values), dtype=STORED_DTYPE)])
        while len(values) >= VALUES_A_LINE:
            yield at[:VALUES_A_LINE], values[:VALUES_A_LINE]
            at, values, is_empty = at[VALUES_A_LINE:], values[VALUES_A_LINE:], False
    if len(values) or is_empty:
        yield at, values


def _json_numbers(values: np.ndarray) -> tuple[float | None, ...]:
    """Return values for JSON, which has neither NaN nor Infinity."""
    return tuple(one if finite else None for one, finite in zip(values.tolist(), np.isfinite(values), strict=True))


def _log_lines(run: Run) -> Iterator[LogLine]:
    """Yield the log in parts of constant size; a gap in the log starts a new part."""
    name, first, text, end = str(run.pk), 0, "", 0
    for part in LogPart.objects.filter(run=run).order_by("first").iterator(chunk_size=CHUNKS_AT_ONCE):
        if text and part.first != end:
            yield LogLine(run=name, first=first, text=text)
            text = ""
        if not text:
            first = end = part.first
        text += part.text
        end += len(part.text.encode())
        while len(text) >= CHARACTERS_A_LINE:
            piece, text = text[:CHARACTERS_A_LINE], text[CHARACTERS_A_LINE:]
            yield LogLine(run=name, first=first, text=piece)
            first += len(piece.encode())
    if text:
        yield LogLine(run=name, first=first, text=text)
