"""Sign-in through OpenID Connect: what is believed, and every way in which an answer is not."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from joserfc.jwk import ECKey, OctKey

from accounts.audit.models import AuditEntry
from accounts.freshness import PROVED_AT
from accounts.identity_providers import oidc
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider
from accounts.models import Tenant, User
from tests.accounts.issuer import KEY, OTHER_KEY, Issuer, signed, signed_with_public_key, unsigned
from tests.accounts.providers import openid_provider, rule, sign_in

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def running_issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture
def issuer(running_issuer: Issuer) -> Issuer:
    running_issuer.reset()
    oidc._known.clear()
    return running_issuer


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def provider(issuer: Issuer, tenant: Tenant) -> IdentityProvider:
    row = openid_provider(issuer.address)
    rule(row, "vision", "user", tenant)
    return row


def begin(client: Client, provider: IdentityProvider, where: str = "") -> str:
    """Open the button of a provider; return the address of its page."""
    answer = client.get(f"/sign-in/{provider.pk}/", {"next": where})
    assert answer.status_code == 302
    return str(answer["Location"])


def come_back(client: Client, provider: IdentityProvider, query: dict[str, str]) -> Any:
    """Return what the site answers to a browser that comes back."""
    return client.get(f"/sign-in/{provider.pk}/answer/", query)


def refusal(client: Client, answer: Any) -> str:
    """Return what the sign-in page says, and see that nobody is signed in."""
    assert urlsplit(answer["Location"]).path == "/sign-in/", answer["Location"]
    text: str = client.get(answer["Location"]).content.decode()
    assert "_auth_user_id" not in client.session
    return text.partition('role="alert">')[2].partition("</p>")[0]


def tried(issuer: Issuer, provider: IdentityProvider, **changes: str | None) -> str:
    """Sign in with changes of what comes back ('None' for left out); return what the page says, '' signed in."""
    client = Client()
    query: dict[str, str | None] = {**issuer.authorize(begin(client, provider)), **changes}
    answer = come_back(client, provider, {name: value for name, value in query.items() if value is not None})
    return "" if "_auth_user_id" in client.session else refusal(client, answer)


def test_a_person_signs_in_and_goes_on_where_they_were(
    issuer: Issuer, provider: IdentityProvider, tenant: Tenant
) -> None:
    client = Client()
    text = client.get("/sign-in/", {"next": "/account/?a=b&c"}).content.decode()
    link = f'href="/sign-in/{provider.pk}/?next=%2Faccount%2F%3Fa%3Db%26c"'
    assert link in text
    where = begin(client, provider, "/account/?a=b&c")
    asked = dict(parse_qsl(urlsplit(where).query))
    assert (asked["response_type"], asked["code_challenge_method"], asked["client_id"]) == ("code", "S256", "falconweb")
    kept = client.cookies["falconweb-sign-in"]
    assert (kept["httponly"], kept["samesite"], kept["max-age"]) == (True, "Lax", 600)
    issuer.claims |= {"name": "Ada Lovelace", "email": "ada@example.org"}
    answer = come_back(client, provider, issuer.authorize(where))
    assert (answer.status_code, answer["Location"]) == (302, "/account/?a=b&c")
    ada = User.objects.get(username="ada")
    assert (ada.role, ada.tenant, ada.get_full_name(), ada.email) == ("user", tenant, "Ada Lovelace", "ada@example.org")
    assert client.get("/account/").status_code == 200
    assert AuditEntry.objects.get(action="account.sign_in").credential == "OpenID Connect"
    pair = base64.b64decode(issuer.authorization.removeprefix("Basic ")).decode()
    assert [unquote(part) for part in pair.split(":")] == ["falconweb", "of-the-client: 1/é"]
    assert not sign_in("ada", "").context["user"].is_authenticated


def test_groups_come_from_userinfo_or_from_within_a_claim(issuer: Issuer, provider: IdentityProvider) -> None:
    IdentityProvider.objects.update(groups_claim="realm.roles")
    issuer.metadata = {"userinfo_endpoint": f"{issuer.address}/userinfo"}
    issuer.user_info = {"sub": "s-1", "realm": {"roles": ["Vision"]}, "preferred_username": "mallory"}
    assert tried(issuer, provider) == ""
    assert User.objects.get().username == "ada"
    issuer.user_info["sub"] = "s-2"
    assert "another person" in tried(issuer, provider)


def test_keys_and_secrets_are_taken_as_the_provider_has_them(issuer: Issuer, provider: IdentityProvider) -> None:
    new = ECKey.generate_key("P-256", {"kid": "second"})
    issuer.keys = [KEY.as_dict(private=False), {"kty": "unknown to anybody"}, new.as_dict(private=False)]
    issuer.keys.pop(1)
    issuer.token = lambda claims: signed(claims, key=new, alg="ES256", kid="second")
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert tried(issuer, provider) == ""
    assert (issuer.form["client_secret"], issuer.authorization) == ("of-the-client: 1/é", "")


FORGED = {
    "nobody has signed it": unsigned,
    "signed with the public key as a secret": signed_with_public_key,
    "signed by another key of the same name": lambda claims: signed(claims, key=OTHER_KEY),
    "a key of its own in its header": lambda claims: signed(
        claims, key=OTHER_KEY, jwk=OTHER_KEY.as_dict(private=False)
    ),
    "no token": lambda _: "nonsense",
    "a number": lambda _: 7,
    "too long": lambda claims: signed(claims | {"x": "y" * 40_000}),
    "claims changed afterwards": lambda claims: ".".join(
        [
            signed(claims).split(".")[0],
            unsigned(claims | {"groups": ["operators"]}).split(".")[1],
            signed(claims).split(".")[2],
        ]
    ),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_token_that_the_provider_has_not_signed_is_refused(
    issuer: Issuer, provider: IdentityProvider, how: str
) -> None:
    issuer.token = FORGED[how]
    assert "ID token" in tried(issuer, provider)
    assert not User.objects.exists()


def test_a_symmetric_key_that_the_provider_publishes_is_no_key(issuer: Issuer, provider: IdentityProvider) -> None:
    shared = OctKey.generate_key(256, {"kid": "shared"})
    issuer.keys.append(shared.as_dict())
    issuer.token = lambda claims: signed(claims, key=shared, alg="HS256", kid="shared")
    assert "ID token" in tried(issuer, provider)


NOW = int(time.time())


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://login.other.example"}, {"iss": ["http://127.0.0.1"]}, {"iss": None}, {"aud": "another-site"},
        {"aud": ["falconweb", "another-site"]}, {"aud": ["falconweb"], "azp": "another-site"}, {"azp": "another-site"},
        {"aud": []}, {"aud": None}, {"nonce": "of an earlier sign-in"}, {"nonce": None}, {"exp": NOW - 120},
        {"exp": None}, {"exp": "never"}, {"iat": None}, {"iat": NOW + 3600}, {"nbf": NOW + 3600}, {"sub": None},
        {"sub": ""}, {"sub": 7}, {"sub": "x" * 256}, {"nonce": ["n"]},
    ],
    ids=lambda wrong: str(wrong).replace(str(NOW), "NOW").replace(str(NOW + 3600), "NOW + 3600")
    .replace(str(NOW - 120), "NOW - 120"),
)  # fmt: skip
def test_a_token_for_another_site_time_or_sign_in_is_refused(
    issuer: Issuer, provider: IdentityProvider, wrong: dict[str, Any]
) -> None:
    issuer.claims |= wrong
    assert tried(issuer, provider)
    assert not User.objects.exists()


def test_a_token_for_several_sites_says_that_it_is_for_this_one(issuer: Issuer, provider: IdentityProvider) -> None:
    issuer.claims |= {"aud": ["another-site", "falconweb"], "azp": "falconweb"}
    assert tried(issuer, provider) == ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "x"}, "of another sign-in"), ({"state": None}, "of another sign-in"),
        ({"iss": "https://login.other.example"}, "another identity provider"),
        ({"iss": None}, "another identity provider"),
        ({"code": None}, "did not sign you in"), ({"code": "stolen"}, "invalid_grant"),
        ({"error": "access_denied"}, "did not sign you in (access_denied)"),
        ({"error": "<b>x</b>"}, "(&lt;b&gt;x&lt;/b&gt;)"), ({"code": "x" * 5000}, "did not sign you in"),
    ],
)  # fmt: skip
def test_an_answer_of_something_else_is_refused(
    issuer: Issuer, provider: IdentityProvider, changes: dict[str, str | None], sentence: str
) -> None:
    assert sentence in tried(issuer, provider, **changes)


def test_an_answer_is_used_once_in_the_browser_that_began(issuer: Issuer, provider: IdentityProvider) -> None:
    client, stranger = Client(), Client()
    query = issuer.authorize(begin(client, provider))
    kept = client.cookies["falconweb-sign-in"].value
    assert "No sign-in was begun" in refusal(stranger, come_back(stranger, provider, query))
    begin(stranger, provider)
    assert "of another sign-in" in refusal(stranger, come_back(stranger, provider, query))
    assert come_back(client, provider, query)["Location"] == "/"
    assert "No sign-in was begun" in refusal(stranger, come_back(stranger, provider, query))
    stranger.cookies["falconweb-sign-in"] = kept
    assert "used before" in refusal(stranger, come_back(stranger, provider, query))


def test_a_cookie_that_is_forged_or_old_begins_nothing(
    issuer: Issuer, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    query = issuer.authorize(begin(client, provider))
    kept = client.cookies["falconweb-sign-in"].value
    for forged in (kept[:-1], kept.replace(":", "::"), "", "x" * 3000):
        client.cookies["falconweb-sign-in"] = forged
        assert "No sign-in was begun" in refusal(client, come_back(client, provider, query))
    client.cookies["falconweb-sign-in"] = kept
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    assert "No sign-in was begun" in refusal(client, come_back(client, provider, query))


def test_one_provider_does_not_answer_for_another(issuer: Issuer, provider: IdentityProvider) -> None:
    other = openid_provider(issuer.address, name="Other")
    client = Client()
    query = issuer.authorize(begin(client, provider))
    assert "of another sign-in" in refusal(client, come_back(client, other, query))
    assert not issuer.form


@pytest.mark.parametrize(
    "where",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "http:///evil.example",
     "\t//evil.example", "/sign-in/", "/sign-in/?next=/", "/" + "x" * 2000],
)  # fmt: skip
def test_nobody_is_sent_to_another_site_after_signing_in(
    issuer: Issuer, provider: IdentityProvider, where: str
) -> None:
    client = Client()
    assert come_back(client, provider, issuer.authorize(begin(client, provider, where)))["Location"] == "/"
    assert client.get(f"/sign-in/{provider.pk}/", {"next": where})["Location"] == "/"


def test_an_account_of_that_name_or_address_is_not_taken_over(
    issuer: Issuer, provider: IdentityProvider, tenant: Tenant
) -> None:
    local = User.objects.create_user("Ada", "ada@example.org", "a-long-password-1", role="user", tenant=tenant)
    issuer.claims |= {"email": "ada@example.org", "email_verified": True}
    assert "Somebody else here is called &#x27;ada&#x27;." in tried(issuer, provider)
    issuer.claims["preferred_username"] = "lovelace"
    assert tried(issuer, provider) == ""
    assert ExternalIdentity.objects.get().person.pk != local.pk


def test_role_and_tenant_follow_the_groups_and_without_any_sessions_end(
    issuer: Issuer, provider: IdentityProvider
) -> None:
    rule(provider, "operators", "administrator")
    client = Client()
    come_back(client, provider, issuer.authorize(begin(client, provider)))
    issuer.claims |= {"groups": ["x", "OPERATORS"], "preferred_username": "renamed"}
    assert tried(issuer, provider) == ""
    ada = User.objects.get()
    assert (ada.username, ada.role, ada.tenant, ada.is_superuser) == ("ada", "administrator", None, True)
    assert client.get("/people/").status_code == 200
    for issuer.claims["groups"] in (["x"], "x", [], None, {"vision": 1}, [["vision"]], 7):
        assert "None of your groups may sign in here." in tried(issuer, provider)
    assert client.get("/people/").status_code == 302


@pytest.mark.parametrize("name", ["", "a b", "x" * 151, None, 7, ["ada"], "a\0b"])
def test_a_name_that_cannot_be_one_here_is_refused_with_a_sentence(
    issuer: Issuer, provider: IdentityProvider, name: Any
) -> None:
    issuer.claims["preferred_username"] = name
    said = tried(issuer, provider)
    assert "cannot be used here" in said or "no user name" in said


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/.well-known/openid-configuration", (500, b"{}")), ("/.well-known/openid-configuration", (200, b"[]")),
        ("/.well-known/openid-configuration", (302, b"")), ("/.well-known/openid-configuration", (200, b"[" * 50_000)),
        ("/.well-known/openid-configuration", (200, b'{"x": "' + b"y" * 70_000 + b'"}')),
        ("/jwks", (200, b'{"keys": [{"kty": "RSA"}]}')), ("/jwks", (200, b'{"keys": 7}')), ("/jwks", (404, b"")),
        ("/token", (200, b"{}")), ("/token", (400, b'{"error": "invalid_client"}')), ("/token", (200, b"\xff")),
    ],
)  # fmt: skip
def test_a_provider_that_is_not_well_is_a_sentence_and_local_accounts_sign_in(
    issuer: Issuer, provider: IdentityProvider, tenant: Tenant, path: str, answer: tuple[int, bytes]
) -> None:
    User.objects.create_user("carol", password="a-long-password-1", role="user", tenant=tenant)
    client = Client()
    query = issuer.authorize(begin(client, provider)) if path in {"/token", "/jwks"} else None
    issuer.broken[path] = answer
    shown = come_back(client, provider, query) if query else client.get(f"/sign-in/{provider.pk}/")
    assert "Company " in refusal(client, shown)
    assert sign_in("carol", "a-long-password-1", client).status_code == 302


def test_a_provider_that_is_away_is_not_asked_by_each_visitor(issuer: Issuer, provider: IdentityProvider) -> None:
    issuer.broken["/.well-known/openid-configuration"] = 503, b""
    for _ in range(5):
        client = Client()
        assert "answered 503" in refusal(client, client.get(f"/sign-in/{provider.pk}/"))
    assert len(issuer.asked) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "http://127.0.0.1:1/realm"}, {"token_endpoint": "http://login.example/token"},
        {"jwks_uri": "http://169.254.169.254/latest/meta-data"}, {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"}, {"authorization_endpoint": None},
        {"userinfo_endpoint": "https://[fe80::1]/"}, {"token_endpoint": ["https://login.example/"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_provider_sends_the_site_to_no_forbidden_address(
    issuer: Issuer, provider: IdentityProvider, changes: dict[str, Any]
) -> None:
    issuer.metadata = changes
    client = Client()
    assert "Company " in refusal(client, client.get(f"/sign-in/{provider.pk}/"))


def test_without_the_cache_no_answer_is_taken_that_might_have_been_used(
    issuer: Issuer, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    query = issuer.authorize(begin(client, provider))
    monkeypatch.setattr(cache, "add", lambda *_: (_ for _ in ()).throw(OSError("away")))
    assert "not possible right now" in refusal(client, come_back(client, provider, query))


def test_a_switched_off_provider_has_no_button_and_no_way_in(issuer: Issuer, provider: IdentityProvider) -> None:
    client = Client()
    query = issuer.authorize(begin(client, provider))
    IdentityProvider.objects.update(enabled=False)
    assert f"Sign in with {provider.name}" not in Client().get("/sign-in/").content.decode()
    assert Client().get(f"/sign-in/{provider.pk}/").status_code == 404
    assert come_back(client, provider, query).status_code == 404


def confirm(client: Client, issuer: Issuer, provider: IdentityProvider) -> Any:
    """Confirm a sign-in at the provider; return the answer to the browser that comes back."""
    where = client.get(f"/sign-in/{provider.pk}/", {"confirm": "1", "next": "/account/tokens/"})["Location"]
    asked = dict(parse_qsl(urlsplit(where).query))
    assert (asked["prompt"], asked["max_age"]) == ("login", "0")
    return come_back(client, provider, issuer.authorize(where))


def test_a_person_without_a_password_confirms_a_sign_in_at_the_provider(
    issuer: Issuer, provider: IdentityProvider
) -> None:
    client = Client()
    come_back(client, provider, issuer.authorize(begin(client, provider)))
    session = client.session
    session[PROVED_AT] = 0
    session.save()
    page = client.get("/account/tokens/", follow=True).content.decode()
    assert f"Confirm at {provider.name}" in page
    assert 'type="password"' not in page
    known = issuer.claims
    for wrong in ({"auth_time": time.time() - 3600}, {}, {"auth_time": time.time(), "sub": "s-2"}):
        issuer.claims = {**known, **wrong}
        assert confirm(client, issuer, provider)["Location"].startswith("/account/confirmation/")
        assert client.get("/account/tokens/").status_code == 302
    issuer.claims = {**known, "auth_time": time.time()}
    assert confirm(client, issuer, provider)["Location"] == "/account/tokens/"
    assert client.get("/account/tokens/").status_code == 200
    # An answer to a sign-in signs nobody in who is signed in, and one to a confirmation nobody who is not.
    other = Client()
    where = begin(other, provider)
    other.cookies["sessionid"] = client.cookies["sessionid"].value
    assert come_back(other, provider, issuer.authorize(where))["Location"] == "/account/confirmation/"
    where = client.get(f"/sign-in/{provider.pk}/", {"confirm": "1"})["Location"]
    del client.cookies["sessionid"]
    assert "Start again" in refusal(client, come_back(client, provider, issuer.authorize(where)))
