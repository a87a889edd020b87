"""Permissions of the API; separate from `accounts.access`, which services import without the REST framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission, IsAuthenticated

from accounts.access import person_of, require_administrator

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView


class IsAdministrator(BasePermission):
    """Admits only administrators, before any other check; others get 403 with the pages' sentence."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the user is an administrator."""
        require_administrator(person_of(request))
        return True


ADMINISTRATORS = [IsAuthenticated, IsAdministrator]
