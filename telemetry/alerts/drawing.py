"""A series of a preview as the lines of an SVG picture. Pure: same line, same picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from telemetry.alerts.preview import Line, Preview
from telemetry.alerts.terms import value_words

WIDTH, HEIGHT, TOP = 1000.0, 120.0, 8.0


@dataclass(frozen=True)
class Bar:
    """A time during which the rule would have fired, in the picture's units."""

    x: float
    width: float


@dataclass(frozen=True)
class Drawing:
    """A picture of WIDTH times HEIGHT: the band between least and most, the limit, and when it would have fired."""

    line: Line
    bands: list[str]  # points of polygons
    limit: float | None
    bars: list[Bar]
    range: str  # from the least to the most, in words

    @property
    def label(self) -> str:
        """What it shows, read aloud."""
        count = len(self.line.episodes)
        times = "not at all" if not count else "once" if count == 1 else f"{count} times"
        return f"{self.line.subject_name} of {self.line.chassis_name}: {self.range}, fired {times}"


def drawing_of(line: Line, preview: Preview) -> Drawing:
    """Return the picture of a line of a preview."""
    known = [one for one in (*line.low, *line.high) if one is not None]
    least, most = (min(known), max(known)) if known else (0.0, 1.0)
    bottom, top = least, most
    if preview.value is not None:
        bottom, top = min(bottom, preview.value), max(top, preview.value)
    height = (top - bottom) or 1.0
    length = preview.until - preview.since

    def x(at: float) -> float:
        return round(min(max((at - preview.since) / length, 0.0), 1.0) * WIDTH, 1)

    def y(value: float) -> float:
        return round(TOP + (1 - (value - bottom) / height) * (HEIGHT - 2 * TOP), 1)

    bands = []
    for run in _runs(line):
        upper = [f"{x(line.at[place])},{y(high)}" for place, _, high in run]
        # A pixel at least, so that a value that stands still is a line.
        lower = [f"{x(line.at[place])},{max(y(low), y(high) + 1.5)}" for place, low, high in reversed(run)]
        bands.append(" ".join(upper + lower))
    bars = []
    for episode in line.episodes:
        begin, end = x(episode.fired_at), x(episode.until if episode.until is not None else preview.until)
        bars.append(Bar(begin, max(2.0, round(end - begin, 1))))
    limit = y(preview.value) if preview.value is not None else None
    said = f"from {value_words(least, line.unit)} to {value_words(most, line.unit)}" if known else "no value at all"
    return Drawing(line, bands, limit, bars, said)


def _runs(line: Line) -> Iterator[list[tuple[int, float, float]]]:
    """Yield the places that have values, without a gap between them."""
    run: list[tuple[int, float, float]] = []
    for place, (low, high) in enumerate(zip(line.low, line.high, strict=True)):
        if low is None or high is None:
            if run:
                yield run
            run = []
        else:
            run.append((place, low, high))
    if run:
        yield run
