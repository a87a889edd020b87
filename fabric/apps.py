"""The room's Django application."""

from django.apps import AppConfig


class FabricConfig(AppConfig):
    """Chassis, drawers, slots, devices, ports and hosts."""

    name = "fabric"

    def ready(self) -> None:
        """Answer the questions of the room below."""
        import fabric.leases.lifecycle  # noqa: F401 - imported for their receivers
