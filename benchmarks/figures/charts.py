"""Charts as data: axes, marks, lines; marks made from estimates with intervals."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.rows import MARK_SOURCE_LABELS, MARK_SOURCES, MarkSource, RunData, distinct_titles, title_list
from core.language import _, _n, english, gettext_noop
from core.text import natural_key

TableCell = str | float | int | None
Relation = Literal["<", ">", "≈"]  # of what was published to a value


@dataclass(frozen=True, kw_only=True)
class ChartAxis:
    """An axis: title, unit ('' for none) and scale; 'log' has steps of powers of two."""

    title: str
    unit: str = ""
    kind: Literal["category", "linear", "log"] = "linear"

    @property
    def words(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, kw_only=True)
class ChartMark:
    """One value at one place of the x axis, with the interval `low` to `high` that the figure's `interval` defines.

    It is made of `count` values of the runs with these ids, all of one provenance; 0 if it is predicted.
    """

    x: str | float
    group: str
    provenance: MarkSource
    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChartLine:
    """Values at the places `at` of its figure, None for a gap."""

    group: str
    provenance: MarkSource
    values: tuple[float | None, ...]
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChartBound:
    """What was published of a place of the x axis, or of a `group` there, without a value: 'below 1.05', 'about 2'."""

    x: str
    relation: Relation
    value: float
    group: str = ""

    @property
    def words(self) -> str:
        return f"{self.relation} {self.value:g}"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart: marks by category or number (bars, points), or lines over the common places `at`.

    `interval` defines low and high, `counts` the count of a mark. `ideals` are lines of linear scaling by group, not
    figures of runs. `bounds` are published limits of a bar chart. `notes` are sentences on omissions, with reasons.
    """

    name: str
    title: str
    caption: str
    kind: Literal["bars", "points", "lines"]
    x: ChartAxis
    y: ChartAxis
    groups: str = "Group"  # what the groups are
    interval: str = ""
    counts: str = "values"
    marks: tuple[ChartMark, ...] = ()
    at: tuple[float, ...] = ()
    lines: tuple[ChartLine, ...] = ()
    ideals: tuple[ChartMark, ...] = ()
    bounds: tuple[ChartBound, ...] = ()
    notes: tuple[str, ...] = ()
    baseline: str = ""  # the group that the others are compared with
    baselines: tuple[str, ...] = ()  # those that it could be

    @property
    def is_empty(self) -> bool:
        return not self.marks and not self.lines

    @property
    def sources(self) -> tuple[MarkSource, ...]:
        """The provenances of its marks, in a fixed order."""
        found = {one.provenance for one in self.marks} | {one.provenance for one in self.lines}
        found |= {"published"} if self.bounds else set()
        return tuple(source for source in MARK_SOURCES if source in found)

    @property
    def columns(self) -> tuple[str, ...]:
        """The heads of its table."""
        if self.kind == "lines":
            return (
                self.x.words,
                *(f"{line.group} ({_(MARK_SOURCE_LABELS[line.provenance])}), {self.y.words}" for line in self.lines),
            )
        counts = self.counts[:1].upper() + self.counts[1:]
        return (self.groups, self.x.words, _("Provenance"), self.y.words, _("Low"), _("High"), counts, _("Runs"))

    def rows(self) -> Iterator[tuple[TableCell, ...]]:
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
        for bound in self.bounds:
            yield (bound.group, bound.x, "published", bound.words, None, None, None, None)

    def with_notes(self, *sentences: str) -> Chart:
        """Return a copy with additional notes; empty ones are dropped."""
        return replace(self, notes=(*self.notes, *(one for one in sentences if one)))


Floats = NDArray[np.float64]
BOOTSTRAP_DRAWS: Final = 2000
LOW_PERCENTILE, HIGH_PERCENTILE = 5.0, 95.0  # percentiles: between them lie 90 %
_Z_90: Final = 1.6448536269514722  # of a normal distribution, for the same 90 %
_MEDIAN_ERROR_FACTOR: Final = math.sqrt(math.pi / 2)  # how much wider a median scatters than a mean


