"""The room's Django application."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """People, tenants, roles and tokens."""

    name = "accounts"
