"""Changes of users and tenants, with their permissions and invariants.

`by` is the requesting administrator. Functions raise Forbidden without permission, Invalid with `errors` (field:
sentence) for invalid values, and Conflict for changes that the present state forbids.
"""

from __future__ import annotations

import logging

from axes.utils import reset as axes_reset
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from accounts.access import require_administrator
from accounts.approvals.selectors import chosen_dangers
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import PersonKind, Role, Tenant, User
from accounts.selectors import tenant_asset_labels
from accounts.sign_in.change_mails import change_mail_enqueue
from accounts.sign_in.passwords import generated_password, password_problem
from accounts.sign_in.services import access_end
from core.errors import Conflict, Forbidden, Invalid
from core.language import _, _n, join_words
from core.zones import zone_named

logger = logging.getLogger(__name__)

PERSON_FIELDS = ["username", "first_name", "last_name", "email", "role", "tenant", "is_active", "is_superuser"]


@sensitive_variables("password")
def person_add(
    *, by: User, username: str, full_name: str, email: str, role: str, tenant: Tenant | None, active: bool = True
) -> tuple[User, str]:
    """Add a user with a generated password; returns both; the password is not available later."""
    with attempt(Action.PERSON_ADD, actor=by, target=Target("person", name=username)) as act:
        require_administrator(by)
        person = User()
        password = generated_password()
        # Hashing is slow on purpose, so it is outside of the transaction.
        person.set_password(password)
        with act.change():
            _assign_fields(
                person, username=username, full_name=full_name, email=email, role=role, tenant=tenant, active=active
            )
            _validate_person(person)
            person.save()
            act.target, act.after = target_of(person), _person_audit_values(person)
        logger.info("%s added %s (%s)", by.username, person.username, person.role)
        return person, password


def service_add(*, by: User, username: str, full_name: str, role: str, tenant: Tenant | None) -> User:
    """Add a service account of a tenant: it cannot sign in; administrators make its tokens."""
    with audited(Action.SERVICE_ADD, actor=by, target=Target("person", name=username)) as act:
        require_administrator(by)
        person = User(kind=PersonKind.SERVICE)
        person.set_unusable_password()
        _assign_fields(person, username=username, full_name=full_name, email="", role=role, tenant=tenant, active=True)
        _validate_person(person)
        person.save()
        act.target, act.after = target_of(person), _person_audit_values(person)
        logger.info("%s added the service account %s (%s)", by.username, person.username, person.role)
        return person


def person_edit(
    *,
    by: User,
    person: User,
    username: str,
    full_name: str,
    email: str,
    role: str,
    tenant: Tenant | None,
    active: bool,
) -> User:
    """Change a user; deactivation ends their sessions and tokens. The last active administrator stays one."""
    with audited(Action.PERSON_EDIT, actor=by, target=target_of(person)) as act:
        administrators = _administrators()
        if by.pk not in administrators:
            require_administrator(by)
            raise Forbidden(_("You are no longer an administrator."))
        person = User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)
        stays = role == Role.ADMINISTRATOR and active
        if administrators == {person.pk} and not stays:
            raise Conflict(
                _(
                    "{username} is the last active administrator. Make somebody else an administrator first.",
                    username=person.username,
                )
            )
        if not stays and len(administrators - {person.pk}) < 2 and person.pk in administrators and chosen_dangers():
            raise Conflict(_("Some acts need two administrators here. Make somebody else an administrator first."))
        if person.pk == by.pk and not active:
            raise Conflict(_("You cannot deactivate yourself. Ask another administrator."))
        act.before = _person_audit_values(person)
        ends, former = person.is_active and not active, person.email
        _assign_fields(
            person, username=username, full_name=full_name, email=email, role=role, tenant=tenant, active=active
        )
        _validate_person(person)
        person.save(update_fields=PERSON_FIELDS)
        act.target, act.after = target_of(person), _person_audit_values(person)
        _tell_former_address(person, former)
        if ends:
            # An inactive user cannot sign in, but old sessions and tokens would become valid again on reactivation.
            access_end(person=person)
        logger.info(
            "%s changed %s (%s, %s)", by.username, person.username, person.role, "active" if active else "inactive"
        )
        return person


