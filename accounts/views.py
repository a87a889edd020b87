"""Pages of people, tenants and one's own account: thin faces over services and selectors.

Secrets that are shown once come with the answer to the POST, uncached and kept nowhere, not with a page after it.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts import services
from accounts.access import administrator_of, person_of
from accounts.addresses import client_address
from accounts.audit.actions import Action, Outcome
from accounts.audit.context import note_credential
from accounts.audit.services import Target, audit_record, audited, target_of
from accounts.forms import PasswordForm, PersonForm, TenantForm, TokenForm, tell
from accounts.guesses import too_many_guesses
from accounts.models import Token, User
from accounts.selectors import people_found, tenants_found
from accounts.signals import sign_in_refused
from falconweb.errors import Conflict, FalconWebError, Invalid, NotFound

PEOPLE_A_PAGE = 50


class SignIn(LoginView):
    """Sign in; whoever is, goes on at once."""

    template_name = "accounts/sign_in.html"
    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Send on whoever is signed in: to sign in as somebody else, one signs out first."""
        if request.method not in {"GET", "HEAD", "OPTIONS"} and isinstance(request.user, User):
            self._refused("This browser was signed in already.", actor=request.user)
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in, unless too many wrong passwords came from this address."""
        if too_many_guesses(request):
            self._refused("Sign-in from this address is closed after too many wrong passwords.", status=429)
            return render(request, "accounts/locked.html", {"address": True}, status=429)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in, and keep that it was done."""
        note_credential("password")
        person = person_signing_in(form)
        with audited(Action.SIGN_IN, actor=person, target=target_of(person)):
            return super().form_valid(form)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Keep that it was refused, and show the form again."""
        if getattr(self.request, "axes_locked_out", False):
            self._refused(
                "Sign-in of this name from this address is closed after too many wrong passwords.", status=429
            )
        else:
            self._refused("Name and password do not fit, or the person may not sign in.")
        return super().form_invalid(form)

    def _refused(self, sentence: str, *, status: int | None = None, actor: User | None = None) -> None:
        # A name that is nobody's may be a password typed into the wrong field.
        named = User.objects.filter(username=self.request.POST.get("username", "").replace("\0", "")).first()
        audit_record(
            action=Action.SIGN_IN,
            actor=actor,
            target=target_of(named) if named else Target("person", name="(no person of that name)"),
            outcome=Outcome.REFUSED,
            sentence=sentence,
            status=status,
        )
        if actor is None:
            sign_in_refused.send(type(self), person=named, address=client_address(self.request), sentence=sentence)

    def get_redirect_url(self) -> str:  # type: ignore[override]  # the stub has an argument of a later Django
        """Return where to go on to, '' for this page itself: that would lead in a circle."""
        where = super().get_redirect_url()
        return "" if where.partition("?")[0] == self.request.path else where


class SignOut(LogoutView):
    """Sign out, and keep that it was done."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign out."""
        person = person_of(request)
        with audited(Action.SIGN_OUT, actor=person, target=target_of(person)):
            return super().post(request, *args, **kwargs)


def person_signing_in(form: AuthenticationForm) -> User:
    """Return whose name and password were given."""
    person = form.get_user()
    if not isinstance(person, User):
        raise NotFound("There is no such person.")
    return person


@require_GET
def people(request: HttpRequest) -> HttpResponse:
    """List people; `q` and `page` are in the URL."""
    administrator_of(request)
    search = request.GET.get("q", "").strip()
    page = Paginator(people_found(search), PEOPLE_A_PAGE).get_page(request.GET.get("page"))
    return render(request, "accounts/people.html", {"search": search, "page": page})


@never_cache
@require_http_methods(["GET", "POST"])
def person_add(request: HttpRequest) -> HttpResponse:
    """Add a person; the answer shows the generated password."""
    by = administrator_of(request)
    if request.method != "POST":
        return render(request, "accounts/person_add.html", {"form": PersonForm()})
    form = PersonForm(request.POST)
    if form.is_valid():
        try:
            person, password = services.person_add(by=by, **form.cleaned_data)
            return render(
                request, "accounts/password.html", {"subject": person, "password": password, "new": True}, status=201
            )
        except (Invalid, Conflict) as error:
            tell(form, error)
    return render(request, "accounts/person_add.html", {"form": form}, status=400)


