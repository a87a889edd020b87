"""LDAP: who a name and password are in a directory. The protocol is sansldap's, the connection the site's own.

Functions raise Unavailable, with a sentence, where the directory does not answer as it should within TIMEOUT_SECONDS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from socket import socket
from typing import Final
from uuid import UUID

from django.views.decorators.debug import sensitive_variables
from sansldap import (
    BindResponse,
    ExtendedOperations,
    ExtendedResponse,
    LDAPClient,
    LDAPError,
    LDAPFilter,
    LDAPMessage,
    LDAPResult,
    LDAPResultCode,
    SearchResultDone,
    SearchResultEntry,
)
from sansldap.asn1 import NotEnougData

from accounts.identity_providers.models import IdentityProvider
from accounts.identity_providers.rules import ExternalPerson, filter_escape, group_names
from core.connections import open_connection, seconds_left, tls_context
from core.endpoints import DeliveryEndpoint, DeliveryFailed, ldap_endpoint
from core.errors import Invalid, Unavailable
from core.language import _

TIMEOUT_SECONDS: Final = 5.0  # of all that is asked of a directory for a sign-in
MAX_ANSWER_BYTES: Final = 4 * 2**20
MAX_GROUPS: Final = 1000
# What identifies a person for good: OpenLDAP, Active Directory, 389 Directory Server. A name or a DN is given anew.
SUBJECTS: Final = ("entryuuid", "objectguid", "nsuniqueid")

Entry = tuple[str, dict[str, list[bytes]]]  # DN, and values by attribute in small letters


def directory_endpoint(provider: IdentityProvider) -> DeliveryEndpoint:
    """Return the checked address of a directory; raises Invalid for one to which passwords would go unencrypted."""
    endpoint = ldap_endpoint(provider.address)
    if endpoint.scheme == "ldap" and not provider.start_tls and not endpoint.is_loopback:
        sentence = _("Passwords are sent there: use ldaps://, or ldap:// with StartTLS.")
        raise Invalid(sentence, errors={"address": sentence})
    return endpoint


def user_filter(provider: IdentityProvider, username: str) -> LDAPFilter:
    """Return the filter that finds a person; raises Invalid where it is none."""
    return _filter(provider.user_filter, "user_filter", username=username)


def group_filter(provider: IdentityProvider, dn: str, username: str) -> LDAPFilter:
    """Return the filter that finds a person's groups; raises Invalid where it is none."""
    return _filter(provider.group_filter, "group_filter", dn=dn, username=username)


@sensitive_variables("password")
def directory_person(provider: IdentityProvider, username: str, password: str) -> ExternalPerson | None:
    """Return the person whose name and password these are in a directory, None where they are nobody's."""
    # A bind with a name and no password succeeds without any check (RFC 4513, 5.1.2).
    if not username or not password or "\0" in username + password:
        return None
    with _session(provider) as directory:
        found = directory.search(provider.user_base, user_filter(provider, username), limit=2)
        if len(found) != 1:
            return None
        person = _person_of(provider, directory, *found[0])
        return person if directory.bind(found[0][0], password) else None


def directory_sample(provider: IdentityProvider) -> int:
    """Return how many people the directory shows the site, two at most: a test of the connection."""
    with _session(provider) as directory:
        everybody = _filter(provider.user_filter, "user_filter", escape=False, username="*")
        return len(directory.search(provider.user_base, everybody, limit=2))


