"""Pages of the audit log, for administrators."""

from __future__ import annotations

import json
from typing import Final

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.access import person_of
from accounts.audit import exports
from accounts.audit.actions import Action, Outcome
from accounts.audit.models import AuditEntry
from accounts.audit.selectors import AUDIT_FILTERS, AuditFilter, changes_of, find_entries, target_url
from accounts.audit.verification import last_verification, verification_request
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.visibility import row_or_404
from core.errors import Invalid, Unavailable
from core.language import _, gettext_noop

ROWS_PER_PAGE = 50
# Codes of an entry that its pages show as words: how it came, and the role of who it was.
CODES: Final = (
    gettext_noop("page"), gettext_noop("worker"), gettext_noop("command"),
    gettext_noop("administrator"), gettext_noop("user"), gettext_noop("viewer"),
)  # fmt: skip


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry("Audit", "Administration", 3))
def audit(request: HttpRequest) -> HttpResponse:
    """List entries, newest first; the filter and `page` are in the URL."""
    person = person_of(request)
    errors: dict[str, str] = {}
    try:
        rows = find_entries(person, AuditFilter.of(request.GET))
    except Invalid as error:
        errors = error.details["errors"]
        rows = AuditEntry.objects.none()
    given = QueryDict(mutable=True)
    given.update({name: request.GET[name] for name in AUDIT_FILTERS if request.GET.get(name)})
    context = {
        "page": Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "given": given,
        "query": given.urlencode(),
        "errors": errors,
        "actions": [(one.value, _(one.label)) for one in Action],
        "outcomes": [(one.value, _(one.label)) for one in Outcome],
        "verified": last_verification(),
    }
    return render(request, "accounts/audit/audit.html", context, status=400 if errors else 200)


@require_GET
@declare(Audience.ADMINISTRATORS, tested_argument="2")
def audit_entry(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one entry with before and after side by side."""
    entry: AuditEntry = row_or_404(AuditEntry.objects.all(), pk, "entry")
    context = {
        "entry": entry,
        "changes": [
            (name, _as_text(before), _as_text(after), differs) for name, before, after, differs in changes_of(entry)
        ],
        "has_before": entry.before is not None,
        "has_after": entry.after is not None,
        "target_page": target_url(entry.target_kind, entry.target_id),
        "actor_page": target_url("person", str(entry.actor_id or "")),
        "same_request": AuditEntry.objects.filter(request_id=entry.request_id).exclude(pk=entry.pk).count()
        if entry.request_id
        else 0,
    }
    return render(request, "accounts/audit/audit_entry.html", context)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def audit_export(request: HttpRequest) -> HttpResponse:
    """Download the matching entries, `as` csv or jsonl."""
    person = person_of(request)
    return exports.audit_export(by=person, filters=AuditFilter.of(request.GET), kind=request.GET.get("as", "csv"))  # type: ignore[return-value]  # streams


@require_POST
@declare(Audience.ADMINISTRATORS, audited_as=Action.AUDIT_VERIFY_REQUEST)
def audit_verification(request: HttpRequest) -> HttpResponse:
    """Start a verification of the log."""
    person = person_of(request)
    try:
        verification_request(by=person)
    except Unavailable as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, _("The log is being verified. Load this page again in a moment to see the result."))
    return redirect("accounts:audit")


def _as_text(value: object) -> str:
    """Return a value as text."""
    if value is None:
        return _("none")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, list) and all(isinstance(one, (str, int)) for one in value):
        return ", ".join(str(one) for one in value) or _("none")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
