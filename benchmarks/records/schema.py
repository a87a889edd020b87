"""The lines of a record: structure, validation, identity; runs found by other tools.

A record is a header, its series in parts, its log in parts, and an end with the number of lines. Times are Unix seconds
in series, RFC 3339 in headers; each series has its unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.model.topology import Topology
from benchmarks.runs.isolation import Overlap
from benchmarks.runs.results import Summary
from core.language import _, gettext_noop
from core.strict_json import InvalidDocument, convert_value
from hostwire.training import Software, Spec

RECORD_FORMAT: Final = "falconweb.record/1"
VALUES_A_LINE: Final = 1000
CHARACTERS_A_LINE: Final = 32_768
MAX_VALUES: Final = 100_000  # of one line
MAX_TEXT_LENGTH: Final = 2**20  # of a part of a log

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Numbers = Annotated[tuple[float | None, ...], msgspec.Meta(max_length=MAX_VALUES)]


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """A line of JSON."""


class RunLine(_Line, frozen=True, kw_only=True, tag="run"):
    """A run without its samples: what it did, on what, and what it came to.

    `spec` is hostwire.training.Spec, `software` its Software, `topology` benchmarks.model.topology.Topology and
    `results` benchmarks.runs.results.Summary, each {} where nobody knows. `spec_hash` is the SHA-256 of the
    specification's canonical JSON. `source` is of an imported one: what it was where it came from; its
    `overlaps` are of benchmarks.runs.isolation.Overlap, of any one.
    """

    format: Literal["falconweb.record/1"] = RECORD_FORMAT
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    workload: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    preset: Annotated[str, msgspec.Meta(max_length=10)] = ""
    provenance: Literal["measured", "simulated", "predicted", "imported"]
    executor: Annotated[str, msgspec.Meta(max_length=10)] = ""
    state: Literal["completed", "failed", "cancelled"] = "completed"
    trouble: Annotated[str, msgspec.Meta(max_length=20)] = ""
    error: Text = ""
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    steps_done: Count = 0
    spec: dict[str, Any] = {}
    spec_hash: Annotated[str, msgspec.Meta(max_length=64)] = ""
    topology: dict[str, Any] = {}
    software: dict[str, Any] = {}
    results: dict[str, Any] = {}
    point: dict[str, Any] = {}
    started_at: Moment | None = None
    ended_at: Moment | None = None
    source: dict[str, Any] = {}


class SeriesLine(_Line, frozen=True, kw_only=True, tag="series"):
    """Values of a series from number `first` on; null where there is none. `interval`: seconds that each is over."""

    run: Name
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    unit: Annotated[str, msgspec.Meta(max_length=20)] = ""
    source: Annotated[str, msgspec.Meta(max_length=40)] = ""
    interval: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    first: Count = 0
    at: Numbers
    values: Numbers


class LogLine(_Line, frozen=True, kw_only=True, tag="log"):
    """A piece of what the run wrote, from byte `first` on."""

    run: Name
    first: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    text: Text


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """The end of a record: `lines` of it came before. Without it a file was cut off."""

    run: Name
    lines: Count


RecordLine = RunLine | SeriesLine | LogLine | EndLine


def record_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of a record."""
    (made,), components = msgspec.json.schema_components([RecordLine], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": RECORD_FORMAT,
        "description": "One line of a file of JSON Lines: 'run', then 'series' and 'log', then 'end', for each record.",
        **made,
        "$defs": components,
    }


# The limit of imports from site to site.
MAX_CHAIN_LENGTH: Final = 20
FIRST_YEAR, LAST_YEAR = 1970, 9998
PROVENANCES: Final[tuple[str, ...]] = (
    gettext_noop("measured"),
    gettext_noop("simulated"),
    gettext_noop("predicted"),
    gettext_noop("imported"),
)
HEADER_SHAPES: Final[dict[str, Any]] = {"topology": Topology, "software": Software, "results": Summary}


class _RecordSource(msgspec.Struct):
    """What is read of the source of a record, besides the chain of imports."""

    overlaps: list[Overlap] = []


