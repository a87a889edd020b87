"""Pages of identity providers, for administrators."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, MenuEntry, declare
from accounts.identity_providers import services
from accounts.identity_providers.forms import FORMS, ClaimsSampleForm, LinkForm, RuleFormSet, rules_of
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider
from accounts.identity_providers.selectors import find_providers
from accounts.visibility import row_or_404
from core.errors import Invalid, Unavailable
from core.forms import add_service_errors, refusals_as_messages, service_errors_in
from core.language import _

PAGE = "accounts:identity_provider"


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry("Identity providers", "Administration", 3))
def providers(request: HttpRequest) -> HttpResponse:
    """List identity providers."""
    context = {"rows": find_providers(), "break_glass": settings.CONFIG.break_glass}
    return render(request, "accounts/identity_providers/providers.html", context)


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@declare(
    Audience.ADMINISTRATORS,
    audited_as=Action.PROVIDER_ADD,
    fresh_sign_in=True,
    tested_queries=("?kind=oidc", "?kind=ldap"),
)
def provider_add(request: HttpRequest) -> HttpResponse:
    """Add a provider of the `kind` in the URL."""
    kind = request.GET.get("kind", "")
    kind = kind if kind in FORMS else IdentityProvider.Kind.OIDC.value
    form = FORMS[kind](request.POST) if request.method == "POST" else FORMS[kind].of(IdentityProvider(kind=kind))
    if form.is_bound and form.is_valid():
        with service_errors_in(form):
            row = services.provider_add(by=person_of(request), kind=kind, **form.values())
            messages.success(request, _("{name} was added. Say by rules who may do what.", name=row.name))
            return redirect("accounts:identity_provider_rules", pk=row.pk)
    context = {"form": form, "kind": IdentityProvider.Kind(kind).label}
    return render(request, "accounts/identity_providers/provider_add.html", context, status=_status(form))


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.PROVIDER_EDIT, fresh_sign_in=True, no_page_test=NO_SAMPLE)
def provider(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change a provider."""
    row = _provider(pk)
    form = FORMS[row.kind](request.POST) if request.method == "POST" else FORMS[row.kind].of(row)
    if form.is_bound and form.is_valid():
        with service_errors_in(form):
            row = services.provider_edit(by=person_of(request), provider=row, **form.values())
            messages.success(request, _("{name} was saved.", name=row.name))
            return redirect(PAGE, pk=row.pk)
    return _page(request, row, form=form)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.PROVIDER_TEST)
def provider_test(request: HttpRequest, pk: int) -> HttpResponse:
    """Test the connection to a provider, as it is stored."""
    row = _provider(pk)
    try:
        messages.success(request, services.provider_test(by=person_of(request), provider=row))
    except Unavailable as error:
        messages.error(request, error.sentence)
    return redirect(PAGE, pk=row.pk)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.PROVIDER_REMOVE, fresh_sign_in=True)
def provider_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a provider."""
    row = _provider(pk)
    services.provider_remove(by=person_of(request), provider=row)
    messages.success(
        request,
        _("{name} was deleted. The accounts of its people stay, and nobody can sign in to them.", name=row.name),
    )
    return redirect("accounts:identity_providers")


@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.PROVIDER_RULES, fresh_sign_in=True, no_page_test=NO_SAMPLE)
def provider_rules(request: HttpRequest, pk: int) -> HttpResponse:
    """Edit the rules of a provider, and try them on a sample before they are saved."""
    row = _provider(pk)
    by = person_of(request)
    is_sent = request.method == "POST"
    stored = [
        {"group": one.group, "role": one.role, "tenant": one.tenant, "ORDER": one.position} for one in row.rules.all()
    ]
    forms_of_rules = (
        RuleFormSet(request.POST, prefix="rules") if is_sent else RuleFormSet(initial=stored, prefix="rules")
    )
    sample = ClaimsSampleForm(request.POST if is_sent else None)
    context: dict[str, Any] = {"provider": row, "rules": forms_of_rules, "sample": sample}
    if is_sent and forms_of_rules.is_valid() and sample.is_valid():
        rules = rules_of(forms_of_rules)
        try:
            if "try" in request.POST:
                text = sample.cleaned_data["sample"]
                context["result"] = services.rules_try(by=by, provider=row, rules=rules, sample=text)
            else:
                services.rules_set(by=by, provider=row, rules=rules)
                messages.success(
                    request,
                    _("The rules of {name} were saved. They count from each person's next sign-in.", name=row.name),
                )
                return redirect("accounts:identity_provider_rules", pk=row.pk)
        except Invalid as error:
            add_service_errors(sample, error)
    wrong = is_sent and "result" not in context
    return render(request, "accounts/identity_providers/rules.html", context, status=400 if wrong else 200)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.IDENTITY_LINK, fresh_sign_in=True)
def link(request: HttpRequest, pk: int) -> HttpResponse:
    """Link a person to a provider."""
    row = _provider(pk)
    form = LinkForm(request.POST)
    if form.is_valid():
        with service_errors_in(form):
            services.identity_link(by=person_of(request), provider=row, **form.cleaned_data)
            messages.success(
                request,
                _(
                    "{person} signs in through {name} from now on.",
                    person=form.cleaned_data["username"],
                    name=row.name,
                ),
            )
            return redirect(PAGE, pk=row.pk)
    return _page(request, row, link_form=form)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.IDENTITY_UNLINK, fresh_sign_in=True)
def unlink(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a person's link."""
    rows = ExternalIdentity.objects.select_related("person", "provider")
    row: ExternalIdentity = row_or_404(rows, pk, "link")
    with refusals_as_messages(request):
        services.identity_unlink(by=person_of(request), identity=row)
        messages.success(
            request,
            _("{person} no longer signs in through {name}.", person=row.person.username, name=row.provider.name),
        )
    return redirect(PAGE, pk=row.provider_id)


def _page(request: HttpRequest, row: IdentityProvider, *, form: Any = None, link_form: Any = None) -> HttpResponse:
    where = reverse("accounts:provider_callback", args=[row.pk])
    context = {
        "provider": row,
        "form": form or FORMS[row.kind].of(row),
        "link_form": link_form or LinkForm(),
        "people": row.identities.select_related("person__tenant").order_by("person__username"),
        "callback": request.build_absolute_uri(where),
    }
    status = _status(link_form or form)
    return render(request, "accounts/identity_providers/provider.html", context, status=status)


def _provider(pk: int) -> IdentityProvider:
    row: IdentityProvider = row_or_404(IdentityProvider.objects.all(), pk, "identity provider")
    return row


def _status(form: Any) -> int:
    return 400 if form is not None and form.errors else 200
