"""The Django application of the store."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    name = "telemetry.store"
    label = "store"
