"""The room's Django application."""

from django.apps import AppConfig


class LinksConfig(AppConfig):
    """The health of PCIe links: their errors, their states, and a verdict with its reasons."""

    name = "telemetry.links"
    label = "links"
