"""Small pictures of charts: shapes for the overview of figures, without axes, in the units of their viewport."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.figures.catalogue import FigureAvailability, FigureOptions
from benchmarks.figures.charts import Chart, ChartBound, ChartMark
from benchmarks.figures.comparison import published_predictions
from benchmarks.figures.rows import MarkSource, RunData

WIDTH, HEIGHT = 240.0, 80.0
EDGE: Final = 3.0  # of the viewport, that nothing is drawn on
BAR_SHARE: Final = 0.85  # of the place of a bar
PLACE_GAP: Final = 0.9  # between two places of the x axis, in bars
WIDEST: Final = 24.0  # of the place of a bar
SHADES: Final = 5  # of groups; more repeat
# The newest runs show what a figure looks like; a comparison needs more of them.
PICTURED_RUNS: Final = 6
COMPARED_RUNS: Final = 60


@dataclass(frozen=True, kw_only=True)
class PictureShape:
    """A bar (`width` above 0) or a line (`points`) of a group with a shade, 0 to SHADES - 1, and a provenance."""

    shade: int
    provenance: MarkSource
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    points: str = ""


@dataclass(frozen=True, kw_only=True)
class ChartPicture:
    """The shapes of a chart; `baseline` is the height of the value 1, None without a baseline."""

    chart: Chart
    shapes: tuple[PictureShape, ...]
    baseline: float | None = None


def chart_picture(chart: Chart) -> ChartPicture | None:
    """Return the picture of a chart; None for an empty one."""
    if chart.is_empty:
        return None
    if chart.kind == "bars":
        values = [one.value for one in chart.marks] + [one.value for one in chart.bounds]
        top = max([*values, 1.0] if chart.baseline else values) or 1.0
        scale = (HEIGHT - 2 * EDGE) / top
        return ChartPicture(
            chart=chart,
            shapes=tuple(_bars(chart.marks, chart.bounds, scale)),
            baseline=round(HEIGHT - EDGE - scale, 1) if chart.baseline else None,
        )
    return ChartPicture(chart=chart, shapes=tuple(_lines(chart)))


def first_picture(charts: Iterable[Chart]) -> ChartPicture | None:
    """Return the picture of the first chart with anything in it; None if there is none."""
    return next((one for chart in charts if (one := chart_picture(chart)) is not None), None)


def _bars(marks: Sequence[ChartMark], bounds: Sequence[ChartBound], scale: float) -> Iterator[PictureShape]:
    groups = list(dict.fromkeys(one.group for one in marks))
    places = list(dict.fromkeys(one.x for one in marks))
    unit = min(WIDEST, (WIDTH - 2 * EDGE) / (len(marks) + PLACE_GAP * (len(places) - 1)))
    at = EDGE
    for place in places:
        begin = at
        for one in (mark for mark in marks if mark.x == place):
            yield PictureShape(
                shade=groups.index(one.group) % SHADES,
                provenance=one.provenance,
                x=round(at, 1),
                y=round(HEIGHT - EDGE - one.value * scale, 1),
                width=round(unit * BAR_SHARE, 1),
                height=round(one.value * scale, 1),
            )
            at += unit
        for bound in (one for one in bounds if one.x == place):
            up = HEIGHT - EDGE - bound.value * scale
            points = f"{begin:.1f},{up:.1f} {at - unit * (1 - BAR_SHARE):.1f},{up:.1f}"
            yield PictureShape(shade=0, provenance="published", points=points)
        at += PLACE_GAP * unit


def _lines(chart: Chart) -> Iterator[PictureShape]:
    lines: dict[tuple[str, MarkSource], list[tuple[float, float]]] = {}
    for one in chart.marks:
        lines.setdefault((one.group, one.provenance), []).append((float(one.x), one.value))
    for one_line in chart.lines:
        known = [(at, value) for at, value in zip(chart.at, one_line.values, strict=True) if value is not None]
        lines[one_line.group, one_line.provenance] = known
    points = [(_placed(x, chart.x.kind), _placed(y, chart.y.kind)) for line in lines.values() for x, y in line]
    left, right = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=0.0)
    bottom = min((y for _, y in points), default=0.0) if chart.y.kind == "log" else 0.0
    top = max((y for _, y in points), default=0.0)
    groups = list(dict.fromkeys(group for group, _ in lines))
    for (group, provenance), line in lines.items():
        shown = []
        for x, y in sorted(line):
            across = (_placed(x, chart.x.kind) - left) / ((right - left) or 1.0)
            up = (_placed(y, chart.y.kind) - bottom) / ((top - bottom) or 1.0)
            shown.append(f"{EDGE + across * (WIDTH - 2 * EDGE):.1f},{HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE):.1f}")
        yield PictureShape(shade=groups.index(group) % SHADES, provenance=provenance, points=" ".join(shown))


def _placed(value: float, kind: str) -> float:
    return math.log2(value) if kind == "log" and value > 0 else value


def figure_pictures(rows: Sequence[RunData], offers: Iterable[FigureAvailability]) -> dict[str, ChartPicture]:
    """Return a picture of each figure by its name: of the runs if they suffice, else of predictions alone."""
    found = {}
    for offer in offers:
        entry, shown = offer.entry, list[RunData]()
        if offer.is_ready:
            used = [row for row in rows if entry.uses(row)]
            shown = used[: COMPARED_RUNS if entry.varied else PICTURED_RUNS]
        elif "predicted" in entry.overlays:
            shown = published_predictions(entry.name)[0]
        picture = first_picture(entry.draw(shown, FigureOptions()) if shown else ())
        if picture is not None:
            found[entry.name] = picture
    return found
