"""The room's Django application."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    """Runs of benchmarks."""

    name = "benchmarks.runs"
    label = "runs"

    def ready(self) -> None:
        """Let nobody take a device from a run without knowing."""
        from benchmarks.runs.claims import held_devices
        from fabric.operations.services import DEVICE_HOLD_SOURCES

        if held_devices not in DEVICE_HOLD_SOURCES:
            DEVICE_HOLD_SOURCES.append(held_devices)
