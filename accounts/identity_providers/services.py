"""Changes of identity providers and their rules, links of people, and what a sign-in through a provider makes of one.

`by` is the requesting administrator. Functions raise Forbidden without permission, Invalid with `errors` (field:
sentence) for invalid values, and Conflict for what the present state forbids.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.views.decorators.debug import sensitive_variables

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audit_batch, audited, target_of
from accounts.identity_providers import directory, oidc
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider, MappingRule
from accounts.identity_providers.rules import ExternalPerson, GroupRule, first_match, person_of_claims
from accounts.identity_providers.selectors import group_rules
from accounts.models import Role, Tenant, User
from accounts.services import person_provision
from accounts.sign_in.change_mails import change_mail_enqueue
from accounts.sign_in.services import access_end
from core import credentials
from core.connections import tls_context
from core.errors import Conflict, Forbidden, Invalid
from core.language import _, _n, english, gettext_noop, joined

logger = logging.getLogger(__name__)

MAX_PROVIDERS: Final = 20
MAX_RULES: Final = 200
MAX_SAMPLE: Final = 64_000  # characters
OIDC_FIELDS: Final = ("client_id", "scopes", "username_claim", "groups_claim")
LDAP_FIELDS: Final = (
    "start_tls", "bind_dn", "user_base", "user_filter", "username_attribute", "group_base", "group_filter",
)  # fmt: skip
FIELDS: Final = ("name", "enabled", "address", "ca", *OIDC_FIELDS, *LDAP_FIELDS)
NO_RULE: Final = gettext_noop("None of your groups may sign in here. Ask an administrator of this site.")


@dataclass(frozen=True)
class SampleResult:
    """What a sign-in with a sample would come to: the person, and the rule with its place, None where none fits."""

    person: ExternalPerson
    match: tuple[int, GroupRule] | None
    tenant: Tenant | None


@sensitive_variables("secret")
def provider_add(*, by: User, kind: str, secret: str | None = None, **values: Any) -> IdentityProvider:
    """Add a provider; `values` are FIELDS."""
    target = Target("identity provider", name=str(values.get("name", ""))[:60])
    with audited(Action.PROVIDER_ADD, actor=by, target=target) as act:
        require_administrator(by)
        if IdentityProvider.objects.count() >= MAX_PROVIDERS:
            raise Conflict(
                _(
                    "There are {most} identity providers, the most that there may be. Delete one first.",
                    most=MAX_PROVIDERS,
                )
            )
        row = IdentityProvider(kind=kind)
        _fill(row, values, secret)
        row.save()
        act.target, act.after = target_of(row), _audit_values(row)
        return row


@sensitive_variables("secret")
def provider_edit(
    *, by: User, provider: IdentityProvider, secret: str | None = None, **values: Any
) -> IdentityProvider:
    """Change a provider; a `secret` of None keeps the stored one, which is sent to no other address.

    While a provider is switched off, the sessions of its people are none.
    """
    with audited(Action.PROVIDER_EDIT, actor=by, target=target_of(provider)) as act:
        require_administrator(by)
        row = _locked(provider)
        act.before, address = _audit_values(row), row.address
        _fill(row, values, secret)
        if row.address != address:
            if secret is None and row.has_secret:
                sentence = _("Type the secret again: the stored one is not sent to another address.")
                raise Invalid(sentence, errors={"secret": sentence})
            if row.identities.exists():
                sentence = _(
                    "People sign in through it, and another address may call others by the same names: add a new "
                    "provider, or remove their links first."
                )
                raise Invalid(sentence, errors={"address": sentence})
        row.secret_encrypted = row.secret_encrypted and credentials.reencrypt(row.secret_encrypted)
        row.save()
        act.target, act.after = target_of(row), _audit_values(row) | {"secret given anew": secret is not None}
        return row


def provider_remove(*, by: User, provider: IdentityProvider) -> None:
    """Delete a provider with its rules and links: its people's sessions and tokens end, and their accounts stay."""
    with audited(Action.PROVIDER_REMOVE, actor=by, target=target_of(provider)) as act:
        require_administrator(by)
        row = _locked(provider)
        people = [one.person for one in row.identities.select_related("person")]
        act.before = _audit_values(row) | {"people": [one.username for one in people]}
        row.delete()
        for person in people:
            access_end(person=person)


