"""Sign-in by default, and one place where an error becomes a page."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.generic import View

from accounts.audit.context import note_sentence, request_id
from falconweb.errors import FalconWebError
from falconweb.health import healthz

logger = logging.getLogger(__name__)


class HealthMiddleware:
    """Answers /healthz ahead of everything else: who asks for it knows the site by its address, not by its name."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, or pass the request on."""
        return healthz(request) if request.path == "/healthz" else self.get_response(request)


class SignInRequiredMiddleware(LoginRequiredMiddleware):
    """Asks for sign-in everywhere but in views marked `login_not_required`; the API answers 401 itself."""

    def process_view(  # type: ignore[override]
        self, request: HttpRequest, view_func: View, view_args: tuple[object, ...], view_kwargs: dict[str, object]
    ) -> HttpResponseBase | None:
        """Let the API authenticate (sessions and tokens); hold everybody else to the sign-in page."""
        if request.path.startswith("/api/"):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)  # type: ignore[arg-type]


class UncachedMiddleware:
    """Lets no cache, the browser's own included, keep a page or an answer: it shows what one person may see."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Say so on every answer that does not speak of caches itself, as static files do."""
        response = self.get_response(request)
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "no-store, private"
        return response


class ErrorMiddleware:
    """Turns a FalconWebError raised by a page into a page with its sentence, its status and an id to quote."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer FalconWebErrors; everything else stays Django's."""
        if not isinstance(exception, FalconWebError):
            return None
        reference = request_id()
        note_sentence(exception.sentence)
        logger.info("%s %s answered %s (%s): %s", request.method, request.path, exception.status, reference, exception)
        template = f"{exception.status}.html" if exception.status in {400, 403, 404, 500} else "error.html"
        context = {"error": exception, "sentence": exception.sentence, "reference": reference}
        return render(request, template, context, status=exception.status)
