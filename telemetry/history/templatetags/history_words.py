"""Template filters of amounts of data."""

from __future__ import annotations

import math

from django import template

from core.language import _, gettext_noop

register = template.Library()
NOTHING = gettext_noop("none")
SIZES = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6))


@register.filter
def gigabytes(rate: float) -> str:
    """Return a rate (B/s) in GB/s."""
    return _(NOTHING) if math.isnan(rate) else f"{rate / 1e9:.2f}"


@register.filter
def moved(count: float) -> str:
    """Return an amount of bytes with its unit."""
    if math.isnan(count):
        return _(NOTHING)
    name, size = next((one for one in SIZES if count >= one[1]), SIZES[-1])
    return f"{count / size:.2f} {name}"


@register.filter
def share(rate: float, most: float) -> str:
    """Return a rate as a percentage of the highest, the length of a bar."""
    return "0" if math.isnan(rate) or most <= 0 else f"{100 * rate / most:.2f}"