def header_problems(header: RunLine) -> Iterator[InvalidDocument]:
    """Yield the inconsistencies of a header, each with its field."""
    yield from _spec_problems(header)
    for name, shape in HEADER_SHAPES.items():
        plain = getattr(header, name)
        if not plain:
            continue
        try:
            convert_value(plain, shape, name)
        except InvalidDocument as error:
            yield error
    for name in ("started_at", "ended_at"):
        moment = getattr(header, name)
        if moment is not None and not FIRST_YEAR <= moment.year <= LAST_YEAR:
            yield InvalidDocument(_("It is a time from {first} to {last}.", first=FIRST_YEAR, last=LAST_YEAR), name)
    if header.started_at and header.ended_at and header.ended_at < header.started_at:
        yield InvalidDocument(_("It ends before it begins."), "ended_at")
    if header.source.get("provenance", "measured") not in PROVENANCES:
        yield InvalidDocument(_("It is one of {choices}.", choices=", ".join(PROVENANCES)), "source.provenance")
    try:
        convert_value(header.source, _RecordSource, "source")
    except InvalidDocument as error:
        yield error
    chain = header.source.get("chain", [])
    if not isinstance(chain, list) or len(chain) > MAX_CHAIN_LENGTH or not all(isinstance(one, dict) for one in chain):
        yield InvalidDocument(_("This is a list of up to {most} objects.", most=MAX_CHAIN_LENGTH), "source.chain")


def _spec_problems(header: RunLine) -> Iterator[InvalidDocument]:
    """Yield the errors of a specification and its hash."""
    if not header.spec:
        if header.spec_hash:
            yield InvalidDocument(_("There is a hash, but no specification."), "spec_hash")
        return
    try:
        spec: Spec = convert_value(header.spec, Spec, "spec")
    except InvalidDocument as error:
        yield error
        return
    if spec.workload != header.workload:
        yield InvalidDocument(
            _("The specification is of '{workload}', the run of another workload.", workload=spec.workload), "workload"
        )
    if not header.spec_hash:
        yield InvalidDocument(_("The hash of the specification is missing."), "spec_hash")
    elif spec.hash != header.spec_hash:
        sentence = _(
            "This is not the hash of the specification, {hash}…: one of the two was changed.", hash=spec.hash[:12]
        )
        yield InvalidDocument(sentence, "spec_hash")


Floats = NDArray[np.float64]
STORED_DTYPE: Final = np.dtype("<f8")
# Fields of the header that are not part of the identity: they depend on the import.
IDENTITY_EXCLUDED: Final = ("kind", "id", "provenance", "executor", "source")


class RecordIdentity:
    """An incremental hash of a record, independent of the order of its series and of line breaks in them."""

    def __init__(self, header: RunLine) -> None:
        plain = {name: value for name, value in msgspec.to_builtins(header).items() if name not in IDENTITY_EXCLUDED}
        self._header = msgspec.json.encode(_canonical(plain), order="sorted")
        self._series: dict[str, Any] = {}

    def add(self, line: SeriesLine) -> None:
        known = self._series.get(line.key)
        if known is None:
            about = msgspec.json.encode([line.key, line.unit, line.source, float(line.interval)])
            known = self._series[line.key] = hashlib.sha256(about)
        known.update(np.column_stack([float_column(line.at), float_column(line.values)]).astype(STORED_DTYPE).tobytes())

    def hexdigest(self) -> str:
        """Return the hash, hexadecimal."""
        whole = hashlib.sha256(self._header)
        for key in sorted(self._series):
            whole.update(self._series[key].digest())
        return whole.hexdigest()


def float_column(values: tuple[float | None, ...]) -> Floats:
    """Return values as float64, NaN for null."""
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


def _canonical(value: Any) -> Any:
    """Return JSON with whole numbers as such: some databases keep 1e22 as one, others do not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    return value


@dataclass(frozen=True)
class ToolRun:
    """A parsed run: `line` is its first line, `samples` its series."""

    line: int
    header: RunLine
    samples: tuple[SeriesLine, ...] = ()

    def lines(self) -> Iterator[tuple[int, RecordLine]]:
        """Yield it as the lines of a record."""
        yield self.line, self.header
        for one in self.samples:
            yield self.line, one
        yield self.line, EndLine(run=self.header.id, lines=1 + len(self.samples))


@dataclass
class ToolOutput:
    """The parsed output of a tool: `skipped` is the number of ignored lines, `notes` are sentences on missing data."""

    runs: list[ToolRun] = field(default_factory=list)
    skipped: int = 0
    notes: list[str] = field(default_factory=list)


def tool_results(
    *, tables: dict[str, Any] | None = None, units: dict[str, str] | None = None, **figures: Any
) -> dict[str, Any]:
    """Return results as stored with a run."""
    plain: dict[str, Any] = msgspec.to_builtins(Summary(tables=tables or {}, units=units or {}, **figures))
    return plain


def tool_software(names: list[str], **known: Any) -> dict[str, Any]:
    """Return a snapshot of software with the models of the GPUs, without unknown values.

    These tools do not report the location of GPUs, so their runs have no topology.
    """
    given = {name: value for name, value in known.items() if value}
    plain: dict[str, Any] = msgspec.to_builtins(Software(**given))
    return plain | ({"accelerators": [one for one in names if one]} if any(names) else {})
