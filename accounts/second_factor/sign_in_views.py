"""The second step of a sign-in, and sign-ins with a passkey alone."""

from __future__ import annotations

import json

from django.contrib import messages
from django.contrib.auth.signals import user_login_failed
from django.contrib.auth.views import RedirectURLMixin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, declare
from accounts.models import User
from accounts.second_factor.forms import CodeForm, PasskeyAnswerForm
from accounts.second_factor.pending import PendingSignIn, pending_sign_in, sign_in_finish
from accounts.second_factor.services import code_use, passkey_person, passkey_use
from accounts.second_factor.webauthn import RelyingParty, request_options
from accounts.sign_in.security import count_failed_login, is_locked, too_many_failed_logins
from accounts.sign_in.services import refused_sign_in_record
from core.errors import FalconWebError, Invalid
from core.language import _, _n, english, gettext_noop

LOCKED = gettext_noop("Sign-in is closed after too many wrong passwords or codes.")
PASSKEY_BACKEND = "accounts.sign_in.backends.LocalBackend"
PASSKEY_PURPOSE = "sign in"


@sensitive_post_parameters("code", "credential")
@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.PUBLIC, audited_as=Action.SIGN_IN, section=None, no_page_test=NO_SAMPLE)
def second_factor(request: HttpRequest) -> HttpResponse:
    """Ask for the second factor of a person whose password was right."""
    pending = pending_sign_in(request)
    if pending is None:
        if request.method == "POST":
            messages.error(request, _("That took longer than five minutes. Sign in again."))
        return redirect("accounts:sign_in")
    # Bound to this session and person: an answer that was made for another sign-in is none.
    purpose = f"second step {pending.person.pk} {request.session.session_key}"
    form = CodeForm(request.POST if "code" in request.POST else None)
    if request.method == "POST":
        if is_locked(request, pending.person):
            refused_sign_in_record(request, pending.person, LOCKED, status=429)
            return render(request, "accounts/sign_in/locked.html", status=429)
        try:
            factor = _factor_used(request, pending, form, purpose)
        except Invalid as error:
            _count_refused(request, pending.person, error.sentence)
            if form.is_bound:
                form.add_error(None, error.sentence)
            else:
                messages.error(request, error.sentence)
        else:
            method = f"{pending.method} and {factor}"
            sign_in_finish(request, pending.person, backend=pending.backend, method=method)
            if factor == "recovery code":
                left = pending.person.recovery_codes.filter(used_at=None).count()
                messages.warning(
                    request,
                    _n(
                        "You have {count} recovery code left. Your account page makes new ones.",
                        "You have {count} recovery codes left. Your account page makes new ones.",
                        left,
                    ),
                )
            return redirect(pending.next_url)
    passkeys = list(pending.person.passkeys.all())
    options = request_options(RelyingParty.of(request), purpose, known=passkeys) if passkeys else None
    context = {"form": form, "person": pending.person, "options": options and json.dumps(options)}
    status = 400 if request.method == "POST" else 200
    return render(request, "accounts/second_factor/second_factor.html", context, status=status)


def _factor_used(request: HttpRequest, pending: PendingSignIn, form: CodeForm, purpose: str) -> str:
    """Use the factor of a request; returns which. Raises Invalid."""
    answer = PasskeyAnswerForm(request.POST)
    if answer.is_valid():
        party = RelyingParty.of(request)
        passkey_use(party=party, purpose=purpose, answer=answer.cleaned_data["credential"], person=pending.person)
        return "passkey"
    if not form.is_valid():
        raise Invalid(_("Type a code, or use a passkey."))
    return code_use(person=pending.person, code=form.cleaned_data["code"])


@method_decorator(never_cache, name="dispatch")
@declare(Audience.PUBLIC, audited_as=Action.SIGN_IN, section=None, no_page_test=NO_PAGE)
class PasskeySignIn(RedirectURLMixin, View):
    """Sign in with a passkey and nothing else: it names its person, and has verified them."""

    next_page = "/"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Return what the browser is asked for."""
        return JsonResponse(request_options(RelyingParty.of(request), PASSKEY_PURPOSE))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Sign in with the browser's answer."""
        if isinstance(request.user, User):
            refused_sign_in_record(
                request, None, gettext_noop("This browser was signed in already."), actor=request.user
            )
            return redirect("/")
        form = PasskeyAnswerForm(request.POST)
        answer = form.cleaned_data["credential"] if form.is_valid() else ""
        named = passkey_person(answer)
        if is_locked(request, named) if named else too_many_failed_logins(request):
            refused_sign_in_record(request, named, LOCKED, status=429)
            return render(request, "accounts/sign_in/locked.html", {"address": named is None}, status=429)
        try:
            person = passkey_use(party=RelyingParty.of(request), purpose=PASSKEY_PURPOSE, answer=answer)
        except FalconWebError as error:
            _count_refused(request, named, error.sentence)
            messages.error(request, error.sentence)
            return redirect("accounts:sign_in")
        sign_in_finish(request, person, backend=PASSKEY_BACKEND, method="passkey")
        return redirect(self.get_success_url())


def _count_refused(request: HttpRequest, person: User | None, sentence: str) -> None:
    """Count a refusal as a wrong password is counted, and record it."""
    if person is None:
        count_failed_login(None, request)
    else:
        user_login_failed.send(__name__, credentials={"username": person.username}, request=request)
    if getattr(request, "axes_locked_out", False):  # now; axes makes the page
        refused_sign_in_record(request, person, f"{english(sentence)} {LOCKED}", status=429)
    else:
        refused_sign_in_record(request, person, sentence)
