"""The ranking as bars: where each median and its interval lie on one scale, for a picture drawn on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.recommend.answer import Answer

WIDTH: Final = 240.0  # units of the picture


@dataclass(frozen=True)
class Bar:
    """An interval and its median, in units of the picture from its left; `words` for who does not see it."""

    low: float
    span: float
    middle: float


def bars_of(answer: Answer) -> list[Bar]:
    """Return a bar for each line, all on one scale that begins at 0."""
    most = max((line.objective.high for line in answer.lines), default=0.0) or 1.0
    scale = WIDTH / most
    return [
        Bar(
            low=round(line.objective.low * scale, 1),
            span=round(max(1.0, (line.objective.high - line.objective.low) * scale), 1),
            middle=round(line.objective.value * scale, 1),
        )
        for line in answer.lines
    ]
