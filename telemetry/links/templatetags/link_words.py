"""Template filters and tags of links, also used on the pages of other apps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import template

from accounts.models import User
from core.language import _
from telemetry.links.presentation import LEVEL_LABELS, LinkView
from telemetry.links.rules import RANKS, LinkLevel, duration_label, figure_label
from telemetry.links.selectors import links_by_port

register = template.Library()


@register.filter
def per_minute(value: float) -> str:
    """Return events a second as events a minute, '0' for none."""
    return figure_label(60 * value) if value > 0 else "0"


register.filter("duration", duration_label)


@register.filter
def level_words(level: str) -> str:
    """Return the level of a reason as the verdict of a link has it: 'Degraded'."""
    return _(LEVEL_LABELS[LinkLevel(level)][1])


@register.filter
def of_port(views: dict[int, LinkView], pk: int) -> LinkView | None:
    return views.get(pk)


@register.simple_tag(takes_context=True)
def link_levels(context: dict[str, Any], ports: Iterable[Any]) -> dict[int, LinkView]:
    """Return the links of ports that the signed-in person may see, by the ports' ids."""
    person = context["request"].user
    ids = [getattr(port, "pk", port) for port in ports]
    return links_by_port(person, pk__in=ids) if isinstance(person, User) else {}


@register.simple_tag(takes_context=True)
def degraded_links(context: dict[str, Any], chassis: Any) -> dict[int, LinkView]:
    """Return those links of one or several chassis that are degraded or worse, by the ports' ids."""
    person = context["request"].user
    if not isinstance(person, User):
        return {}
    ids = [one.id for one in (chassis if isinstance(chassis, list | tuple) else [chassis])]
    return links_by_port(person, chassis__in=ids, shown_rank__gte=RANKS[LinkLevel.DEGRADED])


@register.inclusion_tag("telemetry/links/badge.html", takes_context=True)
def link_badge(context: dict[str, Any], port: Any) -> dict[str, Any]:
    """Show the verdict on the link of one port, with a link to its page; nothing where it is not visible."""
    found = link_levels(context, [port]) if port else {}
    return {"view": next(iter(found.values()), None)}
