"""Pages that belong to no application."""

from __future__ import annotations

import logging
import sys

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.audit.context import complete_origin, request_id
from accounts.declaration import NO_PAGE, Audience, declare
from core.errors import FalconWebError, Unavailable
from core.language import _, english
from core.local_pages import next_page
from core.text import parse_id
from falconweb.api.errors import CONTENT_TYPE, PREFIX, RETRY_AFTER, problem_document, unavailable_part
from falconweb.notices import notices_for, notices_seen
from falconweb.search import search
from falconweb.tour import tour_go

logger = logging.getLogger(__name__)


@never_cache
@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE, section=None)
def search_results(request: HttpRequest) -> HttpResponse:
    """Show what is found by the words in `q`."""
    return render(request, "site/search_results.html", {"groups": search(person_of(request), request.GET.get("q", ""))})


@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.PREFERENCE_SET, no_page_test=NO_PAGE, section=None)
def notices(request: HttpRequest) -> JsonResponse:
    """Return the notifications in the header; POST marks all of them as seen."""
    person = person_of(request)
    if request.method == "POST":
        notices_seen(person)
    return JsonResponse(notices_for(person))


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.PREFERENCE_SET, section=None)
def tour(request: HttpRequest) -> HttpResponse:
    """Go to a `step` of the tour, or end it with 0."""
    text = request.POST.get("step", "")
    place = tour_go(person_of(request), 0 if text == "0" else parse_id(text) or -1)
    return redirect(place or next_page(request, "/"))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Explain a form that has expired or comes from another site."""
    sentence = _(
        "This form is too old, or it came from another page. Go back, load the page again and send it once more. "
        "Cookies must be allowed."
    )
    complete_origin(sentence=sentence.english)
    return render(request, "403.html", {"sentence": sentence, "reference": request_id()}, status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Report a server error with its id in the log."""
    if away := unavailable_part(sys.exc_info()[1]):
        return unavailable_response(request, away)
    # Django writes the traceback just before.
    logger.error("The error before this line has the reference %s", request_id())
    return HttpResponse(render_to_string("500.html", {"reference": request_id()}), status=500)


def error_response(request: HttpRequest, error: FalconWebError) -> HttpResponse:
    """Return an error as a page with its sentence and an id to quote, or as a problem document of the API."""
    complete_origin(sentence=english(error.sentence))
    answer: HttpResponse
    if request.path.startswith(PREFIX):
        document = problem_document(error.status, error.sentence, error.code, **error.details)
        answer = JsonResponse(document, status=error.status, content_type=CONTENT_TYPE)
    else:
        template = f"{error.status}.html" if error.status in {400, 403, 404, 500} else "error.html"
        context = {"error": error, "sentence": error.sentence, "reference": request_id()}
        answer = render(request, template, context, status=error.status)
    if isinstance(error, Unavailable) and error.retry_helps:
        answer["Retry-After"] = RETRY_AFTER
    return answer


def unavailable_response(request: HttpRequest, error: Unavailable) -> HttpResponse:
    """Report that the database or Redis does not answer, on a page that queries neither."""
    logger.warning("%s %s was not answered: %s (%s)", request.method, request.path, error, request_id())
    if request.path.startswith(PREFIX):
        answer = error_response(request, error)
    else:
        complete_origin(sentence=english(error.sentence))
        page = render_to_string("503.html", {"sentence": error.sentence, "reference": request_id()})
        answer = HttpResponse(page, status=error.status)
    answer["Retry-After"] = RETRY_AFTER
    return answer


def method_not_allowed(request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """Return an error page for a URL that accepts only POST, instead of an empty response."""
    context = {"above": _parent_page(request.path), "reference": request_id()}
    answer = render(request, "405.html", context, status=refused.status_code)
    answer["Allow"] = refused["Allow"]
    return answer


def _parent_page(path: str) -> str:
    """Return the page that a URL belongs to: the nearest existing parent."""
    parts = path.strip("/").split("/")[:-1]
    while parts:
        above = f"/{'/'.join(parts)}/"
        try:
            resolve(above)
        except Resolver404:
            parts.pop()
        else:
            return above
    return "/"
