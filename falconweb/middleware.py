"""Sign-in by default, and one place where an error becomes a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, tzinfo
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode, urlsplit

from asgiref.sync import async_to_sync
from csp.constants import HEADER
from csp.utils import build_policy
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, resolve_url
from django.urls import Resolver404, resolve
from django.utils import timezone, translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.generic import View
from servestatic.middleware import ServeStaticMiddleware

from accounts.approvals.services import ApprovalNeeded
from accounts.audit.context import complete_origin, request_id
from accounts.declaration import declaration_of
from accounts.models import User
from accounts.second_factor.selectors import ENROL_FIRST, must_enrol
from accounts.sign_in.services import session_touch
from core.errors import FalconWebError, Forbidden, SignInTooOld
from core.language import SOURCE_LANGUAGE, _
from core.local_pages import local_page
from core.zones import ZONE_COOKIE, typed_in, zone_named
from falconweb import csp_reports
from falconweb.api.authentication import SAFE_METHODS
from falconweb.api.errors import PREFIX, unavailable_part
from falconweb.health import healthz, readyz
from falconweb.sqlite.base import limit_lock_wait
from falconweb.views import error_response, method_not_allowed, unavailable_response

logger = logging.getLogger(__name__)
BODY_REFUSED: Final = "falconweb.body_refused"  # key in the scope: the error with which asgi_middleware refused it
REQUEST_LOCK_WAIT_SECONDS: Final = 15.0
TYPED_TIMES: Final = {"since", "until"}


# Of each response: pages, files, the API, errors and probes. No page has a use for a camera or a payment.
REFUSED_FEATURES: Final = (
    "accelerometer", "autoplay", "browsing-topics", "camera", "display-capture", "encrypted-media", "geolocation",
    "gyroscope", "hid", "local-fonts", "magnetometer", "microphone", "midi", "payment", "picture-in-picture",
    "screen-wake-lock", "serial", "usb", "xr-spatial-tracking",
)  # fmt: skip
ISOLATION_HEADERS: Final = {
    "Permissions-Policy": ", ".join(f"{one}=()" for one in REFUSED_FEATURES),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Reporting-Endpoints": f'csp="{csp_reports.PATH}"',
}
GetResponse = Callable[[HttpRequest], HttpResponse]


def isolation_middleware(get_response: GetResponse) -> GetResponse:
    """Let no other site read a response, and no page use what no page of this site needs."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        for name, value in ISOLATION_HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return middleware


def health_middleware(get_response: GetResponse) -> GetResponse:
    """Answer /healthz and /readyz before all other middleware: probes use the site's address, not its host name.

    Reports of browsers too: they need no session, and leave no entry in the audit log, which strangers could fill.
    """
    probes: dict[str, GetResponse] = {"/healthz": healthz, "/readyz": readyz, csp_reports.PATH: csp_reports.csp_report}

    def middleware(request: HttpRequest) -> HttpResponse:
        return probes.get(request.path, get_response)(request)

    return middleware


class SignInRequiredMiddleware(LoginRequiredMiddleware):
    """Requires sign-in except in views marked `login_not_required`; the API responds 401 itself."""

    def process_view(  # type: ignore[override]
        self, request: HttpRequest, view_func: View, view_args: tuple[object, ...], view_kwargs: dict[str, object]
    ) -> HttpResponseBase | None:
        """Leave authentication to the API (sessions and tokens); redirect others to the sign-in page."""
        if request.path.startswith("/api/"):
            return None
        if getattr(view_func, "login_required", True) and isinstance(request.user, User):
            complete_origin(person_id=request.user.pk)
            session_touch(request)
            is_open = declaration_of(view_func, request.method or "").is_open_without_factor
            if not is_open and must_enrol(request.user, request.session):
                return enrolment_response(request)
        return super().process_view(request, view_func, view_args, view_kwargs)  # type: ignore[arg-type]

    def handle_no_permission(self, request: HttpRequest, view_func: View) -> HttpResponseBase:  # type: ignore[override]
        """Redirect to the sign-in page, and from there back to the page, but not to a URL that only accepts forms."""
        if request.method in SAFE_METHODS:
            return super().handle_no_permission(request, view_func)  # type: ignore[arg-type]
        messages.warning(request, _("You are not signed in, so nothing was changed. Sign in and do it again."))
        return redirect_to_login(referring_page(request), resolve_url(settings.LOGIN_URL))


def enrolment_response(request: HttpRequest) -> HttpResponse:
    """Lead a person whose role needs a second factor to the page where they set one up; nothing else is done."""
    if request.method in SAFE_METHODS:
        return redirect("accounts:second_factor_enrol")
    return error_response(request, Forbidden(ENROL_FIRST))


def referring_page(request: HttpRequest) -> str:
    """Return the URL of the page of this site that sent a request, '/' where unknown."""
    referrer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referrer, {request.get_host()}, require_https=request.is_secure()):
        return "/"
    page = urlsplit(referrer)
    where = page._replace(scheme="", netloc="", fragment="").geturl()
    return local_page(where) or "/"


