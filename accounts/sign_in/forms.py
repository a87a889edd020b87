"""Forms of sign-in: the confirmation of it, and new passwords."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import SetPasswordForm
from django.utils.translation import gettext_lazy

from accounts.sign_in.passwords import MAX_PASSWORD_LENGTH

PASSWORD_HELP = gettext_lazy(
    "At least 12 characters: several words are good. Common passwords and your name are refused."
)


class ConfirmationForm(forms.Form):
    """The password of who is signed in."""

    password = forms.CharField(
        label=gettext_lazy("Password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )


class ForgottenForm(forms.Form):
    """A user name or an e-mail address."""

    name = forms.CharField(
        label=gettext_lazy("User name or e-mail"),
        max_length=254,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True}),
    )


class NewPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # it takes none when it runs
    """A new password, typed twice; the service decides whether it is accepted."""

    new_password1 = forms.CharField(
        label=gettext_lazy("New password"),
        strip=False,
        max_length=MAX_PASSWORD_LENGTH,
        help_text=PASSWORD_HELP,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    new_password2 = forms.CharField(
        label=gettext_lazy("New password again"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    error_messages = {"password_mismatch": gettext_lazy("The two new passwords differ. Type them again.")}
