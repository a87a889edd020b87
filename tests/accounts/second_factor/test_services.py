"""Passkeys, codes and their removal, by the services: what is accepted, what is not, and what is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyotp
import pytest
from django.core.management import call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from accounts.audit.models import AuditEntry
from accounts.models import BrowserSession, User
from accounts.second_factor import services, webauthn
from accounts.second_factor.models import Passkey, RecoveryCode, TotpDevice
from accounts.second_factor.selectors import has_second_factor
from accounts.second_factor.services import MAX_WRONG_CODES, code_use, passkey_use
from accounts.services import person_edit, person_password_reset, person_provision
from accounts.sign_in import change_mails
from accounts.tasks import send_change_mail
from accounts.token_services import token_create
from core.errors import Conflict, FalconWebError, Forbidden, Invalid
from tests.accounts.second_factor.conftest import CONFIRMED_AT, PARTY, SECRET, with_passkey, with_totp
from tests.accounts.second_factor.soft_authenticator import PRESENT, SoftAuthenticator

pytestmark = pytest.mark.django_db


def asked() -> dict[str, Any]:
    """Return what a browser is asked for at a sign-in."""
    return webauthn.request_options(PARTY, "sign in")


def used(answer: str, *, purpose: str = "sign in", person: User | None = None) -> User:
    return passkey_use(party=PARTY, purpose=purpose, answer=answer, person=person)


def code_at(moment: float) -> str:
    return pyotp.TOTP(SECRET).at(int(moment))


def test_a_passkey_names_its_person_and_signs_them_in(bob: User) -> None:
    made = with_passkey(bob)
    assert used(made.get(asked())) == bob
    row = Passkey.objects.get()
    assert (row.sign_count, row.transports, row.is_backed_up) == (1, ["internal"], False)
    assert row.last_used_at is not None


def test_nobody_makes_the_handle_of_a_person_without_the_key_of_the_site(bob: User, settings: Any) -> None:
    here = with_passkey(bob).user_handle
    bob.passkeys.all().delete()
    settings.SECRET_KEY = "another-site"
    elsewhere = with_passkey(bob).user_handle
    assert here is not None
    assert len(here) == 32
    assert here != elsewhere


def test_a_persons_passkeys_share_a_handle_and_others_have_another(bob: User, eve: User) -> None:
    handles = [with_passkey(person).user_handle for person in (bob, bob, eve)]
    assert handles[0] == handles[1] != handles[2]
    known = services.passkey_options(person=bob, party=PARTY, purpose="enrol")["excludeCredentials"]
    assert isinstance(known, list)
    assert len(known) == 2


def test_an_authenticator_that_does_not_count_is_used_again_and_again(bob: User) -> None:
    made = with_passkey(bob)
    for _ in range(3):
        made.count = -1  # 0 in the answer
        assert used(made.get(asked())) == bob


CHANGES: dict[str, tuple[Callable[[SoftAuthenticator], None], str]] = {
    "another site's page": (lambda one: setattr(one, "origin", "http://testserver.evil.example"), "origin"),
    "a page of another port": (lambda one: setattr(one, "origin", "http://testserver:81"), "origin"),
    "a page of a subdomain": (lambda one: setattr(one, "origin", "http://sub.testserver"), "origin"),
    "another host": (lambda one: setattr(one, "host", "evil.example"), "RP ID"),
    "nobody verified": (lambda one: setattr(one, "flags", PRESENT), "verif"),
    "nobody present": (lambda one: setattr(one, "flags", 0x04), "Present"),
    "another key": (lambda one: setattr(one, "key", SoftAuthenticator().key), "signature"),
    "another person's handle": (lambda one: setattr(one, "user_handle", b"x" * 32), "another person"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_answer_that_is_wrong_in_one_thing_is_refused(bob: User, what: str) -> None:
    made = with_passkey(bob)
    change, why = CHANGES[what]
    change(made)
    with pytest.raises(Invalid) as refused:
        used(made.get(asked()))
    assert why.lower() in str(refused.value.__cause__).lower()
    assert Passkey.objects.get().last_used_at is None


def test_a_challenge_is_for_one_purpose_one_use_and_five_minutes(bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    made, options = with_passkey(bob), asked()
    answer = made.get(options)
    with pytest.raises(Invalid):
        used(answer, purpose=f"second step {bob.pk} abc")
    assert used(answer) == bob
    made.count = 7
    for again in (answer, made.get(options)):  # the same answer, and a new one to the same challenge
        with pytest.raises(Invalid, match="used since"):
            used(again)
    for challenge in (b"made up", b"1-x", b"\xff"):
        with pytest.raises(Invalid):
            used(made.get(options | {"challenge": webauthn.credential_key(challenge)}))
    late = asked()
    monkeypatch.setattr(webauthn, "CHALLENGE_SECONDS", -1)
    with pytest.raises(Invalid) as refused:
        used(made.get(late))
    assert "expired" in str(refused.value.__cause__)


def test_a_copied_passkey_is_found_by_its_count(bob: User) -> None:
    made = with_passkey(bob)
    copy = replace(made)
    for _ in range(3):
        used(made.get(asked()))
    with pytest.raises(Invalid, match="may have been copied"):
        used(copy.get(asked()))
    assert used(made.get(asked())) == bob


def test_a_passkey_of_another_person_is_no_second_factor(bob: User, eve: User) -> None:
    with_passkey(bob)
    hers = with_passkey(eve)
    with pytest.raises(Invalid):
        used(hers.get(asked()), person=bob)
    bob.is_active = False
    bob.save()
    eve.is_active = False
    eve.save()
    with pytest.raises(Invalid):
        used(hers.get(asked()))


@pytest.mark.parametrize(
    "facts", [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"flags": PRESENT}, {"algorithm": -65535}]
)
def test_a_registration_that_is_wrong_adds_nothing(bob: User, facts: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        with_passkey(bob, **facts)
    assert not Passkey.objects.exists()
    assert not RecoveryCode.objects.exists()


def test_a_passkey_is_registered_once_and_by_its_own_challenge(bob: User, eve: User) -> None:
    made = with_passkey(bob)
    with pytest.raises(Invalid, match="registered already"):
        with_passkey(eve, credential_id=made.credential_id)
    options = services.passkey_options(person=bob, party=PARTY, purpose="enrol 1 other session")
    answer = SoftAuthenticator().create(options)
    with pytest.raises(Invalid):
        services.passkey_add(person=bob, party=PARTY, purpose="enrol", name="x", answer=answer)


@given(st.data())
def test_an_answer_from_anywhere_breaks_nothing(data: st.DataObject) -> None:
    """Any JSON, and real answers of which one member is anything."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    made = SoftAuthenticator()
    user = {"user": {"id": "YWJj"}}
    for answer in (made.get(asked()), made.create(asked() | user)):
        values = json.loads(answer)
        where = data.draw(st.sampled_from([values, values["response"]]))
        where[data.draw(st.sampled_from(sorted(where)))] = data.draw(anything)
        for text in (json.dumps(values), json.dumps(data.draw(anything)), "[" * 9_000, data.draw(st.text())):
            with pytest.raises(Invalid):
                webauthn.registration_check(PARTY, "sign out", text)
            with suppress(Invalid):  # some can be parsed
                webauthn.assertion_parse(text)


