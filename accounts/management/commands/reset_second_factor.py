"""`manage.py reset_second_factor NAME`: let a person who has lost their second factors sign in by password again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from accounts.models import User
from accounts.second_factor.services import second_factor_reset
from core.commands import ExitCodeCommand
from core.errors import Conflict

REFUSED = 1


class Command(ExitCodeCommand):
    """Removes the second factors of a person, such as of the last administrator."""

    help = "Remove the passkeys, authenticator app and recovery codes of a person, and end their sessions."
    exit_codes = "exit codes:\n  0  they were removed\n  1  nothing was changed; the sentence says why\n"

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("username", help="user name of the person")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Reset, and say so."""
        person = User.objects.filter(username=options["username"]).first()
        if person is None:
            self.stop(REFUSED, f"There is no person with the user name {options['username']}.")
        try:
            second_factor_reset(by=None, person=person)
        except Conflict as error:
            self.stop(REFUSED, error.sentence)
        self.stdout.write(f"{person.username} signs in with the password alone now, and can add new factors.")
