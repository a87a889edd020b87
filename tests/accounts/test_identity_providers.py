"""Pages, API and rules of identity providers, and the one local account that stays when all others are off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider, MappingRule
from accounts.identity_providers.rules import (
    ExternalPerson,
    GroupRule,
    filter_escape,
    first_match,
    group_names,
    person_of_claims,
)
from accounts.identity_providers.services import identity_link, identity_sign_in
from accounts.models import Role, Tenant, User
from accounts.token_services import token_create
from core import credentials
from core.errors import Forbidden, Invalid
from telemetry.alerts.models import Delivery, Route
from telemetry.events.models import Event
from tests.accounts.providers import openid_provider, rule, sign_in

PASSWORD = "a-long-password-1"
OIDC = {
    "name": "Company", "enabled": "on", "address": "https://login.example.org/realms/lab", "client_id": "falconweb",
    "secret": "of-the-client", "scopes": "openid profile", "username_claim": "preferred_username",
    "groups_claim": "groups", "ca": "",
}  # fmt: skip
LDAP = {
    "name": "Directory", "enabled": "on", "address": "ldaps://ldap.example.org", "start_tls": "on",
    "bind_dn": "cn=site", "secret": "of-the-site", "user_base": "ou=people,dc=example,dc=org",
    "user_filter": "(uid={username})",
    "username_attribute": "uid", "group_base": "", "group_filter": "(member={dn})", "ca": "",
}  # fmt: skip
ADD = {"oidc": OIDC, "ldap": LDAP}


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_superuser("boss", "boss@example.org", PASSWORD)


@pytest.fixture
def office(boss: User) -> Client:
    """The browser of an administrator."""
    client = Client()
    client.force_login(boss)
    return client


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def provider(db: None) -> IdentityProvider:
    return openid_provider("https://login.example.org")


def rows_of(*rules: tuple[str, str, object]) -> dict[str, object]:
    """Return rules as the page sends them: group, role, tenant."""
    sent: dict[str, object] = {"rules-TOTAL_FORMS": len(rules), "rules-INITIAL_FORMS": 0}
    for place, (group, role, tenant) in enumerate(rules):
        sent |= {f"rules-{place}-group": group, f"rules-{place}-role": role, f"rules-{place}-tenant": tenant}
        sent[f"rules-{place}-ORDER"] = place + 1
    return sent


def test_the_first_rule_counts_and_without_one_nobody_gets_in() -> None:
    rules = [
        GroupRule(group="CN=Ops,DC=example", role="administrator", tenant_id=None),
        GroupRule(group="vision", role="user", tenant_id=7),
    ]
    assert first_match(rules, ["Vision", "cn=ops,dc=EXAMPLE"]) == (1, rules[0])
    assert first_match(rules, ["x", "vision"]) == (2, rules[1])
    assert first_match(rules, ["visio", "", "vision2"]) is None
    assert first_match([], ["vision"]) is None


def test_names_of_groups_and_filters_are_those_of_ldap() -> None:
    assert group_names(["cn=vision,ou=groups", "CN=a b,DC=x"]) == (
        "cn=vision,ou=groups",
        "CN=a b,DC=x",
        "vision",
        "a b",
    )
    assert filter_escape("a*b(c)\\\0é") == r"a\2ab\28c\29\5c\00\c3\a9"


def test_claims_are_found_by_name_before_a_path() -> None:
    claims: dict[str, Any] = {"sub": "1", "a.b": "by name", "a": {"b": "by path", "c": ["x", 7]}}
    person = person_of_claims(claims, username_claim="a.b", groups_claim="a.c")
    assert (person.username, person.groups) == ("by name", ("x",))
    with pytest.raises(Invalid, match="no user name"):
        person_of_claims(claims, username_claim="a.b.c", groups_claim="a")


@pytest.mark.parametrize("kind", ADD)
def test_an_administrator_adds_a_provider_whose_secret_is_never_shown(office: Client, kind: str) -> None:
    answer = office.post(f"/identity-providers/add/?kind={kind}", ADD[kind])
    row = IdentityProvider.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/identity-providers/{row.pk}/rules/")
    secret = ADD[kind]["secret"]
    assert credentials.decrypt(row.secret_encrypted) == secret
    pages = [office.get(where).content.decode() for where in ("/identity-providers/", f"/identity-providers/{row.pk}/")]
    entry = AuditEntry.objects.get(action="identity_provider.add")
    assert secret not in "".join([*pages, str(entry.record())])
    assert (
        office.post(f"/identity-providers/{row.pk}/", {**ADD[kind], "secret": "", "name": "Another"}).status_code == 302
    )
    row.refresh_from_db()
    assert (row.name, row.secret()) == ("Another", secret)


@pytest.mark.parametrize(
    ("kind", "field", "value", "sentence"),
    [
        ("oidc", "address", "http://login.example.org", "begins with https://"),
        ("oidc", "address", "https://169.254.169.254/", "link-local"),
        ("oidc", "address", "https://[fd00:ec2::254]/", "metadata service"),
        ("oidc", "address", "https://a:b@login.example.org", "Leave name and password out"),
        ("oidc", "address", "ldaps://login.example.org", "begins with http"),
        ("oidc", "address", "https://login.example.org/?x=1", "has no &#x27;?&#x27;"),
        ("oidc", "scopes", "profile", "contain &#x27;openid&#x27;"),
        ("oidc", "ca", "nonsense", "no certificate in PEM form"),
        ("ldap", "address", "ldap://169.254.169.254", "link-local"),
        ("ldap", "address", "https://ldap.example.org", "begins with ldap://"),
        ("ldap", "user_filter", "(uid=*)", "contains {username}"),
        ("ldap", "user_filter", "(uid={username}", "no filter of LDAP"),
        ("ldap", "group_filter", "(member=x)", "contains {dn} or {username}"),
        ("ldap", "user_base", " ", "required"),
    ],
)
def test_what_cannot_be_used_or_is_not_safe_is_refused_at_its_field(
    office: Client, kind: str, field: str, value: str, sentence: str
) -> None:
    answer = office.post(f"/identity-providers/add/?kind={kind}", {**ADD[kind], field: value})
    assert answer.status_code == 400
    assert sentence in " ".join(str(error) for error in answer.context["form"].errors[field].as_data()[0]) or (
        sentence in answer.content.decode()
    )
    assert not IdentityProvider.objects.exists()


def test_passwords_go_to_no_other_machine_unencrypted(office: Client) -> None:
    plain = {**LDAP, "address": "ldap://ldap.example.org"}
    del plain["start_tls"]
    assert "with StartTLS" in office.post("/identity-providers/add/?kind=ldap", plain).content.decode()
    assert office.post("/identity-providers/add/?kind=ldap", {**plain, "start_tls": "on"}).status_code == 302


def test_a_stored_secret_is_sent_to_no_other_address(
    office: Client, provider: IdentityProvider, tenant: Tenant
) -> None:
    moved = {**OIDC, "address": "https://evil.example"}
    answer = office.post(f"/identity-providers/{provider.pk}/", {**moved, "secret": ""})
    assert "not sent to another address" in answer.content.decode()
    ExternalIdentity.objects.create(
        provider=provider, subject="1", person=User.objects.create_user("ada", tenant=tenant, role=Role.USER)
    )
    assert "by the same names" in office.post(f"/identity-providers/{provider.pk}/", moved).content.decode()
    provider.refresh_from_db()
    assert provider.address == "https://login.example.org"


def test_rules_are_tried_on_a_sample_before_they_are_saved(
    office: Client, provider: IdentityProvider, tenant: Tenant
) -> None:
    where = f"/identity-providers/{provider.pk}/rules/"
    sent = rows_of(("operators", "administrator", ""), ("", "viewer", ""), ("vision", "user", tenant.pk))
    claims = '{"sub": "1", "preferred_username": "ada", "name": "Ada <b>", "groups": ["x", "vision"]}'
    page = office.post(where, {**sent, "sample": claims, "try": "1"})
    assert page.status_code == 200
    result = page.context["result"]
    assert (result.match[0], result.tenant, result.person.username) == (2, tenant, "ada")
    text = page.content.decode()
    assert "Rule 2 fits" in text
    assert "Ada &lt;b&gt;" in text
    assert not MappingRule.objects.exists()
    assert not User.objects.filter(username="ada").exists()
    assert AuditEntry.objects.latest("sequence").action == "identity_provider.try"
    assert "No rule fits" in office.post(where, {**sent, "sample": "guests\nstaff", "try": "1"}).content.decode()
    assert office.post(where, {**sent, "sample": ""}).status_code == 302
    assert list(MappingRule.objects.values_list("position", "group", "role", "tenant")) == [
        (1, "operators", "administrator", None), (2, "vision", "user", tenant.pk),
    ]  # fmt: skip
    swapped = {**rows_of(("operators", "administrator", ""), ("vision", "user", tenant.pk)), "rules-0-ORDER": 5}
    office.post(where, {**swapped, "sample": ""})
    assert list(MappingRule.objects.values_list("group", flat=True)) == ["vision", "operators"]


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([("a", "administrator", "tenant")], "Rule 1: Administrators belong to no tenant"),
        ([("a", "administrator", ""), ("b", "user", "")], "Rule 2: Administrators belong to no tenant"),
        ([("a", "administrator", ""), ("A", "administrator", "")], "would never count"),
        ([("a", "king", "")], "king is not one of the available choices"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    office: Client, provider: IdentityProvider, tenant: Tenant, rules: list[tuple[str, str, str]], sentence: str
) -> None:
    sent = rows_of(*((group, role, tenant.pk if which else "") for group, role, which in rules))
    answer = office.post(f"/identity-providers/{provider.pk}/rules/", {**sent, "sample": ""})
    assert answer.status_code == 400
    assert sentence in answer.content.decode()
    assert not MappingRule.objects.exists()


def test_what_rules_were_refused_for_is_logged_in_english(office: Client, provider: IdentityProvider) -> None:
    sent = rows_of(("a", "administrator", ""), ("b", "user", ""))
    page = office.post(f"/identity-providers/{provider.pk}/rules/", sent, headers={"accept-language": "de"})
    assert "Regel 2: " in page.text
    assert AuditEntry.objects.latest("pk").sentence.startswith("Rule 2: Administrators belong to no tenant")


@pytest.mark.parametrize("sample", ["", "{", "[" * 9, '{"sub": "1"}', "{" + "[" * 60_000, "x" * 70_000])
def test_a_sample_that_is_none_is_a_sentence(office: Client, provider: IdentityProvider, sample: str) -> None:
    answer = office.post(f"/identity-providers/{provider.pk}/rules/", {**rows_of(), "sample": sample, "try": "1"})
    assert answer.status_code == (200 if sample == "[" * 9 else 400)


def test_a_tenant_of_a_rule_cannot_be_deleted(office: Client, provider: IdentityProvider, tenant: Tenant) -> None:
    rule(provider, "vision", "user", tenant)
    text = office.post(f"/tenants/{tenant.pk}/removal/", follow=True).content.decode()
    assert "Vision group still has 1 sign-in rule" in text
    assert Tenant.objects.filter(pk=tenant.pk).exists()


def test_people_are_linked_by_administrators_alone_and_nobody_is_locked_out(
    office: Client, boss: User, provider: IdentityProvider, tenant: Tenant, settings: Any
) -> None:
    ada = User.objects.create_user("ada", password=PASSWORD, role=Role.USER, tenant=tenant)
    browser = Client()
    browser.force_login(ada)
    where = f"/identity-providers/{provider.pk}/people/"
    assert browser.post(where, {"username": "ada", "subject": "1"}).status_code == 403
    for name, sentence in (("boss", "lock yourself out"), ("x", "Nobody here")):
        assert sentence in office.post(where, {"username": name, "subject": "1"}).content.decode()
    assert office.post(where, {"username": "ada", "subject": "1"}).status_code == 302
    assert browser.get("/account/").status_code == 302
    assert (
        "signs in through a provider already"
        in office.post(where, {"username": "ada", "subject": "2"}).content.decode()
    )
    link = ExternalIdentity.objects.get()
    assert "ada" in office.get(f"/identity-providers/{provider.pk}/").content.decode()
    assert "whose rules set role" in office.get(f"/people/{ada.pk}/").content.decode()
    assert office.post(f"/identity-providers/links/{link.pk}/removal/").status_code == 302
    assert not ExternalIdentity.objects.exists()
    settings.CONFIG = replace(settings.CONFIG, break_glass="boss")
    other = User.objects.create_superuser("other")
    with pytest.raises(Invalid) as refused:
        identity_link(by=other, provider=provider, username="boss", subject="3")
    assert "stays local" in refused.value.details["errors"]["username"]


def test_a_provider_goes_with_its_rules_and_links_and_its_people_stay(
    office: Client, provider: IdentityProvider, tenant: Tenant
) -> None:
    rule(provider, "vision", "user", tenant)
    ada = User.objects.create_user("ada", role=Role.USER, tenant=tenant)
    ExternalIdentity.objects.create(provider=provider, subject="1", person=ada)
    token_create(person=ada, name="job", scope="write", days=1)
    assert office.post(f"/identity-providers/{provider.pk}/removal/").status_code == 302
    assert not ada.tokens.exists()
    assert not MappingRule.objects.exists()
    assert User.objects.filter(pk=ada.pk).exists()
    before = AuditEntry.objects.latest("sequence").before
    assert before is not None
    assert before["people"] == ["ada"]


def test_the_api_shows_providers_and_rules_without_secrets(
    office: Client, provider: IdentityProvider, tenant: Tenant
) -> None:
    rule(provider, "vision", "user", tenant)
    (listed,) = office.get("/api/v1/identity-providers/").json()["results"]
    assert listed["rules"] == [{"position": 1, "group": "vision", "role": "user", "tenant_id": tenant.pk}]
    assert office.get(f"/api/v1/identity-providers/{provider.pk}/").json() == listed
    assert set(listed) == {"id", "kind", "name", "enabled", "address", "people", "rules"}


@pytest.fixture
def closed(settings: Any, boss: User) -> User:
    """A site on which local accounts are off, but for the administrator's."""
    settings.CONFIG = replace(settings.CONFIG, break_glass="boss")
    return boss


