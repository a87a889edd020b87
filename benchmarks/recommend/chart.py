"""The charts of a recommendation: throughput of each candidate with its interval, and parts of an amount. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.model.topology import LOCAL
from benchmarks.recommend.answer import RankedCandidate
from core.language import _

CHART_WIDTH: Final = 400.0  # units of the picture
MAX_TICKS: Final = 5


@dataclass(frozen=True, kw_only=True)
class ThroughputBar:
    """A candidate in samples a second, and its interval and median in units of the picture."""

    label: str
    words: str
    basis: str
    basis_label: str
    low: float
    span: float
    middle: float


@dataclass(frozen=True, kw_only=True)
class ThroughputChart:
    """The bars in the order of the ranking; `ticks` have a place and a number of samples a second."""

    bars: tuple[ThroughputBar, ...]
    ticks: tuple[tuple[float, float], ...]


def throughput_chart(lines: Sequence[RankedCandidate]) -> ThroughputChart:
    """Return the chart of ranked candidates."""
    rates = [
        tuple(line.candidate.spec.global_batch / step for step in (line.step.high, line.step.value, line.step.low))
        for line in lines
    ]
    most = max((high for _, _, high in rates), default=0.0) or 1.0
    scale = CHART_WIDTH / most
    bars = [
        ThroughputBar(
            label=_label(line), basis=line.basis, basis_label=line.basis_label,
            words=_("{value:,.0f} ({low:,.0f} to {high:,.0f})", value=middle, low=low, high=high),
            low=low * scale, span=max(1.0, (high - low) * scale), middle=middle * scale,
        )
        for line, (low, middle, high) in zip(lines, rates, strict=True)
    ]  # fmt: skip
    step = _tick_step(most)
    return ThroughputChart(
        bars=tuple(bars), ticks=tuple((number * step * scale, number * step) for number in range(int(most / step) + 1))
    )


@dataclass(frozen=True, kw_only=True)
class PartOfAmount:
    """A part of an amount: its name, its label, the amount as text, and its place in units of the picture."""

    name: str
    label: str
    words: str
    start: float
    span: float


def parts_bar(
    parts: Mapping[str, float], labels: Mapping[str, str], words: Callable[[float], str]
) -> tuple[PartOfAmount, ...]:
    """Return the parts above 0 as one bar over the whole width."""
    scale = CHART_WIDTH / (sum(parts.values()) or 1.0)
    found, start = [], 0.0
    for name, label in labels.items():
        if parts[name] > 0:
            span = parts[name] * scale
            found.append(PartOfAmount(name=name, label=_(label), words=words(parts[name]), start=start, span=span))
            start += span
    return tuple(found)


def _tick_step(most: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten of which no more than MAX_TICKS are shown."""
    power: float = 10.0 ** math.floor(math.log10(most / MAX_TICKS))
    return next(step * power for step in (1, 2, 5, 10) if most / (step * power) < MAX_TICKS)


def _label(line: RankedCandidate) -> str:
    """Return where the GPUs of a candidate are: 'node-a: 8 local, 4 Falcon'."""
    places = [one.place == LOCAL for one in line.prediction.topology.accelerators]
    counts = ((sum(places), _("local")), (len(places) - sum(places), "Falcon"))
    return f"{line.candidate.layout.host.name}: {', '.join(f'{count} {kind}' for count, kind in counts if count)}"
