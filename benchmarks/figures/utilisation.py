"""Utilisation of a run's resources: over its time, and by configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks.figures.charts import (
    PERCENTILE_NOTE,
    Chart,
    ChartAxis,
    ReadingSpread,
    omission_note,
    run_lines,
    runs_by_mark,
    sort_marks,
    spread_marks,
)
from benchmarks.figures.rows import (
    GIGA,
    Floats,
    RunData,
    configuration_labels,
    ordered_configurations,
    work_labels,
)
from core.language import _, gettext_noop
from hostwire.training import READINGS

MAX_LINES: Final = 8
LINE_POINTS: Final = 200  # of a line over a run
PERCENT: Final = 100.0
# The display unit of a reading, and its factor.
DISPLAY_UNITS: Final = {"share": ("%", PERCENT), "B": ("GiB", 1 / 2**30), "B/s": ("GB/s", 1 / GIGA)}
DEVICE_READINGS: Final = ("utilisation", "memory_share", "memory_used", "pcie_to", "pcie_from", "power", "temperature")


def reading_over_time(rows: Sequence[RunData], *, reading: str = "utilisation", by_share: bool = True) -> Chart:
    """Return a reading over each run, the mean of its devices: by elapsed share of the run, or by seconds.

    Only the first eight runs are drawn. A place without a reading is a gap.
    """
    unit, label = READINGS[reading]
    title = _(label)
    shown, factor = DISPLAY_UNITS.get(unit, (unit, 1.0))
    having = [row for row in rows if row.readings(reading)]
    spans = {row.id: span for row in having if (span := _reading_span(row, reading)) is not None}
    drawn = [row for row in having if row.id in spans][:MAX_LINES]
    longest = max((spans[row.id][1] - spans[row.id][0] for row in drawn), default=0.0)

    def means(row: RunData) -> Floats:
        begin, end = spans[row.id]
        length = (end - begin if by_share else longest) or 1.0
        edges = begin + np.linspace(0.0, length, LINE_POINTS + 1)
        return _mean_of_devices(row.readings(reading), edges) * factor

    middle = (np.arange(LINE_POINTS) + 0.5) / LINE_POINTS
    at = middle * (PERCENT if by_share else longest)
    return Chart(
        name="utilisation",
        title=_("{reading} over the run", reading=title),
        caption=_(
            "{reading} of each run, the mean of its devices, from its first reading to its last: warm-up and the end "
            "included.",
            reading=title,
        )
        if reading in DEVICE_READINGS
        else _(
            "{reading} of each run, of its host, from its first reading to its last: warm-up and the end included.",
            reading=title,
        ),
        kind="lines",
        groups=_("Run"),
        x=ChartAxis(title=_("Share of the run"), unit="%")
        if by_share
        else ChartAxis(title=_("Since the first reading"), unit="s"),
        y=ChartAxis(title=title, unit=shown),
        at=tuple(float(one) for one in np.round(at, 3)) if drawn else (),
        lines=run_lines(drawn, means),
    ).with_notes(
        omission_note([row for row in rows if row not in having], _("without such readings")),
        omission_note(
            [row for row in having if row not in drawn], _("since a chart has at most {most} lines", most=MAX_LINES)
        ),
    )


def _reading_span(row: RunData, reading: str) -> tuple[float, float] | None:
    """Return the times (Unix s) of a run's first and last reading; None without readings."""
    times = [at for at, _ in row.readings(reading) if len(at)]
    return (min(float(at.min()) for at in times), max(float(at.max()) for at in times)) if times else None


