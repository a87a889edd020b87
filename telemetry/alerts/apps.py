"""The Django application of alerts."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "telemetry.alerts"
    label = "alerts"

    def ready(self) -> None:
        import telemetry.alerts.receivers  # noqa: F401 - imported for its receivers
        from fabric.topology.problems import register_problem_source
        from telemetry.alerts.selectors import alert_problems

        register_problem_source(alert_problems)
