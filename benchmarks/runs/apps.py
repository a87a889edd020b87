"""The room's Django application."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    """Runs of benchmarks."""

    name = "benchmarks.runs"
    label = "runs"

    def ready(self) -> None:
        """Let nobody take a device from a run without knowing."""
        from benchmarks.runs.holds import claims
        from fabric.services.safety import CLAIMS

        if claims not in CLAIMS:
            CLAIMS.append(claims)
