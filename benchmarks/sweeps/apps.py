"""The room's Django application."""

from importlib import import_module

from django.apps import AppConfig


class SweepsConfig(AppConfig):
    """Sweeps of benchmarks."""

    name = "benchmarks.sweeps"
    label = "sweeps"

    def ready(self) -> None:
        """Hear of the runs of sweeps."""
        import_module("benchmarks.sweeps.services")
