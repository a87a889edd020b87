"""A page with each component and sample arguments, only with DEBUG."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.declaration import Audience, declare

STATES = (("running", "Running"), ("done", "Done"), ("failed", "Failed"))


class SampleForm(forms.Form):
    """A field of each kind."""

    focused = ""
    name = forms.CharField(label="Name", help_text="Letters and digits.")
    kind = forms.ChoiceField(label="Kind", choices=STATES, required=False)
    enabled = forms.BooleanField(label="Enabled", required=False, help_text="Takes effect at once.")
    targets = forms.MultipleChoiceField(label="Targets", choices=STATES, widget=forms.CheckboxSelectMultiple)

    def clean(self) -> dict[str, Any]:
        """Refuse the form as a whole."""
        raise forms.ValidationError("The two do not match.")


def samples() -> dict[str, Any]:
    """Return the arguments of the components on the page."""
    wrong = SampleForm({"name": "", "kind": "done"}, auto_id="wrong_%s")
    wrong.is_valid()
    return {
        "earlier": timezone.now() - timedelta(minutes=12),
        "page": Paginator(range(100), 25).get_page(2),
        "states": STATES,
        "filters": {"sort": "name"},
        "sorts": {"speed": "sort=speed", "errors": "sort=errors"},
        "errors": {"until": "Give a time as 2026-01-31 12:00."},
        "form": SampleForm(auto_id="sample_%s"),
        "wrong": wrong,
        "severities": [
            {"severity": severity, "state": state}
            for severity, state in (("Critical", "firing"), ("Warning", "firing"), ("Warning", "resolved"))
        ],
        "looks": ["waiting", "running", "done", "failed", "cancelled"],
    }


@require_GET
@declare(Audience.EVERYBODY, section=None)
def patterns(request: HttpRequest) -> HttpResponse:
    """Show every component."""
    return render(request, "falconweb/patterns.html", samples())