def provider_test(*, by: User, provider: IdentityProvider) -> str:
    """Ask a provider as a sign-in does, and return what it answered in words; raises Unavailable."""
    with attempt(Action.PROVIDER_TEST, actor=by, target=target_of(provider)) as act:
        require_administrator(by)
        if provider.is_directory:
            found = directory.directory_sample(provider)
            people = _("several people") if found > 1 else _("one person") if found else _("nobody")
            sentence = _(
                "{name} answers, and shows the site {people} below {base}.",
                name=provider.name,
                people=people,
                base=provider.user_base,
            )
        else:
            keys = oidc.keys_of(provider, oidc.metadata_of(provider, anew=True)).keys
            sentence = _n(
                "{name} answers, and publishes {count} key.",
                "{name} answers, and publishes {count} keys.",
                len(keys),
                name=provider.name,
            )
        with act.change():
            act.after = {"answer": english(sentence)}
        return sentence


def rules_set(*, by: User, provider: IdentityProvider, rules: Sequence[GroupRule]) -> None:
    """Replace the rules of a provider; they count from the next sign-in of each person."""
    with audited(Action.PROVIDER_RULES, actor=by, target=target_of(provider)) as act:
        require_administrator(by)
        row = _locked(provider)
        _check_rules(rules)
        act.before = {"rules": _rules_in_words(group_rules(row))}
        row.rules.all().delete()
        MappingRule.objects.bulk_create(
            MappingRule(provider=row, position=place, group=rule.group, role=rule.role, tenant_id=rule.tenant_id)
            for place, rule in enumerate(rules, 1)
        )
        act.after = {"rules": _rules_in_words(rules)}


def rules_try(*, by: User, provider: IdentityProvider, rules: Sequence[GroupRule], sample: str) -> SampleResult:
    """Return what a sign-in comes to by these rules, for claims in JSON or groups, a line each; changes nothing."""
    with attempt(Action.PROVIDER_TRY, actor=by, target=target_of(provider)) as act:
        require_administrator(by)
        _check_rules(rules)
        person = _sample_person(provider, sample)
        match = first_match(rules, person.groups)
        tenant_id = match[1].tenant_id if match else None
        tenant = None if tenant_id is None else Tenant.objects.filter(pk=tenant_id).first()
        with act.change():
            act.after = {"rule": match[0] if match else None}
        return SampleResult(person, match, tenant)


def identity_link(*, by: User, provider: IdentityProvider, username: str, subject: str) -> ExternalIdentity:
    """Let an existing person sign in through a provider, and by its groups, from now on; their password is removed."""
    with audited(Action.IDENTITY_LINK, actor=by, target=Target("person", name=username[:150])) as act:
        require_administrator(by)
        row = _locked(provider)
        person = User.objects.select_for_update(of=("self",), no_key=True).filter(username=username).first()
        subject = subject.strip()
        errors = {}
        if person is None:
            errors["username"] = _("Nobody here has this user name.")
        elif ExternalIdentity.objects.filter(person=person).exists():
            errors["username"] = _(
                "{username} signs in through a provider already. Remove that link first.", username=person.username
            )
        elif person.username == settings.CONFIG.break_glass:
            errors["username"] = _(
                "{username} is kept for when no provider answers, and stays local.", username=person.username
            )
        elif person.is_service:
            errors["username"] = _(
                "{username} is a service account: it has tokens, and no sign-in.", username=person.username
            )
        elif person.pk == by.pk:
            errors["username"] = _("Let another administrator link you: you could lock yourself out.")
        if not subject or len(subject) > 255:
            errors["subject"] = _("Give the subject: 'sub' of OpenID Connect, entryUUID or objectGUID of a directory.")
        elif row.identities.filter(subject=subject).exists():
            errors["subject"] = _("Somebody is linked to this subject already.")
        if errors or person is None:
            raise Invalid(_("The person cannot be linked."), errors=errors)
        made = ExternalIdentity.objects.create(provider=row, subject=subject, person=person)
        person.set_unusable_password()
        person.save(update_fields=["password"])
        access_end(person=person)
        change_mail_enqueue(person, f"You sign in through {row.name} from now on. Your password was removed.")
        act.target, act.after = target_of(person), {"provider": row.name, "subject": subject}
        return made


