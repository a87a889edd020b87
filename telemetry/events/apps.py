"""The Django application of events."""

from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "telemetry.events"
    label = "events"

    def ready(self) -> None:
        import telemetry.events.receivers  # noqa: F401 - imported for its receivers
