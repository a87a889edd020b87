"""The Django application of exports."""

from django.apps import AppConfig


class ExportsConfig(AppConfig):
    """Exports of events: definitions, runs, formats, targets."""

    name = "telemetry.exports"
    label = "exports"
