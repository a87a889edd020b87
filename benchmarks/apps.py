"""The room's Django application: its commands; what it keeps belongs to the rooms below."""

from django.apps import AppConfig


class BenchmarksConfig(AppConfig):
    """Benchmarks: from a run to a recommended topology."""

    name = "benchmarks"
