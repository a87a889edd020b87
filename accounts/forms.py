"""Forms of users, tenants and tokens: they parse the input; the services validate it."""

from __future__ import annotations

from django import forms

from accounts.models import Role, Tenant, Token, User
from accounts.services import MAX_TOKEN_DAYS

NO_AUTOCOMPLETE = {"autocomplete": "off"}


class PersonForm(forms.Form):
    """A user, as edited by administrators."""

    username = forms.CharField(
        label="User name", max_length=150, widget=forms.TextInput(NO_AUTOCOMPLETE | {"spellcheck": "false"})
    )
    full_name = forms.CharField(
        label="Full name", max_length=150, required=False, widget=forms.TextInput(NO_AUTOCOMPLETE)
    )
    email = forms.EmailField(label="E-mail", max_length=254, required=False, widget=forms.EmailInput(NO_AUTOCOMPLETE))
    role = forms.ChoiceField(
        label="Role",
        choices=Role.choices,
        initial=Role.USER,
        help_text="Administrators may do everything; users see and compose their tenant's devices; viewers only see",
    )
    tenant = forms.ModelChoiceField(
        label="Tenant",
        queryset=Tenant.objects.all(),
        required=False,
        empty_label="none (administrators)",
        help_text="Users and viewers belong to one, administrators to none.",
    )
    active = forms.BooleanField(
        label="May sign in",
        required=False,
        initial=True,
        help_text="If unset, the user's sessions end, and tokens do not work until it is set again.",
    )

    @classmethod
    def of(cls, person: User) -> PersonForm:
        """Return the form filled with a user."""
        return cls(
            initial={
                "username": person.username,
                "full_name": person.get_full_name(),
                "email": person.email,
                "role": person.role,
                "tenant": person.tenant,
                "active": person.is_active,
            }
        )


class TenantForm(forms.Form):
    """A tenant's name."""

    name = forms.CharField(label="Name", max_length=100, widget=forms.TextInput(NO_AUTOCOMPLETE))


class PasswordForm(forms.Form):
    """One's own new password, typed twice."""

    current = forms.CharField(
        label="Current password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new = forms.CharField(
        label="New password",
        strip=False,
        help_text="At least 10 characters, not a common password, and unlike your name.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again = forms.CharField(
        label="New password again", strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )

    def clean_again(self) -> str:
        """Refuse a repetition that differs from the new password."""
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("new", again):
            raise forms.ValidationError("The two new passwords differ. Type them again.")
        return again


class TokenForm(forms.Form):
    """A key to the API."""

    name = forms.CharField(
        label="Name",
        max_length=100,
        help_text="Where it is used, such as 'nightly job'.",
        widget=forms.TextInput(NO_AUTOCOMPLETE),
    )
    scope = forms.ChoiceField(label="May", choices=Token.Scope.choices, initial=Token.Scope.READ)
    days = forms.IntegerField(label="Days until it expires", min_value=1, max_value=MAX_TOKEN_DAYS, initial=90)
