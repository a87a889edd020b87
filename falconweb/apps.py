"""The room's Django application."""

from django.apps import AppConfig


class FalconWebConfig(AppConfig):
    """The site itself: templates, static files, checks."""

    name = "falconweb"
