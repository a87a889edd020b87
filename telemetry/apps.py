"""The room's Django application."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Polling and live push."""

    name = "telemetry"

    def ready(self) -> None:
        """Listen to the rooms below."""
        import telemetry.live.receivers  # noqa: F401 - imported for its receivers
