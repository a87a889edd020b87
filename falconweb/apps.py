"""The site's Django application."""

from __future__ import annotations

import os

from django.apps import AppConfig
from django.conf import settings


class FalconWebConfig(AppConfig):
    """The site itself: templates, static files, checks."""

    name = "falconweb"

    def ready(self) -> None:
        """Import the Celery application, so that web processes send tasks with it too."""
        import falconweb.celery  # noqa: F401 - imported for its effect

        if "FALCONWEB_FAILPOINTS" in os.environ:
            from falconweb.failpoints import failpoints_activate

            failpoints_activate(os.environ, debug=settings.DEBUG)
