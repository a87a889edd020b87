"""The Django application of runs."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    """Runs of benchmarks."""

    name = "benchmarks.runs"
    label = "runs"

    def ready(self) -> None:
        """Register runs as users of devices, so that a device in use is not detached unnoticed."""
        from benchmarks.runs.claims import held_devices
        from fabric.operations.services import DEVICE_HOLD_SOURCES

        if held_devices not in DEVICE_HOLD_SOURCES:
            DEVICE_HOLD_SOURCES.append(held_devices)
