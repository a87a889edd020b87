"""The Django application of alerts."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "telemetry.alerts"
    label = "alerts"

    def ready(self) -> None:
        import telemetry.alerts.receivers  # noqa: F401 - imported for its receivers
