"""Forms of second factors."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from accounts.second_factor.webauthn import MAX_ANSWER_LENGTH


class PasskeyNameForm(forms.Form):
    """The name of a passkey."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("What keeps it, such as 'laptop' or 'blue security key'."),
        widget=forms.TextInput({"autocomplete": "off"}),
    )


class PasskeyAnswerForm(forms.Form):
    """What the browser answers when a passkey was made or used."""

    credential = forms.CharField(max_length=MAX_ANSWER_LENGTH)


class CodeForm(forms.Form):
    """A code of an authenticator app, or a recovery code."""

    code = forms.CharField(
        label=gettext_lazy("Code"),
        max_length=40,
        help_text=gettext_lazy("The six digits of your authenticator app, or one of your recovery codes."),
        widget=forms.TextInput({"autocomplete": "one-time-code", "spellcheck": "false", "autocapitalize": "none"}),
    )


class NewTotpDeviceForm(forms.Form):
    """A new authenticator app."""

    code = forms.CharField(
        label=gettext_lazy("Code that the app shows"),
        max_length=10,
        widget=forms.TextInput({"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )
