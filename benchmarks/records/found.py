"""What the output of another tool comes to: runs that become records like all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.records.shapes import EndLine, Line, RunLine, SeriesLine
from benchmarks.runs.summary import Summary
from hostwire.training import Software


@dataclass(frozen=True)
class Found:
    """A run that was found: `line` is where it begins, `samples` its series."""

    line: int
    header: RunLine
    samples: tuple[SeriesLine, ...] = ()

    def lines(self) -> Iterator[tuple[int, Line]]:
        """Yield it as the lines of a record."""
        yield self.line, self.header
        for one in self.samples:
            yield self.line, one
        yield self.line, EndLine(run=self.header.id, lines=1 + len(self.samples))


@dataclass
class Output:
    """What a tool's output comes to: `skipped` lines meant nothing, `notes` are sentences on what is missing."""

    runs: list[Found] = field(default_factory=list)
    skipped: int = 0
    notes: list[str] = field(default_factory=list)


def results_of(
    *, tables: dict[str, Any] | None = None, units: dict[str, str] | None = None, **figures: Any
) -> dict[str, Any]:
    """Return results as a run keeps them."""
    plain: dict[str, Any] = msgspec.to_builtins(Summary(tables=tables or {}, units=units or {}, **figures))
    return plain


def software_of(names: list[str], **known: Any) -> dict[str, Any]:
    """Return a snapshot of software with the models of the GPUs; what is not known is left out.

    Where the GPUs are is told by none of these tools, so that a run of theirs has no topology.
    """
    told = {name: value for name, value in known.items() if value}
    plain: dict[str, Any] = msgspec.to_builtins(Software(**told))
    return plain | ({"accelerators": [one for one in names if one]} if any(names) else {})
