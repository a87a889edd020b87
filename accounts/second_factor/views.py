"""Pages of one's own second factors, and their reset by administrators."""

from __future__ import annotations

import json
from urllib.parse import quote

import segno
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_SAMPLE, Audience, declare
from accounts.models import User
from accounts.second_factor import services
from accounts.second_factor.forms import NewTotpDeviceForm, PasskeyAnswerForm, PasskeyNameForm
from accounts.second_factor.models import Passkey
from accounts.second_factor.selectors import second_factors_of
from accounts.second_factor.webauthn import RelyingParty
from accounts.visibility import row_or_404
from core import credentials
from core.errors import Conflict, Invalid
from core.forms import refusals_as_messages, service_errors_in
from core.language import _

NEW_PASSKEY = "new_passkey"  # key in the session: the name of the passkey that the browser is asked for
NEW_TOTP_SECRET = "new_totp_secret"  # noqa: S105 - key in the session: the secret, encrypted, until a code confirms it


@require_GET
@declare(Audience.EVERYBODY, section=None, is_open_without_factor=True)
def second_factor_enrol(request: HttpRequest) -> HttpResponse:
    """Show the ways to set up a second factor to a person whose role needs one."""
    return render(request, "accounts/second_factor/enrol.html", {"factors": second_factors_of(person_of(request))})


@never_cache
@require_http_methods(["GET", "POST"])
@declare(
    Audience.EVERYBODY, audited_as=Action.PASSKEY_ADD, section=None, is_open_without_factor=True, fresh_sign_in=True
)
def passkey_add(request: HttpRequest) -> HttpResponse:
    """Ask for a name, then let the browser make a passkey."""
    form = PasskeyNameForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        request.session[NEW_PASSKEY] = form.cleaned_data["name"]
        options = services.passkey_options(
            person=person_of(request), party=RelyingParty.of(request), purpose=_purpose(request)
        )
        context = {"options": json.dumps(options), "name": form.cleaned_data["name"]}
        return render(request, "accounts/second_factor/passkey_create.html", context)
    return render(
        request, "accounts/second_factor/passkey_add.html", {"form": form}, status=400 if form.errors else 200
    )


@sensitive_post_parameters("credential")
@never_cache
@require_POST
@declare(
    Audience.EVERYBODY, audited_as=Action.PASSKEY_ADD, section=None, is_open_without_factor=True, fresh_sign_in=True
)
def passkey_save(request: HttpRequest) -> HttpResponse:
    """Add the passkey that the browser has made."""
    me, form = person_of(request), PasskeyAnswerForm(request.POST)
    name = request.session.pop(NEW_PASSKEY, "")
    answer = form.cleaned_data["credential"] if form.is_valid() else ""
    try:
        codes = services.passkey_add(
            person=me, party=RelyingParty.of(request), purpose=_purpose(request), name=name, answer=answer
        )
    except (Invalid, Conflict) as error:
        messages.error(request, error.sentence)
        return redirect("accounts:passkey_add")
    return _added(request, _("The passkey '{name}' was added.", name=name), codes)


@require_http_methods(["GET", "POST"])
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.PASSKEY_RENAME, section=None, no_page_test=NO_SAMPLE)
def passkey(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one's own passkey, and rename it."""
    row = _passkey(request, pk)
    form = PasskeyNameForm(request.POST if request.method == "POST" else None, initial={"name": row.name})
    if form.is_bound and form.is_valid():
        with service_errors_in(form):
            services.passkey_rename(person=person_of(request), passkey=row, name=form.cleaned_data["name"])
            messages.success(request, _("The passkey is called '{name}' now.", name=row.name))
            return redirect("accounts:account")
    context = {"passkey": row, "form": form}
    return render(request, "accounts/second_factor/passkey.html", context, status=400 if form.errors else 200)


@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.PASSKEY_REMOVE, section=None, fresh_sign_in=True)
def passkey_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove one's own passkey."""
    row = _passkey(request, pk)
    with refusals_as_messages(request):
        services.passkey_remove(person=person_of(request), passkey=row)
        messages.success(
            request, _("The passkey '{name}' was removed here. Delete it on its device, too.", name=row.name)
        )
    return redirect("accounts:account")


