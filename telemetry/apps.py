"""The room's Django application."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Polling and live push."""

    name = "telemetry"
