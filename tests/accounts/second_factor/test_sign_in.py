"""Signing in with a second factor, or a passkey alone, through the pages: what gets in, and what does not."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from html import unescape
from typing import Any

import pyotp
import pytest
from asgiref.sync import sync_to_async
from axes.models import AccessAttempt
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.freshness import PROVED_AT
from accounts.identity_providers.models import ExternalIdentity
from accounts.models import BrowserSession, Token, User
from accounts.second_factor import pending
from accounts.second_factor.models import Passkey
from accounts.second_factor.services import recovery_codes_renew
from accounts.sign_in.services import SESSION_METHOD
from accounts.token_services import token_create
from telemetry.events.models import Event
from tests.accounts.providers import openid_provider
from tests.accounts.second_factor.conftest import PASSWORD, SECRET, with_passkey, with_totp
from tests.accounts.second_factor.soft_authenticator import SoftAuthenticator
from tests.pages import page_text
from tests.telemetry.live.test_sockets import Socket

pytestmark = pytest.mark.django_db
STEP = "/sign-in/second-factor/"
PASSKEY = "/sign-in/passkey/"


def code(seconds: int = 0) -> str:
    """Return the code of now, or of so many seconds later."""
    return pyotp.TOTP(SECRET).at(int(time.time()) + seconds)


def first_step(person: User, client: Client | None = None, **more: str) -> Client:
    """Give name and password; the second factor is asked for."""
    client = client or Client()
    answer = client.post("/sign-in/", {"username": person.username, "password": PASSWORD, **more})
    assert (answer.status_code, answer["Location"]) == (302, STEP)
    return client


def signed_in(person: User, **more: str) -> Client:
    """Sign in by password alone."""
    client = Client()
    assert client.post("/sign-in/", {"username": person.username, "password": PASSWORD, **more}).status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200 and client.get("/api/v1/me/").status_code == 200


def options_in(answer: Any) -> dict[str, Any]:
    """Return what a page asks the browser for."""
    found = re.search(r'data-options="([^"]+)"', answer.content.decode())
    assert found is not None
    options: dict[str, Any] = json.loads(unescape(found[1]))
    return options


def enrolled(client: Client, **facts: Any) -> tuple[SoftAuthenticator, Any]:
    """Add a passkey through the pages; returns what keeps it, and the last answer."""
    asked = client.post(reverse("accounts:passkey_add"), {"name": "laptop"})
    made = SoftAuthenticator(**facts)
    return made, client.post(reverse("accounts:passkey_save"), {"credential": made.create(options_in(asked))})


def latest(action: str = "account.sign_in") -> AuditEntry:
    return AuditEntry.objects.filter(action=action).latest("sequence")


def test_a_password_alone_opens_nothing_until_the_code_comes(bob: User) -> None:
    with_totp(bob)
    client = first_step(bob, next="/fabric/?q=1")
    session = client.cookies["sessionid"].value
    assert not is_in(client)
    assert "password of bob was right" in page_text(client.get(STEP))
    assert latest("account.first_step").actor_name == "bob"
    answer = client.post(STEP, {"code": code()})
    assert (answer.status_code, answer["Location"]) == (302, "/fabric/?q=1")
    assert is_in(client)
    assert client.cookies["sessionid"].value != session
    assert client.session[SESSION_METHOD] == "password and TOTP"
    entry = latest()
    assert (entry.outcome, entry.actor_name, entry.credential) == ("done", "bob", "password and TOTP")


def test_a_session_that_was_planted_is_not_the_one_that_waits(bob: User) -> None:
    with_totp(bob)
    client = Client()
    client.get(PASSKEY)
    client.cookies["sessionid"] = planted = "a" * 32
    first_step(bob, client)
    assert client.cookies["sessionid"].value != planted
    assert Client(headers={"Cookie": f"sessionid={planted}"}).get(STEP).status_code == 302


def test_a_code_is_not_used_a_second_time_at_another_sign_in(bob: User) -> None:
    with_totp(bob)
    spent = code()
    assert first_step(bob).post(STEP, {"code": spent}).status_code == 302
    client = first_step(bob)
    answer = client.post(STEP, {"code": spent})
    assert answer.status_code == 400
    assert "used before" in answer.content.decode()
    assert not is_in(client)
    assert (latest().outcome, latest().target_name) == ("refused", "bob")


def test_a_recovery_code_signs_in_once_and_says_how_many_are_left(bob: User) -> None:
    spent = with_totp(bob)[3]
    client = first_step(bob)
    assert "You have 9 recovery codes left" in page_text(client.post(STEP, {"code": spent}, follow=True))
    assert is_in(client)
    assert first_step(bob).post(STEP, {"code": spent}).status_code == 400


def test_ten_wrong_codes_lock_as_wrong_passwords_do(bob: User) -> None:
    with_totp(bob)
    client = first_step(bob)
    codes = [client.post(STEP, {"code": "000000"}).status_code for _ in range(11)]
    assert codes == [400] * 9 + [429] * 2
    # Neither the right code nor the right password help, and a new first step gives no new guesses.
    assert client.post(STEP, {"code": code()}).status_code == 429
    assert Client().post("/sign-in/", {"username": "bob", "password": PASSWORD}).status_code == 429
    assert (latest().outcome, latest().status) == ("refused", 429)


def test_the_right_password_between_wrong_codes_gives_no_more_of_them(bob: User) -> None:
    with_totp(bob)
    for _ in range(4):
        client = first_step(bob)
        for _ in range(2):
            assert client.post(STEP, {"code": "000000"}).status_code == 400
    client = first_step(bob)
    assert [client.post(STEP, {"code": "000000"}).status_code for _ in range(2)] == [400, 429]


def test_no_code_is_kept_of_wrong_ones(bob: User) -> None:
    with_totp(bob)
    first_step(bob).post(STEP, {"code": "873465"})
    kept = " ".join(f"{one.get_data} {one.post_data}" for one in AccessAttempt.objects.all())
    assert kept
    assert "873465" not in kept + json.dumps([entry.record() for entry in AuditEntry.objects.all()])


def test_the_step_waits_for_five_minutes_and_not_behind_another_password(bob: User) -> None:
    with_totp(bob)
    late, changed, gone, reset = (first_step(bob) for _ in range(4))
    session = late.session
    session[pending.PENDING] |= {"until": time.time() - 1}
    session.save()
    assert late.post(STEP, {"code": code()})["Location"] == "/sign-in/"
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert gone.post(STEP, {"code": code()})["Location"] == "/sign-in/"
    User.objects.filter(pk=bob.pk).update(is_active=True)
    bob.totp_device.delete()
    assert reset.post(STEP, {"code": code()})["Location"] == "/sign-in/"
    with_totp(User.objects.get(pk=bob.pk))
    bob.set_password("another-long-one-2")
    bob.save()
    assert changed.post(STEP, {"code": code()})["Location"] == "/sign-in/"
    assert not any(is_in(one) for one in (late, changed, gone, reset))


def test_the_second_step_is_of_the_person_whose_password_was_given_last(bob: User, eve: User) -> None:
    with_totp(bob)
    codes = with_passkey_and_codes(eve)
    client = first_step(eve, first_step(bob))
    assert client.post(STEP, {"code": code(), "username": "bob", "person": bob.pk}).status_code == 400
    assert client.post(STEP, {"code": codes[0]}).status_code == 302
    assert client.get("/api/v1/me/").json()["username"] == "eve"


def with_passkey_and_codes(person: User) -> list[str]:
    with_passkey(person)
    return recovery_codes_renew(person=person)


def test_without_a_first_step_there_is_no_second(bob: User) -> None:
    made, spent = with_passkey(bob), with_totp(bob)
    for sent in ({"code": code()}, {"code": "x"}, {"credential": made.get(Client().get(PASSKEY).json())}, {}):
        client = Client()
        assert client.get(STEP)["Location"] == "/sign-in/"
        assert client.post(STEP, sent)["Location"] == "/sign-in/"
        assert not is_in(client)
    assert spent == []


def test_a_passkey_is_a_second_factor_and_its_answer_is_of_one_session(bob: User, eve: User) -> None:
    made, hers = with_passkey(bob), with_passkey(eve)
    client, other = first_step(bob), first_step(bob)
    options = options_in(client.get(STEP))
    assert [one["id"] for one in options["allowCredentials"]] == [Passkey.objects.get(person=bob).credential_id]
    answer = made.get(options)
    assert other.post(STEP, {"credential": answer}).status_code == 400
    assert client.post(STEP, {"credential": hers.get(options)}).status_code == 400
    assert Client().post(PASSKEY, {"credential": answer})["Location"] == "/sign-in/"
    assert client.post(STEP, {"credential": answer}).status_code == 302
    assert is_in(client)
    assert client.session[SESSION_METHOD] == "password and passkey"
    # The same answer again, in a session of the same person.
    again = first_step(bob)
    assert again.post(STEP, {"credential": answer}).status_code == 400
    assert not is_in(again)


def test_a_passkey_alone_signs_in_and_leads_on(bob: User) -> None:
    made = with_passkey(bob)
    client = Client()
    options = client.get(PASSKEY).json()
    assert (options["userVerification"], options["rpId"], "allowCredentials" in options) == (
        "required", "testserver", False,
    )  # fmt: skip
    assert not BrowserSession.objects.exists()
    answer = made.get(options)
    assert client.post(PASSKEY, {"credential": answer, "next": "/fabric/"})["Location"] == "/fabric/"
    assert is_in(client)
    assert (latest().credential, latest().actor_name) == ("passkey", "bob")
    assert Client().post(PASSKEY, {"credential": answer})["Location"] == "/sign-in/"
    made_up = {"credential": made.get(Client().get(PASSKEY).json()), "next": "https://evil.example/"}
    assert Client().post(PASSKEY, made_up)["Location"] == "/"


@pytest.mark.parametrize("sent", ["", "{}", "null", "x" * 30_000, '{"id": "a"}'])
def test_nonsense_instead_of_a_passkey_is_refused_and_counted(bob: User, sent: str) -> None:
    client = Client()
    answer = client.post(PASSKEY, {"credential": sent}, follow=True)
    assert "not accepted" in page_text(answer)
    assert (latest().outcome, latest().target_name) == ("refused", "(no person of that name)")


def test_wrong_passkeys_lock_their_person_there_and_nobody_else(bob: User, eve: User) -> None:
    wrong, hers = with_passkey(bob), with_passkey(eve)
    wrong.origin = "https://evil.example"
    for number in range(10):
        answer = Client().post(PASSKEY, {"credential": wrong.get(Client().get(PASSKEY).json())})
        assert answer.status_code == (429 if number == 9 else 302)
    wrong.origin = "http://testserver"
    assert Client().post(PASSKEY, {"credential": wrong.get(Client().get(PASSKEY).json())}).status_code == 429
    client = Client()
    assert client.post(PASSKEY, {"credential": hers.get(client.get(PASSKEY).json())})["Location"] == "/"


def test_a_site_under_another_name_accepts_its_own_passkeys_only(bob: User, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["falcon.example", "testserver"]
    made = with_passkey(bob)
    options = Client().get(PASSKEY, HTTP_HOST="falcon.example:8443", secure=True).json()
    assert options["rpId"] == "falcon.example"
    facts = {"host": "falcon.example", "origin": "https://falcon.example:8443"}
    for name, value in facts.items():
        setattr(made, name, value)
    answer = made.get(options)
    assert Client().post(PASSKEY, {"credential": answer})["Location"] == "/sign-in/"
    sent = Client().post(PASSKEY, {"credential": answer}, HTTP_HOST="falcon.example:8443", secure=True)
    assert sent["Location"] == "/"
    assert Client().get(PASSKEY, HTTP_HOST="evil.example").status_code == 400


def aged(client: Client) -> Client:
    """Let the last proof of who this is be too old for what needs a recent one."""
    session = client.session
    session[PROVED_AT] = time.time() - 86_400
    session.save()
    return client


@pytest.mark.parametrize(
    "name", ["passkey_add", "passkey_save", "authenticator", "authenticator_remove", "recovery_codes"]
)
def test_nothing_is_changed_after_an_old_sign_in(bob: User, name: str) -> None:
    with_totp(bob)
    client = first_step(bob)
    client.post(STEP, {"code": code()})
    answer = aged(client).post(reverse(f"accounts:{name}"), {"name": "laptop"})
    assert answer["Location"].startswith(reverse("accounts:confirmation"))
    assert bob.recovery_codes.filter(used_at=None).count() == 10
    assert User.objects.filter(totp_device__isnull=False).exists()


def test_a_passkey_confirms_a_sign_in_and_only_an_own_one(bob: User, eve: User) -> None:
    made, hers, client, where = with_passkey(bob), with_passkey(eve), Client(), reverse("accounts:confirmation")
    client.post(PASSKEY, {"credential": made.get(client.get(PASSKEY).json())})
    options = options_in(aged(client).get(where))
    spent = hers.get(options)
    for wrong in (spent, made.get(Client().get(PASSKEY).json()), "{}"):
        assert client.post(where, {"credential": wrong}).status_code == 400
    assert client.post(reverse("accounts:passkey_add"), {"name": "x"}).status_code == 302
    assert client.post(where, {"credential": made.get(options), "next": "/fabric/"})["Location"] == "/fabric/"
    assert client.post(reverse("accounts:passkey_add"), {"name": "x"}).status_code == 200
    assert client.post(where, {}).status_code == 400


def test_a_passkey_is_added_after_its_name_only(bob: User) -> None:
    client = signed_in(bob)
    for sent in ({"name": ""}, {}):
        assert client.post(reverse("accounts:passkey_add"), sent).status_code == 400
    unasked = SoftAuthenticator().create(Client().get(PASSKEY).json() | {"user": {"id": "YWJj"}})
    assert client.post(reverse("accounts:passkey_save"), {"credential": unasked}).status_code == 302
    assert not Passkey.objects.exists()
    made, answer = enrolled(client)
    assert answer.status_code == 201
    assert len(re.findall(r"\w{4}-\w{4}-\w{4}-\w{4}\b", answer.content.decode().partition("data:")[0])) == 10
    assert "no-store" in answer["Cache-Control"]
    _, answer = enrolled(client)
    assert answer["Location"] == "/account/"
    assert "laptop" in page_text(client.get("/account/"))
    signed_out = Client()
    assert signed_out.post(PASSKEY, {"credential": made.get(signed_out.get(PASSKEY).json())})["Location"] == "/"


def test_an_app_is_added_with_a_code_and_removed(bob: User) -> None:
    client, where = signed_in(bob), reverse("accounts:authenticator")
    shown = client.get(where)
    secret = shown.context["secret"]
    assert shown.context["picture"].startswith("data:image/svg+xml")
    assert client.get(where).context["secret"] == secret
    assert secret not in json.dumps(client.session.load())
    now = pyotp.TOTP(secret).now()
    for sent in ({"code": "000000"}, {}):
        assert client.post(where, sent).status_code == 400
    assert client.post(where, {"code": now}).status_code == 201
    assert secret not in client.get("/account/").content.decode()
    assert client.post(reverse("accounts:authenticator_remove"))["Location"] == "/account/"
    assert not User.objects.filter(totp_device__isnull=False).exists()
    assert signed_in(bob)
    # Of an app that was never shown there is no code to guess.
    assert client.post(where, {"code": now}).status_code == 400


def test_passkeys_are_renamed_and_removed_by_their_person_alone(bob: User, eve: User) -> None:
    client = signed_in(bob)
    enrolled(client)
    pk = bob.passkeys.get().pk
    page, remove = reverse("accounts:passkey", args=[pk]), reverse("accounts:passkey_remove", args=[pk])
    hers = signed_in(eve)
    assert [hers.get(page).status_code, hers.post(page, {"name": "mine"}).status_code] == [404, 404]
    assert hers.post(remove).status_code == 404
    assert client.post(page, {"name": "blue key"}).status_code == 302
    assert bob.passkeys.get().name == "blue key"
    assert client.post(remove)["Location"] == "/account/"
    assert not bob.passkeys.exists()


def test_new_recovery_codes_end_the_old_ones(bob: User) -> None:
    client, where = signed_in(bob), reverse("accounts:recovery_codes")
    old = with_totp(bob)
    answer = client.post(where)
    assert answer.status_code == 201
    assert not [one for one in old if one in answer.content.decode()]
    assert first_step(bob).post(STEP, {"code": old[0]}).status_code == 400


def test_an_administrator_resets_on_the_page_of_the_person(bob: User, eve: User, ada: User) -> None:
    with_totp(bob)
    client = signed_in(ada)
    page = reverse("accounts:person", args=[bob.pk])
    assert "Reset the second factors" in page_text(client.get(page))
    where = reverse("accounts:person_second_factor", args=[bob.pk])
    assert signed_in(eve).post(where).status_code == 403
    waits = first_step(bob)
    assert "password alone now" in page_text(client.post(where, follow=True))
    assert is_in(signed_in(bob))
    assert waits.get(STEP)["Location"] == "/sign-in/"


@pytest.mark.usefixtures("required_of_users")
def test_whose_role_needs_a_factor_opens_nothing_else_until_there_is_one(bob: User, ada: User) -> None:
    client, enrol = signed_in(bob), reverse("accounts:second_factor_enrol")
    for path in ("/", "/account/", "/fabric/"):
        assert client.get(path)["Location"] == enrol, path
    assert '<nav aria-label="Main"' not in client.get(enrol).content.decode()
    for path in ("/account/password/", "/account/tokens/", "/account/recovery-codes/"):
        answer = client.post(path, {"current": PASSWORD, "name": "job", "scope": "read", "days": 1})
        assert (answer.status_code, "needs a second factor" in answer.content.decode()) == (403, True), path
    for path in ("/api/v1/me/", "/api/v1/devices/", "/api/v1/schema/", "/metrics"):
        assert client.get(path).status_code == 403, path
    assert not Token.objects.exists()
    made, answer = enrolled(client)
    assert answer.status_code == 201
    assert is_in(client)
    remove = reverse("accounts:passkey_remove", args=[bob.passkeys.get().pk])
    assert "Add another one first" in page_text(client.post(remove, follow=True))
    # A passkey alone is enough, and other roles are left alone.
    other = Client()
    assert other.post(PASSKEY, {"credential": made.get(other.get(PASSKEY).json())})["Location"] == "/"
    assert is_in(other)
    assert is_in(signed_in(ada))


@pytest.mark.usefixtures("required_of_users")
def test_tokens_go_on_where_the_role_needs_a_factor(bob: User) -> None:
    _, secret = token_create(person=bob, name="job", scope="read", days=1)
    headers = {"Authorization": f"Bearer {secret}"}
    assert Client().get("/api/v1/me/", headers=headers).status_code == 200


@pytest.mark.usefixtures("required_of_users")
def test_a_provider_with_factors_of_its_own_is_asked_for_no_other(bob: User) -> None:
    client = Client()
    client.force_login(bob)
    assert not is_in(client)
    session = client.session
    session[SESSION_METHOD] = "OpenID Connect"
    session.save()
    assert is_in(client)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_pending", [True, False])
async def test_a_websocket_waits_for_the_factor_too(
    bob: User, request: pytest.FixtureRequest, is_pending: bool
) -> None:
    if is_pending:
        await sync_to_async(with_totp)(bob)
        client = await sync_to_async(first_step)(bob)
    else:
        request.getfixturevalue("required_of_users")
        client = await sync_to_async(signed_in)(bob)
    async with Socket(client) as socket:
        await socket.ask({"subscribe": [1]})
        assert await socket.next_of(int) == 4401


def test_sign_ins_by_other_ways_are_events_as_well(bob: User, django_capture_on_commit_callbacks: Any) -> None:
    made, client = with_passkey(bob), Client()
    with django_capture_on_commit_callbacks(execute=True):
        client.post(PASSKEY, {"credential": made.get(client.get(PASSKEY).json())})
    assert Event.objects.filter(text__contains="bob signed in from").exists()


def test_a_passkey_alone_is_no_way_around_an_identity_provider_or_closed_local_accounts(
    bob: User, ada: User, settings: Any
) -> None:
    made, hers = with_passkey(bob), with_passkey(ada)
    identity = ExternalIdentity.objects.create(provider=openid_provider("https://id.example"), subject="1", person=bob)

    def tried(device: SoftAuthenticator) -> Client:
        client = Client()
        client.post(PASSKEY, {"credential": device.get(client.get(PASSKEY).json())})
        return client

    assert "through your identity provider" in page_text(tried(made).get("/sign-in/"))
    identity.delete()
    assert is_in(tried(made))
    # A link has removed the password: whoever was let in by it alone stays out after it.
    bob.set_unusable_password()
    bob.save()
    assert not is_in(tried(made))
    settings.CONFIG = replace(settings.CONFIG, break_glass="ada")
    assert not is_in(tried(made))
    assert is_in(tried(hers))
    assert AuditEntry.objects.filter(action="account.break_glass").count() == 1
