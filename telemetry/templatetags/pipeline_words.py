"""Template filters of the pipeline page."""

from __future__ import annotations

from django import template

from telemetry.pipeline.rules import PipelineSnapshot

register = template.Library()


@register.filter
def percent(share: float, places: int) -> str:
    """Return a share (0 to 1) as a percentage, never rounded up to 100: '99.99 %'."""
    shown = f"{100 * share:.{places}f}"
    if share < 1.0 and float(shown) >= 100.0:
        shown = f"{100 - 10**-places:.{places}f}"
    return f"{shown} %"


@register.filter
def polled_chassis(pipeline: PipelineSnapshot, process: str) -> int:
    return sum(name == process for name in pipeline.polled_by.values())
