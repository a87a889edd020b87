"""The API of identity providers: to read them and their rules."""

from __future__ import annotations

from typing import Any

from django.urls import path
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.identity_providers.models import IdentityProvider, MappingRule
from accounts.identity_providers.selectors import find_providers
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet
from accounts.visibility import row_or_404


class MappingRuleSerializer(serializers.ModelSerializer[MappingRule]):
    """A rule: members of `group` have the role, in the tenant."""

    class Meta:
        model = MappingRule
        fields = ["position", "group", "role", "tenant_id"]


class IdentityProviderSerializer(serializers.ModelSerializer[IdentityProvider]):
    """An identity provider, without its secret; the first rule with a group of a person counts."""

    people = serializers.IntegerField()
    rules = MappingRuleSerializer(many=True)

    class Meta:
        model = IdentityProvider
        fields = ["id", "kind", "name", "enabled", "address", "people", "rules"]


class IdentityProviderList(generics.ListAPIView[IdentityProvider]):
    """List identity providers with their rules; administrators only."""

    permission_classes = ADMINISTRATORS
    serializer_class = IdentityProviderSerializer

    def get_queryset(self) -> Any:
        """Return all: administrators see them."""
        return find_providers()


class IdentityProviderViewSet(ResourceViewSet):
    """One identity provider."""

    permission_classes = ADMINISTRATORS
    serializer_class = IdentityProviderSerializer

    def find_row(self, pk: object) -> Any:
        """Return a provider: administrators see all of them."""
        return row_or_404(find_providers(), pk, "identity provider")

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show an identity provider with its rules; administrators only."""
        return self.answer(self.find_row(pk))


urlpatterns = [
    path("identity-providers/", IdentityProviderList.as_view(), name="identity_providers"),
    path(
        "identity-providers/<int:pk>/",
        IdentityProviderViewSet.as_view({"get": "retrieve"}),
        name="identity_provider",
    ),
]
