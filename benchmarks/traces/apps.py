"""The Django application of imported traces."""

from django.apps import AppConfig


class TracesConfig(AppConfig):
    """Imported traces."""

    name = "benchmarks.traces"
    label = "traces"
