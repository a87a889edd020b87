"""Any metric of any subject over any range, on somebody's behalf."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from fabric.counted import Before
from falconweb.errors import Invalid
from telemetry.catalogue import Entry
from telemetry.history.metrics import METRICS, RATE, Metric, combined, is_offered, made_of
from telemetry.history.ranges import Span
from telemetry.history.subjects import ALWAYS, Member, Spans, Subject, subjects_seen
from telemetry.store.reading import Extract, known_series, read

MOST_LINES: Final = 128
MOST_POINTS: Final = 2000
USUAL_POINTS: Final = 500
MOST_READ: Final = 4096  # series of the store for one answer
KEPT_SECONDS: Final = 10.0
NOT_ANSWERING: Final = "Nothing was read from the chassis."
NOT_MEASURED: Final = "Nothing of the kind was measured in this range."

Floats = NDArray[np.float64]
Values = NDArray[np.floating[Any]]
Columns = tuple[Floats, Floats, Floats]  # mean, low, high


@dataclass(frozen=True)
class Part:
    """One series of the store that a line is made of, and when it counts: see telemetry.history.subjects.Member.

    `before` is what a counter had that is not the person's, until it began anew at `anew` (Unix s).
    """

    chassis: int
    key: str
    spans: Spans = ALWAYS
    since: float = -math.inf
    before: float = 0.0
    anew: float = math.inf

    @classmethod
    def of(cls, member: Member, key: str) -> Part:
        """Return a series of a member."""
        name = key.partition("/errors/")[2]
        before = member.before if member.before is not None else Before()
        # A reset that left this counter alone is none to it.
        anew = math.inf if before.now.get(name, 0) else before.until
        return cls(member.chassis, key, member.spans, member.since, float(before.counts.get(name, 0)), anew)

    def own(self, values: Values, at: Floats) -> Values:
        """Return values without what the counter had before."""
        if not self.before:
            return values
        return np.where(at < self.anew, np.maximum(values - self.before, 0.0), values)

    @property
    def counts_now(self) -> bool:
        """Whether it has not left the subject."""
        return self.spans[-1][1] == math.inf

    def counts_in(self, at: Floats, step: float) -> NDArray[np.bool_] | None:
        """Tell in which buckets (of `step` s; 0: in which readings) it counts; None: in all.

        What came or went within a bucket counts as it was at its end, so that nothing is counted twice. But a bucket
        that began before the person might see it has what is somebody else's.
        """
        if self.spans == ALWAYS and self.since == -math.inf:
            return None
        inside = np.zeros(len(at), dtype=np.bool_)
        for begin, end in self.spans:
            inside |= (at + step > begin) & (at + step <= end) if step else (at >= begin) & (at < end)
        return inside & (at >= self.since)


@dataclass(frozen=True)
class Line:
    """One line of a chart: `mean`, `low` and `high` are f8[rows], NaN where there is nothing to tell.

    `parts` are the series that it is made of by the rule `combine`; `made_of` says so in words, '' for one alone.
    """

    subject: Subject
    metric: str
    label: str
    unit: str
    panel: str
    combine: str
    parts: tuple[Part, ...]
    made_of: str
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class LeftOut:
    """What was asked for and cannot be answered, and why."""

    subject: str
    metric: str
    why: str


@dataclass(frozen=True)
class Missing:
    """A span of time (Unix s) of which a chassis' readings are missing, and why."""

    chassis: int
    since: float
    until: float
    reason: str


@dataclass(frozen=True)
class History:
    """Lines on one grid: `at` (Unix s) is where each bucket of `step` seconds begins."""

    span: Span
    step: float
    at: Floats
    lines: list[Line]
    gaps: list[Missing]
    left_out: list[LeftOut]


def metrics_named(texts: Iterable[str]) -> list[Metric]:
    """Return the metrics of these names, each once; raises Invalid for one that there is not."""
    found = []
    for name in dict.fromkeys(text.strip() for text in texts if text.strip()):
        if name not in METRICS:
            known = ", ".join(METRICS)
            raise Invalid(f"There is no metric '{name[:60]}'.", errors={"metrics": f"One of {known}."})
        found.append(METRICS[name])
    return found


