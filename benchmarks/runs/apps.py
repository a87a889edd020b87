"""The Django application of runs."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    """Runs of benchmarks."""

    name = "benchmarks.runs"
    label = "runs"

    def ready(self) -> None:
        """Register runs as users of devices, so that one in use is not detached unnoticed, and as running work."""
        from benchmarks.runs.claims import held_devices
        from benchmarks.runs.selectors import running_runs
        from fabric.operations.services import DEVICE_HOLD_SOURCES
        from fabric.topology.readings import register_work_source

        if held_devices not in DEVICE_HOLD_SOURCES:
            DEVICE_HOLD_SOURCES.append(held_devices)
        register_work_source(running_runs)
