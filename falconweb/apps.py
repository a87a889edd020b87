"""The room's Django application."""

from django.apps import AppConfig


class FalconWebConfig(AppConfig):
    """The site itself: templates, static files, checks."""

    name = "falconweb"

    def ready(self) -> None:
        """Make our Celery application the one that tasks are sent with, from web processes too."""
        import falconweb.celery  # noqa: F401 - imported for its effect