class DirectorySession:
    """A connection to a directory, on which requests follow each other."""

    def __init__(self, name: str, connection: socket, deadline: float) -> None:
        self.name = name
        self.connection = connection
        self.deadline = deadline
        self.protocol = LDAPClient()

    @sensitive_variables("password")
    def bind(self, dn: str, password: str) -> bool:
        """Return whether the password is that of the DN; both empty: nobody's rights, where the directory has such."""
        number = self.protocol.bind_simple(dn, password)
        (answer,) = self._answers(number)
        if not isinstance(answer, BindResponse):
            raise LDAPError("no answer to a bind")
        if answer.result.result_code == LDAPResultCode.SUCCESS:
            return True
        if answer.result.result_code == LDAPResultCode.INVALID_CREDENTIALS:
            return False
        raise self._refusal(answer.result)

    def start_tls(self, endpoint: DeliveryEndpoint, ca: str) -> None:
        """Encrypt the connection; what was received before in plain is forgotten with the session of the protocol."""
        number = self.protocol.extended_request(ExtendedOperations.LDAP_START_TLS.value)
        (answer,) = self._answers(number)
        if not isinstance(answer, ExtendedResponse) or answer.result.result_code != LDAPResultCode.SUCCESS:
            raise Unavailable(_("{name} offers no StartTLS. Use ldaps:// where it has that.", name=self.name))
        self.connection.settimeout(seconds_left(self.deadline))
        self.connection = tls_context(ca).wrap_socket(self.connection, server_hostname=endpoint.host)
        self.protocol = LDAPClient()

    def search(self, base: str, wanted: LDAPFilter, *, limit: int, attributes: tuple[str, ...] = ()) -> list[Entry]:
        """Return entries below a DN, `limit` at most."""
        number = self.protocol.search_request(
            base, size_limit=limit, time_limit=int(TIMEOUT_SECONDS), filter=wanted,
            attributes=list(attributes or ("*", *SUBJECTS, "memberOf")),
        )  # fmt: skip
        found: list[Entry] = []
        for answer in self._answers(number):
            if isinstance(answer, SearchResultEntry):
                found.append((answer.object_name, {one.name.lower(): one.values for one in answer.attributes}))
            elif isinstance(answer, SearchResultDone) and answer.result.result_code not in {
                LDAPResultCode.SUCCESS, LDAPResultCode.SIZE_LIMIT_EXCEEDED,
            }:  # fmt: skip
                raise self._refusal(answer.result)
        return found

    def _answers(self, number: int) -> list[LDAPMessage]:
        """Send what the protocol has to send, and return the messages up to the last one of a request."""
        self.connection.settimeout(seconds_left(self.deadline))
        self.connection.sendall(self.protocol.data_to_send())
        found: list[LDAPMessage] = []
        room = MAX_ANSWER_BYTES
        while not (found and isinstance(found[-1], BindResponse | ExtendedResponse | SearchResultDone)):
            self.connection.settimeout(seconds_left(self.deadline))
            data = self.connection.recv(65_536)
            room -= len(data)
            if not data or room < 0:
                raise LDAPError("the answer broke off" if not data else "the answer is too large")
            found += self.protocol.receive(data)
        if any(one.message_id != number for one in found):
            raise LDAPError("an answer to nothing that was asked")
        return found

    def _refusal(self, result: LDAPResult) -> Unavailable:
        word = result.result_code.name.lower().replace("_", " ")
        return Unavailable(_("{name} refuses what the site asks of it ({word}).", name=self.name, word=word))


@contextmanager
def _session(provider: IdentityProvider) -> Iterator[DirectorySession]:
    """Connect to a directory as the site; errors inside become Unavailable."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        endpoint = directory_endpoint(provider)
        with open_connection(endpoint, deadline, provider.ca, tls=endpoint.scheme == "ldaps") as connection:
            directory = DirectorySession(provider.name, connection, deadline)
            try:
                if endpoint.scheme == "ldap" and provider.start_tls:
                    directory.start_tls(endpoint, provider.ca)
                if not directory.bind(provider.bind_dn, provider.secret() if provider.bind_dn else ""):
                    raise Unavailable(
                        _("{name} does not accept the site's own bind DN and password.", name=provider.name)
                    )
                yield directory
            finally:
                directory.connection.close()
    except (DeliveryFailed, Invalid) as error:
        raise Unavailable(_("{name} does not answer: {reason}", name=provider.name, reason=error.sentence)) from error
    except (LDAPError, NotEnougData, ValueError, NotImplementedError) as error:
        raise Unavailable(_("{name} answers with something that is no LDAP.", name=provider.name)) from error


def _person_of(
    provider: IdentityProvider, directory: DirectorySession, dn: str, values: Mapping[str, list[bytes]]
) -> ExternalPerson:
    """Return the person of an entry, with their groups."""

    def first(name: str) -> str:
        return next((one.decode(errors="replace") for one in values.get(name.lower(), [])), "").strip()

    username = first(provider.username_attribute)
    known = next((name for name in SUBJECTS if values.get(name)), "")
    if not username or not known:
        missing = "entryUUID, objectGUID or nsUniqueId" if username else provider.username_attribute
        raise Unavailable(_("{name} shows the site no {missing} of this person.", name=provider.name, missing=missing))
    raw = values[known][0]
    subject = str(UUID(bytes_le=raw)) if known == "objectguid" and len(raw) == 16 else first(known)
    if provider.group_base:
        wanted = group_filter(provider, dn, username)
        groups = [
            name for name, _ in directory.search(provider.group_base, wanted, limit=MAX_GROUPS, attributes=("1.1",))
        ]
    else:
        groups = [one.decode(errors="replace") for one in values.get("memberof", [])]
    return ExternalPerson(
        subject=subject,
        username=username,
        full_name=(first("displayName") or first("cn"))[:150],
        email=first("mail"),
        groups=group_names(groups),
    )


def _filter(template: str, field: str, *, escape: bool = True, **values: str) -> LDAPFilter:
    text = template
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", filter_escape(value) if escape else value)
    try:
        return LDAPFilter.from_string(text)
    except (ValueError, LDAPError) as error:
        sentence = _("This is no filter of LDAP: give one such as (uid={username}).")
        raise Invalid(sentence, errors={field: sentence}) from error