def test_with_local_accounts_off_local_passwords_and_sessions_count_no_more(
    settings: Any, boss: User, tenant: Tenant
) -> None:
    User.objects.create_user("carol", password=PASSWORD, role=Role.USER, tenant=tenant)
    other = User.objects.create_superuser("other", password=PASSWORD)
    clients = {name: Client() for name in ("carol", "other", "boss")}
    for name, client in clients.items():
        assert sign_in(name, PASSWORD, client).status_code == 302
    settings.CONFIG = replace(settings.CONFIG, break_glass="boss")
    assert [client.get("/account/").status_code for client in clients.values()] == [302, 302, 200]
    assert [sign_in(name, PASSWORD).status_code for name in ("carol", "other", "boss")] == [200, 200, 302]
    assert sign_in("boss", "wrong").status_code == 200
    User.objects.filter(pk=boss.pk).update(role=Role.VIEWER, tenant=tenant)
    assert sign_in("boss", PASSWORD).status_code == 200
    assert other.is_administrator


def test_the_account_for_emergencies_rings(closed: User, django_capture_on_commit_callbacks: Any) -> None:
    for kind, address in (("email", "ops@example.org"), ("webhook", "https://hook.example/"), ("page", "")):
        Route.objects.create(name=kind, kind=kind, address=address)
    Route.objects.create(name="off", kind="email", address="off@example.org", enabled=False)
    with django_capture_on_commit_callbacks(execute=True):
        sign_in("boss", PASSWORD)
    event = Event.objects.get(message="FalconWeb.BreakGlassUsed")
    assert (event.severity, event.person_name) == ("Critical", "boss")
    assert "signed in from 127.0.0.1" in event.text
    assert sorted(one.route.name for one in Delivery.objects.all()) == ["email", "webhook"]
    assert {(one.content["kind"], one.content["critical"]) for one in Delivery.objects.all()} == {("notice", 1)}
    actions = list(AuditEntry.objects.order_by("sequence").values_list("action", "actor_name"))
    assert actions == [("account.break_glass", "boss"), ("account.sign_in", "boss")]


def test_a_wrong_password_of_that_account_rings_nothing(closed: User, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        sign_in("boss", "wrong")
    assert not Event.objects.filter(message="FalconWeb.BreakGlassUsed").exists()


@pytest.mark.parametrize("length", [151, 60_000])
def test_a_name_that_is_too_long_is_nobodys_at_the_form_and_refused_of_a_provider(db: None, length: int) -> None:
    provider = openid_provider("https://login.example.org")
    IdentityProvider.objects.create(kind="ldap", name="Campus", enabled=True, address="ldap://127.0.0.1:1")
    assert sign_in("x" * length, "any").status_code == 200
    rule(provider, "vision", "administrator")
    external = ExternalPerson(subject="1", username="x" * length, groups=("vision",))
    with pytest.raises(Forbidden, match="cannot be used here"):
        identity_sign_in(provider=provider, external=external)
    assert not User.objects.exists()
