"""The database router of readings."""

from __future__ import annotations

from typing import Any

from django.conf import settings

APP_LABEL = "store"


class ReadingsRouter:
    """Routes the tables of readings to `settings.READINGS_DATABASE`, all others to the site's own database."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return settings.READINGS_DATABASE if model._meta.app_label == APP_LABEL else "default"  # noqa: SLF001 - Django documents it

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return self.db_for_read(model)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == (settings.READINGS_DATABASE if app_label == APP_LABEL else "default")
