"""All preparations of a start, in one process: tables, static files and the simulation."""

from __future__ import annotations

import os
import shutil
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from core.sqlite_damage import file_damage, note_damage
from falconweb.launch import fingerprints
from telemetry.store.renewal import START_SECONDS, database_file, readings_renew


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
        if on_sqlite:
            self._check_files()
        if not on_sqlite or not fingerprints.is_migrated(data):
            call_command("migrate", verbosity=0, run_syncdb=True)
            if on_sqlite:
                fingerprints.mark_migrated(data)
        if not fingerprints.is_collected(static):
            if fingerprints.is_damaged(static):  # what is newer than its source would stay
                shutil.rmtree(static, ignore_errors=True)
            call_command("collectstatic", interactive=False, verbosity=0)
            fingerprints.mark_collected(static)
        if not options["skip_bootstrap"]:
            call_command("bootstrap", stdout=self.stdout)

    def _check_files(self) -> None:
        """Refuse a damaged database, and begin damaged readings anew."""
        file = database_file("default")
        if file is not None:
            if damage := file_damage(file, seconds=START_SECONDS):
                raise CommandError(
                    f"{file} is damaged: {damage}. Restore it from a backup ('Back up' in docs/operate.md), or move it "
                    "away to begin with an empty site."
                )
            note_damage(file, "")
        for alias in settings.DATABASES:
            file = database_file(alias)
            if file is not None and file.exists() and not os.access(file, os.W_OK):
                raise CommandError(f"{file} cannot be written by this account: check its owner and mode.")
        if sentence := readings_renew(seconds=START_SECONDS):
            self.stdout.write(sentence)
