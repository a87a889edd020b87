"""Sessions, accounts and roles."""

from __future__ import annotations

from functools import partial

from simulator.accounts import MAX_PASSWORD, MIN_PASSWORD, ROLES, SESSION_TIMEOUT, Account, Session, forbidden
from simulator.errors import RedfishError, property_missing, unauthorized
from simulator.odata import V1, Body, identity, link
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode, WriteMethod

SESSIONS = f"{V1}/SessionService/Sessions"
ACCOUNTS = f"{V1}/AccountService/Accounts"
ROLE_URI = f"{V1}/AccountService/Roles"


def register(falcon: Falcon) -> None:
    """Add the session and account services."""
    _register_sessions(falcon)
    _register_accounts(falcon)
    uris = [f"{ROLE_URI}/{name}" for name in ROLES]
    falcon.tree.collection(ROLE_URI, "Role", "Roles", lambda: uris)
    for name in ROLES:
        falcon.tree.resource(f"{ROLE_URI}/{name}", partial(_role, name))


def session_body(session: Session) -> Body:
    """Render a session; its token is never shown."""
    return {
        **identity(f"{SESSIONS}/{session.id}", "Session", "User Session"),
        "UserName": session.account,
        "Password": None,
        "CreatedTime": session.created,
        "ClientOriginIPAddress": session.origin,
    }


def _register_sessions(falcon: Falcon) -> None:
    accounts = falcon.accounts

    def service() -> Body:
        return {
            **identity(f"{V1}/SessionService", "SessionService", "Session Service"),
            "ServiceEnabled": falcon.options.sessions,
            "SessionTimeout": SESSION_TIMEOUT,
            "Sessions": link(SESSIONS),
        }

    async def create(call: AuthenticatedRequest) -> Reply:
        if not falcon.options.sessions:
            raise RedfishError(401, "InsufficientPrivilege", "This service opens no sessions; use Basic.")
        name, password = call.body.get("UserName"), call.body.get("Password")
        if not isinstance(name, str):
            raise property_missing("UserName")
        if not isinstance(password, str):
            raise property_missing("Password")
        account = accounts.by_password(name, password)
        if account is None:
            raise unauthorized(SESSIONS, "The user name or the password is wrong.", "invalid credentials")
        session = accounts.open_session(account, falcon.clock.timestamp(), call.origin)
        headers = {"Location": f"{SESSIONS}/{session.id}", "X-Auth-Token": session.token}
        return Reply(201, session_body(session), headers)

    def node(uri: str, session: Session) -> ResourceNode:
        async def delete(call: AuthenticatedRequest) -> Reply:
            own = call.account is not None and call.account.name == session.account
            if call.account is None or not (own or call.account.may("ConfigureManager")):
                raise forbidden()
            accounts.sessions.pop(session.id, None)
            return Reply(204)

        return ResourceNode(uri, partial(session_body, session), {"DELETE": WriteMethod(delete, ("Login",))})

    falcon.tree.resource(f"{V1}/SessionService", service)
    falcon.tree.objects(SESSIONS, "Session", "Sessions", lambda: accounts.sessions, node, POST=WriteMethod(create, ()))


def _register_accounts(falcon: Falcon) -> None:
    accounts = falcon.accounts

    def service() -> Body:
        return {
            **identity(f"{V1}/AccountService", "AccountService", "Account Service"),
            "ServiceEnabled": True,
            "MinPasswordLength": MIN_PASSWORD,
            "MaxPasswordLength": MAX_PASSWORD,
            "HTTPBasicAuth": "Enabled",
            "Accounts": link(ACCOUNTS),
            "Roles": link(ROLE_URI),
        }

    async def create(call: AuthenticatedRequest) -> Reply:
        account = accounts.create(call.body)
        return Reply(201, _account(account), {"Location": f"{ACCOUNTS}/{account.name}"})

    def node(uri: str, account: Account) -> ResourceNode:
        async def change(call: AuthenticatedRequest) -> Reply:
            if call.account is None:
                raise forbidden()
            accounts.change(account, call.body, call.account)
            return Reply(200, _account(account))

        async def delete(call: AuthenticatedRequest) -> Reply:
            accounts.delete(account)
            return Reply(204)

        writes = {
            "PATCH": WriteMethod(change, ("ConfigureUsers", "ConfigureSelf")),
            "DELETE": WriteMethod(delete, ("ConfigureUsers",)),
        }
        return ResourceNode(uri, partial(_account, account), writes)

    post = WriteMethod(create, ("ConfigureUsers",))
    falcon.tree.resource(f"{V1}/AccountService", service)
    falcon.tree.objects(ACCOUNTS, "ManagerAccount", "Accounts", lambda: accounts.accounts, node, POST=post)


def _account(account: Account) -> Body:
    return {
        **identity(f"{ACCOUNTS}/{account.name}", "ManagerAccount", "User Account"),
        "UserName": account.name,
        "Password": None,
        "RoleId": account.role,
        "Enabled": account.enabled,
        "Locked": False,
        "PasswordChangeRequired": False,
        "AccountTypes": ["Redfish"],
        "Links": {"Role": link(f"{ROLE_URI}/{account.role}")},
    }


def _role(name: str) -> Body:
    return {
        **identity(f"{ROLE_URI}/{name}", "Role", "User Role"),
        "RoleId": name,
        "IsPredefined": True,
        "AssignedPrivileges": list(ROLES[name]),
        "OemPrivileges": [],
    }
