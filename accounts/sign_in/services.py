"""Completing a sign-in, confirming it later, and ending sessions and tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import authenticate, login
from django.contrib.auth.signals import user_logged_in
from django.db import OperationalError, transaction
from django.dispatch import Signal, receiver
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from accounts.audit.actions import Action, Outcome
from accounts.audit.context import complete_origin
from accounts.audit.services import Target, attempt, audit_record, audited, target_of
from accounts.freshness import sign_in_renew
from accounts.models import BrowserSession, User
from accounts.sign_in.devices import device_words
from accounts.sign_in.security import (
    ADDRESS,
    DEVICE,
    break_glass_used,
    client_address,
    is_break_glass,
    sign_in_refused,
)
from core.errors import Forbidden, Invalid, NotFound
from core.language import _, english

logger = logging.getLogger(__name__)

SESSION_METHOD: Final = "sign_in_method"  # key in the session: how its person signed in

# Sent after the commit; browsers' open sockets check their sessions again.
sessions_ended = Signal()


def sign_in_complete(request: HttpRequest, person: User, *, backend: str, method: str) -> None:
    """Sign a person in whose identity was proved, and record it.

    `method` says how, in words: 'password', 'passkey', 'password and TOTP'. The use of the account for emergencies is
    reported. The only caller of Django's `login`. Raises Forbidden for those who may not sign in.
    """
    complete_origin(credential=method)
    if is_break_glass(person):
        with audited(Action.BREAK_GLASS, actor=person, target=target_of(person)):
            break_glass_used.send(User, person=person, address=client_address(request))
    with audited(Action.SIGN_IN, actor=person, target=target_of(person)):
        if not person.is_active or person.is_service:
            raise Forbidden(_("This account cannot sign in. Ask an administrator."))
        login(request, person, backend=backend)
        request.session[SESSION_METHOD] = method


def refused_sign_in_record(
    request: HttpRequest, person: User | None, sentence: str, *, status: int | None = None, actor: User | None = None
) -> None:
    """Record a refused sign-in of a person, None for an unknown one; `actor` is whoever is signed in already."""
    audit_record(
        action=Action.SIGN_IN,
        actor=actor,
        target=target_of(person) if person else Target("person", name="(no person of that name)"),
        outcome=Outcome.REFUSED,
        sentence=sentence,
        status=status,
    )
    if actor is None:
        sign_in_refused.send(User, person=person, address=client_address(request), sentence=english(sentence))


@receiver(user_logged_in)
def describe_session(request: HttpRequest, **kwargs: Any) -> None:
    """Keep what a new session's row shows, and that its person has just proved who they are."""
    request.session[DEVICE] = device_words(request.headers.get("User-Agent", ""))
    request.session[ADDRESS] = client_address(request)
    sign_in_renew(request)


@contextmanager
def sign_in_confirmed(request: HttpRequest, person: User) -> Iterator[None]:
    """Record that a signed-in person proves anew, inside, who they are, or the error with which the proof failed."""
    with attempt(Action.SIGN_IN_CONFIRM, actor=person, target=target_of(person)) as act:
        yield
        with act.change():
            sign_in_renew(request)


@sensitive_variables("password")
def sign_in_confirm(*, request: HttpRequest, person: User, password: str) -> None:
    """Confirm the identity of a signed-in person by the password; wrong ones count towards the lock."""
    with sign_in_confirmed(request, person):
        found = authenticate(request, username=person.username, password=password)
        if found is None or found.pk != person.pk:
            raise Invalid(
                _("This is not your password."), errors={"password": _("This is not your password. Try again.")}
            )


def session_touch(request: HttpRequest) -> None:
    """Record the use of a session, once a minute at most.

    Pages that refresh themselves are no use of it: what counts is a page that was opened, and what was sent.
    """
    row: BrowserSession | None = getattr(request.session, "row", None)
    is_opened = "text/html" in request.headers.get("Accept", "")
    if row is None or row.person_id is None or not (is_opened or request.method not in {"GET", "HEAD", "OPTIONS"}):
        return
    now = timezone.now()
    if now - row.seen_at > BrowserSession.SEEN_PRECISION:
        # A page is shown also where nothing can be written just now.
        with suppress(OperationalError):
            BrowserSession.objects.filter(pk=row.pk).update(seen_at=now)


@transaction.atomic
def sessions_end(*, person: User, keep: str = "") -> int:
    """End the person's sessions except the one with the key `keep`; returns their number."""
    ended = BrowserSession.live().filter(person=person).exclude(pk=keep).count()
    BrowserSession.objects.filter(person=person).exclude(pk=keep).delete()
    transaction.on_commit(lambda: sessions_ended.send(BrowserSession), robust=True)
    return ended


def session_end(*, by: User, number: UUID) -> BrowserSession:
    """End one session: an own one, or anybody's for administrators; returns what it was."""
    with audited(Action.SESSION_END, actor=by) as act:
        row = BrowserSession.live().select_related("person").filter(number=number).first()
        if row is None or row.person is None or (row.person_id != by.pk and not by.is_administrator):
            raise NotFound(_("There is no such session."))
        act.target = target_of(row.person)
        act.before = {"device": row.device, "address": row.address, "began": row.created_at.isoformat()}
        BrowserSession.objects.filter(pk=row.pk).delete()
        transaction.on_commit(lambda: sessions_ended.send(BrowserSession), robust=True)
        logger.info("%s ended a session of %s", by.username, row.person.username)
        return row


def sessions_end_by(*, by: User, person: User, keep: str = "") -> int:
    """End a person's sessions except `keep`: one's own, or anybody's for administrators; returns their number."""
    with audited(Action.SESSIONS_END, actor=by, target=target_of(person)) as act:
        if person.pk != by.pk and not by.is_administrator:
            raise NotFound(_("There is no such person."))
        ended = sessions_end(person=person, keep=keep)
        act.after = {"browsers signed out": ended}
        return ended


def access_end(*, person: User, keep: str = "") -> dict[str, object]:
    """End the person's sessions except `keep` and revoke all tokens; returns what ended, for the audit log."""
    ended = sessions_end(person=person, keep=keep)
    tokens = sorted(person.tokens.values_list("name", flat=True))
    person.tokens.all().delete()
    return {"browsers signed out": ended, "revoked tokens": tokens}


def access_end_by(*, by: User) -> None:
    """End all of one's own sessions and tokens, the present session included."""
    with audited(Action.ACCESS_END, actor=by, target=target_of(by)) as act:
        act.after = access_end(person=by)


def sessions_delete_old() -> None:
    """Delete the rows of sessions that are past their limits."""
    BrowserSession.objects.exclude(pk__in=BrowserSession.live().values("pk")).delete()