def history_of(
    person: User, refs: Sequence[str], metrics: Sequence[Metric], span: Span, *, points: int = USUAL_POINTS
) -> History:
    """Return each metric of each subject (see telemetry.history.subjects) in at most `points` buckets.

    Raises NotFound for a subject that the person may not see, Invalid for more than can be answered at a time.
    """
    subjects = subjects_seen(person, refs, span)
    lines, left_out = lines_of(subjects, metrics, span)
    step, at, gaps, filled = _filled(lines, span, points)
    if not person.is_administrator:
        gaps = _theirs(gaps, lines)
    return History(span, step, at, filled, gaps, left_out)


def metrics_measured(subjects: Sequence[Subject], span: Span) -> set[str]:
    """Return the names of the metrics of which something of these subjects was measured in a span."""
    known = _Known(span)
    return {
        metric.name
        for metric in METRICS.values()
        if any(is_offered(metric, subject.kind) and _line(subject, metric, known) for subject in subjects)
    }


def lines_of(subjects: Sequence[Subject], metrics: Sequence[Metric], span: Span) -> tuple[list[Line], list[LeftOut]]:
    """Return the lines that are made of subjects and metrics, without values, and what there is none of."""
    known = _Known(span)
    lines: list[Line] = []
    left_out: list[LeftOut] = []
    for subject in subjects:
        if subject.key:
            one = _series_line(subject, known)
            lines += [one] if one else []
            left_out += [] if one else [LeftOut(subject.ref, "", NOT_MEASURED)]
            continue
        for metric in metrics:
            if not is_offered(metric, subject.kind):
                left_out.append(LeftOut(subject.ref, metric.name, f"A {subject.kind} has no such metric."))
            elif line := _line(subject, metric, known):
                lines.append(line)
            else:
                left_out.append(LeftOut(subject.ref, metric.name, NOT_MEASURED))
    if len(lines) > MOST_LINES:
        raise Invalid(
            f"These are {len(lines)} lines, more than {MOST_LINES}.",
            errors={"subjects": "Ask for fewer subjects or metrics at a time."},
        )
    if (count := sum(len(line.parts) for line in lines)) > MOST_READ:
        raise Invalid(
            f"These are made of {count:,} series, more than {MOST_READ:,}.",
            errors={"subjects": "Ask for fewer, or smaller ones, at a time."},
        )
    return lines, left_out


@dataclass(frozen=True)
class _Series:
    """What was measured of a chassis, by owner and quantity, and by key."""

    by_owner: dict[tuple[str, int, str], list[Entry]]
    by_key: dict[str, Entry]


