"""Every error of the API as a problem document (RFC 9457), in views and outside of them."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import redis
from django.core.exceptions import PermissionDenied
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import translation
from django.utils.log import log_response
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler, set_rollback

from accounts.approvals.services import ApprovalNeeded
from accounts.audit.context import complete_origin, new_request_id, request_id
from core.api.requests import sentence_by_field
from core.errors import FalconWebError, Unavailable
from core.language import SOURCE_LANGUAGE, Text, _, english, gettext_noop
from core.sqlite_damage import has_no_table, is_damage, known_damage
from falconweb.api.authentication import SAFE_METHODS
from telemetry.store.renewal import database_file

logger = logging.getLogger(__name__)
RETRY_AFTER = "5"  # s, with 503
PREFIX = "/api/"
CONTENT_TYPE = "application/problem+json"
INVALID_FIELDS = gettext_noop("Some fields are wrong.")
SITE_ERROR = gettext_noop(
    "This is an error of the site, which was written to its log. Tell an administrator the reference."
)
# Names of the framework, and of packages below the API, that differ from the API's.
CODES = {"permission_denied": "forbidden"}
MEMBER_NAMES = {one: f"{one}_id" for one in ("chassis", "device", "host_port", "lease", "operation", "plan", "tenant")}


def problem_document(status: int, sentence: str, code: str, **details: Any) -> dict[str, Any]:
    """Return a problem document; `details` are its additional members."""
    known = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    return {**known, "code": code, **{MEMBER_NAMES.get(name, name): value for name, value in details.items()}}


def new_reference() -> str:
    """Return the reference that a problem and the log share: the id of the request."""
    return request_id() or new_request_id()


def problem_response(exception: Exception, context: dict[str, Any]) -> Response:
    """Return the problem document for any error, also an unexpected one."""
    request = context.get("request")
    if request is not None:
        # Problems are JSON, whatever the format of the view: the schema's is YAML.
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    if isinstance(exception, ApprovalNeeded):
        # Here: its serializers are read before this module is, and need the framework whole.
        from accounts.approvals.api import approval_needed_answer

        return approval_needed_answer(exception, context["request"])
    if isinstance(exception, FalconWebError):
        return _site_problem(exception)
    if away := unavailable_part(exception):
        set_rollback()
        path = "A request" if request is None else request.path
        logger.warning("%s was not answered: %s (%s)", path, away, new_reference())
        return _site_problem(away)
    answer = exception_handler(exception, context)
    if answer is None:
        return _unexpected_problem(exception, None if request is None else request._request)  # noqa: SLF001 - as Django does
    made = _framework_problem(exception, answer)
    for name in ("WWW-Authenticate", "Retry-After"):
        if name in answer:
            made[name] = answer[name]
    return made


def _site_problem(error: FalconWebError) -> Response:
    answer = _refusal(error.status, error.sentence, error.code, **error.details)
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE and error.retry_helps:
        answer["Retry-After"] = RETRY_AFTER
    return answer


def _framework_problem(exception: Exception, answer: Response) -> Response:
    if isinstance(exception, exceptions.ValidationError):
        errors = sentence_by_field(answer.data)
        whole = errors.pop("non_field_errors", "")
        sentence = _framework_sentence(400, whole) if whole else _(INVALID_FIELDS)
        return _refusal(400, sentence, "invalid", **({"errors": errors} if errors else {}))
    if isinstance(exception, Http404):
        return _refusal(404, _("There is no such thing, or you may not see it."), "not_found")
    if isinstance(exception, PermissionDenied):
        return _refusal(403, _("You may not do this."), "forbidden")
    detail = exception.detail if isinstance(exception, exceptions.APIException) else ""
    code = str(exception.get_codes() if isinstance(exception, exceptions.APIException) else "error")
    return _refusal(answer.status_code, _framework_sentence(answer.status_code, str(detail)), CODES.get(code, code))


def _framework_sentence(status: int, sentence: str) -> str:
    """Return a sentence of the framework, or of ours; of a translation of the framework's the English is not known."""
    if isinstance(sentence, Text) or translation.get_language() == SOURCE_LANGUAGE:
        return sentence
    return Text(sentence, SENTENCES.get(status, OTHER_PROBLEM)[1])


