"""Which passwords are accepted, by NIST SP 800-63B: long ones that are not guessed; no rules of composition."""

from __future__ import annotations

import re
import secrets
from typing import Final

from django.contrib.auth.password_validation import CommonPasswordValidator, validate_password
from django.core.exceptions import ValidationError

from accounts.access import SITE_NAME
from accounts.models import User
from accounts.sign_in.security import normalised_password
from core.language import _

MAX_PASSWORD_LENGTH: Final = 128
MIN_OWN_LETTERS: Final = 8  # of a password, besides words that a guesser tries first
MIN_WORD_LENGTH: Final = 4
# Without letters and digits that look alike: passwords are read out and typed.
PASSWORD_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"  # noqa: S105 - an alphabet
PASSWORD_GROUPS: Final = 4
CONTEXT_WORDS: Final = (SITE_NAME, "falcon", "password", "administrator")
REPEATED: Final = re.compile(r"(.{1,4})\1+.{0,3}", re.DOTALL)
ROWS: Final = ("abcdefghijklmnopqrstuvwxyz" * 2, "0123456789" * 13, "qwertyuiopasdfghjklzxcvbnm" * 2)


class MaximumLengthValidator:
    """Refuses passwords so long that hashing them would be a burden."""

    def validate(self, password: str, user: User | None = None) -> None:
        """Raise ValidationError for a longer one."""
        if len(normalised_password(password)) > MAX_PASSWORD_LENGTH:
            raise ValidationError(
                _(
                    "This password is too long. It may have {most} characters.",
                    most=MAX_PASSWORD_LENGTH,
                )
            )

    def get_help_text(self) -> str:
        """Return the rule."""
        return f"Your password may have {MAX_PASSWORD_LENGTH} characters at most."


class GuessablePasswordValidator:
    """Refuses what is made of words of this site and person, of common passwords with digits around, and of rows."""

    def __init__(self) -> None:
        self.common: set[str] = CommonPasswordValidator().passwords

    def validate(self, password: str, user: User | None = None) -> None:
        """Raise ValidationError for a password that a guesser tries early."""
        typed = normalised_password(password).casefold()
        rest = typed
        for word in sorted(_words_of(user), key=len, reverse=True):
            rest = rest.replace(word, "")
        core = re.sub(r"^[\W\d_]+|[\W\d_]+$", "", typed)
        if rest != typed and len(rest) < MIN_OWN_LETTERS:
            raise ValidationError(_("This password is made of names of the site or yours. Choose other words."))
        if core in self.common or typed in self.common:
            raise ValidationError(_("This password is common, but for its ends. Choose another."))
        if REPEATED.fullmatch(typed) or any(typed in row or typed[::-1] in row for row in ROWS):
            raise ValidationError(_("This password repeats itself, or is a row of keys. Choose another."))

    def get_help_text(self) -> str:
        """Return the rule."""
        return "Your password must not be made of names of the site or yours, nor repeat itself."


def _words_of(person: User | None) -> set[str]:
    """Return the words that a guesser of this person's password tries first, in small letters."""
    texts = list(CONTEXT_WORDS)
    if person is not None:
        tenant = person.tenant.name if person.tenant else ""
        texts += [person.username, *person.get_full_name().split(), *tenant.split(), *re.split(r"[@.]", person.email)]
    return {text.casefold() for text in texts if len(text) >= MIN_WORD_LENGTH}


def password_problem(password: str, person: User) -> str:
    """Return why a password is not accepted for a person, '' for a good one."""
    try:
        validate_password(normalised_password(password), person)
    except ValidationError as error:
        return " ".join(error.messages)
    return ""


def generated_password() -> str:
    """Return a random password that is easily read out."""
    groups = ("".join(secrets.choice(PASSWORD_ALPHABET) for _ in range(4)) for _ in range(PASSWORD_GROUPS))
    return "-".join(groups)
