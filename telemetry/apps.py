"""The Django application of telemetry."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "telemetry"

    def ready(self) -> None:
        import telemetry.live.receivers  # noqa: F401 - imported for its receivers
        from fabric.inventory.device_filter import register_live_values
        from fabric.topology.readings import register_reading_source
        from telemetry.alerts.conditions import register_condition_source
        from telemetry.alerts.limits import limited_fleet_readings
        from telemetry.live.newest import newest_values
        from telemetry.pipeline.selectors import filling_disks, late_stores

        register_condition_source("store_behind", late_stores)
        register_condition_source("disk_filling", filling_disks)
        register_reading_source(limited_fleet_readings)
        register_live_values(newest_values)
