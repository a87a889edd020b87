"""The Django application of events."""

from django.apps import AppConfig


class EventsConfig(AppConfig):
    """The event log: events of BMCs, operations, alerts and sign-ins."""

    name = "telemetry.events"
    label = "events"

    def ready(self) -> None:
        """Connect the signal receivers."""
        import telemetry.events.receivers  # noqa: F401 - imported for its receivers
