"""What every page knows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from falconweb import __version__


def site(request: HttpRequest) -> dict[str, Any]:
    """Give templates the version and the signed-in person's abilities."""
    person = getattr(request, "user", None)
    signed_in = bool(person and person.is_authenticated)
    return {
        "falconweb_version": __version__,
        "is_administrator": signed_in and getattr(person, "is_administrator", False),
        "may_compose": signed_in and getattr(person, "may_compose", False),
    }