def _unexpected_problem(exception: Exception, request: Any) -> Response:
    """Handle a bug as Django does: the signal (for Django's test client), the log, the rollback."""
    set_rollback()
    reference = new_reference()
    made = _problem(500, _(SITE_ERROR), "internal", reference=reference)
    got_request_exception.send(sender=None, request=request)
    path, method = (None, None) if request is None else (request.path, request.method)
    log_response(
        "%s %s failed, reference %s", method, path, reference, response=made, request=request, exception=exception
    )
    return made


def _refusal(status: int, sentence: str, code: str, **details: Any) -> Response:
    complete_origin(sentence=english(sentence))
    return _problem(status, sentence, code, **details)


def _problem(status: int, sentence: str, code: str, **details: Any) -> Response:
    return Response(problem_document(status, sentence, code, **details), status=status, content_type=CONTENT_TYPE)


SENTENCES = {
    400: ("invalid", "This request cannot be read."),
    403: ("forbidden", "You may not do this."),
    404: ("not_found", "There is no such address. /api/v1/docs/ lists all."),
    405: ("method_not_allowed", "This address has no such method."),
    429: ("throttled", "Too many requests. Try again later."),
    503: ("unavailable", "A part of the site does not answer. Try again later."),
}
OTHER_PROBLEM = ("error", "This request cannot be answered.")


def problem_middleware(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Replace Django's own error responses with problems: unknown URLs and hosts, errors of middleware."""

    def middleware(request: HttpRequest) -> HttpResponse:
        answer = get_response(request)
        if not request.path.startswith(PREFIX) or answer.get("Content-Type") == CONTENT_TYPE:
            return answer
        if answer.status_code == 301 and request.method not in SAFE_METHODS and not request.path.endswith("/"):
            # Django redirects such a request to the URL with the slash, where it would arrive as a GET.
            del answer["Location"]
            return _as_problem(answer, 404, "not_found", "There is no such address: addresses end in a slash.")
        if answer.status_code < 400:
            return answer
        if answer.status_code >= 500 and answer.status_code not in SENTENCES:
            reference = new_reference()
            # Django has logged the traceback just before.
            logger.error("The error before this line has the reference %s", reference)
            return _as_problem(answer, answer.status_code, "internal", SITE_ERROR, reference=reference)
        code, sentence = SENTENCES.get(answer.status_code, OTHER_PROBLEM)
        return _as_problem(answer, answer.status_code, code, sentence)

    return middleware


def _as_problem(answer: HttpResponse, status: int, code: str, sentence: str, **details: str) -> HttpResponse:
    answer.status_code = status
    answer.content = json.dumps(problem_document(status, sentence, code, **details)).encode()
    answer["Content-Type"] = CONTENT_TYPE
    answer["Content-Length"] = str(len(answer.content))
    return answer


DATABASE_DAMAGED = gettext_noop("The database is damaged. An administrator finds in the log of the site what is wrong.")
REDIS_UNAVAILABLE = gettext_noop("Redis does not answer just now: try again.")
DATABASE_UNAVAILABLE = gettext_noop("The database does not answer just now: try again.")
# SQLite's errors for a locked or unreachable file. Its other errors are bugs of the site.
FILE_ERRORS = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip


def unavailable_part(error: BaseException | None) -> Unavailable | None:
    """Return the sentence for an unavailable database or Redis (also one that still loads), None for other errors."""
    if is_damage(error):
        return Unavailable(_(DATABASE_DAMAGED))
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return Unavailable(_(REDIS_UNAVAILABLE))
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    cause = error.__cause__
    # The lower byte is the kind of error; the rest is its extended code.
    if isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF not in FILE_ERRORS:
        # A file that was emptied has no table any more, also before anybody has looked for damage.
        file = database_file("default")
        is_damaged = file is not None and (known_damage(file) or has_no_table(file))
        return Unavailable(_(DATABASE_DAMAGED)) if is_damaged else None
    return Unavailable(_(DATABASE_UNAVAILABLE))
