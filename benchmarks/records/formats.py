"""What can be imported: the formats by name, how each is told from the others, and how each is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.records import mlperf, nccl, nvbandwidth, p2p
from benchmarks.records.content import Content
from benchmarks.records.found import Output
from benchmarks.records.problems import Problems
from benchmarks.records.reading import record_lines
from benchmarks.records.shapes import FORMAT, Line
from benchmarks.records.tables import NEEDED, csv_lines
from benchmarks.strict import BrokenError
from falconweb.errors import Invalid

FORMATS: Final = {
    "record": f"Record of this site, JSON Lines ({FORMAT})",
    "csv": "Samples of this site, CSV",
    "mlperf": "MLPerf log (:::MLLOG)",
    "nvbandwidth": "nvbandwidth -j",
    "nccl": "nccl-tests, table",
    "nccl_json": "nccl-tests -J",
    "p2p": "p2pBandwidthLatencyTest",
}
TOOLS: Final[dict[str, Callable[[str, Problems], Output]]] = {
    "mlperf": mlperf.parse, "nvbandwidth": nvbandwidth.parse, "nccl": nccl.parse_table, "nccl_json": nccl.parse_json,
    "p2p": p2p.parse,
}  # fmt: skip
# By what each is told from the others, in its first lines; in this order.
SIGNS: Final = (
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
class Reading:
    """A file that is read as one of the formats: its lines as often as wanted, and what reading them found."""

    content: Content
    format: str
    problems: Problems = field(default_factory=Problems)
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    _output: Output | None = None

    def lines(self) -> Iterator[tuple[int, Line]]:
        """Yield the lines of the records in it; raises TooManyError where more is wrong than is told."""
        if self.format == "record":
            yield from record_lines(self.content, self.problems)
        elif self.format == "csv":
            yield from csv_lines(self.content, self.problems)
        else:
            for run in self._read().runs:
                yield from run.lines()

    def _read(self) -> Output:
        """Return what the output of a tool comes to; such outputs are small, and read once."""
        if self._output is None:
            try:
                self._output = TOOLS[self.format](self.content.text(), self.problems)
            except BrokenError as error:
                self.problems.note(int(error.where or 0), "", error.sentence)
                self._output = Output()
            self.skipped, self.notes = self._output.skipped, self._output.notes
        return self._output


def reading_of(content: Content, format_: str = "") -> Reading:
    """Return a file as one of the formats, '' finds out which; raises Invalid where it is none, or no text."""
    if format_ and format_ not in FORMATS:
        raise Invalid(
            f"'{format_[:40]}' is no format of an import.", errors={"format": f"One of {', '.join(FORMATS)}."}
        )
    return Reading(content, format_ or detect(content))


def detect(content: Content) -> str:
    """Return which format a file is in; raises Invalid where it is none of them."""
    text = content.head.decode("utf-8-sig", "replace")
    for name, sign in SIGNS:
        if sign.search(text):
            return name
    first = next((line for line in text.splitlines() if line.strip()), "")
    names = {cell.strip().strip('"').lower() for cell in first.split(",")}
    if set(NEEDED) <= names:
        return "csv"
    what = "This JSON" if _is_json(text) else "This"
    raise Invalid(
        f"{what} is none of the formats that can be imported: {'; '.join(FORMATS.values())}.",
        errors={"format": "Choose which it is, or another file."},
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.lstrip().startswith("{")
    return True
