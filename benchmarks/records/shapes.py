"""The lines of a record, version 1: what is exported, and what an import takes; the published JSON Schema is of these.

A record is a header, its series in pieces, its log in pieces, and an end that tells how many lines there were. Times
are Unix seconds in series, RFC 3339 in headers; sizes and units are told with each series.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

FORMAT: Final = "falconweb.record/1"
VALUES_A_LINE: Final = 1000
CHARACTERS_A_LINE: Final = 32_768
MOST_VALUES: Final = 100_000  # of one line
LONGEST_TEXT: Final = 2**20  # of a piece of a log

Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Numbers = Annotated[tuple[float | None, ...], msgspec.Meta(max_length=MOST_VALUES)]


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """A line of JSON."""


class RunLine(_Line, frozen=True, kw_only=True, tag="run"):
    """A run without its samples: what it did, on what, and what it came to.

    `spec` is hostwire.training.Spec, `software` its Software, `topology` benchmarks.model.shapes.Topology and `results`
    benchmarks.runs.summary.Summary, each {} where nobody knows. `spec_hash` is the SHA-256 of the specification's
    canonical JSON. `source` is of an imported one: what it was where it came from.
    """

    format: Literal["falconweb.record/1"] = FORMAT
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


Line = RunLine | SeriesLine | LogLine | EndLine


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of a record."""
    (made,), components = msgspec.json.schema_components([Line], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "description": "One line of a file of JSON Lines: 'run', then 'series' and 'log', then 'end', for each record.",
        **made,
        "$defs": components,
    }