def person_provision(
    *, person: User | None, username: str, full_name: str, email: str, role: str, tenant: Tenant | None
) -> User:
    """Add (None) or update a user as their identity provider and its rules describe them.

    A new one has no local password; the user name of an existing one stays. Raises Invalid.
    """
    row = person or User(password=make_password(None))
    before, former = _person_audit_values(row) if person else None, row.email
    name = row.username if person else username
    _assign_fields(row, username=name, full_name=full_name, email=email, role=role, tenant=tenant, active=row.is_active)
    _validate_person(row)
    after = _person_audit_values(row)
    if after != before:
        with audited(Action.PERSON_EDIT if person else Action.PERSON_ADD, actor=person) as act:
            row.save(update_fields=PERSON_FIELDS if person else None)
            act.actor, act.target, act.before, act.after = row, target_of(row), before, after
            _tell_former_address(row, former)
        logger.info("%s is %s by an identity provider", row.username, row.role)
    return row


@sensitive_variables("password")
def person_password_reset(*, by: User, person: User) -> str:
    """Set a generated password, end the user's sessions and tokens, remove a lock; returns the password."""
    with attempt(Action.PERSON_PASSWORD, actor=by, target=target_of(person)) as act:
        require_administrator(by)
        if person.pk == by.pk:
            raise Conflict(_("Change your own password on your account page."))
        if person.is_service:
            raise Conflict(
                _("{username} is a service account: it has tokens, and no password.", username=person.username)
            )
        if hasattr(person, "external_identity"):
            raise Conflict(
                _("{username} signs in through an identity provider. Remove that link first.", username=person.username)
            )
        password = generated_password()
        hashed = make_password(password)
        with act.change():
            person = User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)
            person.password = hashed
            person.save(update_fields=["password"])
            # An attacker with the old password may have created tokens.
            act.after = access_end(person=person)
            axes_reset(username=person.username)
            change_mail_enqueue(person, f"{by.username} reset your password. Your sessions and tokens ended.")
        logger.info("%s reset the password of %s", by.username, person.username)
        return password


@sensitive_variables("current", "new")
def password_change(*, request: HttpRequest, person: User, current: str, new: str) -> None:
    """Change one's own password, revoke all own tokens, and end all own sessions but the request's.

    The current password is checked as at a sign-in, so that it cannot be guessed without limit in an open browser:
    wrong ones count towards the lock (outside the transaction, whose rollback would undo the count).
    """
    with attempt(Action.PASSWORD_CHANGE, actor=person, target=target_of(person)) as act:
        if not person.has_usable_password():
            raise Conflict(_("You sign in through an identity provider: change your password there."))
        found = authenticate(request, username=person.username, password=current)
        if found is None:
            raise Invalid(
                _("The current password is wrong."),
                errors={"current": _("This is not your current password. Type it again.")},
            )
        if problem := password_problem(new, person):
            raise Invalid(_("The new password cannot be used."), errors={"new": problem})
        hashed = make_password(new)
        with act.change():
            row = User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)
            # An administrator or a mail may have set another since: a thief's own must not replace that.
            if row.password != found.password or not row.is_active:
                raise Conflict(_("Your password was changed at the same moment. Sign in with the new one."))
            person.password = hashed
            person.save(update_fields=["password"])
            act.after = access_end(person=person, keep=request.session.session_key or "")
            change_mail_enqueue(person, "Your password was changed. Your other sessions and your tokens ended.")
        logger.info("%s changed the own password", person.username)


def tenant_add(*, by: User, name: str) -> Tenant:
    """Add a tenant, without users and devices."""
    with audited(Action.TENANT_ADD, actor=by, target=Target("tenant", name=name)) as act:
        require_administrator(by)
        tenant = Tenant(name=_tenant_name(name))
        tenant.save()
        act.target, act.after = target_of(tenant), {"name": tenant.name}
        logger.info("%s added tenant %r", by.username, tenant.name)
        return tenant


def tenant_edit(*, by: User, tenant: Tenant, name: str) -> Tenant:
    """Give a tenant another name."""
    with audited(Action.TENANT_EDIT, actor=by, target=target_of(tenant)) as act:
        require_administrator(by)
        tenant = Tenant.objects.select_for_update().get(pk=tenant.pk)
        before, tenant.name = tenant.name, _tenant_name(name, but=tenant)
        tenant.save(update_fields=["name"])
        act.target, act.before, act.after = target_of(tenant), {"name": before}, {"name": tenant.name}
        logger.info("%s renamed tenant %r to %r", by.username, before, tenant.name)
        return tenant


