"""The room's Django application."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """What rings when: rules, alerts, silences, and whom they reach."""

    name = "telemetry.alerts"
    label = "alerts"

    def ready(self) -> None:
        """Tell browsers of what rings."""
        import telemetry.alerts.signals  # noqa: F401 - imported for its receivers