@require_http_methods(["GET", "POST"])
def person(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a person."""
    by = administrator_of(request)
    row = _person(pk)
    form = PersonForm(request.POST) if request.method == "POST" else PersonForm.of(row)
    if form.is_bound and form.is_valid():
        try:
            row = services.person_edit(by=by, person=row, **form.cleaned_data)
        except (Invalid, Conflict) as error:
            tell(form, error)
        else:
            messages.success(request, f"{row.username} is saved.")
            # Administrators who give up the role may see this page no more.
            return redirect("accounts:account") if row.pk == by.pk else redirect("accounts:person", pk=row.pk)
    context = {"subject": row, "form": form, "tokens": row.tokens.all(), "now": timezone.now(), "self": row == by}
    return render(request, "accounts/person.html", context, status=400 if form.errors else 200)


@never_cache
@require_POST
def person_password(request: HttpRequest, pk: int) -> HttpResponse:
    """Reset a person's password; the answer shows the generated one."""
    by = administrator_of(request)
    row = _person(pk)
    try:
        password = services.person_password_reset(by=by, person=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("accounts:person", pk=row.pk)
    return render(request, "accounts/password.html", {"subject": row, "password": password, "new": False})


@require_GET
def tenants(request: HttpRequest) -> HttpResponse:
    """List tenants with what they hold; `q` is in the URL."""
    administrator_of(request)
    search = request.GET.get("q", "").strip()
    return render(request, "accounts/tenants.html", {"search": search, "rows": tenants_found(search)})


@require_http_methods(["GET", "POST"])
def tenant_add(request: HttpRequest) -> HttpResponse:
    """Add a tenant, and go on to what it is to hold."""
    by = administrator_of(request)
    form = TenantForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            row = services.tenant_add(by=by, name=form.cleaned_data["name"])
        except Invalid as error:
            tell(form, error)
        else:
            messages.success(request, f"{row.name} is added. Choose what it holds.")
            # By name: the page shows devices too, so that it belongs to the room above.
            return redirect("fabric:tenant", pk=row.pk)
    return render(request, "accounts/tenant_add.html", {"form": form}, status=400 if form.errors else 200)


@require_GET
def account(request: HttpRequest) -> HttpResponse:
    """Show one's own account: sign-ins, password, tokens."""
    return _account(request)


@sensitive_post_parameters()
@require_POST
def account_password(request: HttpRequest) -> HttpResponse:
    """Change one's own password; this session goes on, all others end."""
    me = person_of(request)
    form = PasswordForm(request.POST)
    if form.is_valid():
        try:
            services.password_change(
                request=request, person=me, current=form.cleaned_data["current"], new=form.cleaned_data["new"]
            )
        except Invalid as error:
            tell(form, error)
        else:
            update_session_auth_hash(request, me)
            messages.success(request, "Your password is changed. Your other sessions have ended.")
            return redirect("accounts:account")
    return _account(request, password_form=form)


@never_cache
@require_POST
def token_add(request: HttpRequest) -> HttpResponse:
    """Make a token; the answer shows its secret."""
    form = TokenForm(request.POST)
    if form.is_valid():
        try:
            token, secret = services.token_create(person=person_of(request), **form.cleaned_data)
            return render(request, "accounts/token.html", {"token": token, "secret": secret}, status=201)
        except FalconWebError as error:
            tell(form, error)
    return _account(request, token_form=form)


@require_POST
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke a token: one's own, or anybody's for administrators."""
    me = person_of(request)
    token = Token.objects.select_related("person").filter(pk=pk).first()
    if token is None:
        raise NotFound("There is no such token.")
    services.token_revoke(by=me, token=token)
    messages.success(request, f"The token '{token.name}' is revoked.")
    if token.person_id == me.pk:
        return redirect("accounts:account")
    return redirect("accounts:person", pk=token.person_id)


def _account(
    request: HttpRequest, *, password_form: PasswordForm | None = None, token_form: TokenForm | None = None
) -> HttpResponse:
    context = {
        "password_form": password_form or PasswordForm(),
        "token_form": token_form or TokenForm(),
        "tokens": person_of(request).tokens.all(),
        "now": timezone.now(),
    }
    return render(request, "accounts/account.html", context, status=400 if password_form or token_form else 200)


def _person(pk: int) -> User:
    row = User.objects.select_related("tenant").filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such person.")
    return row
