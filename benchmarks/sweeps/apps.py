"""The Django application of sweeps."""

from importlib import import_module

from django.apps import AppConfig


class SweepsConfig(AppConfig):
    """Sweeps of benchmarks."""

    name = "benchmarks.sweeps"
    label = "sweeps"

    def ready(self) -> None:
        """Subscribe to changes of runs."""
        import_module("benchmarks.sweeps.services")
