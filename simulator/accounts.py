"""Accounts, roles and sessions of the simulated BMC."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import BasicAuth

from simulator.errors import RedfishError, no_operation, property_error, property_refused, property_value

ROLES: dict[str, tuple[str, ...]] = {
    "Administrator": ("Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents", "ConfigureSelf"),
    "Operator": ("Login", "ConfigureComponents", "ConfigureSelf"),
    "ReadOnly": ("Login", "ConfigureSelf"),
}
MIN_PASSWORD = 8
MAX_PASSWORD = 64
SESSION_TIMEOUT = 1800


@dataclass
class Account:
    """One account; the password is kept as a salted hash."""

    name: str
    role: str
    enabled: bool = True
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _digest: bytes = b""

    def set_password(self, password: str) -> None:
        """Set the password; refuses one that is too short or too long with 400."""
        if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
            sentence = f"The password must have {MIN_PASSWORD} to {MAX_PASSWORD} characters."
            raise property_error("PropertyValueError", "Password", sentence, "Password")
        self._digest = self._hash(password)

    def _hash(self, password: str) -> bytes:
        return hashlib.sha256(self._salt + password.encode()).digest()

    def accepts(self, password: str) -> bool:
        """Return whether the password is correct and the account enabled."""
        return self.enabled and hmac.compare_digest(self._digest, self._hash(password))

    def may(self, *privileges: str) -> bool:
        """Return whether the account's role has one of the privileges."""
        return any(privilege in ROLES[self.role] for privilege in privileges)


@dataclass
class Session:
    """One session; it ends SESSION_TIMEOUT seconds after its last request."""

    id: str
    token: str
    account: str
    created: str
    origin: str
    used: float = field(default_factory=time.monotonic)


class Accounts:
    """The accounts and the sessions; accounts survive a reboot of the BMC, sessions do not."""

    def __init__(self, password: str, *, lock_after: int = 0) -> None:
        self._lock_after = lock_after
        self.refused: Counter[str] = Counter()  # passwords refused in a row, by account
        self.accounts: dict[str, Account] = {}
        self.sessions: dict[str, Session] = {}
        self._number = 0
        for name, role in (("administrator", "Administrator"), ("operator", "Operator"), ("viewer", "ReadOnly")):
            account = Account(name, role)
            account.set_password(password)
            self.accounts[name] = account

    def by_basic(self, header: str) -> Account | None:
        """Return the account of an `Authorization: Basic` header, or None."""
        try:
            given = BasicAuth.decode(header, encoding="utf-8")
        except ValueError:
            return None
        return self.by_password(given.login, given.password)

    def by_password(self, name: str, password: str) -> Account | None:
        """Return the account with this name and password, or None."""
        account = self.accounts.get(name)
        if account is None:
            return None
        if not account.accepts(password) or self.is_locked(name):
            self.refused[name] += 1
            return None
        del self.refused[name]
        return account

    def is_locked(self, name: str) -> bool:
        """Return whether so many passwords were refused that the right one is, too, as with PAM's faillock."""
        return 0 < self._lock_after <= self.refused[name]

    def by_token(self, token: str) -> Account | None:
        """Return the account of an `X-Auth-Token`, and keep its session alive; None where that has ended."""
        for session in self.sessions.values():
            if hmac.compare_digest(session.token.encode(), token.encode()):
                account = self.accounts.get(session.account)
                if account is None or not account.enabled or time.monotonic() - session.used > SESSION_TIMEOUT:
                    del self.sessions[session.id]
                    return None
                session.used = time.monotonic()
                return account
        return None

    def open_session(self, account: Account, created: str, origin: str) -> Session:
        """Open a session for an authenticated account."""
        self._number += 1
        session = Session(f"s{self._number}", secrets.token_hex(16), account.name, created, origin)
        self.sessions[session.id] = session
        return session

    def create(self, body: dict[str, Any]) -> Account:
        """Create an account from a POST body; refuses wrong properties with 400 and a taken name with 409."""
        name, password, role = body.get("UserName"), body.get("Password"), body.get("RoleId")
        for key, value in (("UserName", name), ("Password", password), ("RoleId", role)):
            if not isinstance(value, str) or not value:
                sentence = (
                    f"The create operation failed because the required property {key} was missing from the request."
                )
                raise property_error("CreateFailedMissingReqProperties", key, sentence, key)
        if name in self.accounts:
            arguments = ("ManagerAccount", "UserName", str(name))
            raise RedfishError(
                409, "ResourceAlreadyExists", f"The account '{name}' already exists.", arguments=arguments
            )
        if role not in ROLES:
            raise property_value("RoleId", role)
        account = Account(str(name), str(role), enabled=bool(body.get("Enabled", True)))
        account.set_password(str(password))
        self.accounts[account.name] = account
        return account

    def change(self, account: Account, body: dict[str, Any], by: Account) -> None:
        """Apply a PATCH: all properties with the privilege to configure users, else one's own password (or 403)."""
        own_password = by.name == account.name and not set(body) - {"Password"} and by.may("ConfigureSelf")
        if not (by.may("ConfigureUsers") or own_password):
            raise forbidden()
        if not body:
            raise no_operation()
        for key, value in body.items():
            if key not in ("Password", "RoleId", "Enabled"):
                raise property_refused(key, ("Id", "Name", "UserName", "Links", "AccountTypes"))
            if key == "RoleId" and value not in ROLES:
                raise property_value(key, value)
            if (key == "Enabled") != isinstance(value, bool):
                raise property_value(key, value)
        if "Password" in body:
            account.set_password(str(body["Password"]))
            del self.refused[account.name]
            if by.name != account.name:
                self.drop_sessions(account.name)
        account.role = body.get("RoleId", account.role)
        account.enabled = body.get("Enabled", account.enabled)

    def drop_sessions(self, name: str) -> None:
        """End the sessions of an account."""
        self.sessions = {key: value for key, value in self.sessions.items() if value.account != name}

    def delete(self, account: Account) -> None:
        """Delete an account with its sessions; the last administrator stays (409)."""
        others = [one for one in self.accounts.values() if one is not account and one.role == "Administrator"]
        if not others:
            raise RedfishError(409, "ResourceInUse", "The last administrator cannot be deleted.")
        del self.accounts[account.name]
        self.drop_sessions(account.name)


def forbidden() -> RedfishError:
    """Return the refusal for a role that lacks the privilege."""
    return RedfishError(
        403,
        "InsufficientPrivilege",
        "There are insufficient privileges for the account or credentials associated with the current session.",
        resolution="Ask an administrator for a role with the privilege.",
    )