def identity_unlink(*, by: User, identity: ExternalIdentity) -> None:
    """Remove a person's link: they cannot sign in until an administrator resets their password or links them anew."""
    with audited(Action.IDENTITY_UNLINK, actor=by, target=target_of(identity.person)) as act:
        require_administrator(by)
        act.before = {"provider": identity.provider.name, "subject": identity.subject}
        identity.delete()
        access_end(person=identity.person)


def identity_sign_in(*, provider: IdentityProvider, external: ExternalPerson) -> User:
    """Return the person whom a provider vouches for, added or updated by the rules; raises Forbidden.

    An existing account is never taken over by its name or e-mail. Without a rule that fits, sessions and tokens end.
    """
    match = first_match(group_rules(provider), external.groups)
    if match is None:
        known = provider.identities.select_related("person").filter(subject=external.subject).first()
        if known is not None:
            access_end(person=known.person)
        raise Forbidden(_(NO_RULE))
    rule = match[1]
    with audit_batch():
        # Two sign-ins of a new person at once: the second finds what the first has made.
        provider = _locked(provider)
        known = provider.identities.select_related("person__tenant").filter(subject=external.subject).first()
        person = known.person if known is not None else None
        if person is not None and not person.is_active:
            raise Forbidden(_("An administrator of this site has closed your account."))
        if person is None and User.objects.named(external.username).exists():
            raise Forbidden(
                _(
                    "Somebody else here is called '{username}'. Ask an administrator of this site: only they can "
                    "link that account to yours.",
                    username=external.username,
                )
            )
        try:
            row = person_provision(
                person=person,
                username=external.username,
                full_name=external.full_name,
                email=_usable_email(external.email),
                role=rule.role,
                tenant=Tenant.objects.get(pk=rule.tenant_id) if rule.tenant_id else None,
            )
        except Invalid as error:
            sentence = _("{name} describes you in a way that cannot be used here.", name=provider.name)
            raise Forbidden(joined([sentence, *error.details.get("errors", {}).values()])) from error
        if known is None:
            ExternalIdentity.objects.create(provider=provider, subject=external.subject, person=row)
    return row


def _locked(provider: IdentityProvider) -> IdentityProvider:
    row = IdentityProvider.objects.select_for_update().filter(pk=provider.pk).first()
    if row is None:
        raise Conflict(_("This identity provider was deleted meanwhile."))
    return row


def _fill(row: IdentityProvider, values: Mapping[str, Any], secret: str | None) -> None:
    """Set the fields of a row, and raise Invalid for those that are wrong."""
    for name in FIELDS:
        if name in values:
            given = values[name]
            setattr(row, name, given.strip() if isinstance(given, str) else given)
    if secret is not None:
        row.set_secret(secret)
    errors: dict[str, str] = {}
    try:
        row.full_clean()
    except ValidationError as error:
        errors = {field: " ".join(found) for field, found in error.message_dict.items()}
    for check in (_check_ca, _check_directory if row.is_directory else _check_openid):
        try:
            check(row)
        except Invalid as error:
            errors |= error.details.get("errors", {})
    if errors:
        raise Invalid(_("Some fields are wrong."), errors=errors)


def _check_ca(row: IdentityProvider) -> None:
    tls_context(row.ca)


def _check_openid(row: IdentityProvider) -> None:
    oidc.check_address(row.address, gettext_noop("issuer"))
    errors = {}
    if "?" in row.address:
        errors["address"] = _("An issuer has no '?'.")
    if not row.client_id:
        errors["client_id"] = _("Give the client ID that the provider has for this site.")
    if "openid" not in row.scopes.split():
        errors["scopes"] = _("The scopes contain 'openid'.")
    if not row.username_claim or not row.groups_claim:
        errors["username_claim"] = _("Name the claims that have the user name and the groups.")
    if errors:
        raise Invalid(_("Some fields are wrong."), errors=errors)


