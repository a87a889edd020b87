"""The Django application of the store."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    """Stored readings: chunks of a minute, their rollups, and gaps."""

    name = "telemetry.store"
    label = "store"
