"""The Django application of alerts."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "telemetry.alerts"
    label = "alerts"
