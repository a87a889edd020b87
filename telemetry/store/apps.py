"""The room's Django application."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    """Every reading, kept: chunks of a minute, their rollups, and what is missing."""

    name = "telemetry.store"
    label = "store"
