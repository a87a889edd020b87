"""The room's Django application."""

from django.apps import AppConfig


class ExportsConfig(AppConfig):
    """Events that leave the site: definitions, runs, formats, targets."""

    name = "telemetry.exports"
    label = "exports"