@dataclass(frozen=True)
class Estimate:
    """A figure, and bootstrap draws of it; None if its spread is unknown."""

    value: float
    draws: Floats | None
    count: int

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 90 % interval, which includes the value itself."""
        if self.draws is None:
            return None, None
        low, high = np.percentile(self.draws, [LOW_PERCENTILE, HIGH_PERCENTILE])
        return min(float(low), self.value), max(float(high), self.value)

    def scaled(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, None if self.draws is None else self.draws * factor, self.count)

    def inverse(self) -> Estimate:
        return Estimate(1 / self.value, None if self.draws is None else 1 / self.draws, self.count)

    def over(self, other: Estimate) -> Estimate:
        """Return the ratio of two independent estimates; it has an interval if both have one."""
        draws = None if self.draws is None or other.draws is None else self.draws / other.draws
        return Estimate(self.value / other.value, draws, min(self.count, other.count))


def seconds_a_step(row: RunData) -> Estimate | None:
    """Return the median seconds of a run's steps; None without steps.

    The interval is a bootstrap of the median for recorded steps, derived from percentiles under a log-normal assumption
    if only those were stored, and the prediction's own for a prediction.
    """
    rng = np.random.default_rng(zlib.crc32(row.id.encode()))
    steps = row.steps()
    if len(steps):
        return Estimate(float(np.median(steps)), _median_draws(steps, rng) if len(steps) > 1 else None, len(steps))
    kept = row.summary.step_seconds
    if kept is None or not kept.value > 0:
        return None
    if not 0 < kept.low < kept.high:
        return Estimate(kept.value, None, kept.count)
    spread = math.log(kept.high / kept.low) / (2 * _Z_90)
    if row.provenance != "predicted":
        if kept.count < 2:
            return Estimate(kept.value, None, kept.count)
        spread *= _MEDIAN_ERROR_FACTOR / math.sqrt(kept.count)
    return Estimate(kept.value, kept.value * np.exp(spread * rng.standard_normal(BOOTSTRAP_DRAWS)), kept.count)


def _median_draws(values: Floats, rng: np.random.Generator) -> Floats:
    """Return medians of resamples: the middle one of n drawn is the Beta-th quantile of the n that there are."""
    middle = (len(values) + 1) / 2
    return np.asarray(np.quantile(values, rng.beta(middle, middle, BOOTSTRAP_DRAWS)))


def combine_estimates(estimates: Sequence[Estimate], seed: str = "") -> Estimate:
    """Return the median of repetitions; the interval includes the variation between runs, and between steps."""
    if len(estimates) == 1:
        return estimates[0]
    value = float(np.median([one.value for one in estimates]))
    count = sum(one.count for one in estimates)
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    drawn = np.stack([one.draws if one.draws is not None else np.full(BOOTSTRAP_DRAWS, one.value) for one in estimates])
    chosen = rng.integers(0, len(estimates), (len(estimates), BOOTSTRAP_DRAWS))
    return Estimate(value, np.median(np.take_along_axis(drawn, chosen, axis=0), axis=0), count)


BOOTSTRAP_NOTE: Final = gettext_noop(
    "90 % by bootstrap of the steps, of several runs of these too; of predictions their own interval of 90 %"
)
PERCENTILE_NOTE: Final = gettext_noop(
    "5th to 95th percentile of the readings; of several runs from the lowest to the highest of theirs"
)


@dataclass(frozen=True)
class MarkKey:
    """The key of a mark: the place on the x axis, its group, and the provenance of its runs."""

    x: str | float
    group: str
    provenance: MarkSource


@dataclass(frozen=True)
class ReadingSpread:
    """A value of a run with its percentiles, of `count` readings."""

    value: float
    low: float | None
    high: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> ReadingSpread:
        """Return the mean of values, with percentiles that include it."""
        mean = float(np.mean(values))
        low, high = np.percentile(values, [LOW_PERCENTILE, HIGH_PERCENTILE])
        return cls(mean, min(float(low), mean), max(float(high), mean), len(values))


def run_lines(rows: Sequence[RunData], values: Callable[[RunData], Iterable[float]]) -> tuple[ChartLine, ...]:
    """Return a line for each run, its values with six digits; NaN is a gap."""
    names = distinct_titles(rows)
    return tuple(
        ChartLine(
            group=names[row.id],
            provenance=row.provenance,
            values=tuple(float(f"{one:.6g}") if math.isfinite(one) else None for one in values(row)),
            runs=(row.id,),
        )
        for row in rows
    )


def runs_by_mark(
    rows: Iterable[RunData], x: Callable[[RunData], str | float], group: Callable[[RunData], str]
) -> dict[MarkKey, list[RunData]]:
    """Return the runs of each cell, in input order."""
    found: dict[MarkKey, list[RunData]] = defaultdict(list)
    for row in rows:
        found[MarkKey(x(row), group(row), row.provenance)].append(row)
    return found


def estimate_marks(
    found: Mapping[MarkKey, Sequence[RunData]], of: Callable[[RunData], Estimate | None]
) -> dict[MarkKey, tuple[Estimate, tuple[str, ...]]]:
    """Return the combined estimate of each cell's runs, with their ids; cells without estimates are left out."""
    values = {}
    for cell, rows in found.items():
        known = [(row, one) for row in rows if (one := of(row)) is not None]
        if known:
            place = english(cell.x) if isinstance(cell.x, str) else cell.x
            seed = f"{place} {english(cell.group)} {cell.provenance}"
            values[cell] = (combine_estimates([one for _, one in known], seed), tuple(row.id for row, _ in known))
    return values


