"""The Django application of telemetry."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Polling and live push."""

    name = "telemetry"

    def ready(self) -> None:
        """Connect the signal receivers."""
        import telemetry.live.receivers  # noqa: F401 - imported for its receivers