def lock_wait_middleware(get_response: GetResponse) -> GetResponse:
    """Limit the wait of requests for a database that another process has locked; workers wait longer."""

    def middleware(request: HttpRequest) -> HttpResponse:
        with limit_lock_wait(REQUEST_LOCK_WAIT_SECONDS):
            return get_response(request)

    return middleware


def no_store_middleware(get_response: GetResponse) -> GetResponse:
    """Forbid all caches, the browser's included, to store a response: it is specific to a user.

    Responses with a header of their own, such as static files, keep it.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store, private")
        return response

    return middleware


def policy_middleware(get_response: GetResponse) -> GetResponse:
    """Send the policy of what a page may load; Django's own pages of errors, with DEBUG, need more.

    It is the same for all responses: the library's middleware composes it twice for each.
    """
    policy = build_policy()

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if not (settings.DEBUG and response.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR}):
            response.headers.setdefault(HEADER, policy)
        return response

    return middleware


def static_files_middleware(get_response: GetResponse) -> GetResponse:
    """Serve static files.

    The library's own middleware is asynchronous: every other request would change threads twice for it, which takes
    longer than a short response.
    """
    serve = async_to_sync(ServeStaticMiddleware(_no_answer))

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith(settings.STATIC_URL):
            answer: HttpResponse | None = serve(request)
            if answer is not None:
                return answer
        return get_response(request)

    return middleware


async def _no_answer(_request: HttpRequest) -> None:
    """Mark a missing file, in place of the rest of the chain."""


def language_middleware(get_response: GetResponse) -> GetResponse:
    """Respond in the language of the person, else in one that the browser accepts; to programs in English."""

    def middleware(request: HttpRequest) -> HttpResponse:
        language = getattr(request.user, "language", "")
        if not language:
            is_program = request.path.startswith(PREFIX) and not request.user.is_authenticated
            language = SOURCE_LANGUAGE if is_program else translation.get_language_from_request(request)
        with translation.override(language):
            response = get_response(request)
        response.headers.setdefault("Content-Language", language)
        return response

    return middleware


def zone_middleware(get_response: GetResponse) -> GetResponse:
    """Show pages in the zone of the address, else of the person, else of the browser, else UTC; the API is in UTC.

    A form of times to filter by sends the zone of its page as `typed_in`: it leads to an address with the instants,
    which is the same for everybody. `zone` in an address is that of its days.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path.startswith(PREFIX):
            return get_response(request)
        given = request.GET
        if request.method in SAFE_METHODS and (typed := zone_named(given.get("typed_in", ""))):
            return HttpResponseRedirect(f"?{_exact_query(given, typed)}")  # relative: '//name/' is no other site
        names = (given.get("zone"), getattr(request.user, "zone", ""), request.COOKIES.get(ZONE_COOKIE))
        with timezone.override(next((one for name in names if (one := zone_named(name or ""))), UTC)):
            return get_response(request)

    return middleware


def _exact_query(given: QueryDict, zone: tzinfo) -> str:
    """Return a query with its typed times as instants."""
    query = given.copy()
    del query["typed_in"]
    for name in TYPED_TIMES & query.keys():
        query.setlist(name, [typed_in(text.strip(), zone) for text in query.getlist(name)])
    return query.urlencode(safe="/:")


def refused_body_middleware(get_response: GetResponse) -> GetResponse:
    """Respond in place of views where asgi_middleware refused the body, in the form of all other errors."""

    def middleware(request: HttpRequest) -> HttpResponse:
        refused = getattr(request, "scope", {}).get(BODY_REFUSED)
        if refused is None:
            return get_response(request)
        with suppress(Resolver404):
            # For the audit log, which records attempts.
            request.resolver_match = resolve(request.path_info)
        refused.sentence = _(refused.sentence)
        return error_response(request, refused)

    return middleware


def _confirmation(request: HttpRequest, error: SignInTooOld) -> HttpResponse:
    """Lead to the page that asks for the password, and from there back to the page with the form."""
    where = request.get_full_path()
    if request.method not in SAFE_METHODS:
        messages.error(request, error.sentence)
        where = referring_page(request)
    return redirect(f"{resolve_url('accounts:confirmation')}?{urlencode({'next': where})}")


class ErrorMiddleware:
    """Turns a FalconWebError raised by a page into a page with its sentence, its status and an id to quote.

    An unavailable database or Redis is one too, and so is Django's empty response to a method that is not allowed.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on, and check the response."""
        answer = self.get_response(request)
        if answer.status_code != HTTPStatus.METHOD_NOT_ALLOWED or request.path.startswith(PREFIX) or answer.content:
            return answer
        return method_not_allowed(request, answer)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Handle FalconWebErrors and those of an unavailable database or Redis; others are left to Django."""
        if away := unavailable_part(exception):
            return unavailable_response(request, away)
        if isinstance(exception, ApprovalNeeded):
            return redirect("accounts:approval", pk=exception.approval.pk)
        if not isinstance(exception, FalconWebError):
            return None
        if isinstance(exception, SignInTooOld):
            return _confirmation(request, exception)
        logger.info(
            "%s %s answered %s (%s): %s", request.method, request.path, exception.status, request_id(), exception
        )
        return error_response(request, exception)