def _mean_of_devices(columns: Sequence[tuple[Floats, Floats]], edges: Floats) -> Floats:
    """Return the mean of all readings between adjacent edges, f8[edges - 1]; NaN without readings.

    Readings that are further apart than the edges are valid until the next one is due.
    """
    sums, counts = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for at, values in columns:
        there = np.isfinite(values)
        times, known = at[there], values[there]
        if len(times) == 0:
            continue
        bins = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(sums) - 1)
        own_sums, own_counts = np.bincount(bins, known, len(sums)), np.bincount(bins, minlength=len(sums))
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.where(own_counts > 0, own_sums / own_counts, np.nan)
        own = _hold_last_value(own, edges, times)
        inside = np.isfinite(own)
        sums[inside] += own[inside]
        counts[inside] += 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0, sums / counts, np.nan))


def _hold_last_value(values: Floats, edges: Floats, times: Floats) -> Floats:
    """Return values, each valid for at most 1.5 times the usual interval of readings."""
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    reach = int(1.5 * usual / (edges[1] - edges[0]))
    places = np.arange(len(values))
    last = np.maximum.accumulate(np.where(np.isfinite(values), places, -1))
    return np.asarray(np.where((last >= 0) & (places - last <= reach), values[np.maximum(last, 0)], np.nan))


def use_by_configuration(rows: Sequence[RunData]) -> tuple[Chart, ...]:
    """Return the use of GPUs, GPU memory, CPU and system memory by configuration: means over the timed steps."""
    return tuple(_resource_chart(rows, *one) for one in _RESOURCES)


def _resource_chart(
    rows: Sequence[RunData], name: str, title: str, caption: str, of: Callable[[RunData], ReadingSpread | None]
) -> Chart:
    having = [row for row in rows if of(row) is not None]
    labels, works = configuration_labels(having), work_labels(having, but=("devices",))
    found = runs_by_mark(having, lambda row: labels[row.id], lambda row: works[row.id])
    return Chart(
        name=name,
        title=_("{resource} by configuration", resource=_(title)),
        caption=_(caption),
        kind="bars",
        groups=_("Workload"),
        x=ChartAxis(title=_("Configuration"), kind="category"),
        y=ChartAxis(title=_(title), unit="%"),
        interval=_(PERCENTILE_NOTE),
        counts=_("readings"),
        marks=sort_marks(spread_marks(found, of), ordered_configurations(labels.values())),
    ).with_notes(omission_note([row for row in rows if row not in having], _("without it")))


def _reading_spread(name: str, whole: Callable[[RunData], float | None]) -> Callable[[RunData], ReadingSpread | None]:
    def of(row: RunData) -> ReadingSpread | None:
        figure, all_of_it = row.summary.readings.get(name), whole(row)
        if figure is None or not all_of_it:
            return None
        part = PERCENT / all_of_it
        has_spread = figure.count > 1
        return ReadingSpread(
            figure.value * part,
            figure.low * part if has_spread else None,
            figure.high * part if has_spread else None,
            figure.count,
        )

    return of


def _memory_of_devices(row: RunData) -> float | None:
    sizes = [one.memory_bytes for one in row.topology.accelerators] if row.topology else []
    return sum(sizes) / len(sizes) if sizes else None


_RESOURCES: Final = (
    ("gpu", gettext_noop("GPU utilisation"),
     gettext_noop("Share of the time in which any kernel runs, one that waits for others too; over the timed steps."),
     _reading_spread("utilisation", lambda row: 1.0)),
    ("gpu-memory", gettext_noop("GPU memory in use"),
     gettext_noop("Share of a device's memory in use; the mean over devices and steps."),
     _reading_spread("memory_used", _memory_of_devices)),
    ("gpu-memory-busy", gettext_noop("GPU memory busy"),
     gettext_noop("Share of the time in which the memory of a device was read or written."),
     _reading_spread("memory_share", lambda row: 1.0)),
    ("cpu", gettext_noop("CPU utilisation"),
     gettext_noop("Share of the host's CPU in use, over the timed steps."),
     _reading_spread("cpu", lambda row: 1.0)),
    ("system-memory", gettext_noop("System memory in use"),
     gettext_noop("Share of the host's memory in use, over the timed steps."),
     _reading_spread("memory", lambda row: row.topology.memory_bytes if row.topology else None)),
)  # fmt: skip
