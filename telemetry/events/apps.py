"""The room's Django application."""

from django.apps import AppConfig


class EventsConfig(AppConfig):
    """What happened: one log of BMCs, operations, alerts and sign-ins."""

    name = "telemetry.events"
    label = "events"

    def ready(self) -> None:
        """Listen to the rooms below."""
        import telemetry.events.receivers  # noqa: F401 - imported for its receivers
