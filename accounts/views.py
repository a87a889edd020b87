"""Pages of people, tenants and one's own account: thin layers over services and selectors.

Secrets that are shown once come with the answer to the POST, uncached and kept nowhere, not with a page after it.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone, translation
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts import services
from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import Audience, MenuEntry, declare
from accounts.forms import PasswordForm, PersonForm, ServiceForm, TenantForm
from accounts.models import BrowserSession, User
from accounts.second_factor.selectors import second_factors_of
from accounts.selectors import find_people, find_tenants
from accounts.visibility import row_or_404
from core.errors import Conflict, Invalid
from core.forms import add_service_errors, refusals_as_messages, service_errors_in
from core.language import _
from core.zones import zone_names

PEOPLE_PER_PAGE = 50


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry("People", "Administration", 1))
def people(request: HttpRequest) -> HttpResponse:
    """List people; `q` and `page` are in the URL."""
    search = request.GET.get("q", "").strip()
    page = Paginator(find_people(search), PEOPLE_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "accounts/people.html", {"search": search, "page": page})


@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.PERSON_ADD, fresh_sign_in=True)
def person_add(request: HttpRequest) -> HttpResponse:
    """Add a person, of `tenant` if it is in the URL; the answer shows the generated password."""
    by = person_of(request)
    if request.method != "POST":
        form = PersonForm(initial={"tenant": request.GET.get("tenant")})
        return render(request, "accounts/person_add.html", {"form": form})
    form = PersonForm(request.POST)
    if form.is_valid():
        try:
            person, password = services.person_add(by=by, **form.cleaned_data)
            return render(
                request, "accounts/password.html", {"subject": person, "password": password, "new": True}, status=201
            )
        except (Invalid, Conflict) as error:
            add_service_errors(form, error)
    return render(request, "accounts/person_add.html", {"form": form}, status=400)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.SERVICE_ADD, fresh_sign_in=True)
def service_add(request: HttpRequest) -> HttpResponse:
    """Add a service account, then show its page."""
    form = ServiceForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        with service_errors_in(form):
            row = services.service_add(by=person_of(request), **form.cleaned_data)
            messages.success(request, _("{username} was added. Make its first token.", username=row.username))
            return redirect("accounts:person", pk=row.pk)
    return render(request, "accounts/service_add.html", {"form": form}, status=400 if form.errors else 200)


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.PERSON_EDIT, fresh_sign_in=True)
def person(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a person."""
    by = person_of(request)
    row = _person(pk)
    form = PersonForm(request.POST) if request.method == "POST" else PersonForm.of(row)
    if form.is_bound and form.is_valid():
        try:
            row = services.person_edit(by=by, person=row, **form.cleaned_data)
        except (Invalid, Conflict) as error:
            add_service_errors(form, error)
        else:
            messages.success(request, _("{username} was saved.", username=row.username))
            # Administrators who give up the role can no longer see this page.
            return redirect("accounts:account") if row.pk == by.pk else redirect("accounts:person", pk=row.pk)
    context = {
        "subject": row,
        "form": form,
        "factors": second_factors_of(row),
        "tokens": row.tokens.select_related("parent"),
        "sessions": BrowserSession.live().filter(person=row),
        "present": request.session.session_key,
        "now": timezone.now(),
        "self": row == by,
    }
    return render(request, "accounts/person.html", context, status=400 if form.errors else 200)


@never_cache
@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.PERSON_PASSWORD, fresh_sign_in=True)
def person_password(request: HttpRequest, pk: int) -> HttpResponse:
    """Reset a person's password; the answer shows the generated one."""
    by = person_of(request)
    row = _person(pk)
    try:
        password = services.person_password_reset(by=by, person=row)
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("accounts:person", pk=row.pk)
    return render(request, "accounts/password.html", {"subject": row, "password": password, "new": False})


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry("Tenants", "Administration", 2))
def tenants(request: HttpRequest) -> HttpResponse:
    """List tenants with what they own or lease; `q` is in the URL."""
    search = request.GET.get("q", "").strip()
    return render(request, "accounts/tenants.html", {"search": search, "rows": find_tenants(search)})


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.TENANT_ADD)
def tenant_add(request: HttpRequest) -> HttpResponse:
    """Add a tenant, then show the page that assigns devices to it."""
    by = person_of(request)
    form = TenantForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            row = services.tenant_add(by=by, name=form.cleaned_data["name"])
        except Invalid as error:
            add_service_errors(form, error)
        else:
            messages.success(request, _("{name} was added. Assign its devices and host ports.", name=row.name))
            # By name: the page shows devices, so it belongs to the layer above.
            return redirect("fabric:tenant", pk=row.pk)
    return render(request, "accounts/tenant_add.html", {"form": form}, status=400 if form.errors else 200)


@require_GET
@declare(Audience.EVERYBODY, section=None)
def account(request: HttpRequest) -> HttpResponse:
    """Show one's own account: sign-ins, password, sessions, tokens."""
    return _account(request)


@sensitive_post_parameters()
@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.PASSWORD_CHANGE, section=None)
def account_password(request: HttpRequest) -> HttpResponse:
    """Change one's own password; this session continues, all others and all tokens end."""
    me = person_of(request)
    form = PasswordForm(request.POST)
    if form.is_valid():
        try:
            services.password_change(
                request=request, person=me, current=form.cleaned_data["current"], new=form.cleaned_data["new"]
            )
        except Invalid as error:
            add_service_errors(form, error)
        else:
            update_session_auth_hash(request, me)
            messages.success(request, _("Your password was changed. Your other sessions and all your tokens ended."))
            return redirect("accounts:account")
    return _account(request, password_form=form)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.PREFERENCE_SET, section=None)
def account_locale(request: HttpRequest) -> HttpResponse:
    """Choose the language of one's pages and the zone of one's times, '' for those of the browser."""
    me = person_of(request)
    with refusals_as_messages(request):
        services.locale_set(me, language=request.POST.get("language", ""), zone=request.POST.get("zone", ""))
        # In the language that was chosen, not that of the page before.
        with translation.override(me.language or translation.get_language()):
            messages.success(request, _("Your language and time zone were changed."))
    return redirect("accounts:account")


def _account(request: HttpRequest, *, password_form: PasswordForm | None = None) -> HttpResponse:
    me = person_of(request)
    context = {
        "password_form": password_form or PasswordForm(),
        "zones": [("", _("Browser’s zone")), *((name, name) for name in sorted(zone_names() | {me.zone} - {""}))],
        "languages": [("", _("Browser’s language")), *settings.LANGUAGES],
        "factors": second_factors_of(me),
        "tokens": me.tokens.select_related("parent"),
        "sessions": BrowserSession.live().filter(person=me),
        "present": request.session.session_key,
        "now": timezone.now(),
    }
    return render(request, "accounts/account.html", context, status=400 if password_form else 200)


def _person(pk: int) -> User:
    row: User = row_or_404(User.objects.select_related("tenant"), pk, "person")
    return row
