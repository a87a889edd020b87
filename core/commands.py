"""Commands of `manage.py` that explain their exit codes."""

from __future__ import annotations

import argparse
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandParser


class ExplainedCommand(BaseCommand):
    """A command with a text at the end of its --help."""

    explanation: ClassVar[str]

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser, which keeps the lines of the text."""
        formatter = argparse.RawDescriptionHelpFormatter
        return super().create_parser(
            prog_name, subcommand, epilog=self.explanation, formatter_class=formatter, **kwargs
        )
