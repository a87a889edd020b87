"""Records as CSV in long form, one row a value, and as a table of many runs; safe to open in a spreadsheet.

The first row of each run has its header in its last column, so that the file can be imported again. Logs are only
exported as JSON Lines.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from benchmarks.records.import_files import MAX_LINE_BYTES, ImportFile, ImportProblems
from benchmarks.records.jsonl import RecordReader, run_header, run_series_lines
from benchmarks.records.schema import VALUES_A_LINE, EndLine, RecordLine, RunLine, SeriesLine
from benchmarks.runs.models import Run
from benchmarks.runs.results import Statistic, summary_of
from core.downloads import FORMULA_PREFIXES, csv_table
from core.language import _
from core.strict_json import InvalidDocument, convert_value, loads_strict

SAMPLE_COLUMNS: Final = (
    "run",
    "workload",
    "provenance",
    "series",
    "unit",
    "source",
    "interval",
    "at",
    "value",
    "record",
)
REQUIRED_COLUMNS: Final = ("run", "series", "value")
SUMMARY_COLUMNS: Final = (
    "run", "title", "workload", "preset", "provenance", "provenance_where_measured", "state", "host", "spec_hash",
    "devices", "batch_a_device", "global_batch", "precision", "strategy", "started_at", "ended_at",
    "step_seconds", "step_seconds_p5", "step_seconds_p95", "samples_per_second", "exposed_seconds",
    "pcie_bytes_per_second", "gpu_share", "gpu_memory_bytes", "cpu_share", "memory_bytes", "first_loss", "last_loss",
    "overlapped",
)  # fmt: skip


def samples_csv(runs: Iterable[Run]) -> Iterator[str]:
    """Yield the lines of a table of all values of runs."""
    yield from csv_table(SAMPLE_COLUMNS, (row for run in runs for row in _sample_rows(run)))


def summary_csv(runs: Iterable[Run]) -> Iterator[str]:
    """Yield the lines of a table of runs: their specifications, and medians of their recorded values, in SI units."""
    yield from csv_table(SUMMARY_COLUMNS, (_summary_row(run) for run in runs))


def read_csv_lines(content: ImportFile, problems: ImportProblems) -> Iterator[tuple[int, RecordLine]]:
    """Yield the lines of the records in a CSV file, with the numbers of their rows."""
    reader = RecordReader(problems)
    try:
        for number, line in _CsvReader(problems).lines(content):
            added = reader.add_line(number, line)
            if added is not None:
                yield number, added
    except InvalidDocument as error:
        problems.note(int(error.where or 0), "", error.sentence)


def _sample_rows(run: Run) -> Iterator[tuple[object, ...]]:
    about = (str(run.pk), run.workload, run.provenance)
    record = msgspec.json.encode(run_header(run)).decode()
    for line in run_series_lines(run):
        series = (line.key, line.unit, line.source, line.interval)
        # A row without time and value declares a series.
        for at, value in zip(line.at, line.values, strict=True) if line.at else [(None, None)]:
            yield (*about, *series, at, value, record)
            record = ""
    if record:
        yield (*about, "", "", "", "", "", "", record)


def _summary_row(run: Run) -> tuple[object, ...]:
    found = summary_of(run)
    spec, readings = run.spec, found.readings
    batch = spec.get("devices", 0) * spec.get("batch", 0) * spec.get("accumulation", 1)
    step = found.step_seconds
    return (
        str(run.pk),
        run.title,
        run.workload,
        run.preset,
        run.provenance,
        run.source.get("provenance", ""),
        run.state,
        run.topology.get("host", ""),
        run.spec_hash,
        spec.get("devices"),
        spec.get("batch"),
        batch or None,
        spec.get("precision"),
        spec.get("strategy"),
        *(one.isoformat() if one else None for one in (run.started_at, run.ended_at)),
        _statistic_value(step),
        step.low if step else None,
        step.high if step else None,
        _statistic_value(found.samples_per_second),
        _statistic_value(found.exposed_seconds),
        _statistic_value(found.pcie),
        _statistic_value(readings.get("utilisation")),
        _statistic_value(readings.get("memory_used")),
        _statistic_value(readings.get("cpu")),
        _statistic_value(readings.get("memory")),
        found.first_loss,
        found.last_loss,
        bool(run.overlaps),
    )


def _statistic_value(figure: Statistic | None) -> float | None:
    return figure.value if figure else None


@dataclass
class _RunRows:
    id: str
    lines: int = 1
    key: str = ""
    about: tuple[str, str, float] = ("", "", 0.0)
    at: list[float | None] | None = None
    values: list[float | None] | None = None


class _CsvReader:
    def __init__(self, problems: ImportProblems) -> None:
        self.problems = problems
        self.number = 0
        self.columns: tuple[str, ...] = ()
        self.counts: dict[str, int] = {}

    def lines(self, content: ImportFile) -> Iterator[tuple[int, RecordLine]]:
        csv.field_size_limit(MAX_LINE_BYTES)
        group: _RunRows | None = None
        for row in self._rows(content):
            cells = dict(zip(self.columns, row, strict=True))
            if group is None or cells["run"] != group.id:
                if group is not None:
                    yield from self._flushed(group)
                    yield self.number - 1, EndLine(run=group.id, lines=group.lines)
                self.counts = {}
                header = self._header(cells, content)
                if header is None:
                    return
                group = _RunRows(cells["run"])
                yield self.number, header
            sample = self._sample(cells)
            if sample is None:
                continue
            about = (cells.get("unit", ""), cells.get("source", ""), sample[2])
            same = group.at is not None and group.key == cells["series"] and group.about == about
            if not same or len(group.at or ()) >= VALUES_A_LINE:
                yield from self._flushed(group)
                group.key, group.about, group.at, group.values = cells["series"], about, [], []
            if group.at is not None and group.values is not None and sample[:2] != (None, None):
                group.at.append(sample[0])
                group.values.append(sample[1])
        if group is not None:
            yield from self._flushed(group)
            yield self.number, EndLine(run=group.id, lines=group.lines)

    def _rows(self, content: ImportFile) -> Iterator[list[str]]:
        """Yield the rows after the header, each with the same number of cells."""
        table = csv.reader(self._texts(content), strict=True)
        try:
            for row in table:
                if not self.columns:
                    self._head(row)
                elif len(row) != len(self.columns):
                    self.problems.note(
                        self.number,
                        "",
                        _(
                            "The row has {count} cells, the head {expected}.",
                            count=len(row),
                            expected=len(self.columns),
                        ),
                    )
                else:
                    yield [unescape_cell(cell) for cell in row]
        except csv.Error as error:
            raise InvalidDocument(_("This is no CSV: {error}.", error=error), str(self.number)) from error

    def _texts(self, content: ImportFile) -> Iterator[str]:
        for number, text in content.lines():
            self.number = number
            yield text

    def _head(self, row: list[str]) -> None:
        names = tuple(one.strip().lower() for one in row)
        for name in REQUIRED_COLUMNS:
            if name not in names:
                raise InvalidDocument(_("There is no column '{name}'.", name=name), str(self.number))
        for name in names:
            if name not in SAMPLE_COLUMNS or names.count(name) > 1:
                known = ", ".join(SAMPLE_COLUMNS)
                raise InvalidDocument(
                    _("The column '{name}' is unknown or comes twice; known are {known}.", name=name[:40], known=known),
                    str(self.number),
                )
        self.columns = names

    def _header(self, cells: dict[str, str], content: ImportFile) -> RunLine | None:
        """Return the header of a run; None if it is invalid, so that its rows are skipped."""
        try:
            if text := cells.get("record", ""):
                header: RunLine = convert_value(loads_strict(text), RunLine)
                return msgspec.structs.replace(header, id=cells["run"])
            plainly = {
                "kind": "run", "id": cells["run"] or "1", "provenance": cells.get("provenance") or "measured",
                "title": (cells["run"] or content.name or "Values of a table")[:200],
                "workload": cells.get("workload") or "command",
            }  # fmt: skip
            made: RunLine = convert_value(plainly, RunLine)
            return made
        except InvalidDocument as error:
            self.problems.note(self.number, error.where or "record", error.sentence)
            return None

    def _sample(self, cells: dict[str, str]) -> tuple[float | None, float | None, float] | None:
        """Return time, value and interval of a row; None if it has none, or is invalid."""
        if not cells["series"]:
            if any(cells.get(name) for name in ("at", "value")):
                self.problems.note(self.number, "series", _("A value belongs to a series, and none is named."))
            return None
        found: list[float | None] = []
        for name in ("at", "value", "interval"):
            try:
                found.append(parse_number(cells.get(name, "")))
            except InvalidDocument as error:
                self.problems.note(self.number, name, error.sentence)
                return None
        return found[0], found[1], found[2] or 0.0

    def _flushed(self, group: _RunRows) -> Iterator[tuple[int, RecordLine]]:
        if group.at is None or group.values is None:
            return
        first = self.counts.get(group.key, 0)
        self.counts[group.key] = first + len(group.values)
        group.lines += 1
        unit, source, interval = group.about
        at, values = group.at, group.values
        group.at = group.values = None
        plainly = {
            "kind": "series", "run": group.id, "key": group.key, "unit": unit, "source": source, "interval": interval,
            "first": first, "at": at, "values": values,
        }  # fmt: skip
        try:
            line: SeriesLine = convert_value(plainly, SeriesLine)
        except InvalidDocument as error:
            column = "series" if error.where == "key" else error.where
            self.problems.note(self.number, column, error.sentence)
        else:
            yield self.number, line


def unescape_cell(cell: str) -> str:
    """Return a cell without its escape for spreadsheets."""
    rest = cell[1:] if cell.startswith("'") else ""
    return rest if rest.lstrip(" ").startswith(FORMULA_PREFIXES) else cell


def parse_number(text: str) -> float | None:
    """Return a number, None for an empty text; raises InvalidDocument for anything else."""
    if not text.strip():
        return None
    try:
        number = float(text)
    except ValueError as error:
        raise InvalidDocument(_("'{value}' is no number.", value=text[:40])) from error
    if not math.isfinite(number):
        raise InvalidDocument(_("{value} is no number; leave the cell empty where there is no value.", value=text[:40]))
    return number
