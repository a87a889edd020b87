"""The Django application of telemetry."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "telemetry"

    def ready(self) -> None:
        import telemetry.live.receivers  # noqa: F401 - imported for its receivers
