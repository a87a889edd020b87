"""The Django application of alerts."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Alerts: rules, alerts, silences, routes and deliveries."""

    name = "telemetry.alerts"
    label = "alerts"

    def ready(self) -> None:
        """Connect the signal receivers."""
        import telemetry.alerts.signals  # noqa: F401 - imported for its receivers
