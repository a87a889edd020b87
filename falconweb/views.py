"""Pages of no room."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Say what to do about a form that is too old, or that is not this site's."""
    sentence = (
        "This form is too old, or it came from another page. Go back, load the page again and send it once more. "
        "Cookies must be allowed."
    )
    return render(request, "403.html", {"sentence": sentence}, status=403)
