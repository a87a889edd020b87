"""Management commands whose exit codes are part of their interface."""

from __future__ import annotations

import argparse
import sys
from typing import Any, ClassVar, NoReturn

from django.core.management.base import BaseCommand, CommandParser


class ExitCodeCommand(BaseCommand):
    """A command that exits with a code, which it explains at the end of --help."""

    explained: ClassVar[str] = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser, whose epilog keeps its lines."""
        formatter = argparse.RawDescriptionHelpFormatter
        return super().create_parser(prog_name, subcommand, epilog=self.explained, formatter_class=formatter, **kwargs)

    def stop(self, code: int, *sentences: str) -> NoReturn:
        """Write the sentences to standard error, and exit with the code."""
        for sentence in sentences:
            self.stderr.write(sentence)
        sys.exit(code)
