"""Every error of the API as a problem document (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler

from falconweb.errors import FalconWebError

CONTENT_TYPE = "application/problem+json"


def problem_response(exception: Exception, context: dict[str, Any]) -> Response | None:
    """Return the problem document for an expected error; None (Django's 500) for a bug."""
    request = context.get("request")
    if request is not None:
        # Problems are JSON, whatever the answer would have been: the schema's is YAML.
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    if isinstance(exception, FalconWebError):
        return _problem(exception.status, exception.sentence, exception.code, exception.details)
    answer = exception_handler(exception, context)
    if answer is None:
        return None
    if isinstance(exception, exceptions.ValidationError):
        details = {"errors": answer.data}
        return _problem(400, "Some fields are wrong.", "invalid", details, answer)
    if isinstance(exception, Http404):
        return _problem(404, "There is no such thing, or you may not see it.", "not_found", {}, answer)
    if isinstance(exception, PermissionDenied):
        return _problem(403, "You may not do this.", "forbidden", {}, answer)
    detail = exception.detail if isinstance(exception, exceptions.APIException) else ""
    code = exception.get_codes() if isinstance(exception, exceptions.APIException) else "error"
    return _problem(answer.status_code, str(detail), str(code), {}, answer)


def _problem(
    status: int, sentence: str, code: str, details: dict[str, Any], answer: Response | None = None
) -> Response:
    document = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    made = Response({**document, "code": code, **details}, status=status, content_type=CONTENT_TYPE)
    for name in ("WWW-Authenticate", "Retry-After"):
        if answer is not None and name in answer:
            made[name] = answer[name]
    return made
