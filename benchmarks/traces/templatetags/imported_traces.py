"""The imported traces on the page of workloads."""

from __future__ import annotations

from typing import Any, Final

from django import template

from accounts.access import person_of
from benchmarks.traces.selectors import trace_list
from core.language import _, gettext_noop

register = template.Library()
KIND_LABELS: Final[dict[str, str]] = {
    "compute": gettext_noop("kernels"), "host": gettext_noop("on the CPU"), "collective": gettext_noop("collectives"),
    "point": gettext_noop("messages"), "load": gettext_noop("copies to the device"),
    "store": gettext_noop("copies from the device"), "none": gettext_noop("without time"),
}  # fmt: skip


@register.filter
def node_kind(kind: str) -> str:
    """Return what nodes of a kind are."""
    return _(KIND_LABELS.get(kind, kind))


@register.inclusion_tag("benchmarks/traces/listed.html", takes_context=True)
def imported_traces(context: dict[str, Any]) -> dict[str, Any]:
    """Show the traces that a person sees, nothing if there are none."""
    return {"traces": trace_list(person_of(context["request"]))}
