"""The Django application of the benchmarks' management commands; models belong to its features."""

from django.apps import AppConfig


class BenchmarksConfig(AppConfig):
    """Benchmarks: from a run to a recommended topology."""

    name = "benchmarks"
