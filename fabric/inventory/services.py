"""The chassis of the site: added, changed and removed by administrators.

An address, a trust setting or a password is tested before it is stored: a server that is not a Redfish service with
these credentials is refused in one sentence, and nothing is stored. The sentences are the site's own: responses are
never quoted, so that an address typed here cannot be used to read from servers behind it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from django.db import IntegrityError, transaction
from django.views.decorators.debug import sensitive_variables

from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal, two_people
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from accounts.visibility import row_or_404
from core import credentials
from core.endpoints import host_refusal_reason
from core.errors import Conflict, Forbidden, Invalid, Unavailable
from core.language import _, gettext_noop
from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import (
    BmcError,
    CertificateRejected,
    ForeignLink,
    Malformed,
    RequestRefused,
    ServerFault,
    SignInRefused,
    TimedOut,
    Unreachable,
    WrongAddress,
)
from fabric.bmc.transport import client_tls, format_fingerprint, parse_fingerprint, parse_origin
from fabric.bmc.values import JsonObject, text
from fabric.inventory.access import NO_REFUSAL, probe_client
from fabric.inventory.locks import lock_chassis, lock_parts, lock_tenants
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.inventory.selectors import uuid_query
from fabric.signals import access_changed, chassis_removing, inventory_changed

logger = logging.getLogger(__name__)

PROBE_SECONDS = 15.0
NOT_A_URL = gettext_noop("The address is not a URL such as https://10.0.0.5 or https://bmc.example:8443.")
TRUST_HINT = gettext_noop("Give its CA, or compare its fingerprint and accept it.")
MAX_PEM_LENGTH = 65_536
MAX_PASSWORD_LENGTH = 500
# What users paste from a browser; every other path would be dropped silently.
ROOT_PATHS = frozenset({"", "/", "/redfish", "/redfish/", "/redfish/v1", "/redfish/v1/"})


@dataclass(frozen=True)
class ServiceIdentity:
    """The identity of the service, to distinguish chassis."""

    uuid: str
    product: str
    redfish_version: str


def chassis_probe(*, person: User, address: BmcAddress) -> ServiceIdentity:
    """Read the service root and, authenticated, one resource; returns the identity of the service, within 15 s.

    Raises Forbidden, and Invalid with the field that is wrong: `errors` maps it to the sentence. Where a certificate
    is not trusted, `found_fingerprint` is the one of the service, to be compared and accepted by a user.
    """
    _require_administrator(person)
    try:
        return asyncio.run(_read_service_identity(address))
    except BmcError as error:
        _raise_probe_error(error, address)
    except TimeoutError:
        _raise_invalid("url", _("{host} did not answer in time.", host=parse_origin(address.url).host))


@sensitive_variables("password")
def chassis_add(
    *,
    person: User,
    name: str,
    url: str,
    username: str,
    password: str,
    ca_pem: str = "",
    fingerprint: str = "",
    enabled: bool = True,
    shares_uuid: bool = False,
    allow_http: bool = False,
) -> Chassis:
    """Add a chassis; it is polled within a second.

    `allow_http` confirms an address without encryption, `shares_uuid` another chassis than that with its UUID.
    Raises Forbidden, and Invalid as `chassis_probe` does.
    """
    with attempt(Action.CHASSIS_ADD, actor=person, target=Target("chassis", name=name)) as act:
        _require_administrator(person)
        chassis = Chassis(
            name=_clean_name(name),
            url=_clean_url(url, allow_http=allow_http),
            username=_clean_username(username),
            ca_pem=_clean_pem(ca_pem),
            fingerprint=_clean_fingerprint(fingerprint),
            enabled=enabled,
            shares_uuid=shares_uuid,
        )
        _check_password(chassis.username, password)
        _check_duplicates(chassis)
        probe = chassis_probe(person=person, address=chassis.address(password))
        _check_same_hardware(chassis, probe)
        chassis.set_password(password)
        chassis.uuid, chassis.product, chassis.redfish_version = probe.uuid, probe.product, probe.redfish_version
        with act.change():
            # Again, under the lock: it may have been added meanwhile.
            _check_same_hardware(chassis, probe)
            _save(chassis)
            act.target, act.after = target_of(chassis), _audit_values(chassis)
            transaction.on_commit(lambda: access_changed.send(Chassis), robust=True)
    logger.info("%s added chassis %s (%s)", person.get_username(), chassis.name, chassis.url)
    return chassis


@sensitive_variables("password", "secret")
def chassis_edit(
    *,
    person: User,
    chassis: Chassis,
    name: str | None = None,
    url: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ca_pem: str | None = None,
    fingerprint: str | None = None,
    enabled: bool | None = None,
    shares_uuid: bool | None = None,
    allow_http: bool = False,
) -> Chassis:
    """Change the given fields and keep the rest; None as the password keeps the stored one.

    The BMC is contacted only where address, trust, name or password change, so that an unreachable chassis can still be
    renamed or disabled. A stored password is sent to no other address than the one it was entered for. Raises
    Forbidden, NotFound, and Invalid as `chassis_probe` does.
    """
    with attempt(Action.CHASSIS_EDIT, actor=person, target=target_of(chassis)) as act:
        _require_administrator(person)
        row: Chassis = row_or_404(Chassis.objects.all(), chassis.pk, "chassis")
        act.before = _audit_values(row)
        before = (row.url, row.username, row.ca_pem, row.fingerprint)
        known_uuid = row.uuid
        changed = _update_fields(
            row,
            name=None if name is None else _clean_name(name),
            url=None if url in {None, row.url} else _clean_url(url or "", allow_http=allow_http),
            username=None if username is None else _clean_username(username),
            ca_pem=None if ca_pem is None else _clean_pem(ca_pem),
            fingerprint=None if fingerprint is None else _clean_fingerprint(fingerprint),
            enabled=enabled,
            shares_uuid=shares_uuid,
        )
        _check_duplicates(row)
        if password is not None or (row.url, row.username, row.ca_pem, row.fingerprint) != before:
            secret = _password_for(row, password, moved=row.url != before[0])
            probe = chassis_probe(person=person, address=row.address(secret))
            if row.url != before[0] and known_uuid and probe.uuid and probe.uuid != known_uuid:
                # Grants are stored by resource: they would pass to the devices of another chassis.
                _raise_invalid("url", _("Another chassis answers at this address: add it as one of its own."))
            if row.url != before[0]:
                _check_same_hardware(row, probe)
            row.set_password(secret)
            state = {"last_error": "", "last_error_at": None, "refused_at": None, **NO_REFUSAL}
            vars(row).update(state)
            changed |= {"url", "username", "ca_pem", "fingerprint", "password_encrypted", *state}
        elif row.password_encrypted:
            # Saving re-encrypts the password with the newest key; a password without a key must not prevent a rename.
            renewed = credentials.reencrypt(row.password_encrypted)
            if renewed != row.password_encrypted:
                row.password_encrypted = renewed
                changed.add("password_encrypted")
        with act.change():
            if changed:
                _save(row, fields=changed)
                transaction.on_commit(lambda: inventory_changed.send(Chassis, chassis_id=row.pk), robust=True)
            act.target, act.after = target_of(row), _audit_values(row) | {"password given anew": password is not None}
        shown = sorted(changed - {"last_error", "last_error_at", "refused_at", *NO_REFUSAL})
        logger.info("%s edited chassis %s (%s): %s", person.get_username(), row.name, row.url, ", ".join(shown))
        return row


def removal_proposal(*, chassis: Chassis, **_: Any) -> Proposal:
    """Return what the removal of a chassis would delete."""
    return Proposal(
        dangers=[Danger.CHASSIS_REMOVE],
        target=target_of(chassis),
        sentence=f"Delete {chassis.name} with all that the site knows of it.",
        facts={
            "address": chassis.url,
            "devices": Device.objects.filter(chassis=chassis).count(),
            "held by tenants": Device.objects.filter(chassis=chassis, tenant__isnull=False).count(),
        },
    )


@two_people(removal_proposal)
def chassis_remove(*, person: User, chassis: Chassis) -> None:
    """Delete a chassis with all its data; the hardware itself is not touched.

    Raises Forbidden, NotFound, and Conflict while an operation of it has not ended.
    """
    with audited(Action.CHASSIS_REMOVE, actor=person, target=target_of(chassis)) as act:
        _require_administrator(person)
        lock_tenants()
        lock_chassis([chassis.pk])
        # Transactions that write the history of its parts lock these first, and then refer to the chassis.
        lock_parts(
            devices=Device.objects.filter(chassis=chassis).values_list("pk", flat=True),
            host_ports=HostPort.objects.filter(chassis=chassis).values_list("pk", flat=True),
        )
        # Stronger than `lock_chassis`: no new row, such as an operation, may refer to it meanwhile.
        row: Chassis = row_or_404(Chassis.objects.select_for_update(), chassis.pk, "chassis")
        if operation := row.operations.open().first():
            raise Conflict(
                _(
                    "{name} cannot be deleted yet: {person} asked to '{what}', which has not ended.",
                    name=row.name,
                    person=operation.requested_by_name,
                    what=operation.summary,
                ),
                operation=str(operation.pk),
            )
        name, pk = row.name, row.pk
        act.before = _audit_values(row)
        hosts = list(Host.objects.filter(host_ports__chassis=row).distinct().values_list("pk", flat=True))
        chassis_removing.send(Chassis, chassis=row)
        row.delete()
        # A host stays where another chassis is cabled to it.
        Host.objects.filter(pk__in=hosts, host_ports=None).delete()
        transaction.on_commit(lambda: access_changed.send(Chassis), robust=True)
        transaction.on_commit(lambda: inventory_changed.send(Chassis, chassis_id=pk), robust=True)
        removed = (person.get_username(), name, row.url)
        transaction.on_commit(lambda: logger.info("%s removed chassis %s (%s)", *removed), robust=True)


async def _read_service_identity(address: BmcAddress) -> ServiceIdentity:
    async with asyncio.timeout(PROBE_SECONDS), probe_client(address) as bmc:
        root = (await bmc.service_root()).body
        await _check_account(bmc, root)
    return ServiceIdentity(
        uuid=text(root, "UUID")[:64],
        product=text(root, "Product")[:200],
        redfish_version=text(root, "RedfishVersion")[:50],
    )


async def _check_account(bmc: BmcClient, root: JsonObject) -> None:
    """Read a resource behind the root, which needs no authentication: it shows whether the account is accepted.

    Raises the first error where none can be read: one dead link says nothing about the service.
    """
    failure: BmcError | None = None
    for name in ("Chassis", "Managers", "Systems"):
        if uri := text(root, name, "@odata.id"):
            try:
                await bmc.get(uri)
            except (RequestRefused, ServerFault, Malformed, ForeignLink) as error:
                if error.answered in {401, 403}:
                    raise
                failure = failure or error
            else:
                return
    if failure is not None:
        raise failure


def _raise_probe_error(error: BmcError, address: BmcAddress) -> NoReturn:
    """Raise Invalid for the wrong field with the reason, without quoting the response."""
    host = parse_origin(address.url).host
    if isinstance(error, CertificateRejected):
        if address.trust.fingerprint:
            field, sentence = (
                "fingerprint",
                _("{host} shows a certificate with another fingerprint than this one.", host=host),
            )
        elif error.expired_on:
            field = "ca_pem" if address.trust.ca_pem else "fingerprint"
            sentence = _("The certificate of {host} expired on {date}.", host=host, date=error.expired_on)
        elif address.trust.ca_pem:
            field, sentence = "ca_pem", _("The certificate of {host} is not trusted by this CA.", host=host)
        else:
            field = "fingerprint"
            sentence = _(
                "The certificate of {host} is not trusted by this system's CAs. {hint}", host=host, hint=_(TRUST_HINT)
            )
        raise Invalid(sentence, errors={field: sentence}, found_fingerprint=error.found) from error
    refused = isinstance(error, RequestRefused) and error.answered == 401
    if isinstance(error, SignInRefused) or refused:
        if not address.username:
            _raise_invalid("username", _("{host} asks for a name and password.", host=host), error)
        _raise_invalid("password", _("{host} refuses this name and password.", host=host), error)
    if isinstance(error, RequestRefused) and error.answered == 403:
        _raise_invalid("username", _("{host} does not let this account read its resources.", host=host), error)
    if isinstance(error, ServerFault):
        _raise_invalid(
            "url",
            _("{host} answers, but only with an error of its own ({status}).", host=host, status=error.answered),
            error,
        )
    if isinstance(error, (Unreachable, TimedOut)):
        # Composed of host, port and the operating system's error.
        _raise_invalid("url", _(error.sentence), error)
    if isinstance(error, ForeignLink) or isinstance(error.__cause__, ForeignLink):
        _raise_invalid(
            "url", _("{host} points to another address, which was not followed: give the final one.", host=host), error
        )
    _raise_invalid("url", _("{host} answers, but not as a Redfish service.", host=host), error)


def _raise_invalid(field: str, sentence: str, cause: Exception | None = None) -> NoReturn:
    raise Invalid(sentence, errors={field: sentence}) from cause


def _audit_values(row: Chassis) -> dict[str, object]:
    """Return the values of a chassis for the audit log, without credentials."""
    return {
        "name": row.name, "address": row.url, "account": row.username, "password kept": bool(row.password_encrypted),
        "fingerprint": row.fingerprint, "CA of its own": bool(row.ca_pem), "polled": row.enabled,
        "shares its UUID": row.shares_uuid,
    }  # fmt: skip


def _require_administrator(person: User) -> None:
    if not person.is_administrator:
        raise Forbidden(_("Only an administrator may add, edit or remove a chassis."))


def _update_fields(row: Chassis, **values: Any) -> set[str]:
    """Set the given values that differ; return the names of the fields."""
    changed = {name for name, value in values.items() if value is not None and getattr(row, name) != value}
    for name in changed:
        setattr(row, name, values[name])
    return changed


def _save(row: Chassis, fields: set[str] | None = None) -> None:
    try:
        with transaction.atomic():
            # The poller writes other fields of the same row: only the changed ones are written.
            row.save() if fields is None else row.save(update_fields=fields)
    except IntegrityError as error:
        _check_duplicates(row)
        raise Conflict(_("Somebody changed the chassis at the same moment. Reload, then try again.")) from error


def _check_duplicates(row: Chassis) -> None:
    for other in Chassis.objects.exclude(pk=row.pk).only("name", "url"):
        if other.name.casefold() == row.name.casefold():
            _raise_invalid("name", _("There is a chassis of the name {name} already.", name=other.name))
        if _same_origin(other.url, row.url):
            _raise_invalid("url", _("{name} has this address already.", name=other.name))


def _check_same_hardware(row: Chassis, probe: ServiceIdentity) -> None:
    """Refuse a chassis that exists already at another address: two would plan on the same hardware.

    Some services have the UUID of a published example: an administrator may confirm that.
    """
    if row.shares_uuid:
        return
    other = Chassis.objects.exclude(pk=row.pk).filter(uuid_query(probe.uuid)).first()
    if other is not None:
        sentence = _(
            "This is {name}, which exists at {url} already: its UUID is the same.", name=other.name, url=other.url
        )
        raise Invalid(sentence, errors={"url": sentence}, same_uuid_as=other.name)


def _same_origin(one: str, other: str) -> bool:
    try:
        return parse_origin(one) == parse_origin(other)
    except WrongAddress:
        return False


def _password_for(row: Chassis, password: str | None, *, moved: bool) -> str:
    """Return the password to sign in with: the given one, else the stored one if the address is unchanged."""
    if password is not None:
        _check_password(row.username, password)
        return password
    if not row.username or not row.password_encrypted:
        return ""
    if moved:
        _raise_invalid("password", _("Enter the password again: the stored one is not sent to another address."))
    try:
        return credentials.decrypt(row.password_encrypted)
    except Unavailable as error:
        _raise_invalid(
            "password", _("Enter the password again: the stored one cannot be decrypted with the site's key."), error
        )


def _clean_name(typed: str) -> str:
    name = typed.strip()
    if not name:
        _raise_invalid("name", _("A name is needed."))
    if len(name) > 100 or not name.isprintable():
        _raise_invalid("name", _("A name has at most 100 characters, all of them printable."))
    return name


def _clean_username(typed: str) -> str:
    name = typed.strip()
    if len(name) > 100 or not name.isprintable():
        _raise_invalid("username", _("A name to sign in with has at most 100 characters, all of them printable."))
    return name


def _check_password(username: str, password: str) -> None:
    if password and not username:
        _raise_invalid("username", _("A password needs a name to sign in with."))
    if len(password) > MAX_PASSWORD_LENGTH or "\0" in password:
        _raise_invalid("password", _("A password has at most {most} characters.", most=MAX_PASSWORD_LENGTH))


def _clean_url(typed: str, *, allow_http: bool) -> str:
    """Return scheme, host and port in their canonical form."""
    url = typed.strip()
    if "://" not in url:
        url = f"https://{url}"
    if not url.isprintable() or " " in url:
        # URL parsers drop line breaks silently.
        _raise_invalid("url", _(NOT_A_URL))
    try:
        origin = parse_origin(url)
    except WrongAddress as error:
        _raise_invalid("url", _(error.sentence), error)
    rest = url.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        _raise_invalid("url", _("The address carries a user or password; these are given apart from it."))
    if rest[len(authority) :] not in ROOT_PATHS:
        _raise_invalid(
            "url", _("Give the address without a path, such as https://10.0.0.5 or https://bmc.example:8443.")
        )
    if not _is_host(origin.raw_host or "") or not origin.port or len(str(origin)) > 300:
        _raise_invalid("url", _(NOT_A_URL))
    if sentence := host_refusal_reason(origin.raw_host or ""):
        _raise_invalid("url", sentence)
    if origin.scheme == "http" and not allow_http:
        _raise_invalid(
            "url", _("This address has no encryption, so name and password can be read on the network: use https://.")
        )
    return str(origin)


def _is_host(host: str) -> bool:
    if ":" not in host:
        return re.fullmatch(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?", host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _clean_pem(typed: str) -> str:
    pem = typed.replace("\r\n", "\n").strip()
    if not pem:
        return ""
    if "PRIVATE KEY" in pem:
        # A key that was pasted by mistake must not be stored.
        _raise_invalid("ca_pem", _("This contains a private key: enter the certificate only."))
    if len(pem) > MAX_PEM_LENGTH:
        _raise_invalid("ca_pem", _("A CA certificate has at most {most} characters.", most=MAX_PEM_LENGTH))
    try:
        client_tls(CertificateTrust(ca_pem=pem))
    except WrongAddress as error:
        _raise_invalid(
            "ca_pem", _("This is not a certificate in PEM form, which starts with -----BEGIN CERTIFICATE-----."), error
        )
    return pem + "\n"


def _clean_fingerprint(typed: str) -> str:
    if not typed.strip():
        return ""
    try:
        return format_fingerprint(parse_fingerprint(typed))
    except WrongAddress as error:
        _raise_invalid("fingerprint", _(error.sentence), error)
