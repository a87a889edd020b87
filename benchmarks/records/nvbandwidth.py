"""Output of `nvbandwidth -j`: matrices of bandwidth or latency, one per test."""

from __future__ import annotations

import re
from typing import Any, Final

from benchmarks.records.import_files import ImportProblems, finite_number
from benchmarks.records.schema import RunLine, ToolOutput, ToolRun, tool_results, tool_software
from core.language import _
from core.strict_json import InvalidDocument, loads_strict

UNIT = re.compile(r"\(([^()\s]+)\)\s*$")
# The name ends before the address on the bus, in brackets, or before a colon.
DEVICE = re.compile(r"^(?:Device\s+)?\d+:\s*([^:(]*(?:\((?![0-9a-fA-F:.]+\)(?::|$))[^:(]*)*)")
UNITS: Final = {"us": "µs"}
SKIPPED_STATUSES: Final = ("Waived", "Not Found")
MAX_LABEL_LENGTH: Final = 1_000  # characters; more of a description or a device are not looked at


def parse(text: str, problems: ImportProblems) -> ToolOutput:
    """Return the run in the output; tests that did not pass are named in `notes`."""
    output = ToolOutput()
    begins = text.find("{")
    line = text.count("\n", 0, max(begins, 0)) + 1
    output.skipped = line - 1
    try:
        whole = loads_strict(text[begins:])
    except InvalidDocument as error:
        problems.note(line, error.where, error.sentence)
        return output
    root = whole.get("nvbandwidth") if isinstance(whole, dict) else None
    if not isinstance(root, dict):
        problems.note(line, "nvbandwidth", _("It is missing, or no object: this is no output of nvbandwidth -j."))
        return output
    if error_text := root.get("error"):
        output.notes.append(_("nvbandwidth says: {error}", error=str(error_text)[:200]))
    tests = root.get("testcases")
    within = _line_number(text, '"testcases"', line)
    if not isinstance(tests, list):
        problems.note(within, "nvbandwidth.testcases", _("It is missing, or no list."))
        return output
    tables: dict[str, Any] = {}
    units: dict[str, str] = {}
    for place, test in enumerate(tests):
        where = f"nvbandwidth.testcases[{place}]"
        if not isinstance(test, dict) or not isinstance(test.get("name"), str):
            problems.note(within, f"{where}.name", _("A test is an object with a name."))
            continue
        name = test["name"]
        if test.get("bandwidth_matrix") is None:
            status = str(test.get("status", ""))[:40]
            if status not in SKIPPED_STATUSES:
                output.notes.append(
                    _(
                        "{name} did not pass ({status}) and is left out.",
                        name=name[:80],
                        status=status or _("no status"),
                    )
                )
            output.skipped += 1
            continue
        rows = _parse_matrix(test, where, _line_number(text, f'"{name}"', within), problems)
        if rows is not None:
            unit = UNIT.search(str(test.get("bandwidth_description", ""))[:MAX_LABEL_LENGTH])
            tables[name], units[name] = rows, UNITS.get(unit[1], unit[1]) if unit else "GB/s"
    if not tables:
        problems.note(0, "nvbandwidth.testcases", _("No test in it passed: there is nothing to keep."))
        return output
    names = _device_names(root)
    is_host = not any("device_to_device" in name for name in tables)
    size = max(len(row) for rows in tables.values() for row in rows)
    on = f" on {root['Hostname']}" if isinstance(root.get("Hostname"), str) else ""
    header = RunLine(
        id="nvbandwidth",
        title=f"nvbandwidth{on}, {size} GPU{'' if size == 1 else 's'}"[:200],
        workload="host_copy" if is_host else "gpu_bandwidth",
        provenance="measured",
        software=tool_software(
            names,
            driver=str(root.get("Driver Version", ""))[:100],
            cuda=_cuda_version(root.get("CUDA Runtime Version")),
            libraries={"nvbandwidth": str(root["version"])[:100]} if root.get("version") else {},
        ),
        results=tool_results(tables=tables, units=units),
    )
    output.runs.append(ToolRun(line, header))
    if not names:
        output.notes.append(_("It does not name the GPUs."))
    return output


def _parse_matrix(
    test: dict[str, Any], where: str, line: int, problems: ImportProblems
) -> list[list[float | None]] | None:
    """Return the matrix of a test, None if it is invalid."""
    matrix = test["bandwidth_matrix"]
    if not isinstance(matrix, list) or not matrix or not all(isinstance(row, list) and row for row in matrix):
        problems.note(line, f"{where}.bandwidth_matrix", _("A matrix is a list of rows, none of them empty."))
        return None
    rows: list[list[float | None]] = []
    for number, row in enumerate(matrix):
        place = f"{where}.bandwidth_matrix[{number}]"
        if len(row) != len(matrix[0]):
            problems.note(
                line,
                place,
                _("It has {count} values, and the first row {expected}.", count=len(row), expected=len(matrix[0])),
            )
            return None
        rows.append([_parse_cell(cell, f"{place}[{at}]", line, problems) for at, cell in enumerate(row)])
    return rows


def _parse_cell(cell: Any, where: str, line: int, problems: ImportProblems) -> float | None:
    """Return a value of a matrix: a number or its text; None for 'N/A', on the diagonal."""
    if cell == "N/A":
        return None
    value = finite_number(cell)
    if value is not None and value >= 0:
        return value
    problems.note(line, where, _("'{value}' is no number of this kind.", value=str(cell)[:20]))
    return None


def _device_names(root: dict[str, Any]) -> list[str]:
    listed = root.get("GPU Device list", root.get("GPU Device info", []))
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        return []
    found = (DEVICE.match(str(one)[:MAX_LABEL_LENGTH]) for one in listed)
    return [name[:200] for one in found if one and (name := one[1].strip())]


def _cuda_version(number: Any) -> str:
    """Return 12040 as '12.4'."""
    if not isinstance(number, int):
        return str(number or "")[:40]
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""


def _line_number(text: str, what: str, otherwise: int) -> int:
    place = text.find(what)
    return text.count("\n", 0, place) + 1 if place >= 0 else otherwise
