"""Output of nccl-tests, as a table or as the file of -J: time and bandwidths of a collective by size."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.records.import_files import ImportProblems, finite_number, tool_lines
from benchmarks.records.schema import RunLine, ToolOutput, ToolRun, tool_results, tool_software
from core.language import _
from core.strict_json import InvalidDocument, loads_strict

DEVICE = re.compile(r"^#\s+Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device\s+\d+ \[([^\]]*)\] (.+)")
PROGRAM = re.compile(r"^# Collective test (?:starting|concluded): (?:\S*/)?(\w+)_perf")
COMMAND = re.compile(r"(?:^|[/\s])(\w+)_perf(?:\s|$)")
AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\S+)")
BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)")
VERSION = re.compile(r"nccl-library=(\d+)")
HEAD_PATTERN = re.compile(r"^#\s+size\s+count\s+type\b")
ROW_PATTERN = re.compile(r"^\s*\d+\s+\d+\s+[a-z]")
UNITS: Final = {"bytes": "B", "time": "µs", "algbw": "GB/s", "busbw": "GB/s", "wrong": ""}
BUFFER_PLACEMENTS: Final = ("out_of_place", "in_place")
# Names of columns in the table and in the file.
COLUMN_NAMES: Final = {
    "time": "time", "cputime": "time", "cpu_time": "time", "algbw": "algbw", "alg_bw": "algbw", "busbw": "busbw",
    "bus_bw": "busbw", "#wrong": "wrong", "nwrong": "wrong", "error": "wrong",
}  # fmt: skip


@dataclass
class _NcclTable:
    """A table while it is parsed: figures by buffer placement and name, and the facts of the test."""

    line: int
    program: str = ""
    columns: tuple[str, ...] = ()
    sizes: list[int] = field(default_factory=list)
    figures: dict[str, dict[str, list[float | None]]] = field(
        default_factory=lambda: {
            way: {name: [] for name in ("time", "algbw", "busbw", "wrong")} for way in BUFFER_PLACEMENTS
        }
    )
    type: str = ""
    operation: str = ""
    devices: dict[int, str] = field(default_factory=dict)
    host: str = ""
    average: float | None = None
    wrong: int | None = None
    nccl: str = ""


def parse_table(text: str, problems: ImportProblems) -> ToolOutput:
    """Return a run for each table in the output."""
    output = ToolOutput()
    table = _NcclTable(1)
    for number, line in tool_lines(text, problems):
        if line.strip() == "#":
            continue
        if _parse_comment(line, number, table, problems):
            continue
        if HEAD_PATTERN.match(line):
            if table.sizes:
                _finish_table(table, output)
                table = _NcclTable(number, devices=table.devices, host=table.host, nccl=table.nccl)
            table.line, table.columns = number, tuple(line.lstrip("# ").split())
        elif table.columns and ROW_PATTERN.match(line):
            _parse_row(line, number, table, problems)
        else:
            if program := COMMAND.search(line):
                table.program = table.program or program[1]
            output.skipped += 1
    if not table.columns:
        problems.note(0, "", _("There is no table in it: no head with size, count and type."))
    elif not table.sizes:
        problems.note(table.line, "size", _("The table has no rows."))
    else:
        _finish_table(table, output)
    return output


def parse_json(text: str, problems: ImportProblems) -> ToolOutput:
    """Return the run in a file of -J. Its environment is left out because it may contain secrets."""
    output = ToolOutput()
    try:
        whole = loads_strict(text)
    except InvalidDocument as error:
        problems.note(1, error.where, error.sentence)
        return output
    results, config = (whole.get("results"), whole.get("config", {})) if isinstance(whole, dict) else (None, {})
    if not isinstance(results, list) or not isinstance(config, dict):
        problems.note(1, "results", _("It is missing, or no list: this is no file of nccl-tests."))
        return output
    table = _NcclTable(1)
    _parse_json_header(whole, config, table)
    for place, one in enumerate(results):
        _parse_result(one, f"results[{place}]", table, problems)
    if not table.sizes:
        problems.note(1, "results", _("There are no results in it."))
        return output
    if errors := whole.get("errors"):
        output.notes.append(_("NCCL says: {error}", error=str(errors)[:200]))
    _finish_table(table, output)
    return output


def _parse_comment(line: str, number: int, table: _NcclTable, problems: ImportProblems) -> bool:
    """Parse a line about the test; False if it is another line."""
    if device := DEVICE.match(line):
        table.devices[int(device[1])] = device[4].strip()
        table.host = table.host or device[2]
    elif found := PROGRAM.match(line):
        table.program = found[1]
    elif found := AVERAGE.match(line):
        table.average = _parse_number(found[1], number, "Avg bus bandwidth", problems)
    elif found := BOUNDS.match(line):
        table.wrong = int(found[1][:15])
    elif found := VERSION.search(line):
        table.nccl = _version_text(int(found[1][:9]))
    else:
        return False
    return True


def _parse_row(line: str, number: int, table: _NcclTable, problems: ImportProblems) -> None:
    """Parse a row; the oldest versions have neither 'redop' nor 'root'."""
    columns, cells = list(table.columns), line.split()
    if "timestamp" in columns:
        columns.remove("timestamp")
        cells = cells[:-2]
    if len(cells) != len(columns):
        without = [one for one in columns if one not in {"redop", "root"}]
        columns = without if len(cells) == len(without) else columns
    if len(cells) != len(columns):
        problems.note(
            number, "", _("The row has {count} columns, the head {expected}.", count=len(cells), expected=len(columns))
        )
        return
    way = -1
    read: dict[tuple[str, str], float | None] = {}
    for name, cell in zip(columns, cells, strict=True):
        figure = COLUMN_NAMES.get(name)
        if figure is None:
            continue
        way += figure == "time"
        if way >= len(BUFFER_PLACEMENTS):
            break
        read[BUFFER_PLACEMENTS[max(way, 0)], figure] = _parse_number(
            cell, number, f"{BUFFER_PLACEMENTS[max(way, 0)]}.{name}", problems
        )
    by_column = dict(zip(columns, cells, strict=True))
    table.type, table.operation = by_column.get("type", ""), by_column.get("redop", "")
    table.sizes.append(int(cells[0][:18]))
    for one in BUFFER_PLACEMENTS:
        for figure in table.figures[one]:
            table.figures[one][figure].append(read.get((one, figure)))


def _parse_result(one: Any, where: str, table: _NcclTable, problems: ImportProblems) -> None:
    size = one.get("size") if isinstance(one, dict) else None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 10**18:
        problems.note(1, f"{where}.size", _("It is missing, or no number of bytes."))
        return
    table.type, table.operation = str(one.get("type", ""))[:20], str(one.get("redop", ""))[:20]
    table.sizes.append(size)
    for way in BUFFER_PLACEMENTS:
        given = one.get(way)
        if given is not None and not isinstance(given, dict):
            problems.note(1, f"{where}.{way}", _("It is no object."))
            given = None
        given_values = {COLUMN_NAMES[name]: value for name, value in (given or {}).items() if name in COLUMN_NAMES}
        for figure, values in table.figures[way].items():
            values.append(_parse_number(given_values.get(figure, "N/A"), 1, f"{where}.{way}.{figure}", problems))


def _parse_json_header(whole: dict[str, Any], config: dict[str, Any], table: _NcclTable) -> None:
    args = whole.get("args")
    first = str(args[0]) if isinstance(args, list) and args else ""
    if program := COMMAND.search(first):
        table.program = program[1]
    devices = config.get("devices", whole.get("devices", []))
    for one in devices if isinstance(devices, list) else []:
        if isinstance(one, dict) and isinstance(one.get("rank"), int):
            table.devices[one["rank"]] = str(one.get("device_info", ""))[:200]
            table.host = table.host or str(one.get("hostname", ""))[:200]
    version = whole.get("nccl_version")
    table.nccl = _version_text(version) if isinstance(version, int) else ""
    for name, inner in (("average_bus_bandwidth", "bandwidth"), ("out_of_bounds", "count")):
        given_values = whole.get(name)
        value = given_values.get(inner) if isinstance(given_values, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            if name == "out_of_bounds":
                table.wrong = int(value)
            else:
                table.average = float(value)


def _finish_table(table: _NcclTable, output: ToolOutput) -> None:
    program = table.program or "collective"
    name = program if table.program else "all_reduce"
    if not table.program:
        output.notes.append(_("It does not say which collective this is: taken for all_reduce."))
    tables: dict[str, Any] = {"bytes": table.sizes}
    units = {"bytes": UNITS["bytes"]}
    for way in BUFFER_PLACEMENTS:
        for figure, values in table.figures[way].items():
            if any(value is not None for value in values):
                tables[f"{figure}_{way}"] = values
                units[f"{figure}_{way}"] = UNITS[figure]
    if table.average is not None:
        tables["average_bus_bandwidth"], units["average_bus_bandwidth"] = table.average, "GB/s"
    if table.wrong is not None:
        tables["out_of_bounds"] = table.wrong
    if table.wrong:
        output.notes.append(_("{count} values were wrong: the run is kept as failed.", count=table.wrong))
    tables |= {key: value for key, value in (("type", table.type), ("operation", table.operation)) if value}
    count = f"{len(table.devices)} GPU{'' if len(table.devices) == 1 else 's'}" if table.devices else "GPUs not named"
    names = [table.devices[one] for one in sorted(table.devices)]
    header = RunLine(
        id=f"nccl-tests {len(output.runs) + 1}", workload=name[:40], provenance="measured",
        title=f"nccl-tests {program}{f' on {table.host}' if table.host else ''}, {count}"[:200],
        state="failed" if table.wrong else "completed",
        error=f"{table.wrong} values were out of bounds." if table.wrong else "",
        software=tool_software(names, nccl=table.nccl),
        results=tool_results(tables=tables, units=units),
    )  # fmt: skip
    output.runs.append(ToolRun(table.line, header))


def _parse_number(cell: Any, line: int, where: str, problems: ImportProblems) -> float | None:
    if cell is None or (isinstance(cell, str) and cell.lower() in {"n/a", "nan"}):
        return None
    value = finite_number(cell)
    if value is None:
        problems.note(line, where, _("'{value}' is no number.", value=str(cell)[:20]))
    return value


def _version_text(number: int) -> str:
    """Return 22005 as '2.20.5', and 2804 as '2.8.4'."""
    major = 10_000 if number >= 10_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}" if number > 0 else ""
