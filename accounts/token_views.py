"""Pages of tokens: one's own, those of service accounts, and all of them for administrators."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, NO_SAMPLE, Audience, MenuEntry, declare
from accounts.forms import TokenForm
from accounts.models import Token, User
from accounts.selectors import TokenFilter, find_tokens
from accounts.token_services import token_create, token_revoke
from accounts.visibility import row_or_404
from core.downloads import csv_download, csv_table
from core.errors import Conflict, Invalid
from core.forms import add_service_errors
from core.language import _

TOKENS_PER_PAGE = 50
CSV_COLUMNS = (
    "person", "kind", "name", "scope", "areas", "addresses", "created_at", "expires_at", "last_used_at", "made_by",
)  # fmt: skip


@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.TOKEN_CREATE, section=None, fresh_sign_in=True)
def token_add(request: HttpRequest) -> HttpResponse:
    """Create a token; the response shows its secret."""
    return _token_form_page(request, person_of(request))


@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.ADMINISTRATORS, audited_as=Action.TOKEN_CREATE, fresh_sign_in=True, no_page_test=NO_SAMPLE)
def service_token_add(request: HttpRequest, pk: int) -> HttpResponse:
    """Create a token of a service account; the response shows its secret."""
    return _token_form_page(request, row_or_404(User.objects.filter(kind="service"), pk, "service account"))


def _token_form_page(request: HttpRequest, person: User) -> HttpResponse:
    form = TokenForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            token, secret = token_create(person=person, by=person_of(request), **form.cleaned_data)
            context = {"token": token, "secret": secret, "subject": person}
            return render(request, "accounts/token.html", context, status=201)
        except (Invalid, Conflict) as error:
            add_service_errors(form, error)
    context = {"form": form, "subject": person}
    return render(request, "accounts/token_add.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.TOKEN_REVOKE, section=None)
def token_revocation(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke a token: one's own, or anybody's for administrators."""
    me = person_of(request)
    token: Token = row_or_404(Token.objects.select_related("person"), pk, "token")
    token_revoke(by=me, token=token)
    messages.success(request, _("The token '{name}' was revoked.", name=token.name))
    if request.POST.get("then") == "tokens" and me.is_administrator:
        return redirect("accounts:tokens")
    if token.person_id == me.pk:
        return redirect("accounts:account")
    return redirect("accounts:person", pk=token.person_id)


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry("Tokens", "Administration", 3))
def tokens(request: HttpRequest) -> HttpResponse:
    """List all tokens; the filter and `page` are in the URL."""
    kept = TokenFilter.of(request.GET)
    page = Paginator(find_tokens(kept), TOKENS_PER_PAGE).get_page(request.GET.get("page"))
    query = request.GET.copy()
    query.pop("page", None)
    context = {
        "kept": kept,
        "page": page,
        "now": timezone.now(),
        "query": query.urlencode(),
        "scopes": Token.Scope.choices,
    }
    return render(request, "accounts/all_tokens.html", context)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def tokens_csv(request: HttpRequest) -> HttpResponseBase:
    """Download the tokens of the filter as CSV."""
    return csv_download(csv_table(CSV_COLUMNS, _csv_rows(TokenFilter.of(request.GET))), "tokens.csv")


def _csv_rows(kept: TokenFilter) -> Iterator[list[object]]:
    for one in find_tokens(kept).iterator(chunk_size=500):
        times = [at and at.isoformat() for at in (one.created_at, one.expires_at, one.last_used_at)]
        made_by = one.parent.name if one.parent else ""
        yield [one.person.username, one.person.kind, one.name, one.scope, " ".join(one.scopes),
               " ".join(one.addresses), *times, made_by]  # fmt: skip