def tenant_remove(*, by: User, tenant: Tenant) -> None:
    """Remove a tenant without users and devices."""
    with audited(Action.TENANT_REMOVE, actor=by, target=target_of(tenant)) as act:
        require_administrator(by)
        tenant = Tenant.objects.select_for_update().get(pk=tenant.pk)
        people = tenant.people.count()
        assets = tenant_asset_labels([tenant.pk]).get(tenant.pk, [])
        if people or assets:
            first: list[str] = [_("move its people to another tenant")] if people else []
            first += [_("unassign what it holds")] if assets else []
            has = [_n("{count} person", "{count} people", people), *assets] if people else assets
            raise Conflict(
                _(
                    "{tenant} still has {things}: {steps} first, then delete it.",
                    tenant=tenant.name,
                    things=join_words(has),
                    steps=join_words(first),
                )
            )
        name = tenant.name
        act.before = {"name": name}
        tenant.delete()
        logger.info("%s removed tenant %r", by.username, name)


def _administrators() -> set[int]:
    """Return the active administrators, locked: two concurrent mutual demotions must not both succeed."""
    rows = User.objects.select_for_update(no_key=True).filter(role=Role.ADMINISTRATOR, is_active=True).order_by("pk")
    return {row.pk for row in rows}


def _assign_fields(
    person: User, *, username: str, full_name: str, email: str, role: str, tenant: Tenant | None, active: bool
) -> None:
    person.username = User.normalize_username(username.strip())
    # One field for the whole name: not all names have a first and a last part.
    person.first_name, person.last_name = full_name.strip(), ""
    person.email = User.objects.normalize_email(email.strip())
    person.role, person.tenant, person.is_active = role, tenant, active
    person.is_superuser = role == Role.ADMINISTRATOR


def _person_audit_values(person: User) -> dict[str, object]:
    """Return the audited values of a user."""
    return {
        "kind": person.kind, "username": person.username, "full name": person.get_full_name(), "e-mail": person.email,
        "role": person.role,
        "tenant": person.tenant.name if person.tenant else None, "may sign in": person.is_active,
    }  # fmt: skip


def _tell_former_address(person: User, former: str) -> None:
    """Mail it that another has taken its place: links for a new password go to that one."""
    if former.casefold() != person.email.casefold():
        sentence = "Your account no longer has this e-mail address, which gets no more mail."
        change_mail_enqueue(person, sentence, address=former)


def locale_set(person: User, *, language: str, zone: str) -> None:
    """Store the language of a person's pages and the zone of their times, '' for the browser's; raises Invalid."""
    if zone and zone_named(zone) is None:
        raise Invalid(_("There is no such time zone."), errors={"zone": _("Choose one of the list.")})
    if language and language not in dict(settings.LANGUAGES):
        raise Invalid(_("There is no such language."), errors={"language": _("Choose one of the list.")})
    person.language, person.zone = language, zone
    person.save(update_fields=["language", "zone"])


def _validate_person(person: User) -> None:
    errors: dict[str, str] = {}
    try:
        person.full_clean(validate_constraints=False)
    except ValidationError as error:
        names = {"first_name": "full_name", "is_active": "active"}
        errors = {names.get(field, field): " ".join(found) for field, found in error.message_dict.items()}
    # Names that differ only in case would be confused.
    if User.objects.named(person.username).exclude(pk=person.pk).exists():
        errors["username"] = _("Somebody has this user name, perhaps in other case. Choose another.")
    if person.is_service and person.role == Role.ADMINISTRATOR:
        errors["role"] = _("A service account is a user or a viewer of a tenant.")
    if person.role == Role.ADMINISTRATOR and person.tenant_id is not None:
        errors["tenant"] = _("Administrators belong to no tenant. Choose none.")
    if person.role in {Role.USER, Role.VIEWER} and person.tenant_id is None:
        errors["tenant"] = _("Users and viewers belong to a tenant. Choose one.")
    if errors:
        raise Invalid(_("Some fields are wrong."), errors=errors)


def _tenant_name(name: str, *, but: Tenant | None = None) -> str:
    name = " ".join(name.split())
    sentence = ""
    if not name or len(name) > 100:
        sentence = _("Give the tenant a name of at most 100 letters.")
    elif Tenant.objects.filter(name__iexact=name).exclude(pk=but.pk if but else 0).exists():
        sentence = _("There is a tenant of this name. Choose another.")
    if sentence:
        raise Invalid(sentence, errors={"name": sentence})
    return name
