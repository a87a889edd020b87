"""The Django application of the history."""

from django.apps import AppConfig


class HistoryConfig(AppConfig):
    name = "telemetry.history"
    label = "history"