def test_a_code_is_used_once_and_none_before_it(bob: User) -> None:
    with_totp(bob)
    now = time.time()
    assert code_use(person=bob, code=code_at(now), now=now) == "TOTP"
    for moment in (now, now - 30):
        with pytest.raises(Invalid):
            code_use(person=bob, code=code_at(moment), now=now)
    assert code_use(person=bob, code=f" {code_at(now + 30)[:3]} {code_at(now + 30)[3:]} ", now=now) == "TOTP"


@pytest.mark.parametrize(("difference", "accepted"), [(-60, False), (-30, True), (30, True), (60, False)])
def test_clocks_may_differ_by_half_a_minute(bob: User, difference: int, accepted: bool) -> None:
    with_totp(bob)
    now = time.time()
    if accepted:
        assert code_use(person=bob, code=code_at(now + difference), now=now) == "TOTP"
    else:
        with pytest.raises(Invalid):
            code_use(person=bob, code=code_at(now + difference), now=now)


def test_the_code_that_confirmed_the_app_signs_nobody_in(bob: User) -> None:
    with_totp(bob)
    with pytest.raises(Invalid):
        code_use(person=bob, code=code_at(CONFIRMED_AT), now=CONFIRMED_AT)


def test_a_secret_is_encrypted_and_an_app_needs_the_right_code(bob: User) -> None:
    with pytest.raises(Invalid) as refused:
        services.totp_add(person=bob, secret=SECRET, code="000000", now=CONFIRMED_AT)
    assert "code" in refused.value.details["errors"]
    with_totp(bob)
    assert SECRET not in TotpDevice.objects.get().secret_encrypted
    with pytest.raises(Conflict):
        with_totp(bob)
    kept = json.dumps([entry.record() for entry in AuditEntry.objects.all()])
    assert SECRET not in kept


