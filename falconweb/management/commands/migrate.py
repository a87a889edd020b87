"""Django's migrate, for all databases of the site: readings have a separate one."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandParser
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, router
from django.utils.module_loading import module_has_submodule


class Command(migrate.Command):
    """Migrates every database unless one is named."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Default to all databases."""
        super().add_arguments(parser)
        parser.set_defaults(database=None)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run for each database; for those besides the default only the applications that have tables there.

        The others would change nothing, but evaluating their steps takes half the time of a first start.
        """
        databases = [options["database"]] if options["database"] else list(settings.DATABASES)
        if (room := options["app_label"]) and len(databases) > 1:
            databases = [database for database in databases if router.allow_migrate(database, room)]
        for database in databases:
            if room or database == DEFAULT_DB_ALIAS:
                super().execute(*args, **{**options, "database": database})
                continue
            for one in _rooms_in(database):
                # Applications without migrations have no tables there.
                super().execute(*args, **{**options, "database": database, "app_label": one, "run_syncdb": False})
        return None


def _rooms_in(database: str) -> list[str]:
    """Return the labels of the applications that have tables in a database."""
    labels = {config.label for config in apps.get_app_configs() if module_has_submodule(config.module, "migrations")}
    return sorted(label for label in labels if router.allow_migrate(database, label))
