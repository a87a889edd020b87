"""Who a name and password are: a local account or a person of a directory, never both; and whose sessions are valid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.signals import user_login_failed
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from accounts.identity_providers.directory import directory_person
from accounts.identity_providers.selectors import directories_of, external_users
from accounts.identity_providers.services import identity_sign_in
from accounts.models import User
from accounts.sign_in.security import is_break_glass
from core.errors import Unavailable


class LocalBackend(ModelBackend):
    """Local passwords; where an administrator for emergencies is named, that one's alone, in old sessions too."""

    @sensitive_variables("password")
    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **rest: Any
    ) -> Any:
        """Return the person of a name and password; none of a provider, also where a command gave them a password."""
        found = super().authenticate(request, username, password, **rest)
        return None if found is not None and hasattr(found, "external_identity") else found

    def user_can_authenticate(self, user: Any) -> bool:
        """Return whether the account is active, and local accounts are open or it is that of emergencies."""
        return super().user_can_authenticate(user) and (not settings.CONFIG.break_glass or is_break_glass(user))

    def get_users(self, ids: Collection[int]) -> dict[int, User]:
        """Return the people of these ids whose sessions are valid, in one query."""
        return {one.pk: one for one in User.objects.filter(pk__in=ids) if self.user_can_authenticate(one)}

    aget_user = BaseBackend.aget_user  # by `get_user`, which asks `user_can_authenticate`


class OpenIdBackend(BaseBackend):
    """People of identity providers; their sessions are valid while the provider is switched on and they are linked."""

    def get_user(self, user_id: Any) -> User | None:
        """Return the person of a session, None where it is no longer valid."""
        return external_users().filter(pk=user_id).first()

    def get_users(self, ids: Collection[int]) -> dict[int, User]:
        """Return the people of these ids whose sessions are valid, in one query."""
        return {one.pk: one for one in external_users().filter(pk__in=ids)}


class DirectoryBackend(OpenIdBackend):
    """Names and passwords of directories."""

    @sensitive_variables("password")
    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **rest: Any
    ) -> User | None:
        """Return the person of a name and password, None where they are nobody's.

        Raises Forbidden for a person who may not sign in here, Unavailable where a directory does not answer and no
        other knows the name.
        """
        away: Unavailable | None = None
        has_refused = False
        for provider in directories_of((username or "").strip().replace("\0", "")):
            try:
                found = directory_person(provider, (username or "").strip(), password or "")
            except Unavailable as error:
                away = error
            else:
                if found is not None:
                    return identity_sign_in(provider=provider, external=found)
                has_refused = True
        if away is not None:
            if has_refused:  # a guess like any other, which is not counted where an error is raised
                user_login_failed.send(__name__, credentials={"username": username}, request=request)
            raise away
        return None