def test_guesses_of_codes_end_whatever_address_they_come_from(bob: User) -> None:
    codes = with_totp(bob)
    now = time.time()
    for _ in range(MAX_WRONG_CODES):
        with pytest.raises(Invalid):
            code_use(person=bob, code="wrong", now=now)
    with pytest.raises(Invalid, match="Too many wrong codes"):
        code_use(person=bob, code=code_at(now), now=now)
    assert code_use(person=bob, code=codes[0]) == "recovery code"


def test_a_recovery_code_is_used_once_however_it_is_written(bob: User, eve: User) -> None:
    codes = with_totp(bob)
    assert len(set(codes)) == 10
    with_passkey(eve)
    with pytest.raises(Invalid):
        code_use(person=eve, code=codes[0])
    assert code_use(person=bob, code=f" {codes[0].upper().replace('-', ' ')}") == "recovery code"
    with pytest.raises(Invalid):
        code_use(person=bob, code=codes[0])
    assert not set(codes) & set(RecoveryCode.objects.values_list("digest", flat=True))
    renewed = services.recovery_codes_renew(person=bob)
    with pytest.raises(Invalid):
        code_use(person=bob, code=codes[1])
    assert code_use(person=bob, code=renewed[1]) == "recovery code"


def test_the_first_factor_brings_recovery_codes_and_the_last_takes_them_along(bob: User) -> None:
    with pytest.raises(Conflict):
        services.recovery_codes_renew(person=bob)
    assert len(with_totp(bob)) == 10
    with_passkey(bob)
    services.totp_remove(person=bob)
    assert bob.recovery_codes.count() == 10
    services.passkey_remove(person=bob, passkey=bob.passkeys.get())
    assert not bob.recovery_codes.exists()


@pytest.mark.usefixtures("required_of_users")
def test_where_the_role_needs_one_the_last_factor_stays(bob: User, ada: User) -> None:
    with_totp(bob)
    with pytest.raises(Conflict, match="Add another one first"):
        services.totp_remove(person=bob)
    with_passkey(bob)
    services.totp_remove(person=bob)
    with pytest.raises(Conflict):
        services.passkey_remove(person=bob, passkey=bob.passkeys.get())
    assert bob.passkeys.count() == 1
    with_totp(ada)
    services.totp_remove(person=ada)


def test_an_administrator_resets_the_factors_of_others(bob: User, ada: User) -> None:
    with_totp(bob)
    with_passkey(bob)
    with_totp(ada)
    Client().force_login(bob)
    with pytest.raises(Forbidden):
        services.second_factor_reset(by=bob, person=ada)
    with pytest.raises(Conflict, match="your account page"):
        services.second_factor_reset(by=ada, person=ada)
    services.second_factor_reset(by=ada, person=bob)
    assert not has_second_factor(bob)
    assert not bob.recovery_codes.exists()
    assert not BrowserSession.objects.exists()
    entry = AuditEntry.objects.latest("sequence")
    assert (entry.action, entry.actor_name, entry.target_name) == ("person.second_factor", "ada", "bob")
    assert entry.before == {"passkeys": ["laptop"], "authenticator app": True}
    with pytest.raises(Conflict):
        services.second_factor_reset(by=ada, person=bob)


