"""Import formats: their names, detection and readers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.records import mlperf, nccl, nvbandwidth, p2p
from benchmarks.records.import_files import ImportFile, ImportProblems
from benchmarks.records.jsonl import read_record_lines
from benchmarks.records.schema import RecordLine, ToolOutput
from benchmarks.records.tables import REQUIRED_COLUMNS, read_csv_lines
from core.errors import Invalid
from core.language import _, gettext_noop
from core.strict_json import InvalidDocument

FORMATS: Final = {
    "record": gettext_noop("Record of this site, JSON Lines (falconweb.record/1)"),
    "csv": gettext_noop("Samples of this site, CSV"),
    "mlperf": gettext_noop("MLPerf log (:::MLLOG)"),
    "nvbandwidth": "nvbandwidth -j",
    "nccl": gettext_noop("nccl-tests, table"),
    "nccl_json": "nccl-tests -J",
    "p2p": "p2pBandwidthLatencyTest",
}
TOOL_PARSERS: Final[dict[str, Callable[[str, ImportProblems], ToolOutput]]] = {
    "mlperf": mlperf.parse, "nvbandwidth": nvbandwidth.parse, "nccl": nccl.parse_table, "nccl_json": nccl.parse_json,
    "p2p": p2p.parse,
}  # fmt: skip
# Patterns in the first lines that identify a format, in this order.
SIGNATURES: Final = (
    (
        "record",
        re.compile(r'^\s*\{.{0,300}"(?:format"\s*:\s*"falconweb\.record|kind"\s*:\s*"(?:run|series)")', re.DOTALL),
    ),
    ("mlperf", re.compile(r":::MLLOG\s")),
    ("nvbandwidth", re.compile(r'\{\s*"nvbandwidth"\s*:')),
    ("nccl_json", re.compile(r'^\s*\{.*"(?:nccl_version|results|config)"\s*:', re.DOTALL)),
    ("p2p", re.compile(r"P2P \(Peer-to-Peer\) GPU|P2P=(?:Enabled|Disabled)|^P2P Connectivity Matrix", re.MULTILINE)),
    ("nccl", re.compile(r"^#\s+size\s+count\s+type|^# nThread |^# Collective test starting", re.MULTILINE)),
)


@dataclass
class FormatReader:
    """A file in one of the formats, whose lines can be read repeatedly, with the problems found."""

    content: ImportFile
    format: str
    problems: ImportProblems = field(default_factory=ImportProblems)
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    _output: ToolOutput | None = None

    def lines(self) -> Iterator[tuple[int, RecordLine]]:
        """Yield the lines of its records; raises ProblemLimitReached after too many problems."""
        if self.format == "record":
            yield from read_record_lines(self.content, self.problems)
        elif self.format == "csv":
            yield from read_csv_lines(self.content, self.problems)
        else:
            for run in self._read().runs:
                yield from run.lines()

    def _read(self) -> ToolOutput:
        """Return the parsed output of a tool, read once because it is small."""
        if self._output is None:
            try:
                self._output = TOOL_PARSERS[self.format](self.content.text(), self.problems)
            except InvalidDocument as error:
                self.problems.note(int(error.where or 0), "", error.sentence)
                self._output = ToolOutput()
            self.skipped, self.notes = self._output.skipped, self._output.notes
        return self._output


def open_format(content: ImportFile, format_: str = "") -> FormatReader:
    """Return a file in one of the formats, detected for ''; raises Invalid if unknown, or not text."""
    if format_ and format_ not in FORMATS:
        raise Invalid(
            _("'{format}' is no format of an import.", format=format_[:40]),
            errors={"format": _("One of {choices}.", choices=", ".join(FORMATS))},
        )
    return FormatReader(content, format_ or detect_format(content))


def detect_format(content: ImportFile) -> str:
    """Detect the format of a file; raises Invalid if unknown."""
    text = content.head.decode("utf-8-sig", "replace")
    for name, sign in SIGNATURES:
        if sign.search(text):
            return name
    first = next((line for line in text.splitlines() if line.strip()), "")
    names = {cell.strip().strip('"').lower() for cell in first.split(",")}
    if set(REQUIRED_COLUMNS) <= names:
        return "csv"
    known = "; ".join(_(label) for label in FORMATS.values())
    raise Invalid(
        _("This JSON is none of the formats that can be imported: {formats}.", formats=known)
        if _is_json(text)
        else _("This is none of the formats that can be imported: {formats}.", formats=known),
        errors={"format": _("Choose which it is, or another file.")},
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.lstrip().startswith("{")
    return True