class _Known:
    """What was measured of each chassis over a span; asked once a chassis.

    The charts of a page ask for the same within a moment: so long it is kept. A new sensor shows up that much later.
    """

    def __init__(self, span: Span) -> None:
        self._minutes = math.floor(span.since / 60), math.ceil(span.until / 60)

    def of(self, chassis: int, kind: str, pk: int, quantity: str) -> list[Entry]:
        """Return the series of a quantity of a device or port."""
        return self._series(chassis).by_owner.get((kind, pk, quantity), [])

    def one(self, chassis: int, key: str) -> Entry | None:
        """Return a series by its key; a rate by that of its counter."""
        known = self._series(chassis).by_key
        return known.get(key) or known.get(key.removesuffix(RATE))

    def _series(self, chassis: int) -> _Series:
        return _series_of(chassis, *self._minutes, int(time.monotonic() // KEPT_SECONDS))


@lru_cache(maxsize=64)
def _series_of(chassis: int, since: int, until: int, _: int) -> _Series:
    """Return what was measured between two minutes (since 1970); the last argument lets it be asked for anew."""
    by_owner: dict[tuple[str, int, str], list[Entry]] = defaultdict(list)
    entries = known_series(chassis, since=since * 60.0, until=until * 60.0)
    for entry in entries:
        if not entry["key"].endswith(RATE):
            by_owner[entry["object"], entry["id"], entry["quantity"]].append(entry)
    return _Series(dict(by_owner), {entry["key"]: entry for entry in entries})


def _line(subject: Subject, metric: Metric, known: _Known) -> Line | None:
    parts = tuple(
        Part.of(member, entry["key"] + metric.suffix)
        for member in subject.members
        if member.object == metric.per
        for entry in known.of(member.chassis, member.object, member.id, metric.quantity or metric.name)
    )
    if not parts:
        return None
    owners = len({(part.chassis, *part.key.split("/", 2)[:2]) for part in parts})
    return Line(
        subject, metric.name, metric.label, metric.unit, metric.panel, metric.combine, parts,
        made_of(metric, len(parts) if metric.name.startswith("error") else owners),
    )  # fmt: skip


def _series_line(subject: Subject, known: _Known) -> Line | None:
    entry = known.one(subject.chassis or 0, subject.key)
    if entry is None:
        return None
    metric = METRICS.get(entry["quantity"])
    rate = subject.key.endswith(RATE)
    unit = "1/s" if rate else entry["unit"]
    panel = metric.panel if metric is not None and not rate else entry["label"]
    named = replace(subject, name=entry["label"])
    parts = (replace(Part.of(subject.members[0], subject.key), spans=ALWAYS),)
    return Line(named, entry["quantity"], entry["label"], unit, panel, "sum", parts, "")


def _filled(lines: Sequence[Line], span: Span, points: int) -> tuple[float, Floats, list[Missing], list[Line]]:
    keys: dict[int, dict[str, None]] = defaultdict(dict)
    for line in lines:
        for part in line.parts:
            keys[part.chassis][part.key] = None
    extracts = _extracts(keys, span, points)
    if len({(one.step, len(one.at)) for one in extracts.values()}) > 1:
        # Buckets hang on the range, and on how finely it is still kept: that moved on between two of these answers.
        extracts = _extracts(keys, span, points)
    gaps = [
        Missing(chassis, gap.since, gap.until, gap.reason)
        for chassis, extract in extracts.items()
        for gap in extract.gaps
    ]
    if not extracts:
        return 1.0, np.zeros(0), gaps, list(lines)
    columns: dict[tuple[int, str], Columns] = {
        (chassis, entry["key"]): (extract.mean[row], extract.low[row], extract.high[row])
        for chassis, extract in extracts.items()
        for row, entry in enumerate(extract.series)
    }
    grid = next(iter(extracts.values()))
    return grid.step, grid.at, gaps, [_with_values(line, columns, grid.at, grid.step) for line in lines]


def _theirs(gaps: Sequence[Missing], lines: Sequence[Line]) -> list[Missing]:
    """Return what a tenant may know of gaps: as much of each as is of the time that its lines are of.

    A reason may name the BMC's address, which is no tenant's business.
    """
    begins: dict[int, float] = {}
    for part in (part for line in lines for part in line.parts):
        begin = max(part.since, part.spans[0][0])
        begins[part.chassis] = min(begin, begins.get(part.chassis, begin))
    return [
        Missing(one.chassis, max(one.since, begins[one.chassis]), one.until, NOT_ANSWERING)
        for one in gaps
        if one.until > begins[one.chassis]
    ]


def _extracts(keys: Mapping[int, Mapping[str, None]], span: Span, points: int) -> dict[int, Extract]:
    return {
        chassis: read(chassis, list(those), since=span.since, until=span.until, points=points)
        for chassis, those in keys.items()
    }


def _with_values(line: Line, columns: Mapping[tuple[int, str], Columns], at: Floats, step: float) -> Line:
    rows: tuple[list[Values], list[Values], list[Values]] = ([], [], [])
    for part in line.parts:
        found = columns.get((part.chassis, part.key))
        if found is None:
            continue
        counts = part.counts_in(at, step)
        for kept, values in zip(rows, found, strict=True):
            own = part.own(values, at)
            kept.append(own if counts is None else np.where(counts, own, math.nan))
    if not rows[0]:
        nothing = np.full(len(at), math.nan)
        rows = ([nothing], [nothing], [nothing])
    mean, low, high = (combined(line.combine, those) for those in rows)
    return replace(line, mean=mean, low=low, high=high)
