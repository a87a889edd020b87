"""Permissions of the API. Apart from `accounts.access`, which services import: these alone need the REST framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission, IsAuthenticated

from accounts.access import person_of, require_administrator

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView


class IsAdministrator(BasePermission):
    """Lets administrators in before anything else is looked at; everybody else gets 403 with the pages' sentence."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether the person is an administrator."""
        require_administrator(person_of(request))
        return True


ADMINISTRATORS = [IsAuthenticated, IsAdministrator]
