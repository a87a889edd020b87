"""Management commands that end with an exit code for each outcome, explained at the end of `--help`."""

from __future__ import annotations

import argparse
import sys
from typing import Any, ClassVar, NoReturn

from django.core.management.base import BaseCommand, CommandParser


class ExitCodeCommand(BaseCommand):
    """A command whose `exit_codes` are shown as written."""

    exit_codes: ClassVar[str] = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser with the exit codes at the end of --help."""
        formatter = argparse.RawDescriptionHelpFormatter
        return super().create_parser(prog_name, subcommand, epilog=self.exit_codes, formatter_class=formatter, **kwargs)

    def stop(self, code: int, *sentences: str) -> NoReturn:
        """Exit with a code, and write the sentences as errors."""
        for sentence in sentences:
            self.stderr.write(sentence)
        sys.exit(code)
