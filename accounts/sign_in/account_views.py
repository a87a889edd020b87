"""Pages of a signed-in person's sessions, the confirmation of a sign-in, and new passwords by mail."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.views import INTERNAL_RESET_SESSION_TOKEN, PasswordResetConfirmView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, declare
from accounts.identity_providers.models import IdentityProvider
from accounts.models import User
from accounts.second_factor.forms import PasskeyAnswerForm
from accounts.second_factor.services import passkey_confirm
from accounts.second_factor.webauthn import RelyingParty, request_options
from accounts.sign_in import services
from accounts.sign_in.forms import ConfirmationForm, ForgottenForm, NewPasswordForm
from accounts.sign_in.password_mails import are_password_mails_sent, password_mail_request, password_set_by_mail
from accounts.sign_in.security import too_many_failed_logins
from accounts.visibility import row_or_404
from core.errors import Invalid, NotFound
from core.forms import refusals_as_messages, service_errors_in
from core.language import _, _n
from core.local_pages import local_page


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.SIGN_IN_CONFIRM, section=None, is_open_without_factor=True)
def confirmation(request: HttpRequest) -> HttpResponse:
    """Ask for a proof of who this is before what needs a recent sign-in, then return to `next`."""
    where = local_page(request.POST.get("next", request.GET.get("next", ""))) or resolve_url("accounts:account")
    person, purpose = person_of(request), f"confirm {request.session.session_key}"
    form = ConfirmationForm(request.POST if "password" in request.POST else None)
    if request.method == "POST":
        if too_many_failed_logins(request):
            return render(request, "accounts/sign_in/locked.html", {"address": True}, status=429)
        with service_errors_in(form):
            if form.is_bound and form.is_valid():
                services.sign_in_confirm(request=request, person=person, password=form.cleaned_data["password"])
                return redirect(where)
        passkey = PasskeyAnswerForm(request.POST)
        with refusals_as_messages(request):
            if passkey.is_valid():
                passkey_confirm(request, person, purpose=purpose, answer=passkey.cleaned_data["credential"])
                return redirect(where)
    passkeys = list(person.passkeys.all())
    options = json.dumps(request_options(RelyingParty.of(request), purpose, known=passkeys)) if passkeys else ""
    provider = IdentityProvider.objects.filter(identities__person=person).first()
    has_password = person.has_usable_password() or (provider is not None and provider.is_directory)
    context = {"form": form, "next": where, "options": options, "provider": provider, "has_password": has_password}
    status = 400 if request.method == "POST" else 200
    return render(request, "accounts/sign_in/confirmation.html", context, status=status)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.SESSION_END, section=None)
def session_end(request: HttpRequest, number: UUID) -> HttpResponse:
    """End a session: an own one, or anybody's for administrators."""
    me = person_of(request)
    row = services.session_end(by=me, number=number)
    messages.success(request, _("The session of {device} was ended.", device=row.device or _("an unknown device")))
    if row.person_id == me.pk:
        return redirect("accounts:account")
    return redirect("accounts:person", pk=row.person_id)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.SESSIONS_END, section=None)
def sessions_end(request: HttpRequest) -> HttpResponse:
    """End all own sessions but the present one."""
    me = person_of(request)
    ended = services.sessions_end_by(by=me, person=me, keep=request.session.session_key or "")
    messages.success(request, _n("{count} other session ended.", "{count} other sessions ended.", ended))
    return redirect("accounts:account")


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.SESSIONS_END)
def person_sessions_end(request: HttpRequest, pk: int) -> HttpResponse:
    """End all sessions of a person; of one's own, all but the present one."""
    me = person_of(request)
    person: User = row_or_404(User.objects.all(), pk, "person")
    keep = request.session.session_key or "" if person == me else ""
    ended = services.sessions_end_by(by=me, person=person, keep=keep)
    messages.success(
        request,
        _n(
            "{count} session of {person} ended.",
            "{count} sessions of {person} ended.",
            ended,
            person=person.username,
        ),
    )
    return redirect("accounts:person", pk=pk)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.ACCESS_END, section=None)
def access_end(request: HttpRequest) -> HttpResponse:
    """Sign out everywhere, here too, and revoke all tokens."""
    services.access_end_by(by=person_of(request))
    logout(request)
    messages.success(request, _("You are signed out everywhere, and all your tokens are revoked."))
    return redirect("accounts:sign_in")


@require_http_methods(["GET", "POST"])
@declare(Audience.PUBLIC, audited_as=Action.PASSWORD_FORGOTTEN, section=None, no_page_test=NO_SAMPLE)
def password_forgotten(request: HttpRequest) -> HttpResponse:
    """Request a mail to set a new password; the answer is the same for every name."""
    if not are_password_mails_sent():
        raise NotFound(_("This site sends no mail. Ask an administrator for a new password."))
    form = ForgottenForm(request.POST if request.method == "POST" else None)
    is_sent = form.is_bound and form.is_valid()
    if is_sent:
        password_mail_request(request=request, name=form.cleaned_data["name"])
    context = {"form": form, "is_sent": is_sent}
    return render(request, "accounts/sign_in/forgotten.html", context, status=400 if form.errors else 200)


@declare(Audience.PUBLIC, audited_as=Action.PASSWORD_SET, section=None, no_page_test=NO_SAMPLE)
class PasswordNew(PasswordResetConfirmView):
    """Set a new password by the link of a mail, which moves into the session at once."""

    template_name = "accounts/sign_in/new_password.html"
    form_class = NewPasswordForm
    success_url = reverse_lazy("accounts:sign_in")
    reset_url_token = "new"  # noqa: S105 - stands for the token in the address

    def get_user(self, uidb64: str) -> User | None:
        """Return the person of the link, None where there is none who may sign in."""
        person = super().get_user(uidb64)
        return person if isinstance(person, User) and person.is_active and not person.is_service else None

    def form_valid(self, form: SetPasswordForm[Any]) -> HttpResponse:
        """Set the password."""
        token = self.request.session.get(INTERNAL_RESET_SESSION_TOKEN, "")
        try:
            password_set_by_mail(person=form.user, token=token, new=form.cleaned_data["new_password1"])
        except Invalid as error:
            errors = error.details.get("errors", {})
            form.add_error("new_password1" if errors else None, errors.get("new", error.sentence))
            return self.form_invalid(form)
        # Also where this browser was signed in: the sessions of the person have ended.
        logout(self.request)
        messages.success(self.request, _("Your password was changed. Sign in with it."))
        return redirect(self.get_success_url())

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        """Show the page: 400 with errors, and where the link does not work."""
        is_good = self.validlink and not context["form"].errors
        return super().render_to_response(context, status=200 if is_good else 400, **options)
