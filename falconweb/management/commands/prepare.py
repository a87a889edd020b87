"""All preparations of a start, in one process: tables, static files and the simulation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from falconweb.launch import fingerprints


class Command(BaseCommand):
    """Migrates, collects static files and bootstraps; skips completed steps."""

    help = "Prepare the data folder for a start: migrate, collectstatic and bootstrap, as far as they are needed."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the option for folders from which sites are copied."""
        parser.add_argument(
            "--skip-bootstrap", action="store_true", help="make no administrator: for a folder that is to be copied"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        data, static = settings.CONFIG.data, settings.STATIC_ROOT
        on_sqlite = not settings.CONFIG.database_url
        if not on_sqlite or not fingerprints.is_migrated(data):
            call_command("migrate", verbosity=0, run_syncdb=True)
            if on_sqlite:
                fingerprints.mark_migrated(data)
        if not fingerprints.is_collected(static):
            call_command("collectstatic", interactive=False, verbosity=0)
            fingerprints.mark_collected(static)
        if not options["skip_bootstrap"]:
            call_command("bootstrap", stdout=self.stdout)
