"""Which passwords are accepted."""

from __future__ import annotations

import pytest
from django.contrib.auth.hashers import check_password, make_password

from accounts.models import Role, Tenant, User
from accounts.sign_in.passwords import generated_password, password_problem
from accounts.sign_in.security import BoundedArgon2PasswordHasher


@pytest.fixture
def bob() -> User:
    """A user of a tenant; in no database."""
    tenant = Tenant(name="Vision group")
    return User(
        username="bob-the-builder",
        first_name="Robert Miller",
        email="rob@millers.example",
        role=Role.USER,
        tenant=tenant,
    )


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery", "correcthorsebatterystaple", "x" * 3 + "kvdqwjfznpahe", "жълтата дюля беше",
        "8302647193058", "four words of falconry", "k" + "vdqwjfznpaheio" * 9, "millers grind very slowly",
    ],
)  # fmt: skip
def test_long_passwords_of_any_composition_are_accepted(bob: User, password: str) -> None:
    assert password_problem(password, bob) == ""


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("kvdqwjfznpa", "at least 12"), ("kvdqwjfz" * 17, "too long"), ("password1234!", "names of the site"),
        ("FalconWeb-2026", "names of the site"), ("bob-the-builder1", "username"), ("VisionGroup2026!", "names of the"),
        ("Miller-Robert-1", "names of the site"), ("123456789012", "row of keys"), ("qwertyuiopasdf", "row of keys"),
        ("aaaaaaaaaaaaaa", "repeats"), ("abc1abc1abc1", "repeats"), ("liverpool12345", "common"),
        ("ｐａｓｓｗｏｒｄ１２３４", "names of the site"), ("zyxwvutsrqpon", "row of keys"),
    ],
)  # fmt: skip
def test_what_is_guessed_early_is_refused_with_its_reason(bob: User, password: str, why: str) -> None:
    assert why in password_problem(password, bob)


def test_generated_passwords_are_accepted(bob: User) -> None:
    assert not [password for password in (generated_password() for _ in range(200)) if password_problem(password, bob)]


def test_the_same_letters_typed_otherwise_are_the_same_password() -> None:
    composed, decomposed = "K\u00f6nigsberger Klopse", "Ko\u0308nigsberger Klopse"
    assert check_password(decomposed, make_password(composed))
    assert not check_password(composed + "x", make_password(composed))


def test_a_password_hashed_before_normalisation_still_works() -> None:
    decomposed = "Ko\u0308nigsberger Klopse"
    old = super(BoundedArgon2PasswordHasher, BoundedArgon2PasswordHasher()).encode(decomposed, "salt" * 6)
    assert check_password(decomposed, old)
