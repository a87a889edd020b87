"""What a provider says of a person, and which rule gives them a role and a tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import Invalid
from core.language import _


@dataclass(frozen=True, kw_only=True)
class ExternalPerson:
    """A person as an identity provider describes them; `subject` never changes and is never given to another."""

    subject: str
    username: str
    full_name: str = ""
    email: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """A rule: members of the group get the role, in the tenant of that id (None for administrators)."""

    group: str
    role: str
    tenant_id: int | None


def first_match(rules: Sequence[GroupRule], groups: Sequence[str]) -> tuple[int, GroupRule] | None:
    """Return the first rule with one of the groups, and its place from 1; None where no rule fits.

    Names of groups are compared without case: those of a directory have none.
    """
    known = {one.casefold() for one in groups}
    return next(((place, rule) for place, rule in enumerate(rules, 1) if rule.group.casefold() in known), None)


def person_of_claims(claims: Mapping[str, Any], *, username_claim: str, groups_claim: str) -> ExternalPerson:
    """Return the person of an ID token's claims; raises Invalid without a subject or a user name."""
    subject = _text(claims.get("sub"))
    username = _text(_claim(claims, username_claim))
    if not subject or len(subject) > 255:
        raise Invalid(_("The claims have no subject ('sub')."))
    if not username:
        raise Invalid(
            _(
                "The claims have no user name: the claim '{username_claim}' is missing or no text.",
                username_claim=username_claim,
            )
        )
    found = _claim(claims, groups_claim)
    listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return ExternalPerson(
        subject=subject,
        username=username,
        full_name=_text(claims.get("name"))[:150],
        email=_text(claims.get("email")),
        groups=tuple(one for one in listed if isinstance(one, str)),
    )


def group_names(distinguished_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names by which rules may call groups: of each the whole DN, and the value of its first part."""
    firsts = [name.partition("=")[2].partition(",")[0].strip() for name in distinguished_names]
    return tuple(dict.fromkeys([*distinguished_names, *(one for one in firsts if one)]))


def filter_escape(text: str) -> str:
    """Return a text as a value in a filter of LDAP (RFC 4515): nothing in it has a meaning there."""
    return "".join(
        letter if letter.isascii() and letter.isalnum() else "".join(f"\\{byte:02x}" for byte in letter.encode())
        for letter in text
    )


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path of names with dots between, such as realm_access.roles."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
