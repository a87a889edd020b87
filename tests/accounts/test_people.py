"""People, tenants, tokens and one's own account, through the pages and the services behind them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import BrowserSession, Role, Tenant, Token, User
from accounts.services import (
    person_add,
    person_edit,
    person_password_reset,
    tenant_add,
    tenant_edit,
    tenant_remove,
)
from accounts.sign_in.security import MAX_FAILED_LOGINS
from accounts.tasks import ATTEMPTS_KEPT, forget
from accounts.token_services import MAX_TOKENS, token_create, token_revoke
from core.errors import Conflict, Forbidden, Invalid, NotFound
from fabric.inventory.models import Chassis, Device
from tests.pages import page_text

PASSWORD = "a-long-password-1"
pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def vision() -> Tenant:
    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def bob(vision: Tenant) -> User:
    """A user of the tenant."""
    return User.objects.create_user("bob", password=PASSWORD, role=Role.USER, tenant=vision)


@pytest.fixture
def eve(vision: Tenant) -> User:
    """A viewer of the tenant."""
    return User.objects.create_user("eve", password=PASSWORD, role=Role.VIEWER, tenant=vision)


def signed_in(person: User, password: str = PASSWORD) -> Client:
    """Sign in through the page."""
    client = Client()
    answer = client.post(reverse("accounts:sign_in"), {"username": person.username, "password": password})
    assert answer.status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get(reverse("accounts:account")).status_code == 200


def edit(by: User, person: User, **changes: object) -> User:
    """Change a person, leaving what `changes` does not name."""
    wanted: dict[str, object] = {
        "username": person.username, "full_name": person.get_full_name(), "email": person.email, "role": person.role,
        "tenant": person.tenant, "active": person.is_active,
    }  # fmt: skip
    return person_edit(by=by, person=person, **(wanted | changes))  # type: ignore[arg-type]


def typed(person: User, **changes: object) -> dict[str, object]:
    """Return what the form of a person sends."""
    values: dict[str, object] = {
        "username": person.username, "full_name": person.get_full_name(), "email": person.email, "role": person.role,
        "tenant": person.tenant_id or "", "active": "on",
    }  # fmt: skip
    return {name: value for name, value in (values | changes).items() if value is not None}


def secret_in(text: str) -> str:
    found = re.search(r'id="secret" readonly value="([^"]+)"', text)
    assert found is not None
    return found[1]


def test_an_added_person_signs_in_with_the_password_that_is_shown_once(ada: User, vision: Tenant) -> None:
    client = signed_in(ada)
    answer = client.post(
        reverse("accounts:person_add"),
        {"username": "carol", "full_name": "Carol Ng", "email": "c@example.org", "role": "user", "tenant": vision.pk,
         "active": "on"},
    )  # fmt: skip
    assert answer.status_code == 201
    assert "no-store" in answer["Cache-Control"]
    password = secret_in(answer.content.decode())
    carol = User.objects.get(username="carol")
    assert (carol.get_full_name(), carol.tenant, carol.role) == ("Carol Ng", vision, "user")
    assert is_in(signed_in(carol, password))
    assert password not in client.get(reverse("accounts:person", args=[carol.pk])).content.decode()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tenant": ""}, "tenant"),
        ({"role": "viewer", "tenant": ""}, "tenant"),
        ({"role": "administrator"}, "tenant"),
        ({"role": "emperor"}, "role"),
        ({"username": "BOB"}, "username"),
        ({"username": "not a name"}, "username"),
        ({"username": ""}, "username"),
        ({"email": "nowhere"}, "email"),
    ],
)
def test_a_person_who_does_not_fit_is_refused_beside_the_field(
    ada: User, bob: User, eve: User, changes: dict[str, object], field: str
) -> None:
    for address, person in ((reverse("accounts:person_add"), User(username="new", role="user", tenant=bob.tenant)),
                            (reverse("accounts:person", args=[eve.pk]), eve)):  # fmt: skip
        answer = signed_in(ada).post(address, typed(person, **changes))
        assert answer.status_code == 400
        assert list(answer.context["form"].errors) == [field]
    assert User.objects.count() == 3
    eve.refresh_from_db()
    assert (eve.username, eve.role) == ("eve", "viewer")


def test_the_services_themselves_hold_the_rule_of_tenants(ada: User, vision: Tenant) -> None:
    for role, tenant in ((Role.USER, None), (Role.VIEWER, None), (Role.ADMINISTRATOR, vision)):
        with pytest.raises(Invalid) as refused:
            person_add(by=ada, username="carol", full_name="", email="", role=role, tenant=tenant)
        assert "tenant" in refused.value.details["errors"]


def test_the_last_active_administrator_stays_one(ada: User, vision: Tenant) -> None:
    User.objects.create_superuser("gone", password=PASSWORD, is_active=False)
    for changes in ({"role": Role.USER, "tenant": vision}, {"active": False}):
        with pytest.raises(Conflict, match="last active administrator"):
            edit(ada, ada, **changes)
    answer = signed_in(ada).post(reverse("accounts:person", args=[ada.pk]), typed(ada, role="user", tenant=vision.pk))
    assert answer.status_code == 400
    assert "last active administrator" in answer.content.decode()
    ada.refresh_from_db()
    assert ada.is_administrator


def test_an_administrator_among_others_can_step_back_but_not_deactivate_themselves(ada: User, vision: Tenant) -> None:
    User.objects.create_superuser("grace", password=PASSWORD)
    with pytest.raises(Conflict, match="deactivate yourself"):
        edit(ada, ada, active=False)
    client = signed_in(ada)
    address = reverse("accounts:person", args=[ada.pk])
    answer = client.post(address, typed(ada, role="user", tenant=vision.pk))
    assert answer["Location"] == reverse("accounts:account")
    assert client.get(address).status_code == 403


def test_an_administrator_of_an_old_page_who_was_demoted_changes_nobody(ada: User, bob: User) -> None:
    User.objects.create_superuser("grace", password=PASSWORD)
    User.objects.filter(pk=ada.pk).update(role=Role.USER, tenant=bob.tenant)
    with pytest.raises(Forbidden):  # `ada` was read before
        edit(ada, bob, active=False)


def test_deactivation_ends_sessions_for_good(ada: User, bob: User, eve: User) -> None:
    browsers, other, mine = [signed_in(bob), signed_in(bob)], signed_in(eve), signed_in(ada)
    address = reverse("accounts:person", args=[bob.pk])
    assert mine.post(address, typed(bob, active=None)).status_code == 302
    assert [is_in(one) for one in (*browsers, other, mine)] == [False, False, True, True]
    assert mine.post(address, typed(bob)).status_code == 302
    assert [is_in(one) for one in browsers] == [False, False]
    assert is_in(signed_in(bob))


def test_other_changes_of_a_person_end_no_session(ada: User, bob: User) -> None:
    browser = signed_in(bob)
    edit(ada, bob, full_name="Robert", role=Role.VIEWER)
    assert is_in(browser)


def test_a_password_reset_ends_sessions_and_the_shown_password_works(ada: User, bob: User) -> None:
    browser = signed_in(bob)
    answer = signed_in(ada).post(reverse("accounts:person_password", args=[bob.pk]))
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    assert not is_in(browser)
    assert is_in(signed_in(bob, secret_in(answer.content.decode())))
    old = {"username": "bob", "password": PASSWORD}
    assert Client().post(reverse("accounts:sign_in"), old).status_code == 200


def test_a_password_reset_lifts_the_lock_of_wrong_passwords(ada: User, bob: User) -> None:
    client, wrong = Client(), {"username": "bob", "password": "wrong"}
    codes = [client.post(reverse("accounts:sign_in"), wrong).status_code for _ in range(10)]
    assert codes[-1] == 429
    password = person_password_reset(by=ada, person=bob)
    assert is_in(signed_in(bob, password))


def test_the_own_password_is_not_reset_but_changed(ada: User) -> None:
    with pytest.raises(Conflict, match="account page"):
        person_password_reset(by=ada, person=ada)
    assert signed_in(ada).post(reverse("accounts:person_password", args=[ada.pk])).status_code == 302


def test_people_are_found_by_every_word(ada: User, bob: User, eve: User) -> None:
    client = signed_in(ada)
    edit(ada, bob, full_name="Robert Koch")
    for search, names in (("", ["ada", "bob", "eve"]), ("koch", ["bob"]), ("vision VIEWER", ["eve"]), ("nix", [])):
        answer = client.get(reverse("accounts:people"), {"q": search})
        assert [one.username for one in answer.context["page"]] == names


def test_a_long_list_of_people_has_pages_that_keep_the_search(ada: User, vision: Tenant) -> None:
    User.objects.bulk_create(User(username=f"p{number:03}", role="viewer", tenant=vision) for number in range(60))
    answer = signed_in(ada).get(reverse("accounts:people"), {"q": "vision", "page": "2"})
    assert len(answer.context["page"]) == 10
    assert "?q=vision&amp;page=1" in answer.content.decode()


def test_the_sign_in_before_this_one_is_shown(bob: User) -> None:
    assert "This is your first session" in page_text(signed_in(bob).get(reverse("accounts:account")))
    bob.refresh_from_db()
    first = bob.last_login
    text = page_text(signed_in(bob).get(reverse("accounts:account")))
    bob.refresh_from_db()
    assert first is not None
    assert bob.previous_login == first
    assert bob.last_login is not None
    assert bob.last_login > first
    assert f'from the previous session: <time datetime="{first.isoformat(timespec="microseconds")}' in text


def test_changing_the_own_password_keeps_this_session_alone(bob: User) -> None:
    here, elsewhere = signed_in(bob), signed_in(bob)
    new = {"current": PASSWORD, "new": "another-long-one-2", "again": "another-long-one-2"}
    assert here.post(reverse("accounts:account_password"), new).status_code == 302
    assert (is_in(here), is_in(elsewhere)) == (True, False)
    assert is_in(signed_in(bob, "another-long-one-2"))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"current": "wrong"}, "current"),
        ({"again": "another-long-one-3"}, "again"),
        ({"new": "short", "again": "short"}, "new"),
        ({"new": "123456789012345", "again": "123456789012345"}, "new"),
    ],
)
def test_a_bad_password_change_is_refused_beside_the_field(bob: User, changes: dict[str, str], field: str) -> None:
    values = {"current": PASSWORD, "new": "another-long-one-2", "again": "another-long-one-2"} | changes
    answer = signed_in(bob).post(reverse("accounts:account_password"), values)
    assert answer.status_code == 400
    assert list(answer.context["password_form"].errors) == [field]
    assert is_in(signed_in(bob))


def test_an_open_browser_does_not_let_passwords_be_guessed(bob: User) -> None:
    client = signed_in(bob)
    values = {"current": "wrong", "new": "another-long-one-2", "again": "another-long-one-2"}
    codes = [client.post(reverse("accounts:account_password"), values).status_code for _ in range(11)]
    assert codes[0] == 400
    assert codes[-1] == 429
    values["current"] = PASSWORD
    assert client.post(reverse("accounts:account_password"), values).status_code == 429
    bob.refresh_from_db()
    assert bob.check_password(PASSWORD)


class ResetMeanwhile:
    """Has an administrator reset the password of whoever is about to change it."""

    def validate(self, password: str, user: User | None = None) -> None:
        assert user is not None
        person_password_reset(by=User.objects.create_superuser("adam", password=PASSWORD), person=user)


def test_a_password_that_is_reset_at_the_same_moment_is_not_changed_back(bob: User, settings: Any) -> None:
    """Whoever knows the old one stays out."""
    settings.AUTH_PASSWORD_VALIDATORS = [{"NAME": f"{__name__}.ResetMeanwhile"}]
    client = signed_in(bob)
    values = {"current": PASSWORD, "new": "another-long-one-2", "again": "another-long-one-2"}
    assert client.post(reverse("accounts:account_password"), values).status_code == 409
    bob.refresh_from_db()
    assert not bob.check_password("another-long-one-2")
    assert not is_in(client)


def token_of(client: Client, **changes: object) -> str:
    """Make a token through the page and return its secret."""
    values: dict[str, object] = {"name": "job", "scope": "read", "days": 30}
    answer = client.post(reverse("accounts:token_add"), values | changes)
    assert answer.status_code == 201
    assert "no-store" in answer["Cache-Control"]
    return secret_in(answer.content.decode())


def status_with_token(secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return Client().get(reverse("api:chassis_list"), headers=headers).status_code


def test_a_token_works_until_it_is_revoked(bob: User) -> None:
    client = signed_in(bob)
    secret = token_of(client)
    token = Token.objects.get()
    assert token.digest != secret
    assert secret not in client.get(reverse("accounts:account")).content.decode()
    assert status_with_token(secret) == 200
    assert client.post(reverse("accounts:token_revoke", args=[token.pk])).status_code == 302
    assert status_with_token(secret) == 401


def test_a_token_stops_when_it_expires(bob: User) -> None:
    secret = token_of(signed_in(bob), days=1)
    token = Token.objects.get()
    assert timedelta(hours=23) < token.expires_at - timezone.now() <= timedelta(days=1)
    assert status_with_token(secret) == 200
    Token.objects.update(expires_at=timezone.now())
    assert status_with_token(secret) == 401


def test_a_token_ends_with_its_person_and_does_not_come_back_with_them(ada: User, bob: User) -> None:
    secret = token_of(signed_in(bob))
    edit(ada, bob, active=False)
    assert status_with_token(secret) == 401
    bob.refresh_from_db()
    edit(ada, bob, active=True)
    assert status_with_token(secret) == 401


def test_a_reset_password_ends_the_tokens_made_with_the_old_one(ada: User, bob: User) -> None:
    secret = token_of(signed_in(bob))
    person_password_reset(by=ada, person=bob)
    assert status_with_token(secret) == 401


def test_a_token_that_reads_does_not_write(bob: User) -> None:
    client = signed_in(bob)
    for name, scope, status in (("a", "read", 403), ("b", "write", 404)):
        headers = {"Authorization": f"Bearer {token_of(client, name=name, scope=scope)}"}
        answer = Client().post(
            reverse("api:operations"),
            {"device_id": 1, "target_host_port_id": None},
            "application/json",
            headers=headers,
        )
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"name": " "}, "name"), ({"name": "OLD"}, "name"), ({"scope": "all"}, "scope"), ({"days": 0}, "days"),
     ({"days": 366}, "days")],
)  # fmt: skip
def test_a_token_that_does_not_fit_is_refused(bob: User, changes: dict[str, object], field: str) -> None:
    token_create(person=bob, name="old", scope="read", days=1)
    values: dict[str, object] = {"name": "new", "scope": "read", "days": 30}
    answer = signed_in(bob).post(reverse("accounts:token_add"), values | changes)
    assert answer.status_code == 400
    assert list(answer.context["form"].errors) == [field]
    assert Token.objects.count() == 1


def test_nobody_fills_the_site_with_tokens(bob: User) -> None:
    for number in range(MAX_TOKENS):
        token_create(person=bob, name=str(number), scope="read", days=1)
    with pytest.raises(Conflict, match="Revoke one first"):
        token_create(person=bob, name="one more", scope="read", days=1)


def test_only_its_person_and_administrators_revoke_a_token(ada: User, bob: User, eve: User) -> None:
    token, _ = token_create(person=bob, name="job", scope="read", days=1)
    with pytest.raises(NotFound):
        token_revoke(by=eve, token=token)
    address = reverse("accounts:token_revoke", args=[token.pk])
    assert signed_in(eve).post(address).status_code == 404
    assert Token.objects.count() == 1
    assert signed_in(ada).post(address)["Location"] == reverse("accounts:person", args=[bob.pk])
    assert not Token.objects.exists()


def test_tenants_are_added_renamed_and_told_apart(ada: User) -> None:
    client = signed_in(ada)
    answer = client.post(reverse("accounts:tenant_add"), {"name": "  Vision   group "})
    tenant = Tenant.objects.get()
    assert tenant.name == "Vision group"
    assert answer["Location"] == reverse("fabric:tenant", args=[tenant.pk])
    assert client.post(reverse("accounts:tenant_add"), {"name": "VISION GROUP"}).status_code == 400
    assert client.post(reverse("accounts:tenant_add"), {"name": ""}).status_code == 400
    other = tenant_add(by=ada, name="Other")
    with pytest.raises(Invalid):
        tenant_edit(by=ada, tenant=other, name="vision group")
    assert tenant_edit(by=ada, tenant=tenant, name="Vision Group").name == "Vision Group"
    names = [row.tenant.name for row in client.get(reverse("accounts:tenants"), {"q": "vis"}).context["rows"]]
    assert names == ["Vision Group"]


def test_a_new_tenant_leads_to_its_first_user_and_its_first_lease(ada: User, vision: Tenant) -> None:
    client = signed_in(ada)
    page = client.get(reverse("fabric:tenant", args=[vision.pk])).content.decode()
    user, lease = (f"{reverse(name)}?tenant={vision.pk}" for name in ("accounts:person_add", "fabric:lease_give"))
    assert user in page
    assert lease in page
    chosen = f'<option value="{vision.pk}" selected>'
    assert chosen in client.get(user).content.decode()
    assert chosen in client.get(lease).content.decode()
    made = client.post(user, {"username": "vera", "role": Role.USER, "tenant": vision.pk, "active": "on"})
    assert f'href="{lease}"' in made.content.decode()
    assert client.get(reverse("accounts:person_add") + "?tenant=nobody").status_code == 200


def test_a_tenant_with_people_or_grants_is_not_removed(ada: User, vision: Tenant, bob: User) -> None:
    chassis = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1")
    device = Device.objects.create(chassis=chassis, uri="/1", name="GPU 1", tenant=vision)
    sentence = "has 1 person and 1 device: move its people to another tenant and unassign what it holds first"
    with pytest.raises(Conflict, match=sentence):
        tenant_remove(by=ada, tenant=vision)
    edit(ada, bob, role=Role.ADMINISTRATOR, tenant=None)
    with pytest.raises(Conflict, match="still has 1 device: unassign what it holds first"):
        tenant_remove(by=ada, tenant=vision)
    assert signed_in(ada).post(reverse("fabric:tenant_removal", args=[vision.pk])).status_code == 302
    assert Tenant.objects.exists()
    Device.objects.filter(pk=device.pk).update(tenant=None)
    assert signed_in(ada).post(reverse("fabric:tenant_removal", args=[vision.pk])).status_code == 302
    assert not Tenant.objects.exists()


def test_every_post_of_administrators_is_refused_to_others(ada: User, vision: Tenant, bob: User, eve: User) -> None:
    posts: dict[str, dict[str, object]] = {
        reverse("accounts:person_add"): typed(User(username="new", role="user", tenant=vision)),
        reverse("accounts:person", args=[bob.pk]): typed(bob, role="administrator", tenant=""),
        reverse("accounts:person", args=[ada.pk]): typed(ada, active=None),
        reverse("accounts:person_password", args=[ada.pk]): {},
        reverse("accounts:tenant_add"): {"name": "New"},
        reverse("fabric:tenant", args=[vision.pk]): {"name": "New"},
        reverse("fabric:tenant_grants", args=[vision.pk]): {"devices": ["1"]},
        reverse("fabric:tenant_removal", args=[vision.pk]): {},
    }
    for person in (bob, eve):
        client = signed_in(person)
        assert {client.post(address, values).status_code for address, values in posts.items()} == {403}
    assert {Client().post(address, values).status_code for address, values in posts.items()} == {302}
    assert sorted(User.objects.values_list("username", "role")) == [
        ("ada", "administrator"), ("bob", "user"), ("eve", "viewer"),
    ]  # fmt: skip
    assert list(Tenant.objects.values_list("name", flat=True)) == ["Vision group"]
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)
    assert ada.is_active


def test_the_services_refuse_those_who_are_no_administrators(bob: User, vision: Tenant) -> None:
    with pytest.raises(Forbidden):
        person_add(by=bob, username="x", full_name="", email="", role=Role.USER, tenant=vision)
    with pytest.raises(Forbidden):
        edit(bob, bob, role=Role.ADMINISTRATOR, tenant=None)
    with pytest.raises(Forbidden):
        person_password_reset(by=bob, person=bob)
    with pytest.raises(Forbidden):
        tenant_add(by=bob, name="x")
    with pytest.raises(Forbidden):
        tenant_edit(by=bob, tenant=vision, name="x")
    with pytest.raises(Forbidden):
        tenant_remove(by=bob, tenant=vision)


def test_only_administrators_are_offered_the_administration(ada: User, bob: User) -> None:
    people = reverse("accounts:people")
    assert people in signed_in(ada).get(reverse("accounts:account")).content.decode()
    text = signed_in(bob).get(reverse("accounts:account")).content.decode()
    assert people not in text
    assert reverse("accounts:account") in text


def test_a_list_of_names_is_no_way_around_the_lock(bob: User) -> None:
    def enter(client: Client, name: str, password: str, **more: str) -> int:
        form = {"username": name, "password": password}
        return client.post(reverse("accounts:sign_in"), form, **more).status_code  # type: ignore[arg-type]

    for number in range(MAX_FAILED_LOGINS):
        assert enter(Client(), f"name-{number}", "Spring-2026") == 200
    assert enter(Client(), "bob", PASSWORD) == 429
    assert (
        "Sign-in from your address is closed"
        in Client().post(reverse("accounts:sign_in"), {"username": "bob", "password": PASSWORD}).content.decode()
    )
    # From elsewhere it is open.
    assert enter(Client(), "bob", PASSWORD, REMOTE_ADDR="198.51.100.7") == 302


def test_expired_sessions_and_old_attempts_are_forgotten(bob: User) -> None:
    signed_in(bob)
    for name in ("new", "old"):
        Client().post(reverse("accounts:sign_in"), {"username": name, "password": "wrong"})
    AccessAttempt.objects.filter(username="old").update(
        attempt_time=timezone.now() - ATTEMPTS_KEPT - timedelta(hours=1)
    )
    BrowserSession.objects.create(session_key="old", session_data="", expire_date=timezone.now() - timedelta(seconds=1))
    forget()
    assert BrowserSession.objects.count() == 1
    assert list(AccessAttempt.objects.values_list("username", flat=True)) == ["new"]


def test_a_form_that_is_too_old_says_what_to_do(bob: User) -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post(reverse("accounts:sign_in"), {"username": "bob", "password": PASSWORD})
    assert answer.status_code == 403
    assert "load the page again" in answer.content.decode()
