"""Audit of requests: each gets an id, and each that may change something leaves an entry.

Services record the entries that say what changed. A request that reaches no service (nobody signed in, an invalid form,
an unknown address), or whose service records nothing, gets an entry here, by the declaration of its view.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils import timezone

from accounts.audit.actions import Action, Outcome
from accounts.audit.context import ORIGIN, Origin, bind_origin, new_request_id, unbind_origin
from accounts.audit.models import AuditEntry
from accounts.audit.services import NO_TARGET, SITE_ERROR, Target, audit_record
from accounts.declaration import Declaration, declaration_of
from accounts.models import User
from accounts.sign_in.security import client_address
from core.language import english, gettext_noop
from falconweb.api.authentication import SAFE_METHODS
from falconweb.api.errors import CONTENT_TYPE, PREFIX

logger = logging.getLogger(__name__)

HEADER = "X-Request-ID"
# Entries of this process that wait for a database, oldest first; the log file has those beyond the limit, too.
late_entries: deque[tuple[Origin, dict[str, Any]]] = deque(maxlen=1000)
SENTENCES = {
    400: gettext_noop("Something about the request was wrong."),
    401: gettext_noop("Nobody was signed in."),
    403: gettext_noop("This was not allowed."),
    404: gettext_noop("There was no such thing, or nothing that the person may see."),
    405: gettext_noop("This address takes no such request."),
    409: gettext_noop("It did not fit what was there."),
    408: gettext_noop("The request did not arrive in time."),
    413: gettext_noop("The request was too large."),
    429: gettext_noop("Too many requests came."),
}


def audit_middleware(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Give each request an id, and make sure that one which may change something leaves an entry."""

    def middleware(request: HttpRequest) -> HttpResponse:
        origin = _origin_of(request)
        token = bind_origin(origin)
        # Django logs some responses after all middleware.
        request.META[ORIGIN] = origin
        try:
            answer = get_response(request)
            if request.method not in SAFE_METHODS and not origin.counted:
                _append_missing_entry(request, answer, origin)
            answer[HEADER] = origin.request_id
            return answer
        finally:
            unbind_origin(token)

    return middleware


def _origin_of(request: HttpRequest) -> Origin:
    return Origin(
        request_id=new_request_id(),
        via="api" if request.path.startswith(PREFIX) else "page",
        address=client_address(request),
        method=request.method or "",
        path=request.path,
    )


def _append_missing_entry(request: HttpRequest, answer: HttpResponseBase, origin: Origin) -> None:
    """Record an entry unless a service has; that of a rolled-back change is gone, so the log itself is queried."""
    try:
        if origin.appended and AuditEntry.objects.filter(request_id=origin.request_id).exists():
            _append_late()
            return
        match = request.resolver_match
        declared = declaration_of(match.func if match else None, origin.method)
        outcome, sentence = _outcome_of(request, answer, origin)
        entry: dict[str, Any] = {
            "action": declared.audited_as,
            "actor": _person_of(request, origin),
            "target": _target_of(declared, match.kwargs if match else {}),
            "outcome": outcome,
            "sentence": sentence,
            "status": answer.status_code,
        }
    except DatabaseError:
        # Not even the user can be determined; only the log file remains.
        logger.exception("%s %s (%s) left no entry in the audit log", origin.method, origin.path, origin.request_id)
        return
    try:
        audit_record(**entry)
        _append_late()
    except DatabaseError:
        logger.exception("%s %s (%s) leaves its entry later", origin.method, origin.path, origin.request_id)
        at = f"It was at {timezone.now():%Y-%m-%d %H:%M:%S} UTC."
        late_entries.append((origin, {**entry, "sentence": f"{english(entry['sentence'])} {at}".strip()}))


def _append_late() -> None:
    """Record the entries that have waited for a database."""
    while late_entries:
        try:
            origin, entry = late = late_entries.popleft()
        except IndexError:  # another thread was faster
            return
        token = bind_origin(origin)
        try:
            audit_record(**entry)
        except DatabaseError:
            late_entries.appendleft(late)
            return
        finally:
            unbind_origin(token)


def _outcome_of(request: HttpRequest, answer: HttpResponseBase, origin: Origin) -> tuple[Outcome, str]:
    """Return the outcome of a request, as far as its response shows it."""
    status = answer.status_code
    if status >= 500:
        return Outcome.FAILED, origin.sentence or SITE_ERROR
    if status >= 400:
        known = SENTENCES.get(status, gettext_noop("It was refused."))
        return Outcome.REFUSED, origin.sentence or _problem_sentence(answer) or known
    where = answer.get("Location", "")
    if status in {301, 308}:
        return Outcome.REFUSED, gettext_noop("The request was sent on to another address.")
    if where.partition("?")[0] == resolve_url(settings.LOGIN_URL):
        return Outcome.REFUSED, SENTENCES[401]
    # The sentence of a refusal is shown on the next page.
    queued = getattr(getattr(request, "_messages", None), "_queued_messages", [])
    errors = [english(one.message) for one in queued if one.level >= messages.ERROR]
    return (Outcome.REFUSED, " ".join(errors)) if errors else (Outcome.DONE, "")


def _problem_sentence(answer: HttpResponseBase) -> str:
    """Return the sentence of a problem document."""
    if answer.get("Content-Type") != CONTENT_TYPE or not isinstance(answer, HttpResponse):
        return ""
    return str(json.loads(answer.content)["detail"])


def _person_of(request: HttpRequest, origin: Origin) -> User | None:
    """Return the user: also with a token without permission, or where the request came from a page of another site."""
    person = getattr(request, "user", None)
    if isinstance(person, User):
        return person
    if origin.token is not None:
        return origin.token.person
    person = get_user(request) if hasattr(request, "session") else None
    return person if isinstance(person, User) else None


def _target_of(declared: Declaration, numbers: dict[str, Any]) -> Target:
    if not numbers or declared.audited_as == Action.REQUEST:
        return NO_TARGET
    kind = declared.target_kind or declared.audited_as.value.partition(".")[0]
    return Target(kind=kind, id=str(numbers.get(f"{kind}_id", numbers.get("pk", ""))))
