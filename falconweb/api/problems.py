"""Every error of the API as a problem document (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.signals import got_request_exception
from django.http import Http404
from django.utils.log import log_response
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler, set_rollback

from accounts.audit.context import new_request_id, note_sentence, request_id
from falconweb.database import database_away
from falconweb.errors import FalconWebError

logger = logging.getLogger(__name__)
RETRY_AFTER = "5"  # s, with 503
PREFIX = "/api/"
CONTENT_TYPE = "application/problem+json"
WRONG_FIELDS = "Some fields are wrong."
OURS = "This is an error of the site, which was written to its log. Tell an administrator the reference."
# What the framework calls otherwise than the site does, and what rooms below call otherwise than the API.
CODES = {"permission_denied": "forbidden"}
MEMBERS = {one: f"{one}_id" for one in ("chassis", "device", "host_port", "lease", "operation", "plan", "tenant")}


def problem_document(status: int, sentence: str, code: str, **details: Any) -> dict[str, Any]:
    """Return the document that says what is wrong; `details` are members of its own."""
    known = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    return {**known, "code": code, **{MEMBERS.get(name, name): value for name, value in details.items()}}


def new_reference() -> str:
    """Return the id that is in a problem, and in the log beside what happened: that of the request."""
    return request_id() or new_request_id()


def problem_response(exception: Exception, context: dict[str, Any]) -> Response:
    """Return the problem document for an error, one that nobody expected included."""
    request = context.get("request")
    if request is not None:
        # Problems are JSON, whatever the answer would have been: the schema's is YAML.
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    if isinstance(exception, FalconWebError):
        return _told(exception)
    if away := database_away(exception):
        set_rollback()
        note_sentence(away.sentence)
        logger.warning("%s had no database (%s)", "A request" if request is None else request.path, new_reference())
        return _told(away)
    answer = exception_handler(exception, context)
    if answer is None:
        return _unexpected(exception, None if request is None else request._request)  # noqa: SLF001 - Django's own
    made = _expected(exception, answer)
    for name in ("WWW-Authenticate", "Retry-After"):
        if name in answer:
            made[name] = answer[name]
    return made


def _told(error: FalconWebError) -> Response:
    answer = _problem(error.status, error.sentence, error.code, **error.details)
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE and error.retry_helps:
        answer["Retry-After"] = RETRY_AFTER
    return answer


def _expected(exception: Exception, answer: Response) -> Response:
    if isinstance(exception, exceptions.ValidationError):
        errors = _sentences(answer.data)
        whole = errors.pop("non_field_errors", None)
        return _problem(400, whole or WRONG_FIELDS, "invalid", **({"errors": errors} if errors else {}))
    if isinstance(exception, Http404):
        return _problem(404, "There is no such thing, or you may not see it.", "not_found")
    if isinstance(exception, PermissionDenied):
        return _problem(403, "You may not do this.", "forbidden")
    detail = exception.detail if isinstance(exception, exceptions.APIException) else ""
    code = str(exception.get_codes() if isinstance(exception, exceptions.APIException) else "error")
    return _problem(answer.status_code, str(detail), CODES.get(code, code))


def _unexpected(exception: Exception, request: Any) -> Response:
    """Do for a bug what Django does: the signal (Django's test client raises by it), the log, an undone transaction."""
    set_rollback()
    reference = new_reference()
    made = _problem(500, OURS, "internal", reference=reference)
    got_request_exception.send(sender=None, request=request)
    path, method = (None, None) if request is None else (request.path, request.method)
    log_response(
        "%s %s failed, reference %s", method, path, reference, response=made, request=request, exception=exception
    )
    return made


def _sentences(found: Any, place: str = "") -> dict[str, str]:
    """Return one sentence for each wrong field; what is wrong inside a list is named by its place in it."""
    if isinstance(found, dict):
        inner = [_sentences(value, f"{place}.{name}" if place else str(name)) for name, value in found.items()]
        return {name: sentence for one in inner for name, sentence in one.items()}
    sentences = found if isinstance(found, list) else [found]
    return {place or "non_field_errors": " ".join(str(one) for one in sentences)}


def _problem(status: int, sentence: str, code: str, **details: Any) -> Response:
    return Response(problem_document(status, sentence, code, **details), status=status, content_type=CONTENT_TYPE)
