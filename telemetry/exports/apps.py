"""The Django application of exports."""

from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "telemetry.exports"
    label = "exports"
