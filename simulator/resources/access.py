"""Sessions, accounts and roles."""

from __future__ import annotations

from functools import partial

from simulator.accounts import MAX_PASSWORD, MIN_PASSWORD, ROLES, SESSION_TIMEOUT, Account, Session, forbidden
from simulator.errors import Body, RedfishError, property_missing
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode, WriteMethod, collection, link

V1 = "/redfish/v1"
SESSIONS = f"{V1}/SessionService/Sessions"
ACCOUNTS = f"{V1}/AccountService/Accounts"
ROLE_URI = f"{V1}/AccountService/Roles"


def register(falcon: Falcon) -> None:
    """Add the session and account services."""
    _register_sessions(falcon)
    _register_accounts(falcon)
    _register_roles(falcon)


def session_body(session: Session) -> Body:
    """Render a session; its token is never shown."""
    return {
        "@odata.id": f"{SESSIONS}/{session.id}",
        "@odata.type": "#Session.v1_8_0.Session",
        "Id": session.id,
        "Name": "User Session",
        "UserName": session.account,
        "Password": None,
        "CreatedTime": session.created,
        "ClientOriginIPAddress": session.origin,
    }


def _register_sessions(falcon: Falcon) -> None:
    tree, accounts = falcon.tree, falcon.accounts

    def service() -> Body:
        return {
            "@odata.id": f"{V1}/SessionService",
            "@odata.type": "#SessionService.v1_2_0.SessionService",
            "Id": "SessionService",
            "Name": "Session Service",
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
            raise RedfishError(
                401,
                "ResourceAtUriUnauthorized",
                "The user name or the password is wrong.",
                arguments=(SESSIONS, "invalid credentials"),
                headers={"WWW-Authenticate": 'Basic realm="Falcon"'},
            )
        session = accounts.open_session(account, falcon.clock.timestamp(), call.origin)
        headers = {"Location": f"{SESSIONS}/{session.id}", "X-Auth-Token": session.token}
        return Reply(201, session_body(session), headers)

    def node(session_id: str) -> ResourceNode | None:
        session = accounts.sessions.get(session_id)
        if session is None:
            return None

        async def delete(call: AuthenticatedRequest) -> Reply:
            own = call.account is not None and call.account.name == session.account
            if call.account is None or not (own or call.account.may("ConfigureManager")):
                raise forbidden()
            accounts.sessions.pop(session.id, None)
            return Reply(204)

        return ResourceNode(
            f"{SESSIONS}/{session_id}", lambda: session_body(session), {"DELETE": WriteMethod(delete, ("Login",))}
        )

    post = WriteMethod(create, ())
    tree.resource(f"{V1}/SessionService", service)
    tree.add(
        ResourceNode(
            SESSIONS,
            lambda: collection(SESSIONS, "Session", "Sessions", [f"{SESSIONS}/{key}" for key in accounts.sessions]),
            {"POST": post},
        )
    )
    tree.members(SESSIONS, lambda last: ResourceNode(f"{SESSIONS}/Members", None, {"POST": post})
                 if last == "Members" else node(last))  # fmt: skip


def _register_accounts(falcon: Falcon) -> None:
    tree, accounts = falcon.tree, falcon.accounts

    def service() -> Body:
        return {
            "@odata.id": f"{V1}/AccountService",
            "@odata.type": "#AccountService.v1_18_1.AccountService",
            "Id": "AccountService",
            "Name": "Account Service",
            "ServiceEnabled": True,
            "MinPasswordLength": MIN_PASSWORD,
            "MaxPasswordLength": MAX_PASSWORD,
            "HTTPBasicAuth": "Enabled",
            "Accounts": link(ACCOUNTS),
            "Roles": link(ROLE_URI),
        }

    def render(account: Account) -> Body:
        return {
            "@odata.id": f"{ACCOUNTS}/{account.name}",
            "@odata.type": "#ManagerAccount.v1_14_1.ManagerAccount",
            "Id": account.name,
            "Name": "User Account",
            "UserName": account.name,
            "Password": None,
            "RoleId": account.role,
            "Enabled": account.enabled,
            "Locked": False,
            "PasswordChangeRequired": account.password_change_required,
            "AccountTypes": ["Redfish"],
            "Links": {"Role": link(f"{ROLE_URI}/{account.role}")},
        }

    async def create(call: AuthenticatedRequest) -> Reply:
        account = accounts.create(call.body)
        return Reply(201, render(account), {"Location": f"{ACCOUNTS}/{account.name}"})

    def node(name: str) -> ResourceNode | None:
        account = accounts.accounts.get(name)
        if account is None:
            return None

        async def change(call: AuthenticatedRequest) -> Reply:
            if call.account is None:
                raise forbidden()
            accounts.change(account, call.body, call.account)
            return Reply(200, render(account))

        async def delete(call: AuthenticatedRequest) -> Reply:
            accounts.delete(account)
            return Reply(204)

        return ResourceNode(
            f"{ACCOUNTS}/{name}",
            lambda: render(account),
            {
                "PATCH": WriteMethod(change, ("ConfigureUsers", "ConfigureSelf")),
                "DELETE": WriteMethod(delete, ("ConfigureUsers",)),
            },
        )

    post = WriteMethod(create, ("ConfigureUsers",))
    tree.resource(f"{V1}/AccountService", service)
    tree.add(
        ResourceNode(
            ACCOUNTS,
            lambda: collection(
                ACCOUNTS, "ManagerAccount", "Accounts", [f"{ACCOUNTS}/{name}" for name in accounts.accounts]
            ),
            {"POST": post},
        )
    )
    tree.members(ACCOUNTS, lambda last: ResourceNode(f"{ACCOUNTS}/Members", None, {"POST": post})
                 if last == "Members" else node(last))  # fmt: skip


def _register_roles(falcon: Falcon) -> None:
    def render(name: str) -> Body:
        return {
            "@odata.id": f"{ROLE_URI}/{name}",
            "@odata.type": "#Role.v1_3_3.Role",
            "Id": name,
            "Name": "User Role",
            "RoleId": name,
            "IsPredefined": True,
            "AssignedPrivileges": list(ROLES[name]),
            "OemPrivileges": [],
        }

    uris = [f"{ROLE_URI}/{name}" for name in ROLES]
    falcon.tree.resource(ROLE_URI, lambda: collection(ROLE_URI, "Role", "Roles", uris))
    for name in ROLES:
        falcon.tree.resource(f"{ROLE_URI}/{name}", partial(render, name))