@sensitive_post_parameters("code")
@never_cache
@require_http_methods(["GET", "POST"])
@declare(Audience.EVERYBODY, audited_as=Action.TOTP_ADD, section=None, is_open_without_factor=True, fresh_sign_in=True)
def authenticator(request: HttpRequest) -> HttpResponse:
    """Set an authenticator app up."""
    me = person_of(request)
    kept = request.session.get(NEW_TOTP_SECRET)
    secret = credentials.decrypt(kept) if kept else services.totp_secret_make()
    form = NewTotpDeviceForm(request.POST if request.method == "POST" else None)
    if kept and form.is_bound and form.is_valid():
        with service_errors_in(form):
            codes = services.totp_add(person=me, secret=secret, code=form.cleaned_data["code"])
            del request.session[NEW_TOTP_SECRET]
            return _added(request, _("The authenticator app was added."), codes)
    request.session[NEW_TOTP_SECRET] = kept or credentials.encrypt(secret)
    picture = segno.make(services.totp_address(me, secret), micro=False).svg_data_uri(scale=5, light="white")
    context = {"form": form, "secret": secret, "picture": picture}
    status = 400 if request.method == "POST" else 200
    return render(request, "accounts/second_factor/authenticator_add.html", context, status=status)


@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.TOTP_REMOVE, section=None, fresh_sign_in=True)
def authenticator_remove(request: HttpRequest) -> HttpResponse:
    """Remove one's own authenticator app."""
    with refusals_as_messages(request):
        services.totp_remove(person=person_of(request))
        messages.success(request, _("The authenticator app was removed."))
    return redirect("accounts:account")


@never_cache
@require_POST
@declare(Audience.EVERYBODY, audited_as=Action.RECOVERY_CODES_RENEW, section=None, fresh_sign_in=True)
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """Replace one's recovery codes; the answer shows the new ones."""
    try:
        codes = services.recovery_codes_renew(person=person_of(request))
    except Conflict as error:
        messages.error(request, error.sentence)
        return redirect("accounts:account")
    return _show_codes(request, _("New recovery codes"), codes)


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.SECOND_FACTOR_RESET, fresh_sign_in=True)
def person_second_factor(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove the second factors of a person who has lost them."""
    row: User = row_or_404(User.objects.all(), pk, "person")
    with refusals_as_messages(request):
        services.second_factor_reset(by=person_of(request), person=row)
        messages.success(
            request,
            _("{username} signs in with the password alone now, and can add new factors.", username=row.username),
        )
    return redirect("accounts:person", pk=row.pk)


def _purpose(request: HttpRequest) -> str:
    return f"enrol {person_of(request).pk} {request.session.session_key}"


def _passkey(request: HttpRequest, pk: int) -> Passkey:
    row: Passkey = row_or_404(person_of(request).passkeys.all(), pk, "passkey")
    return row


def _added(request: HttpRequest, sentence: str, codes: list[str]) -> HttpResponse:
    """Show the first recovery codes of a person; those who have some go back to their account."""
    if codes:
        return _show_codes(request, sentence, codes)
    messages.success(request, sentence)
    return redirect("accounts:account")


def _show_codes(request: HttpRequest, sentence: str, codes: list[str]) -> HttpResponse:
    heading = _("Recovery codes of {person} at {site}", person=person_of(request).username, site=request.get_host())
    text = "\n".join([heading, *codes, ""])
    context = {"sentence": sentence, "text": text, "download": f"data:text/plain,{quote(text)}"}
    return render(request, "accounts/second_factor/new_recovery_codes.html", context, status=201)