def estimate_mark(cell: MarkKey, estimate: Estimate, runs: tuple[str, ...]) -> ChartMark:
    low, high = estimate.interval
    return spread_mark(cell, ReadingSpread(estimate.value, low, high, estimate.count), runs)


def spread_mark(cell: MarkKey, spread: ReadingSpread, runs: tuple[str, ...]) -> ChartMark:
    """Return a value with its percentiles as a mark; of a prediction without a count and runs."""
    is_predicted = cell.provenance == "predicted"
    return ChartMark(
        x=cell.x,
        group=cell.group,
        provenance=cell.provenance,
        value=spread.value,
        low=spread.low,
        high=spread.high,
        count=0 if is_predicted else spread.count,
        runs=() if is_predicted else runs,
    )


def spread_marks(
    found: Mapping[MarkKey, Sequence[RunData]], of: Callable[[RunData], ReadingSpread | None]
) -> list[ChartMark]:
    """Return marks of readings: of several runs the median of theirs, from the lowest low to the highest high."""
    marks = []
    for cell, rows in found.items():
        known = [(row, one) for row in rows if (one := of(row)) is not None]
        if not known:
            continue
        lows = [one.low for _, one in known if one.low is not None]
        highs = [one.high for _, one in known if one.high is not None]
        middle, count = float(np.median([one.value for _, one in known])), sum(one.count for _, one in known)
        spread = ReadingSpread(middle, min(lows, default=None), max(highs, default=None), count)
        marks.append(spread_mark(cell, spread, tuple(row.id for row, _ in known)))
    return marks


def sort_marks(
    marks: Iterable[ChartMark], xs: Sequence[str | float] = (), groups: Sequence[str] = ()
) -> tuple[ChartMark, ...]:
    """Return marks in the order of these places, then of these groups, otherwise by name; provenance last."""
    places = {x: number for number, x in enumerate(xs)}
    names = {group: number for number, group in enumerate(groups)}

    def key(mark: ChartMark) -> tuple[object, ...]:
        # 'batch 4' before 'batch 12'.
        return (
            places.get(mark.x, len(places)), natural_key(str(mark.x)), names.get(mark.group, len(names)),
            natural_key(mark.group), MARK_SOURCES.index(mark.provenance),
        )  # fmt: skip

    return tuple(sorted(marks, key=key))


def seconds_a_sample(row: RunData) -> Estimate | None:
    """Return a run's seconds per sample over all its devices; None without steps or without a batch."""
    seconds, samples = seconds_a_step(row), row.samples_a_step
    return seconds.scaled(1 / samples) if seconds is not None and samples else None


def omission_note(rows: Sequence[RunData], why: str) -> str:
    """Return a sentence on runs that a figure leaves out, the end of it being `why`; '' for none."""
    if not rows:
        return ""
    return _n(
        "Left out: {count} run {why} ({titles}).",
        "Left out: {count} runs {why} ({titles}).",
        len(rows),
        why=why,
        titles=title_list(rows),
    )
