"""The Django application of alerts."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Alerts: rules, alerts, silences, routes and deliveries."""

    name = "telemetry.alerts"
    label = "alerts"
