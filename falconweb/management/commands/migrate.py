"""Django's migrate, for all databases of the site: readings have a file of their own."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.core.management.commands import migrate
from django.db import router


class Command(migrate.Command):
    """Migrates every database unless one is named."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Name no database where nobody names one."""
        super().add_arguments(parser)
        parser.set_defaults(database=None)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, once for each database."""
        databases = [options["database"]] if options["database"] else list(settings.DATABASES)
        if (room := options["app_label"]) and len(databases) > 1:
            databases = [database for database in databases if router.allow_migrate(database, room)]
        for database in databases:
            super().execute(*args, **{**options, "database": database})
        return None
