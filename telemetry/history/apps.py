"""The room's Django application."""

from django.apps import AppConfig


class HistoryConfig(AppConfig):
    """What was measured, over any range, and the pages and charts that show it."""

    name = "telemetry.history"
    label = "history"
