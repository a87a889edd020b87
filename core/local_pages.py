"""Pages of this site that a request names as where to go on."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme


def local_page(where: str) -> str:
    """Return a path of this site, with its query; '' for any other text, so that nobody is led to another site."""
    return where if where.startswith("/") and url_has_allowed_host_and_scheme(where, None) else ""


def next_page(request: HttpRequest, default: str) -> str:
    """Return the page of this site on which a form was sent, its field `next`, or the default."""
    return local_page(request.POST.get("next", "")) or default
