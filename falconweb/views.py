"""Pages of no room."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from accounts.audit.context import note_sentence, request_id

logger = logging.getLogger(__name__)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Say what to do about a form that is too old, or that is not this site's."""
    sentence = (
        "This form is too old, or it came from another page. Go back, load the page again and send it once more. "
        "Cookies must be allowed."
    )
    note_sentence(sentence)
    return render(request, "403.html", {"sentence": sentence, "reference": request_id()}, status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Say that an error of the site happened, with the id under which the log tells more."""
    # Django writes the traceback just before.
    logger.error("The error before this line has the reference %s", request_id())
    return HttpResponse(render_to_string("500.html", {"reference": request_id()}), status=500)
