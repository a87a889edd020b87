"""The room's Django application."""

from django.apps import AppConfig


class FabricConfig(AppConfig):
    """Chassis, drawers, slots, devices, ports and hosts."""

    name = "fabric"
