"""Forms of users, tenants and tokens: they parse the input; the services validate it."""

from __future__ import annotations

from typing import ClassVar

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from accounts.models import Area, Role, Tenant, Token, User
from accounts.sign_in.forms import PASSWORD_HELP
from accounts.sign_in.passwords import MAX_PASSWORD_LENGTH
from accounts.token_services import MAX_TOKEN_DAYS
from core.language import _

NO_AUTOCOMPLETE = {"autocomplete": "off"}


class PersonForm(forms.Form):
    """A user, as edited by administrators."""

    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        widget=forms.TextInput(NO_AUTOCOMPLETE | {"spellcheck": "false"}),
    )
    full_name = forms.CharField(
        label=gettext_lazy("Full name"), max_length=150, required=False, widget=forms.TextInput(NO_AUTOCOMPLETE)
    )
    email = forms.EmailField(
        label=gettext_lazy("E-mail"), max_length=254, required=False, widget=forms.EmailInput(NO_AUTOCOMPLETE)
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=Role.choices,
        initial=Role.USER,
        help_text=gettext_lazy(
            "Administrators may do everything; users see and compose their tenant's devices; viewers only see"
        ),
    )
    tenant = forms.ModelChoiceField(
        label=gettext_lazy("Tenant"),
        queryset=Tenant.objects.all(),
        required=False,
        empty_label=gettext_lazy("none (administrators)"),
        help_text=gettext_lazy("Users and viewers belong to one, administrators to none."),
    )
    active = forms.BooleanField(
        label=gettext_lazy("May sign in"),
        required=False,
        initial=True,
        help_text=gettext_lazy("If unset, the user's sessions end, and tokens do not work until it is set again."),
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

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(NO_AUTOCOMPLETE))


class PasswordForm(forms.Form):
    """One's own new password, typed twice."""

    current = forms.CharField(
        label=gettext_lazy("Current password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new = forms.CharField(
        label=gettext_lazy("New password"),
        strip=False,
        max_length=MAX_PASSWORD_LENGTH,
        help_text=PASSWORD_HELP,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again = forms.CharField(
        label=gettext_lazy("New password again"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean_again(self) -> str:
        """Refuse a repetition that differs from the new password."""
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("new", again):
            raise forms.ValidationError(_("The two new passwords differ. Type them again."))
        return again


TOKEN_SCOPE_CHOICES = [
    (f"{area}:{action}", format_lazy("{}: {}", label, words))
    for area, label in Area.choices
    for action, words in (("read", gettext_lazy("read")), ("write", gettext_lazy("read and write")))
]


class ServiceForm(forms.Form):
    """A service account."""

    username = PersonForm.base_fields["username"]
    full_name = forms.CharField(
        label=gettext_lazy("Purpose"),
        max_length=150,
        required=False,
        help_text=gettext_lazy("Such as 'Nightly benchmarks of the CI'."),
        widget=forms.TextInput(NO_AUTOCOMPLETE),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=[(Role.USER.value, Role.USER.label), (Role.VIEWER.value, Role.VIEWER.label)],
        initial=Role.VIEWER,
    )
    tenant = forms.ModelChoiceField(
        label=gettext_lazy("Tenant"), queryset=Tenant.objects.all(), empty_label=gettext_lazy("choose one")
    )


class TokenForm(forms.Form):
    """A key to the API."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Where it is used, such as 'nightly job'."),
        widget=forms.TextInput(NO_AUTOCOMPLETE),
    )
    scope = forms.ChoiceField(label=gettext_lazy("May"), choices=Token.Scope.choices, initial=Token.Scope.READ)
    days = forms.IntegerField(
        label=gettext_lazy("Days until it expires"), min_value=1, max_value=MAX_TOKEN_DAYS, initial=90
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Only these areas"),
        choices=TOKEN_SCOPE_CHOICES,
        required=False,
        help_text=gettext_lazy("None chosen: every area, as far as 'May' goes. Reading and writing includes reading."),
        widget=forms.CheckboxSelectMultiple,
    )
    addresses = forms.CharField(
        label=gettext_lazy("Only from these addresses"),
        max_length=3000,
        required=False,
        help_text=gettext_lazy(
            "Addresses or networks such as 10.0.0.0/8 or 2001:db8::/32, with spaces between. Empty: everywhere."
        ),
        widget=forms.TextInput(NO_AUTOCOMPLETE | {"spellcheck": "false"}),
    )

    MORE: ClassVar = ("scopes", "addresses")  # shown on demand

    def clean_addresses(self) -> list[str]:
        """Return the typed networks."""
        return str(self.cleaned_data["addresses"]).replace(",", " ").split()

    @property
    def first_fields(self) -> list[forms.BoundField]:
        """The fields that are always shown."""
        return [field for field in self if field.name not in self.MORE]

    @property
    def more_fields(self) -> list[forms.BoundField]:
        """The fields that restrict a token further."""
        return [self[name] for name in self.MORE]

    @property
    def is_more_used(self) -> bool:
        """Whether one of them has a value or an error."""
        return any(field.errors or field.value() for field in self.more_fields)
