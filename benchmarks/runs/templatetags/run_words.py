"""Template filters that format figures of runs and names of the catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from django import template

from benchmarks.runs.quantities import (
    deviation_text,
    duration_text,
    field_label,
    format_number,
    interval_text,
    value_text,
)
from benchmarks.runs.results import Statistic
from benchmarks.runs.topology import accelerator_label, strategy_label
from benchmarks.workloads.catalogue import CATALOGUE, workload_title
from core.language import _, gettext_noop
from hostwire.training import READINGS

register = template.Library()
register.filter("value_words", value_text)
register.filter("duration", duration_text)
register.filter("percent", deviation_text)
register.filter("accelerator_words", accelerator_label)

# Labels of readings (hostwire.training), fields of software and phases, which are named where nothing is translated.
NAMED_ELSEWHERE: Final = (
    gettext_noop("GPU in use"),
    gettext_noop("GPU memory busy"),
    gettext_noop("GPU memory in use"),
    gettext_noop("PCIe to the device"),
    gettext_noop("PCIe from the device"),
    gettext_noop("Power"),
    gettext_noop("Temperature"),
    gettext_noop("CPU of the host in use"),
    gettext_noop("Memory of the host in use"),
    gettext_noop("Read from disks"),
    gettext_noop("Written to disks"),
    gettext_noop("Framework"),
    gettext_noop("Driver"),
    gettext_noop("Libraries"),
    gettext_noop("Operating system"),
    gettext_noop("Processor"),
    gettext_noop("Cores"),
    gettext_noop("Accelerators"),
    gettext_noop("Container"),
    gettext_noop("build"),
    gettext_noop("data"),
    gettext_noop("warmup"),
    gettext_noop("timed"),
    gettext_noop("validation"),
    gettext_noop("checkpoint"),
    gettext_noop("resumed"),
    gettext_noop("no_sync"),
    gettext_noop("finish"),
)
# The CSS class of a state, where it differs from its name.
LOOKS: Final = {"completed": "done", "failed": "failed", "cancelled": "cancelled", "queued": "waiting"}


@register.filter
def state_class(state: str) -> str:
    return LOOKS.get(state, "running")


@register.filter("workload_title")
def workload_words(name: str) -> str:
    return _(workload_title(name))


@register.filter
def strategy_words(name: str) -> str:
    return _(strategy_label(name))


@register.filter
def plain_words(name: str) -> str:
    return _(field_label(name))


@register.filter
def seconds_words(seconds: float | None) -> str:
    return "" if seconds is None else value_text(seconds, "s")


@register.filter
def figure_words(figure: Statistic | None) -> str:
    return "" if figure is None else value_text(figure.value, figure.unit)


@register.filter
def interval_words(figure: Statistic | None) -> str:
    """Return the 5th and the 95th percentile of a figure in the unit and with the decimals of its value."""
    if figure is None or figure.count < 2:
        return ""
    return interval_text(figure.value, figure.low, figure.high, figure.unit)


@register.filter
def reading_words(name: str) -> str:
    return _(READINGS.get(name, ("", name))[1])


@register.filter
def significant(value: float | None) -> str:
    return "" if value is None else format_number(value)


@register.filter
def option_label(name: str, workload: str) -> str:
    """Return the label of a workload's parameter, with its unit: 'Image side, px'."""
    known = CATALOGUE[workload].parameters if workload in CATALOGUE else ()
    found = next((one for one in known if one.name == name), None)
    if found is None:
        return plain_words(name)
    return f"{_(found.label)}, {_(found.unit)}" if found.unit else _(found.label)


@register.filter
def counted(names: Iterable[str]) -> str:
    """Return distinct names with their counts: '6 × V100, P100'."""
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items())