def _check_directory(row: IdentityProvider) -> None:
    directory.directory_endpoint(row)
    directory.user_filter(row, "name")
    directory.group_filter(row, "cn=name", "name")
    errors = {}
    if not row.user_base:
        errors["user_base"] = _("Give the DN below which people are, such as ou=people,dc=example,dc=org.")
    if "{username}" not in row.user_filter:
        errors["user_filter"] = _("The filter contains {username}, for the name that was typed.")
    if not row.username_attribute:
        errors["username_attribute"] = _("Name the attribute with the user name: uid, or sAMAccountName.")
    if "{dn}" not in row.group_filter and "{username}" not in row.group_filter:
        errors["group_filter"] = _(
            "The filter contains {dn} or {username}, for the person whose groups are looked for."
        )
    if errors:
        raise Invalid(_("Some fields are wrong."), errors=errors)


def _check_rules(rules: Sequence[GroupRule]) -> None:
    """Raise Invalid for rules that could give nobody a role; `errors` has them by their place from 1."""
    errors = {}
    seen: set[str] = set()
    for place, rule in enumerate(rules, 1):
        if rule.role not in Role.values:
            errors[str(place)] = _("Choose a role.")
        elif (rule.tenant_id is None) != (rule.role == Role.ADMINISTRATOR):
            errors[str(place)] = _("Administrators belong to no tenant, users and viewers to one.")
        elif not rule.group or len(rule.group) > 500 or "\0" in rule.group:
            errors[str(place)] = _("Give the group's name as the provider writes it.")
        elif rule.group.casefold() in seen:
            errors[str(place)] = _("An earlier rule has this group: this one would never count.")
        seen.add(rule.group.casefold())
    if len(rules) > MAX_RULES:
        errors[str(MAX_RULES + 1)] = _("There may be {most} rules.", most=MAX_RULES)
    if errors:
        raise Invalid(
            joined(_("Rule {place}: {sentence}", place=place, sentence=sentence) for place, sentence in errors.items()),
            rules=errors,
        )


def _sample_person(provider: IdentityProvider, sample: str) -> ExternalPerson:
    sentence = ""
    if len(sample) > MAX_SAMPLE:
        sentence = _("The sample is too long.")
    elif not sample.strip():
        sentence = _("Paste the claims of an ID token as JSON, or the names of groups, a line each.")
    elif sample.lstrip().startswith("{"):
        try:
            claims = json.loads(sample)
            return person_of_claims(claims, username_claim=provider.username_claim, groups_claim=provider.groups_claim)
        except (ValueError, RecursionError):
            sentence = _("This is no JSON.")
        except Invalid as error:
            sentence = error.sentence
    if sentence:
        raise Invalid(sentence, errors={"sample": sentence})
    groups = tuple(line.strip() for line in sample.splitlines() if line.strip())
    return ExternalPerson(subject="sample", username="sample", groups=groups)


def _usable_email(email: str) -> str:
    try:
        validate_email(email)
    except ValidationError:
        return ""
    return email if len(email) <= 254 else ""


def _rules_in_words(rules: Sequence[GroupRule]) -> list[str]:
    names = dict(Tenant.objects.filter(pk__in=[rule.tenant_id for rule in rules]).values_list("pk", "name"))
    return [
        f"{rule.group}: {rule.role}" + (f" of {names.get(rule.tenant_id)}" if rule.tenant_id else "") for rule in rules
    ]


def _audit_values(row: IdentityProvider) -> dict[str, object]:
    own = LDAP_FIELDS if row.is_directory else OIDC_FIELDS
    return (
        {"kind": row.kind}
        | {name.replace("_", " "): getattr(row, name) for name in ("name", "enabled", "address", *own)}
        | {"CA": bool(row.ca), "secret": row.has_secret}
    )