def test_the_last_administrator_is_let_in_again_by_a_command(ada: User, capsys: pytest.CaptureFixture[str]) -> None:
    with_totp(ada)
    call_command("reset_second_factor", "ada")
    assert "password alone" in capsys.readouterr().out
    assert not has_second_factor(ada)
    for name in ("ada", "nobody"):
        with pytest.raises(SystemExit) as ended:
            call_command("reset_second_factor", name)
        assert ended.value.code == 1


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch, settings: Any) -> list[tuple[int, str, str]]:
    """The arguments of the tasks that are enqueued, at a site that sends mail."""
    settings.EMAIL_IS_SENT = True
    tasks: list[tuple[int, str, str]] = []
    monkeypatch.setattr(change_mails, "enqueue", lambda _, *arguments: tasks.append(arguments))
    return tasks


def test_a_person_hears_by_mail_of_each_change(
    bob: User,
    ada: User,
    queued: list[tuple[int, str, str]],
    mailoutbox: list[Any],
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        with_totp(bob)
        with_passkey(bob)
        services.totp_remove(person=bob)
        services.recovery_codes_renew(person=bob)
        token_create(person=bob, name="job", scope="read", days=1)
        services.passkey_remove(person=bob, passkey=bob.passkeys.get())
        with_totp(bob)
        services.second_factor_reset(by=ada, person=bob)
        person_password_reset(by=ada, person=bob)
        facts: dict[str, Any] = {
            "username": "bob",
            "full_name": "",
            "role": bob.role,
            "tenant": bob.tenant,
            "active": True,
        }
        person_edit(by=ada, person=bob, email="elsewhere@example.org", **facts)
        person_edit(by=ada, person=bob, email="Elsewhere@example.org", **facts | {"full_name": "Bob"})
        person_edit(by=ada, person=bob, email="", **facts)
        provided: dict[str, Any] = {"full_name": "", "role": bob.role, "tenant": bob.tenant}
        person_provision(person=bob, username="bob", email="bob@example.org", **provided)
        person_provision(person=bob, username="bob", email="bob@example.com", **provided)
        with_totp(ada)  # who has no address
    for arguments in queued:
        send_change_mail(*arguments)
    assert [mail.to for mail in mailoutbox[-2:]] == [["Elsewhere@example.org"], ["bob@example.org"]]
    assert {one for mail in mailoutbox[:-2] for one in mail.to} == {"bob@example.org"}
    heard = [mail.body.partition("\n")[0] for mail in mailoutbox]
    assert heard[:3] == [
        "An authenticator app was added to your account.", "The passkey 'laptop' was added to your account.",
        "The authenticator app was removed from your account.",
    ]  # fmt: skip
    assert len(heard) == 12
    assert heard[-5].startswith("ada removed your passkeys")
    assert heard[-4].startswith("ada reset your password")
    assert heard[-3] == heard[-2] == heard[-1] != ""
    assert heard[-1].startswith("Your account no longer has this e-mail address")


def test_passkeys_have_names_of_some_length_and_a_limit(bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with_passkey(bob)
    row = bob.passkeys.get()
    for name in ("", " ", "x" * 101):
        with pytest.raises(Invalid):
            services.passkey_rename(person=bob, passkey=row, name=name)
    services.passkey_rename(person=bob, passkey=row, name=" blue  key ")
    assert bob.passkeys.get().name == "blue key"
    monkeypatch.setattr(services, "MAX_PASSKEYS", 1)
    with pytest.raises(FalconWebError, match="Remove one first"):
        with_passkey(bob)


def test_an_unknown_key_of_the_site_is_said_so(bob: User, settings: Any) -> None:
    codes = with_totp(bob)
    settings.CREDENTIALS_KEYS = ["kVmNoR9zvTWgHQBn0XZy0Vv4a5M3a2n5b8v3M4w2k1A="]
    with pytest.raises(FalconWebError, match="FALCONWEB_CREDENTIALS_KEY"):
        code_use(person=bob, code="123456")
    assert code_use(person=bob, code=codes[0]) == "recovery code"
