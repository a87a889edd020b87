"""The Django application of the store."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    name = "telemetry.store"
    label = "store"

    def ready(self) -> None:
        from core.sqlite_damage import damage_met
        from telemetry.store.renewal import ask_for_check

        damage_met.connect(ask_for_check)
