"""A whole sign-in against a certified provider of OpenID Connect, over HTTP, with all its redirects."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.identity_providers.models import IdentityProvider
from accounts.models import Tenant, User
from falconweb.launch.broker import free_port
from tests.accounts.providers import openid_provider, rule, running_openid_provider

pytestmark = [pytest.mark.django_db, pytest.mark.process]


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    """The row of a provider that runs."""
    port = free_port()
    row = openid_provider(f"http://127.0.0.1:{port}")
    row.set_secret("of-the-client")
    row.save()
    with running_openid_provider(port, f"http://testserver/sign-in/{row.pk}/answer/"):
        yield row


class Form(HTMLParser):
    """The one form of a page: where it is sent, and its fields."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action, self.fields = "", {"login": "ada", "password": "any"}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a form or a hidden field."""
        found = dict(attrs)
        if tag == "form":
            self.action = found["action"] or ""
        elif tag == "input" and found.get("type") == "hidden":
            self.fields[found["name"] or ""] = found["value"] or ""


class _OwnRedirects(urllib.request.HTTPRedirectHandler):
    """Follows the provider's redirects, and stops at the one back to the site."""

    def redirect_request(self, *args: object) -> urllib.request.Request | None:
        where = str(args[-1])
        return None if where.startswith("http://testserver/") else super().redirect_request(*args)  # type: ignore[arg-type]


def consent(address: str) -> str:
    """Sign in at the provider as a browser does; return the address at which it sends the browser back."""
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar()), _OwnRedirects())
    browser = urllib.request.build_opener(*handlers)
    data: bytes | None = None
    for _ in range(4):
        try:
            with browser.open(address, data, timeout=30) as page:
                form = Form(page.read().decode())
                address, data = urljoin(page.url, form.action), urlencode(form.fields).encode()
        except HTTPError as error:
            return str(error.headers["Location"])
    raise AssertionError(f"the provider still asks at {address}")


def test_a_person_signs_in_at_a_certified_provider(provider: IdentityProvider) -> None:
    tenant = Tenant.objects.create(name="Vision group")
    rule(provider, "vision", "user", tenant)
    client = Client()
    where = consent(client.get(f"/sign-in/{provider.pk}/", {"next": "/account/"})["Location"])
    query = parse_qs(urlsplit(where).query)
    assert query["iss"] == [provider.address]
    answer = client.get(where)
    assert (answer.status_code, answer["Location"]) == (302, "/account/")
    ada = User.objects.get(username="ada")
    assert (ada.role, ada.tenant, ada.get_full_name(), ada.email) == ("user", tenant, "Ada Lovelace", "ada@example.org")
    assert AuditEntry.objects.get(action="account.sign_in").credential == "OpenID Connect"
    assert client.get("/account/").status_code == 200
    # The same code again, from a browser that has begun: the provider gives nothing for it.
    other = Client()
    state = parse_qs(urlsplit(other.get(f"/sign-in/{provider.pk}/")["Location"]).query)["state"][0]
    refused = other.get(
        f"/sign-in/{provider.pk}/answer/", {"code": query["code"][0], "state": state, "iss": provider.address}
    )
    assert refused["Location"] == "/sign-in/"
    assert "invalid_grant" in other.get("/sign-in/").content.decode()
