"""Figures of runs as people read them: scaled to a unit that fits, with their interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import floor, log10
from typing import Final

from django import template

from benchmarks.model.topology import Accelerator
from benchmarks.runs import topology
from benchmarks.runs.results import Statistic
from benchmarks.runs.selectors import workload_title as title_of_workload
from benchmarks.workloads.catalogue import CATALOGUE
from hostwire.training import READINGS

register = template.Library()

UNIT_SCALES: Final = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1.0, "B")),
    "share": ((0.01, "%"),),
    "1/s": ((1.0, "/s"),),
}
SIGNIFICANT_DIGITS: Final = 3  # significant ones; files and the API have all
MAX_DECIMALS: Final = 7


# What a state looks like, where that is not its name.
LOOKS: Final = {"completed": "done", "failed": "failed", "cancelled": "cancelled", "queued": "waiting"}


@register.filter
def state_class(state: str) -> str:
    """Return what a run's state looks like: one of the looks that every state of the site has."""
    return LOOKS.get(state, "running")


def unit_scale(value: float, unit: str) -> tuple[float, str]:
    """Return how much a unit holds of what a value is shown in, and what that is called."""
    scales = UNIT_SCALES.get(unit, ((1.0, unit),))
    if value == 0:
        return next((one for one in scales if one[0] == 1.0), scales[-1])
    return next(((size, name) for size, name in scales if abs(value) >= size), scales[-1])


def format_number(value: float, like: float | None = None) -> str:
    """Return a number with three significant digits, whole ones as they are; or with the decimals of one beside it."""
    of = value if like is None else like
    if of == 0 or (like is None and float(value).is_integer()):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{SIGNIFICANT_DIGITS}g}"
    # Rounded first: 9.996 has three digits as 10.0.
    places = SIGNIFICANT_DIGITS - 1 - floor(log10(abs(float(f"{of:.{SIGNIFICANT_DIGITS - 1}e}"))))
    return f"{value:,.{max(0, places)}f}" if places < MAX_DECIMALS else f"{value:.{SIGNIFICANT_DIGITS - 1}e}"


@register.filter
def seconds_words(seconds: float | None) -> str:
    """Return a time in a unit that fits."""
    return "" if seconds is None else value_words(seconds, "s")


@register.filter
def duration(seconds: float | None) -> str:
    """Return a duration as '42 s', '3 min 5 s' or '2 h 10 min'."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def value_words(value: float, unit: str) -> str:
    """Return a value with its unit."""
    size, name = unit_scale(value, unit)
    return f"{format_number(value / size)} {name}".replace(" /s", "/s").strip()


@register.filter
def figure_words(figure: Statistic | None) -> str:
    """Return the value of a figure with its unit, '' where there is none."""
    return "" if figure is None else value_words(figure.value, figure.unit)


@register.filter
def interval_words(figure: Statistic | None) -> str:
    """Return the 5th and the 95th percentile of a figure in the unit and with the decimals of its value."""
    if figure is None or figure.count < 2:
        return ""
    size, name = unit_scale(figure.value, figure.unit)
    low, high = (format_number(one / size, figure.value / size) for one in (figure.low, figure.high))
    return f"{low} to {high} {name}".replace(" /s", "/s")


@register.filter
def percent(share: float | None) -> str:
    """Return by how much something is off: '+12 %', or that it is within one per cent."""
    if share is None:
        return ""
    return "within 1 %" if abs(share) < 0.01 else f"off by {share * 100:+.0f} %"


@register.filter
def reading_words(name: str) -> str:
    """Return what a reading is."""
    return READINGS.get(name, ("", name))[1]


@register.filter
def plain_words(name: str) -> str:
    """Return the name of a field as words: 'Operating system'."""
    return name.replace("_", " ").capitalize()


@register.filter
def significant(value: float | None) -> str:
    """Return a number with as many digits as it is worth reading."""
    return "" if value is None else format_number(value)


@register.filter
def option_label(name: str, workload: str) -> str:
    """Return how a workload calls one of its sizes, with its unit: 'Image side, px'."""
    known = CATALOGUE[workload].parameters if workload in CATALOGUE else ()
    found = next((one for one in known if one.name == name), None)
    if found is None:
        return plain_words(name)
    return f"{found.label}, {found.unit}" if found.unit else found.label


@register.filter
def counted(names: Iterable[str]) -> str:
    """Return names, each once, with how often it comes: '6 × V100, P100'."""
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items())


@register.filter
def workload_title(name: str) -> str:
    """Return how a workload is called."""
    return title_of_workload(name)


@register.filter
def accelerator_words(accelerator: Accelerator) -> str:
    """Return how an accelerator is called: 'own GPU 1', 'falcon-1 drawer 1 slot 3'."""
    return topology.accelerator_label(accelerator)


@register.filter
def strategy_words(name: str) -> str:
    """Return how devices work together: 'DDP', 'sharded', 'one device'."""
    return topology.strategy_label(name)
