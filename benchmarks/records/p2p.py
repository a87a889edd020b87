"""Output of p2pBandwidthLatencyTest of the CUDA samples: matrices of bandwidth and latency between GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from benchmarks.records.import_files import ImportProblems, finite_number, tool_lines
from benchmarks.records.schema import RunLine, ToolOutput, ToolRun, tool_results, tool_software
from core.language import _

DEVICE = re.compile(r"^Device:\s*(\d{1,9}),\s*+(.+?),\s*+pciBusID:\s*[0-9a-fA-F]")
BANDWIDTH = re.compile(r"^(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth(?: \(P2P Writes\))? Matrix \((\S+)\)")
LATENCY = re.compile(r"^P2P=(Enabled|Disabled) Latency(?: \(P2P Writes\))? Matrix \((\S+)\)")
CONNECTIVITY = re.compile(r"^P2P Connectivity Matrix")
HEAD = re.compile(r"^\s*(D\\D|GPU|CPU)((?:\s+\d{1,9})+)\s*$")
ROW = re.compile(r"^\s*\d+\s+\S")
UNITS = {"us": "µs"}


@dataclass
class _Matrix:
    """A matrix while it is parsed; `columns` is None before its header."""

    name: str
    title: str
    unit: str
    line: int
    columns: list[int] | None = None
    rows: list[list[float]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return self.columns is not None and len(self.rows) == len(self.columns)


def parse(text: str, problems: ImportProblems) -> ToolOutput:
    """Return the run in the output. An incomplete matrix is reported with line and row."""
    output = ToolOutput()
    names: dict[int, str] = {}
    matrices: list[_Matrix] = []
    current: _Matrix | None = None
    for number, line in tool_lines(text, problems):
        if title := _parse_title(line, number):
            _note_incomplete(current, problems)
            current = title
            matrices.append(current)
        elif device := DEVICE.match(line.strip()):
            names[int(device[1])] = device[2]
        elif current is not None and (head := HEAD.match(line)):
            current = _start_matrix(current, head, number, matrices, problems)
        elif current is not None and current.columns is not None and not current.is_whole and ROW.match(line):
            _parse_row(current, line, number, problems)
        else:
            output.skipped += 1
    _note_incomplete(current, problems)
    kept = [one for one in matrices if one.name != "connectivity" and one.is_whole]
    if not kept:
        problems.note(0, "", _("There is no matrix of bandwidth or latency in it."))
        return output
    header = RunLine(
        id="p2pBandwidthLatencyTest", title=f"p2pBandwidthLatencyTest, {len(kept[0].rows)} GPUs",
        workload="gpu_bandwidth", provenance="measured",
        software=tool_software([names.get(one, "") for one in kept[0].columns or []]),
        results=tool_results(
            tables={one.name: one.rows for one in kept}, units={one.name: one.unit for one in kept}
        ),
    )  # fmt: skip
    output.runs.append(ToolRun(kept[0].line, header))
    if not names:
        output.notes.append(_("It does not name the GPUs."))
    return output


def _parse_title(line: str, number: int) -> _Matrix | None:
    plain = line.strip()
    if found := BANDWIDTH.match(plain):
        name = f"{found[1].lower()}directional_bandwidth_p2p_{found[2].lower()}"
        return _Matrix(name, plain, found[3], number)
    if found := LATENCY.match(plain):
        return _Matrix(f"latency_p2p_{found[1].lower()}", plain, UNITS.get(found[2], found[2]), number)
    return _Matrix("connectivity", plain, "", number) if CONNECTIVITY.match(plain) else None


def _start_matrix(
    current: _Matrix, head: re.Match[str], number: int, matrices: list[_Matrix], problems: ImportProblems
) -> _Matrix:
    """Return the matrix that a header starts: latencies have one by the GPU's clock, and one by the CPU's."""
    columns = [int(one) for one in head[2].split()]
    by = head[1].lower()
    if by in {"gpu", "cpu"}:
        _note_incomplete(current if current.columns is not None else None, problems)
        # The second is the launch time by the CPU's clock, not a latency between GPUs.
        name = current.name if by == "gpu" else current.name.replace("latency", "cpu_clock")
        made = _Matrix(name, f"{current.title}, {head[1]}", current.unit, number, columns)
        if current.columns is None:
            matrices.remove(current)
        matrices.append(made)
        return made
    current.columns = columns
    return current


def _parse_row(matrix: _Matrix, line: str, number: int, problems: ImportProblems) -> None:
    place, *cells = line.split()
    columns = matrix.columns or []
    where = _("{matrix}, row {row}", matrix=matrix.title, row=place)
    values: list[float] = []
    for cell in cells:
        value = finite_number(cell)
        if value is None:
            problems.note(number, where, _("'{value}' is no number.", value=cell[:20]))
        values.append(0.0 if value is None else value)
    if len(cells) != len(columns):
        problems.note(
            number,
            where,
            _("The row has {count} values, and there are {gpus} GPUs.", count=len(cells), gpus=len(columns)),
        )
        values = [0.0] * len(columns)
    if place != str(columns[len(matrix.rows)]):
        problems.note(number, where, _("The row of GPU {number} is next.", number=columns[len(matrix.rows)]))
    matrix.rows.append(values)


def _note_incomplete(matrix: _Matrix | None, problems: ImportProblems) -> None:
    if matrix is not None and not matrix.is_whole:
        problems.note(matrix.line, matrix.title, _("The matrix is not whole: rows are missing."))
