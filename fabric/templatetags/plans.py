"""The draft of the user, on every page with changes that can be added to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from accounts.models import User
from fabric.plans.selectors import draft_view

register = template.Library()


@register.inclusion_tag("fabric/plans/plan_draft_bar.html", takes_context=True)
def draft_bar(context: Mapping[str, Any], *, open: bool = False) -> dict[str, Any]:  # noqa: A002 - as in HTML
    """Render the user's draft, its entries `open` or not, with a link to its review; nothing without the permission."""
    request = context["request"]
    person = request.user if isinstance(request.user, User) else None
    may = person is not None and person.may_compose
    return {
        "may_compose": may,
        "draft": draft_view(person) if person is not None and may else None,
        "open": open,
        "here": request.get_full_path(),
        "csrf_token": context.get("csrf_token"),
    }
