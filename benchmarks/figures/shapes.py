"""Figures as data: what a chart draws, what its table tells, and what is sent of both, are one and the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

# Where a mark comes from. 'published' are the figures of the published experiment, laid beside on request.
Source = Literal["measured", "simulated", "predicted", "imported", "published"]
SOURCES: Final[tuple[Source, ...]] = ("measured", "simulated", "predicted", "imported", "published")
Cell = str | float | int | None


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What an axis shows, in which unit ('' for none); 'log' has steps of powers of two."""

    title: str
    unit: str = ""
    kind: Literal["category", "linear", "log"] = "linear"

    @property
    def words(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One figure of one place of the x axis: between `low` and `high` lies what the figure's `interval` says.

    It is made of `count` values of the runs with these ids, all of the one provenance; of none where it is predicted.
    """

    x: str | float
    group: str
    provenance: Source
    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Line:
    """Values at the places `at` of its figure, None where there is none."""

    group: str
    provenance: Source
    values: tuple[float | None, ...]
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart: marks by category or number (bars, points), or lines over the common places `at`.

    `interval` says what low and high are, `counts` what the count of a mark counts. `ideals` are lines of what would be
    in proportion, by group: no figures of any run. `notes` are sentences on what was left out, and why.
    """

    name: str
    title: str
    caption: str
    kind: Literal["bars", "points", "lines"]
    x: Axis
    y: Axis
    groups: str = "Group"  # what the groups are
    interval: str = ""
    counts: str = "values"
    marks: tuple[Mark, ...] = ()
    at: tuple[float, ...] = ()
    lines: tuple[Line, ...] = ()
    ideals: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    baseline: str = ""  # the group that the others are told against
    baselines: tuple[str, ...] = ()  # those that it could be

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.marks and not self.lines

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where its marks come from, in one order."""
        found = {one.provenance for one in self.marks} | {one.provenance for one in self.lines}
        return tuple(source for source in SOURCES if source in found)

    @property
    def columns(self) -> tuple[str, ...]:
        """The heads of its table."""
        if self.kind == "lines":
            return (self.x.words, *(f"{line.group} ({line.provenance}), {self.y.words}" for line in self.lines))
        return (self.groups, self.x.words, "Provenance", self.y.words, "Low", "High", self.counts.capitalize(), "Runs")

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """Yield the rows of its table: every mark, or every place of its lines."""
        if self.kind == "lines":
            for place, at in enumerate(self.at):
                yield (at, *(line.values[place] for line in self.lines))
            return
        for one in self.marks:
            yield (
                one.group,
                one.x,
                one.provenance,
                one.value,
                one.low,
                one.high,
                one.count or None,
                len(one.runs) or None,
            )

    def noted(self, *sentences: str) -> Figure:
        """Return it with these notes besides; empty ones are none."""
        return replace(self, notes=(*self.notes, *(one for one in sentences if one)))
