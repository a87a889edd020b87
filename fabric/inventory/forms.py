"""Forms of the inventory: they parse and validate input; the services check permissions and rules."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.forms.models import model_to_dict
from django.http import QueryDict
from django.utils.translation import gettext_lazy

from core.language import _
from fabric.inventory.models import Chassis
from fabric.inventory.services import MAX_PASSWORD_LENGTH, MAX_PEM_LENGTH

PLAIN_INPUT = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class ChassisForm(forms.Form):
    """A chassis: where its BMC is, how to sign in, and which certificate is trusted."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    url = forms.CharField(
        label=gettext_lazy("BMC address"),
        max_length=300,
        help_text=gettext_lazy("Such as https://10.0.0.5 or https://bmc.example:8443."),
        widget=forms.TextInput(attrs={**PLAIN_INPUT, "inputmode": "url"}),
    )
    allow_http = forms.BooleanField(
        label=gettext_lazy("Allow an address without encryption"),
        required=False,
        help_text=gettext_lazy(
            "With http:// anyone on the network path can read name and password, and change the traffic."
        ),
    )
    shares_uuid = forms.BooleanField(
        label=gettext_lazy("It is another chassis, although its UUID is the same"),
        required=False,
        help_text=gettext_lazy(
            "Some services have the UUID of a published example. Confirm it only if you know both chassis: one that "
            "is managed twice is planned twice."
        ),
    )
    username = forms.CharField(
        label=gettext_lazy("Name to sign in with"),
        max_length=100,
        required=False,
        help_text=gettext_lazy("An account of the BMC. Leave it empty for a service without authentication."),
        widget=forms.TextInput(attrs=PLAIN_INPUT),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        max_length=MAX_PASSWORD_LENGTH,
        required=False,
        strip=False,
        help_text=gettext_lazy("Kept encrypted and never shown again."),
        # A browser must neither fill in the user's own password nor save this one.
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    fingerprint = forms.CharField(
        label=gettext_lazy("SHA-256 fingerprint of the certificate"),
        max_length=120,
        required=False,
        help_text=gettext_lazy(
            "Trusts exactly one certificate, whoever signed it. Leave it empty to be shown the one to compare."
        ),
        widget=forms.TextInput(attrs=PLAIN_INPUT),
    )
    ca_pem = forms.CharField(
        label=gettext_lazy("CA certificate (PEM)"),
        max_length=MAX_PEM_LENGTH,
        required=False,
        help_text=gettext_lazy(
            "Trusts what this CA has signed. Without it and without a fingerprint, this system's CAs decide."
        ),
        widget=forms.Textarea(attrs={**PLAIN_INPUT, "rows": 4}),
    )
    enabled = forms.BooleanField(
        label=gettext_lazy("Poll this chassis"),
        required=False,
        initial=True,
        help_text=gettext_lazy("If disabled, the last state stays on display and no requests are sent to the BMC."),
    )

    @classmethod
    def of(cls, chassis: Chassis | None, typed: QueryDict | None = None) -> ChassisForm:
        """Return the form of a chassis or a new one, with the typed values if any; the password is never in it."""
        initial: dict[str, Any] = {}
        if chassis is not None:
            initial = model_to_dict(
                chassis, ["name", "url", "username", "fingerprint", "ca_pem", "enabled", "shares_uuid"]
            )
            # An address without encryption was confirmed when it was entered.
            initial["allow_http"] = chassis.url.startswith("http://")
        form = cls(None if typed is None else _without_userinfo(typed), initial=initial)
        if chassis is not None and chassis.password_encrypted:
            form.fields["password"].help_text = _("Leave it empty to keep the stored one, which is never shown.")
        return form


def _without_userinfo(typed: QueryDict) -> QueryDict:
    """Return the input without a password inside the address, so that no page shows it again."""
    url = typed.get("url", "")
    if "@" not in url:
        return typed
    copy = typed.copy()
    # One '@' stays, so that the address is refused with the sentence that explains it.
    copy["url"] = re.sub(r"^([^:/]*://)?.*@", r"\1@", url, flags=re.DOTALL)
    return copy
