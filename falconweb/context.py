"""What every page knows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from falconweb import __version__
from falconweb.navigation import navigation


def site(request: HttpRequest) -> dict[str, Any]:
    """Give templates the version and the signed-in person's abilities and ways."""
    person = getattr(request, "user", None)
    signed_in = bool(person and person.is_authenticated)
    is_administrator = signed_in and bool(getattr(person, "is_administrator", False))
    match = request.resolver_match
    return {
        "falconweb_version": __version__,
        "is_administrator": is_administrator,
        "navigation": navigation(match.view_name if match else "", is_administrator=is_administrator)
        if signed_in
        else [],
        "may_compose": signed_in and getattr(person, "may_compose", False),
    }
