"""The Django application of the history."""

from django.apps import AppConfig


class HistoryConfig(AppConfig):
    """History of readings over any range, and its pages and charts."""

    name = "telemetry.history"
    label = "history"
