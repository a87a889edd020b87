"""Reads any metric of any subject over any range for a person."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Final

import numpy as np
from django.utils.translation import gettext
from numpy.typing import NDArray

from accounts.models import User
from core.errors import Invalid
from core.language import _, gettext_noop
from telemetry.history.rules import METRICS, RATE, Metric, TimeRange, combination_words, combine_rows, metric_applies
from telemetry.history.subjects import ALWAYS, HistorySubject, Spans, SubjectMember, visible_subjects
from telemetry.live.catalogue import SeriesEntry
from telemetry.store.selectors import Extract, known_series, read_series

MAX_LINES: Final = 128
MAX_POINTS: Final = 2000
DEFAULT_POINTS: Final = 500
MAX_SERIES_READ: Final = 4096  # series of the store for one history
CACHE_SECONDS: Final = 10.0
NOT_ANSWERING: Final = gettext_noop("The chassis was not read.")
NOT_MEASURED: Final = gettext_noop("There are no such readings in this range.")

Floats = NDArray[np.float64]
Columns = tuple[Floats, Floats, Floats]  # mean, low, high
SeriesByOwner = dict[tuple[str, int, str], list[SeriesEntry]]


@dataclass(frozen=True)
class SeriesPart:
    """One series of the store that is part of a line, and when it counts: see telemetry.history.subjects.SubjectMember.

    `baseline` is that of a counter, which applies until its reset at `reset_at` (Unix s).
    """

    chassis: int
    key: str
    spans: Spans = ALWAYS
    since: float = -math.inf
    baseline: float = 0.0
    reset_at: float = math.inf

    @classmethod
    def of(cls, member: SubjectMember, key: str) -> SeriesPart:
        baseline = member.baseline
        if baseline is None:
            return cls(member.chassis, key, member.spans, member.since)
        name = key.partition("/errors/")[2]
        # A reset that did not clear this counter does not end its baseline.
        reset_at = math.inf if baseline.now.get(name, 0) else baseline.until
        return cls(member.chassis, key, member.spans, member.since, float(baseline.counts.get(name, 0)), reset_at)

    def visible(self, columns: Iterable[Floats], at: Floats, step: float = 0.0) -> list[Floats]:
        """Return columns less the baseline; NaN for buckets (of `step` s; 0: for readings) in which it does not count.

        A member that joined or left within a bucket counts as at its end, so that no member counts twice. A bucket that
        started before the person's lease does not count: it has readings of another tenant.
        """
        found = list(columns)
        if self.baseline:
            found = [np.where(at < self.reset_at, np.maximum(one - self.baseline, 0.0), one) for one in found]
        if self.spans == ALWAYS and self.since == -math.inf:
            return found
        inside = np.zeros(len(at), dtype=np.bool_)
        for begin, end in self.spans:
            inside |= (at + step > begin) & (at + step <= end) if step else (at >= begin) & (at < end)
        inside &= at >= self.since
        return [np.where(inside, one, math.nan) for one in found]


@dataclass
class HistoryLine:
    """One line of a chart: `mean`, `low` and `high` are f8[rows], NaN where there is no value; `fill` sets them.

    `parts` are the series that are combined by the rule `combine`; `made_of` is that rule in words, '' for one series.
    """

    subject: HistorySubject
    metric: str
    label: str
    unit: str
    panel: str
    combine: str
    parts: tuple[SeriesPart, ...]
    made_of: str
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))

    def fill(self, columns: Mapping[tuple[int, str], Columns], at: Floats, step: float) -> None:
        """Combine what was found of its parts, in buckets of `step` s that start at `at`."""
        found = [
            part.visible(columns[name], at, step)
            for part in self.parts
            if (name := (part.chassis, part.key)) in columns
        ]
        if not found:
            self.mean = self.low = self.high = np.full(len(at), math.nan)
        elif len(found) == 1:
            self.mean, self.low, self.high = found[0]
        else:
            self.mean, self.low, self.high = (combine_rows(self.combine, column) for column in zip(*found, strict=True))

    @property
    def title(self) -> str:
        """Its name in a table: 'GPU 3, falcon-1: Temperature (°C)'."""
        return f"{self.subject.full_name}: {self.label}" + (f" ({self.unit})" if self.unit else "")


@dataclass(frozen=True)
class OmittedLine:
    """A requested line without readings, and why."""

    subject: str
    metric: str
    why: str


@dataclass(frozen=True)
class HistoryGap:
    """A span (Unix s) without readings of a chassis, and why."""

    chassis_id: int
    since: float
    until: float
    reason: str


@dataclass(frozen=True)
class MetricHistory:
    """Lines on one grid: `at` (Unix s) is the start of each bucket of `step` seconds."""

    span: TimeRange
    step: float
    at: Floats
    lines: list[HistoryLine]
    gaps: list[HistoryGap]
    left_out: list[OmittedLine]


def parse_metrics(texts: Iterable[str]) -> list[Metric]:
    """Return the metrics of these names, each once; raises Invalid for an unknown one."""
    found = []
    for name in dict.fromkeys(text.strip() for text in texts if text.strip()):
        if name not in METRICS:
            errors = {"metrics": _("One of {choices}.", choices=", ".join(METRICS))}
            raise Invalid(_("There is no metric '{name}'.", name=name[:60]), errors=errors)
        found.append(METRICS[name])
    return found


def read_history(
    person: User,
    refs: Sequence[str],
    metrics: Sequence[Metric],
    span: TimeRange,
    *,
    points: int = DEFAULT_POINTS,
    band: bool = True,
) -> MetricHistory:
    """Return each metric of each subject (see telemetry.history.subjects) in at most `points` buckets.

    Without `band`, least and greatest values are not read: they are the mean.
    Raises NotFound for a subject that the person may not see, Invalid for too many lines or series.
    """
    subjects = visible_subjects(person, refs, span)
    lines, left_out = plan_lines(subjects, metrics, span)
    step, at, gaps = _fill_lines(lines, span, points, band=band)
    if not person.is_administrator:
        gaps = _visible_gaps(gaps, lines)
    return MetricHistory(span, step, at, lines, gaps, left_out)


def measured_metrics(subjects: Sequence[HistorySubject], span: TimeRange) -> set[str]:
    """Return the names of the metrics with readings of these subjects in a span."""
    known = _series_by_owner(span)
    return {
        metric.name
        for metric in METRICS.values()
        if any(metric_applies(metric, subject.kind) and _line(subject, metric, known) for subject in subjects)
    }


def plan_lines(
    subjects: Sequence[HistorySubject], metrics: Sequence[Metric], span: TimeRange
) -> tuple[list[HistoryLine], list[OmittedLine]]:
    """Return the lines of subjects and metrics, without values, and the omitted ones."""
    lines: list[HistoryLine] = []
    left_out: list[OmittedLine] = []
    known = _series_by_owner(span)
    for subject in subjects:
        if subject.key:
            one = _series_line(subject, span)
            lines += [one] if one else []
            left_out += [] if one else [OmittedLine(subject.ref, "", gettext(NOT_MEASURED))]
            continue
        for metric in metrics:
            if not metric_applies(metric, subject.kind):
                why = _("A {kind} has no such metric.", kind=_(subject.kind))
                left_out.append(OmittedLine(subject.ref, metric.name, str(why)))
            elif line := _line(subject, metric, known):
                lines.append(line)
            else:
                left_out.append(OmittedLine(subject.ref, metric.name, gettext(NOT_MEASURED)))
    if len(lines) > MAX_LINES:
        raise Invalid(
            _("These are {count} lines, more than {most}.", count=len(lines), most=MAX_LINES),
            errors={"subjects": _("Request fewer subjects or metrics at a time.")},
        )
    if (count := sum(len(line.parts) for line in lines)) > MAX_SERIES_READ:
        raise Invalid(
            _("These need {count:,} series, more than {most:,}.", count=count, most=MAX_SERIES_READ),
            errors={"subjects": _("Request fewer, or smaller ones, at a time.")},
        )
    return lines, left_out


def _known_series(chassis: int, span: TimeRange) -> tuple[SeriesByOwner, dict[str, SeriesEntry]]:
    """Return the series of a chassis over a span, by owner and quantity, and by key; cached for CACHE_SECONDS.

    The charts of a page request the same series at nearly the same time. A new sensor appears that much later.
    """
    minutes = math.floor(span.since / 60), math.ceil(span.until / 60)
    return _index_series(chassis, *minutes, int(time.monotonic() // CACHE_SECONDS))


@lru_cache(maxsize=64)
def _index_series(chassis: int, since: int, until: int, _: int) -> tuple[SeriesByOwner, dict[str, SeriesEntry]]:
    """Return the series between two minutes (since 1970), by owner and quantity, and by key; `_` expires the cache."""
    by_owner: SeriesByOwner = defaultdict(list)
    entries = known_series(chassis, since=since * 60.0, until=until * 60.0)
    for entry in entries:
        if not entry["key"].endswith(RATE):
            by_owner[entry["object"], entry["id"], entry["quantity"]].append(entry)
    return dict(by_owner), {entry["key"]: entry for entry in entries}


def _series_by_owner(span: TimeRange) -> Callable[[int], SeriesByOwner]:
    """Return what returns the series of a chassis over a span, for the many lines of one request."""
    return cache(lambda chassis: _known_series(chassis, span)[0])


def _line(subject: HistorySubject, metric: Metric, known: Callable[[int], SeriesByOwner]) -> HistoryLine | None:
    quantity = metric.quantity or metric.name
    parts = tuple(
        SeriesPart.of(member, entry["key"] + metric.suffix)
        for member in subject.members
        if member.object == metric.per
        for entry in known(member.chassis).get((member.object, member.id, quantity), ())
    )
    if not parts:
        return None
    owners = len({(part.chassis, *part.key.split("/", 2)[:2]) for part in parts})
    return HistoryLine(
        subject, metric.name, metric.label, metric.unit, metric.panel, metric.combine, parts,
        combination_words(metric, len(parts) if metric.name.startswith("error") else owners),
    )  # fmt: skip


def _series_line(subject: HistorySubject, span: TimeRange) -> HistoryLine | None:
    _, by_key = _known_series(subject.chassis or 0, span)
    entry = by_key.get(subject.key) or by_key.get(subject.key.removesuffix(RATE))
    if entry is None:
        return None
    metric = METRICS.get(entry["quantity"])
    rate = subject.key.endswith(RATE)
    unit = "1/s" if rate else entry["unit"]
    panel = metric.panel if metric is not None and not rate else entry["label"]
    named = replace(subject, name=entry["label"])
    parts = (replace(SeriesPart.of(subject.members[0], subject.key), spans=ALWAYS),)
    return HistoryLine(named, entry["quantity"], entry["label"], unit, panel, "sum", parts, "")


def _fill_lines(
    lines: Sequence[HistoryLine], span: TimeRange, points: int, *, band: bool
) -> tuple[float, Floats, list[HistoryGap]]:
    keys: dict[int, dict[str, None]] = defaultdict(dict)
    for line in lines:
        for part in line.parts:
            keys[part.chassis][part.key] = None
    extracts = _extracts(keys, span, points, band=band)
    if len({(one.step, len(one.at)) for one in extracts.values()}) > 1:
        # Buckets depend on the range and on the tiers that still have it, which changed between two of these reads.
        extracts = _extracts(keys, span, points, band=band)
    gaps = [
        HistoryGap(chassis, gap.since, gap.until, gap.reason)
        for chassis, extract in extracts.items()
        for gap in extract.gaps
    ]
    if not extracts:
        return 1.0, np.zeros(0), gaps
    columns: dict[tuple[int, str], Columns] = {
        (chassis, entry["key"]): (extract.mean[row], extract.low[row], extract.high[row])
        for chassis, extract in extracts.items()
        for row, entry in enumerate(extract.series)
    }
    grid = next(iter(extracts.values()))
    for line in lines:
        line.fill(columns, grid.at, grid.step)
    return grid.step, grid.at, gaps


def _visible_gaps(gaps: Sequence[HistoryGap], lines: Sequence[HistoryLine]) -> list[HistoryGap]:
    """Return the parts of gaps within the time of a tenant's lines.

    Their reason is generic, as the original may name the BMC's address, which tenants may not see.
    """
    begins: dict[int, float] = {}
    for part in (part for line in lines for part in line.parts):
        begin = max(part.since, part.spans[0][0])
        begins[part.chassis] = min(begin, begins.get(part.chassis, begin))
    return [
        HistoryGap(one.chassis_id, max(one.since, begins[one.chassis_id]), one.until, NOT_ANSWERING)
        for one in gaps
        if one.until > begins[one.chassis_id]
    ]


def _extracts(
    keys: Mapping[int, Mapping[str, None]], span: TimeRange, points: int, *, band: bool
) -> dict[int, Extract]:
    return {
        chassis: read_series(chassis, list(of_chassis), since=span.since, until=span.until, points=points, band=band)
        for chassis, of_chassis in keys.items()
    }
