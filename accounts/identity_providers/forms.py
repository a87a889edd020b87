"""Forms of identity providers: they parse the input; the services validate it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.utils.translation import gettext_lazy

from accounts.forms import NO_AUTOCOMPLETE
from accounts.identity_providers.models import IdentityProvider
from accounts.identity_providers.rules import GroupRule
from accounts.models import Role, Tenant

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

EMPTY_RULES: Final = 3  # for new ones, below those that there are
SECRET_HELP = gettext_lazy("Stored encrypted and never shown. Leave it empty to keep the stored one.")


def _text(
    label: StrOrPromise, help_text: StrOrPromise = "", *, required: bool = True, most: int = 500
) -> forms.CharField:
    widget = forms.TextInput(NO_AUTOCOMPLETE | {"spellcheck": "false"})
    return forms.CharField(label=label, help_text=help_text, required=required, max_length=most, widget=widget)


class ProviderForm(forms.Form):
    """What all providers have; `of` fills it."""

    name = _text(gettext_lazy("Name"), gettext_lazy("People read it on the sign-in page."), most=60)
    enabled = forms.BooleanField(
        label=gettext_lazy("Switched on"),
        required=False,
        help_text=gettext_lazy("Switched off, nobody signs in through it, and sessions of its people end."),
    )

    @classmethod
    def of(cls, row: IdentityProvider) -> ProviderForm:
        """Return the form filled with a provider."""
        return cls(initial={name: getattr(row, name) for name in cls.base_fields if name != "secret"})

    def values(self) -> dict[str, Any]:
        """Return the arguments of a service; an empty secret is None."""
        return self.cleaned_data | {"secret": self.cleaned_data["secret"] or None}


def _ca() -> forms.CharField:
    return forms.CharField(
        label="CA",
        required=False,
        max_length=20_000,
        help_text=gettext_lazy(
            "Certificates in PEM form, where this system's CAs do not know the one that signed the provider's."
        ),
        widget=forms.Textarea({"rows": 3, "spellcheck": "false"}),
    )


def _secret(label: StrOrPromise) -> forms.CharField:
    return forms.CharField(
        label=label, required=False, max_length=500, strip=False, help_text=SECRET_HELP,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
    )  # fmt: skip


class OpenIdForm(ProviderForm):
    """A provider of OpenID Connect."""

    address = _text(
        gettext_lazy("Issuer"),
        gettext_lazy("As the provider publishes it, such as https://login.example.org/realms/lab"),
    )
    client_id = _text(gettext_lazy("Client ID"), most=255)
    secret = _secret(gettext_lazy("Client secret"))
    scopes = _text(gettext_lazy("Scopes"), most=255)
    username_claim = _text(
        gettext_lazy("Claim of the user name"), gettext_lazy("For new people. A path has dots: realm.name"), most=255
    )
    groups_claim = _text(
        gettext_lazy("Claim of the groups"),
        gettext_lazy("A list of names, such as groups or realm_access.roles"),
        most=255,
    )
    ca = _ca()


class DirectoryForm(ProviderForm):
    """A directory that is asked by LDAP."""

    address = _text(gettext_lazy("Address"), gettext_lazy("ldaps://host:636, or ldap://host:389 with StartTLS"))
    start_tls = forms.BooleanField(label="StartTLS", required=False, help_text=gettext_lazy("For ldap://."))
    bind_dn = _text(
        gettext_lazy("Bind DN"),
        gettext_lazy("The account by which the site looks people up; empty for none."),
        required=False,
    )
    secret = _secret(gettext_lazy("Password of the bind DN"))
    user_base = _text(gettext_lazy("People below"), gettext_lazy("A DN, such as ou=people,dc=example,dc=org"))
    user_filter = _text(
        gettext_lazy("Filter of people"),
        gettext_lazy("Active Directory: (&(objectClass=user)(sAMAccountName={username}))"),
    )
    username_attribute = _text(
        gettext_lazy("Attribute of the user name"), gettext_lazy("Active Directory: sAMAccountName"), most=100
    )
    group_base = _text(
        gettext_lazy("Groups below"),
        gettext_lazy("A DN; where it is empty, the person's own memberOf is read."),
        required=False,
    )
    group_filter = _text(
        gettext_lazy("Filter of groups"),
        gettext_lazy("Groups in groups of Active Directory: (member:1.2.840.113556.1.4.1941:={dn})"),
    )
    ca = _ca()


FORMS: Final[dict[str, type[ProviderForm]]] = {
    IdentityProvider.Kind.OIDC: OpenIdForm,
    IdentityProvider.Kind.LDAP: DirectoryForm,
}


class GroupRuleForm(forms.Form):
    """One rule; without a group it is none."""

    group = forms.CharField(
        label=gettext_lazy("Group"), required=False, max_length=500, widget=forms.TextInput(NO_AUTOCOMPLETE)
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices, initial=Role.VIEWER)
    tenant = forms.ModelChoiceField(
        label=gettext_lazy("Tenant"),
        queryset=Tenant.objects.all(),
        required=False,
        empty_label=gettext_lazy("none (administrators)"),
    )


RuleFormSet = forms.formset_factory(GroupRuleForm, extra=EMPTY_RULES, can_order=True, max_num=300, absolute_max=400)


def rules_of(forms_of_rules: Any) -> list[GroupRule]:
    """Return the rules of a valid set of forms in their order."""
    found = [one.cleaned_data for one in forms_of_rules.ordered_forms]
    return [
        GroupRule(group=one["group"], role=one["role"], tenant_id=one["tenant"].pk if one["tenant"] else None)
        for one in found
        if one.get("group")
    ]


class ClaimsSampleForm(forms.Form):
    """A sample on which rules are tried."""

    sample = forms.CharField(
        label=gettext_lazy("Sample"),
        required=False,
        help_text=gettext_lazy(
            "Claims of an ID token as JSON, or names of groups, a line each. Nothing of it is stored."
        ),
        widget=forms.Textarea({"rows": 6, "spellcheck": "false"}),
    )


class LinkForm(forms.Form):
    """A person who is to sign in through a provider."""

    username = _text(gettext_lazy("User name here"), most=150)
    subject = _text(
        gettext_lazy("Subject there"),
        gettext_lazy("'sub' of OpenID Connect; entryUUID or objectGUID of a directory"),
        most=255,
    )
