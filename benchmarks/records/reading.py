"""Records as JSON Lines, read line by line: what is wrong is noted with its line and field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.records.checking import header_problems
from benchmarks.records.content import Content
from benchmarks.records.problems import Problems
from benchmarks.records.shapes import FORMAT, EndLine, Line, LogLine, RunLine, SeriesLine
from benchmarks.strict import BrokenError, loads, shaped

MOST_SERIES: Final = 5000  # of a run
MOST_RUNS: Final = 500  # of a file
KINDS: Final = {"run": RunLine, "series": SeriesLine, "log": LogLine, "end": EndLine}


@dataclass
class _Open:
    """A record that is being read."""

    line: int
    header: RunLine | None  # None: it was wrong, and what belongs to it is not looked at
    lines: int = 1
    counts: dict[str, int] = field(default_factory=dict)
    about: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    log_end: int = 0


def record_lines(content: Content, problems: Problems) -> Iterator[tuple[int, Line]]:
    """Yield the lines of records with their numbers, as far as they are right.

    Raises TooManyError where more is wrong than is told.
    """
    reader = Reader(problems)
    try:
        for number, text in content.lines():
            line = reader.taken(number, text)
            if line is not None:
                yield number, line
    except BrokenError as error:  # of the file's bytes, whose field is the line
        problems.note(int(error.where), "", error.sentence)
        return
    reader.finish()


class Reader:
    """Where reading is: within which record, and what came of it."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.open: _Open | None = None
        self.ids: set[str] = set()

    def taken(self, number: int, text: str) -> Line | None:
        """Return the line, None where it was wrong or belongs to a record that is."""
        try:
            line = _parsed(text)
        except BrokenError as error:
            self.problems.note(number, error.where, error.sentence)
            # What follows a header that cannot be read would be told to belong to nothing.
            if self.open is None or '"run"' in text[:200]:
                self.open = _Open(number, None)
            elif self.open is not None:
                self.open.header = None
            return None
        return self.checked(number, line)

    def checked(self, number: int, line: Line) -> Line | None:
        """Return a line where it belongs, None where it was wrong or belongs to a record that is."""
        if isinstance(line, RunLine):
            return self._begin(number, line)
        if self.open is None:
            self.problems.note(number, "kind", "No record has begun: a line of kind 'run' comes first.")
            self.open = _Open(number, None)
            return None
        if self.open.header is None:
            if isinstance(line, EndLine):
                self.open = None
            return None
        return self._within(number, line, self.open, self.open.header)

    def finish(self) -> None:
        """Note a record that has no end."""
        if self.open is not None and self.open.header is not None:
            self.problems.note(self.open.line, "", "The record has no end: the file was cut off.")

    def _begin(self, number: int, header: RunLine) -> RunLine | None:
        self.finish()
        before = len(self.problems.found)
        if header.id in self.ids:
            self.problems.note(number, "id", "A record of this id came before in this file.")
        if len(self.ids) >= MOST_RUNS:
            self.problems.note(number, "", f"A file has {MOST_RUNS} records at most.")
        self.ids.add(header.id)
        for error in header_problems(header):
            self.problems.note(number, error.where, error.sentence)
        right = len(self.problems.found) == before
        self.open = _Open(number, header if right else None)
        return header if right else None

    def _within(self, number: int, line: SeriesLine | LogLine | EndLine, record: _Open, header: RunLine) -> Line | None:
        if line.run != header.id:
            self.problems.note(number, "run", f"The record of {header.id[:40]} has not ended, and this is of another.")
            return None
        if isinstance(line, EndLine):
            self.open = None
            if line.lines != record.lines:
                self.problems.note(
                    number, "lines", f"The record has {record.lines} lines and should have {line.lines}: some are lost."
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


def _parsed(text: str) -> Line:
    value = loads(text)
    if not isinstance(value, dict):
        raise BrokenError("A line is an object.")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BrokenError(f"It is one of {', '.join(KINDS)}.", "kind")
    version = value.get("format", FORMAT)
    if version != FORMAT:
        raise BrokenError(f"This site reads {FORMAT}, and this is '{str(version)[:40]}'.", "format")
    line: Line = shaped(value, KINDS[kind])
    return line


def _series_error(line: SeriesLine, record: _Open) -> BrokenError | None:
    if len(line.at) != len(line.values):
        return BrokenError(f"There are {len(line.at)} times and {len(line.values)} values.", "values")
    if not line.key.isprintable():
        return BrokenError("It has a character that cannot be shown.", "key")
    count = record.counts.get(line.key)
    about = (line.unit, line.source, line.interval)
    if count is None:
        if len(record.counts) >= MOST_SERIES:
            return BrokenError(f"A run has {MOST_SERIES} series at most.", "key")
        record.about[line.key] = about
    elif record.about[line.key] != about:
        return BrokenError("Unit, source or interval is not as before in this series.", "unit")
    if line.first != (count or 0):
        return BrokenError(f"Number {count or 0} of the series is next, and this begins with {line.first}.", "first")
    record.counts[line.key] = (count or 0) + len(line.values)
    return None


def _log_error(line: LogLine, record: _Open) -> BrokenError | None:
    if line.first < record.log_end:
        return BrokenError(f"The log went on to byte {record.log_end} already.", "first")
    # What was no UTF-8 was replaced when it came, and may have become longer than it was.
    record.log_end = line.first + 1 if line.text else line.first
    return None
