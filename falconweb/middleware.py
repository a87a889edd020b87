"""Sign-in by default, and one place where an error becomes a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.generic import View
from servestatic.middleware import ServeStaticMiddleware

from accounts.audit.context import note_person, request_id
from core.errors import FalconWebError, TooLarge
from falconweb.api.authentication import SAFE_METHODS
from falconweb.api.errors import PREFIX, database_unavailable
from falconweb.health import healthz, readyz
from falconweb.sqlite.base import limit_lock_wait
from falconweb.views import database_error_response, error_response, method_not_allowed

logger = logging.getLogger(__name__)
TOO_LARGE: Final = "falconweb.too_large"  # in a scope: what the gate says of the request
REQUEST_LOCK_WAIT_SECONDS: Final = 15.0


class HealthMiddleware:
    """Answers /healthz and /readyz ahead of all else: who asks for them knows the site by its address, not its name."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, or pass the request on."""
        if request.path == "/healthz":
            return healthz(request)
        return readyz(request) if request.path == "/readyz" else self.get_response(request)


class SignInRequiredMiddleware(LoginRequiredMiddleware):
    """Asks for sign-in everywhere but in views marked `login_not_required`; the API answers 401 itself."""

    def process_view(  # type: ignore[override]
        self, request: HttpRequest, view_func: View, view_args: tuple[object, ...], view_kwargs: dict[str, object]
    ) -> HttpResponseBase | None:
        """Let the API authenticate (sessions and tokens); hold everybody else to the sign-in page."""
        if request.path.startswith("/api/"):
            return None
        if getattr(view_func, "login_required", True) and (person_id := request.user.pk) is not None:
            note_person(person_id)
        return super().process_view(request, view_func, view_args, view_kwargs)  # type: ignore[arg-type]

    def handle_no_permission(self, request: HttpRequest, view_func: View) -> HttpResponseBase:  # type: ignore[override]
        """Lead to the sign-in page, and from there back to the page: not to an address that takes forms alone."""
        if request.method in SAFE_METHODS:
            return super().handle_no_permission(request, view_func)  # type: ignore[arg-type]
        messages.warning(request, "You are not signed in, so nothing was changed. Sign in and do it again.")
        return redirect_to_login(referring_page(request), resolve_url(settings.LOGIN_URL))


def referring_page(request: HttpRequest) -> str:
    """Return the address of the page of this site that sent a request, '/' where that is not told."""
    referrer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referrer, {request.get_host()}, require_https=request.is_secure()):
        return "/"
    page = urlsplit(referrer)
    where = page._replace(scheme="", netloc="", fragment="").geturl()
    return where if url_has_allowed_host_and_scheme(where, None) and where.startswith("/") else "/"


class LockWaitMiddleware:
    """Lets nobody wait long for a database that another process has locked: workers may, people may not."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on."""
        with limit_lock_wait(REQUEST_LOCK_WAIT_SECONDS):
            return self.get_response(request)


class NoStoreMiddleware:
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


class StaticFilesMiddleware:
    """Serves static files. The library's own middleware is asynchronous: every other request would change threads twice
    for it, which takes longer than a short answer does.
    """

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._serve = async_to_sync(ServeStaticMiddleware(_no_answer))

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer with a file, or pass the request on."""
        if request.path_info.startswith(settings.STATIC_URL):
            answer: HttpResponse | None = self._serve(request)
            if answer is not None:
                return answer
        return self.get_response(request)


async def _no_answer(_request: HttpRequest) -> None:
    """Stand for the rest of the chain where there is no such file."""


class TooLargeMiddleware:
    """Answers in the place of views where the gate let nothing of a body in: as every other error is answered."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, or pass the request on."""
        sentence = getattr(request, "scope", {}).get(TOO_LARGE)
        if sentence is None:
            return self.get_response(request)
        with suppress(Resolver404):
            # For the audit log, which tells what was tried.
            request.resolver_match = resolve(request.path_info)
        return error_response(request, TooLarge(sentence))


class ErrorMiddleware:
    """Turns a FalconWebError raised by a page into a page with its sentence, its status and an id to quote.

    So it does with a database that does not answer, and with the empty answer to what an address does not take.
    """

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on, and look at the answer."""
        answer = self.get_response(request)
        if answer.status_code != HTTPStatus.METHOD_NOT_ALLOWED or request.path.startswith(PREFIX) or answer.content:
            return answer
        return method_not_allowed(request, answer)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer FalconWebErrors and those of a database that is away; everything else stays Django's."""
        if away := database_unavailable(exception):
            return database_error_response(request, away)
        if not isinstance(exception, FalconWebError):
            return None
        logger.info(
            "%s %s answered %s (%s): %s", request.method, request.path, exception.status, request_id(), exception
        )
        return error_response(request, exception)
