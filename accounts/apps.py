"""The feature's Django application."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in


class AccountsConfig(AppConfig):
    """People, tenants, roles and tokens."""

    name = "accounts"

    def import_models(self) -> None:
        """Import the models of the features: Django itself imports only `models`."""
        super().import_models()
        import_module("accounts.audit.models")
        import_module("accounts.approvals.models")
        import_module("accounts.identity_providers.models")
        import_module("accounts.second_factor.models")

    def ready(self) -> None:
        """Connect the receiver that stores the previous sign-in.

        Receivers run in the order of their connection: this one before Django's, which overwrites `last_login`,
        because INSTALLED_APPS names this application before django.contrib.auth.
        """
        user_logged_in.connect(keep_previous_login, dispatch_uid="keep_previous_login")
        from accounts.identity_providers import selectors  # noqa: F401 - its receiver
        from accounts.sign_in import security, services  # noqa: F401 - their receivers


def keep_previous_login(sender: Any, user: Any, **kwargs: Any) -> None:
    """Store the time of the user's previous sign-in."""
    user.previous_login = user.last_login
    user.save(update_fields=["previous_login"])
