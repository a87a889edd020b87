"""Pages for signing in and out."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.declaration import Audience, declare
from accounts.identity_providers.selectors import sign_in_providers
from accounts.models import User
from accounts.second_factor.pending import sign_in_continue
from accounts.sign_in.password_mails import are_password_mails_sent
from accounts.sign_in.security import too_many_failed_logins
from accounts.sign_in.services import refused_sign_in_record
from core.errors import Forbidden, NotFound, Unavailable
from core.language import _, gettext_noop

DIRECTORY_BACKEND = "accounts.sign_in.backends.DirectoryBackend"


@declare(Audience.PUBLIC, audited_as=Action.SIGN_IN, section=None)
class SignIn(LoginView):
    """Sign in; redirects people who are signed in already."""

    template_name = "accounts/sign_in/sign_in.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context, with the providers that have a button, and whether a new password can be set by mail."""
        more = {"providers": sign_in_providers(), "are_mails_sent": are_password_mails_sent()}
        return super().get_context_data(**more, **kwargs)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Redirect people who are signed in: to switch accounts, sign out first."""
        if request.method not in {"GET", "HEAD", "OPTIONS"} and isinstance(request.user, User):
            self._refused(gettext_noop("This browser was signed in already."), actor=request.user)
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in, unless too many wrong passwords came from this address."""
        if too_many_failed_logins(request):
            self._refused(
                gettext_noop("Sign-in from this address is closed after too many wrong passwords."), status=429
            )
            return render(request, "accounts/sign_in/locked.html", {"address": True}, status=429)
        try:
            return super().post(request, *args, **kwargs)
        except (Forbidden, Unavailable) as error:
            # Of a directory: it vouches for the person, who may not sign in here, or does not answer.
            self._refused(error.sentence, status=error.status)
            blank = AuthenticationForm(request, initial={"username": request.POST.get("username", "")})
            return self.render_to_response(
                self.get_context_data(form=blank, problem=error.sentence), status=error.status
            )

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in, or go on to the second factor."""
        person = authenticated_person(form)
        backend: str = person.backend
        method = "LDAP" if backend == DIRECTORY_BACKEND else "password"
        return sign_in_continue(self.request, person, backend=backend, method=method, next_url=self.get_success_url())

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Record the refusal and show the form again."""
        if getattr(self.request, "axes_locked_out", False):
            self._refused(
                gettext_noop("Sign-in of this name from this address is closed after too many wrong passwords."),
                status=429,
            )
        else:
            self._refused(gettext_noop("Name and password do not fit, or the person may not sign in."))
        return super().form_invalid(form)

    def _refused(self, sentence: str, *, status: int | None = None, actor: User | None = None) -> None:
        # An unknown name may be a password typed into the wrong field.
        named = User.objects.filter(username=self.request.POST.get("username", "").replace("\0", "")).first()
        refused_sign_in_record(self.request, named, sentence, status=status, actor=actor)

    def get_redirect_url(self) -> str:  # type: ignore[override]  # the stub has an argument of a later Django
        """Return the redirect target, '' for this page itself, which would loop."""
        where = super().get_redirect_url()
        return "" if where.partition("?")[0] == self.request.path else where


@declare(Audience.EVERYBODY, audited_as=Action.SIGN_OUT, section=None, is_open_without_factor=True)
class SignOut(LogoutView):
    """Sign out and record it."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign out."""
        person = person_of(request)
        with audited(Action.SIGN_OUT, actor=person, target=target_of(person)):
            return super().post(request, *args, **kwargs)


def authenticated_person(form: AuthenticationForm) -> User:
    """Return the user whose name and password were submitted."""
    person = form.get_user()
    if not isinstance(person, User):
        raise NotFound(_("There is no such person."))
    return person
