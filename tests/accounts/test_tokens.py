"""Rights of tokens: areas, addresses, tokens that tokens make, service accounts, and the list of all."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import resolve, reverse
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.declaration import area_of
from accounts.models import Area, PersonKind, Role, Tenant, Token, User
from accounts.services import person_edit, service_add
from accounts.sign_in.services import sign_in_complete
from accounts.token_rules import TokenRights, covers, rights_within
from accounts.token_services import TOKEN_SCOPES, token_create
from core.errors import Forbidden, Invalid
from falconweb.api.authentication import find_token
from falconweb.navigation import addresses
from tests.pages import page_text

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-password-1"
# Endpoints that no narrowed token opens.
WITHOUT_AREA = {"api:schema", "api:docs", "api:nothing"}


@pytest.fixture
def ada() -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def bob() -> User:
    """A user of a tenant."""
    tenant = Tenant.objects.create(name="Vision group")
    return User.objects.create_user("bob", password=PASSWORD, role=Role.USER, tenant=tenant)


def client_of(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def secret_of(person: User, **more: Any) -> str:
    values: dict[str, Any] = {"name": "job", "scope": "write", "days": 30, **more}
    return token_create(person=person, **values)[1]


def call(secret: str, method: str, name: str, body: object = None, *, args: Any = (), **more: str) -> Any:
    headers = {"Authorization": f"Bearer {secret}"}
    address = reverse(name, args=args)
    return Client().generic(
        method.upper(), address, b"" if body is None else json.dumps(body), "application/json",
        headers=headers, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_every_endpoint_has_an_area_or_is_closed_to_narrowed_tokens() -> None:
    endpoints = {name: one.callback for name, one in addresses().items() if name.startswith("api:")}
    areas = {name: area_of(callback) for name, callback in endpoints.items()}
    assert {name for name, area in areas.items() if not area} == WITHOUT_AREA
    assert set(areas.values()) - {""} == set(Area.values)
    assert (areas["api:audit"], areas["api:tokens"], areas["api:devices"]) == ("audit", "accounts", "fabric")
    assert area_of(resolve("/metrics").func) == "telemetry"


def test_a_narrowed_token_opens_its_areas_and_no_other_endpoint(ada: User) -> None:
    """Every endpoint without an object in its address, with a token of each area."""
    names = [
        name for name, one in addresses().items()
        if name.startswith("api:") and "<" not in one.route and name not in WITHOUT_AREA - {"api:schema"}
    ]  # fmt: skip
    for area in Area.values:
        secret = secret_of(ada, name=area, scope="read", scopes=[f"{area}:read"])
        for name in names:
            answer = call(secret, "get", name)
            allowed = area_of(addresses()[name].callback) == area
            refused = answer.status_code == 403 and "This token may not" in answer.json()["detail"]
            assert refused is not allowed, (area, name, answer.status_code)


def test_writing_in_an_area_includes_reading_and_reading_no_writing(bob: User) -> None:
    body = {"device_id": 1, "target_host_port_id": None}
    writes = secret_of(bob, name="w", scopes=["fabric:write", "telemetry:read"])
    assert call(writes, "get", "api:chassis_list").status_code == 200
    assert call(writes, "post", "api:operations", body).status_code == 404
    reads = secret_of(bob, name="r", scopes=["fabric:read", "benchmarks:write"])
    refused = call(reads, "post", "api:operations", body)
    assert refused.status_code == 403
    assert "may not write Fabric" in refused.json()["detail"]
    assert call(reads, "get", "api:me").status_code == 403


def test_a_narrowed_token_reads_metrics_where_it_reads_telemetry(bob: User) -> None:
    assert call(secret_of(bob, name="t", scopes=["telemetry:read"]), "get", "metrics").status_code == 200
    assert call(secret_of(bob, name="f", scopes=["fabric:read"]), "get", "metrics").status_code == 403
    assert call(secret_of(bob, name="m", scope="metrics"), "get", "metrics").status_code == 200


@pytest.mark.parametrize(
    ("networks", "address", "status"),
    [
        (["10.1.0.0/16"], "10.1.2.3", 200), (["10.1.0.0/16"], "10.2.2.3", 403), (["10.1.2.3"], "::ffff:10.1.2.3", 200),
        (["2001:db8::5/128"], "2001:db8::5", 200), (["2001:db8::5/128"], "2001:db8::6", 403), (["0.0.0.0/0"], "", 403),
        (["10.0.0.0/8", "2001:db8::/32"], "2001:db8:1::6", 200), ([], "", 200),
    ],
)  # fmt: skip
def test_a_token_is_used_from_its_addresses_only(bob: User, networks: list[str], address: str, status: int) -> None:
    secret = secret_of(bob, scope="read", addresses=networks)
    assert call(secret, "get", "api:me", REMOTE_ADDR=address).status_code == status


def test_a_header_of_the_client_is_not_believed(bob: User) -> None:
    secret = secret_of(bob, addresses=["10.0.0.0/8"])
    assert call(secret, "get", "api:me", REMOTE_ADDR="192.0.2.1", HTTP_X_FORWARDED_FOR="10.1.1.1").status_code == 403


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scopes": ["everything:read"]}, "scopes"), ({"scopes": ["fabric:write"], "scope": "read"}, "scopes"),
        ({"scopes": ["fabric:read"], "scope": "metrics"}, "scopes"), ({"addresses": ["10.0.0.0/33"]}, "addresses"),
        ({"addresses": ["localhost"]}, "addresses"), ({"addresses": ["10.0.0.1"] * 51}, "addresses"),
    ],
)  # fmt: skip
def test_rights_that_do_not_fit_are_refused_beside_their_field(bob: User, changes: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        secret_of(bob, **changes)
    assert list(refused.value.details["errors"]) == [field]


WIDE = TokenRights(scope="write")
NARROW = TokenRights(scope="write", scopes=("accounts:write", "fabric:read"), addresses=("10.0.0.0/8",))


@pytest.mark.parametrize(
    ("wanted", "limit", "fields"),
    [
        (WIDE, WIDE, []), (NARROW, WIDE, []), (WIDE, NARROW, []), (WIDE, TokenRights(scope="read"), ["scope"]),
        (TokenRights(scope="write", scopes=("fabric:write",)), NARROW, ["scopes"]),
        (TokenRights(scope="read", scopes=("audit:read",)), NARROW, ["scopes"]),
        (TokenRights(scope="read", addresses=("10.0.0.0/7",)), NARROW, ["addresses"]),
        (TokenRights(scope="read", addresses=("2001:db8::/32",)), NARROW, ["addresses"]),
        (TokenRights(scope="read", addresses=("10.3.0.0/16",)), NARROW, []),
    ],
)  # fmt: skip
def test_rights_are_within_those_of_the_maker(wanted: TokenRights, limit: TokenRights, fields: list[str]) -> None:
    rights, errors = rights_within(wanted, limit)
    assert list(errors) == fields
    if not errors:
        everything = [one.split(":") for one in TOKEN_SCOPES]
        assert all(covers(limit.scopes, *one) for one in everything if covers(rights.scopes, *one)) or not limit.scopes
        assert bool(rights.addresses) >= bool(limit.addresses)


def test_a_token_makes_none_with_more_rights_or_a_later_end(bob: User) -> None:
    maker = secret_of(bob, days=1, scopes=["accounts:write", "fabric:read"], addresses=["127.0.0.0/8"])
    parent = Token.objects.get()
    made = call(maker, "post", "api:my_tokens", {"name": "child", "scope": "read", "days": 300})
    assert made.status_code == 201, made.content
    child = Token.objects.get(name="child")
    assert (child.parent, child.expires_at, child.addresses) == (parent, parent.expires_at, ["127.0.0.0/8"])
    assert child.scopes == ["accounts:read", "fabric:read"]
    more = call(maker, "post", "api:my_tokens", {"name": "x", "days": 1, "scope": "read", "scopes": ["audit:read"]})
    assert list(more.json()["errors"]) == ["scopes"]
    assert Token.objects.count() == 2


def test_a_revoked_token_takes_with_it_what_it_made(bob: User) -> None:
    first = secret_of(bob)
    second = call(first, "post", "api:my_tokens", {"name": "2", "scope": "write", "days": 9}).json()["secret"]
    third = call(second, "post", "api:my_tokens", {"name": "3", "scope": "read", "days": 9}).json()["secret"]
    assert call(third, "get", "api:me").status_code == 200
    client = client_of(bob)
    client.post(reverse("accounts:token_revoke", args=[Token.objects.get(name="job").pk]))
    assert [call(one, "get", "api:me").status_code for one in (first, second, third)] == [401, 401, 401]
    assert AuditEntry.objects.latest("sequence").sentence == "2 that it had made were revoked with it."


def test_a_browser_does_not_become_a_token_by_naming_one(bob: User) -> None:
    """With a session the header is not looked at: a password is still asked for what needs one."""
    client = client_of(bob)
    session = client.session
    session["proved_at"] = 0
    session.save()
    answer = client.post(
        reverse("api:my_tokens"), {"name": "x", "days": 1}, "application/json",
        headers={"Authorization": f"Bearer {secret_of(bob)}"},
    )  # fmt: skip
    assert (answer.status_code, answer.json()["code"]) == (403, "sign_in_too_old")


def test_the_form_keeps_further_restrictions_closed_until_they_are_used(bob: User) -> None:
    client, where = client_of(bob), reverse("accounts:token_add")
    assert "<details >" in page_text(client.get(where))
    form = {"name": "job", "scope": "write", "days": 1, "scopes": ["fabric:write"], "addresses": "10.0.0.0/8, ::1"}
    wrong = client.post(where, form | {"addresses": "here"})
    assert wrong.status_code == 400
    assert "<details open>" in page_text(wrong)
    assert list(wrong.context["form"].errors) == ["addresses"]
    assert client.post(where, form).status_code == 201
    token = Token.objects.get()
    assert (token.scopes, token.addresses) == (["fabric:write"], ["10.0.0.0/8", "::1/128"])
    assert "only fabric:write" in page_text(client.get(reverse("accounts:account")))


def test_a_service_account_has_tokens_of_administrators_and_no_sign_in(ada: User, bob: User) -> None:
    client = client_of(ada)
    form = {"username": "ci", "full_name": "Nightly", "role": "user", "tenant": bob.tenant_id}
    where = client.post(reverse("accounts:service_add"), form)["Location"]
    service = User.objects.get(username="ci")
    assert (service.kind, service.has_usable_password()) == (PersonKind.SERVICE, False)
    assert "service account" in page_text(client.get(where))
    assert "service account" in page_text(client.get(reverse("accounts:people")))
    made = client.post(
        reverse("accounts:service_token_add", args=[service.pk]), {"name": "n", "scope": "read", "days": 9}
    )
    assert made.status_code == 201
    after: Any = AuditEntry.objects.latest("sequence").after
    assert after["person"] == "ci"
    request: Any = client.get(reverse("accounts:account")).wsgi_request
    with pytest.raises(Forbidden, match="cannot sign in"):
        sign_in_complete(request, service, backend="accounts.sign_in.backends.LocalBackend", method="password")
    for password in ("", "!", service.password):
        assert Client().post(reverse("accounts:sign_in"), {"username": "ci", "password": password}).status_code == 200
    assert client.post(reverse("accounts:person_password", args=[service.pk])).status_code == 302
    service.refresh_from_db()
    assert not service.has_usable_password()


def test_service_accounts_are_of_a_tenant_and_only_administrators_make_their_tokens(ada: User, bob: User) -> None:
    service = service_add(by=ada, username="ci", full_name="", role=Role.USER, tenant=bob.tenant)
    with pytest.raises(Forbidden):
        service_add(by=bob, username="x", full_name="", role=Role.USER, tenant=bob.tenant)
    with pytest.raises(Invalid):
        service_add(by=ada, username="x", full_name="", role=Role.ADMINISTRATOR, tenant=None)
    role = Role.ADMINISTRATOR
    with pytest.raises(Invalid):
        person_edit(by=ada, person=service, username="ci", full_name="", email="", role=role, tenant=None, active=True)
    for by, person in ((bob, service), (ada, bob), (service, bob)):
        with pytest.raises(Forbidden):
            token_create(by=by, person=person, name="x", scope="read", days=1)
    assert client_of(bob).get(reverse("accounts:service_token_add", args=[service.pk])).status_code == 403
    assert client_of(ada).get(reverse("accounts:service_token_add", args=[bob.pk])).status_code == 404


def test_service_accounts_and_their_tokens_are_made_by_the_api(ada: User, bob: User) -> None:
    secret = secret_of(ada)
    made = call(secret, "post", "api:service_accounts", {"username": "ci", "tenant_id": bob.tenant_id, "role": "user"})
    assert (made.status_code, made.json()["kind"]) == (201, "service")
    token = call(secret, "post", "api:person_tokens", {"name": "n", "days": 1}, args=[made.json()["id"]])
    assert token.status_code == 201, token.content
    assert Token.objects.get(name="n").parent == Token.objects.get(name="job")
    assert call(token.json()["secret"], "get", "api:me").json()["username"] == "ci"
    assert call(secret, "post", "api:person_tokens", {"name": "n", "days": 1}, args=[bob.pk]).status_code == 403


def test_administrators_find_and_revoke_the_tokens_of_everybody(ada: User, bob: User) -> None:
    secret_of(bob, name="nightly", scope="read", addresses=["10.0.0.0/8"])
    secret_of(bob, name="=old", scope="read")
    secret_of(ada, name="mine")
    Token.objects.filter(name="=old").update(expires_at=timezone.now() - timedelta(days=1))
    Token.objects.filter(name="nightly").update(created_at=timezone.now() - timedelta(days=91))
    client, where = client_of(ada), reverse("accounts:tokens")

    def found(**query: str) -> list[str]:
        names = [one.name for one in client.get(where, query).context["page"]]
        api = client.get(reverse("api:tokens"), query).json()["results"]
        assert [one["name"] for one in api] == names
        return names

    assert found() == ["mine", "=old", "nightly"]
    assert found(q="vision") == ["=old", "nightly"]
    assert found(scope="write") == ["mine"]
    assert found(state="expired") == ["=old"]
    assert found(state="unused") == ["nightly"]
    assert found(state="valid", q="bob") == ["nightly"]
    table = b"".join(client.get(reverse("accounts:tokens_csv"), {"q": "bob"})).decode()
    assert "bob,person,'=old,read" in table
    assert "10.0.0.0/8" in table
    token = Token.objects.get(name="nightly")
    answer = client.post(reverse("accounts:token_revoke", args=[token.pk]), {"then": "tokens"})
    assert answer["Location"] == where
    assert found(q="bob") == ["=old"]
    for name in ("accounts:tokens", "accounts:tokens_csv", "api:tokens"):
        assert client_of(bob).get(reverse(name)).status_code == 403


def test_a_token_is_looked_up_as_it_was_stored(bob: User) -> None:
    secret = secret_of(bob, scopes=["fabric:read"], addresses=["10.0.0.0/8"])
    stored = Token.objects.select_related("person").get()
    found = find_token(f"Bearer {secret}")
    assert found is not None
    for one, other in ((found, stored), (found.person, stored.person)):
        assert {**vars(one), "_state": None} == {**vars(other), "_state": None}
    assert find_token(f"Bearer {secret}x") is None
