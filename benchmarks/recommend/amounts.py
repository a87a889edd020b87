"""Amounts in words: with their unit, as many digits as tell something."""

from __future__ import annotations

from benchmarks.recommend.request import Objective


def short(value: float) -> str:
    """Return three digits, and no fraction of a large number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return '85 ms', '12.5 s', '14 min' or '3.2 h'."""
    if seconds < 1:
        return f"{short(seconds * 1000)} ms"
    if seconds < 120:
        return f"{short(seconds)} s"
    return f"{short(seconds / 60)} min" if seconds < 7200 else f"{short(seconds / 3600)} h"


def energy(joules: float) -> str:
    """Return '850 J', '120 Wh' or '3.2 kWh'."""
    if joules < 3600:
        return f"{short(joules)} J"
    return f"{short(joules / 3600)} Wh" if joules < 3.6e6 else f"{short(joules / 3.6e6)} kWh"


def in_words(objective: Objective, value: float) -> str:
    """Return an amount of what an objective counts."""
    if objective == "time":
        return duration(value)
    if objective == "energy":
        return energy(value)
    return f"{short(value)} GPU-h" if objective == "gpu_hours" else f"{value:.0f} {'GPU' if value == 1 else 'GPUs'}"


def share(value: float) -> str:
    """Return a share in percent: '0.4 %', '12 %', 'under 0.1 %'."""
    if 0 < value < 0.001:
        return "under 0.1 %"
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{value * 100:.0f} %"
