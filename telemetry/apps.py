"""The Django application of telemetry."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "telemetry"

    def ready(self) -> None:
        import telemetry.live.receivers  # noqa: F401 - imported for its receivers
        from telemetry.alerts.conditions import register_condition_source
        from telemetry.pipeline.selectors import filling_disks, late_stores

        register_condition_source("store_behind", late_stores)
        register_condition_source("disk_filling", filling_disks)
