"""The site's Django application."""

from django.apps import AppConfig


class FalconWebConfig(AppConfig):
    """The site itself: templates, static files, checks."""

    name = "falconweb"

    def ready(self) -> None:
        """Import the Celery application, so that web processes send tasks with it too."""
        import falconweb.celery  # noqa: F401 - imported for its effect
