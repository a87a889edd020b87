"""Whom the addresses for administrators let in."""

from __future__ import annotations

from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.access import administrator_required, person_of


class IsAdministrator(BasePermission):
    """Lets administrators in before anything else is looked at; everybody else gets 403 with the pages' sentence."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether the person is an administrator."""
        administrator_required(person_of(request))
        return True


ADMINISTRATORS = [IsAuthenticated, IsAdministrator]
