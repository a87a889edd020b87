"""Hardware by the API: what its lists and details have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import person_of
from accounts.models import Tenant
from falconweb.api.bodies import Body
from falconweb.api.fields import CHASSIS_ID, SEARCH, IdField, LinkedId, LinkedText, number, search_of
from falconweb.errors import NotFound

HELD = "Another tenant holds it, or an operation on it has not ended"
PART = ["id", "name", "health", "missing_since", "chassis_id", "chassis_name"]


class PartSerializer(serializers.ModelSerializer[Any]):
    """What every piece of hardware has; `missing_since`: the chassis no longer reports it."""

    chassis_id = LinkedId("chassis.pk")
    chassis_name = LinkedText("chassis.name")


class HolderSerializer(Body, serializers.Serializer[Any]):
    """Whose a thing is to be: a tenant's id, null for the free pool. `take` allows it to be taken from another."""

    renamed = {"tenant": "tenant_id"}
    tenant_id = IdField(allow_null=True)
    take = serializers.BooleanField(required=False, default=False)


def open_operation(row: Any) -> str | None:
    """Return the id of an operation on a prefetched row that has not ended."""
    return str(row.open_operations[0].pk) if row.open_operations else None


def holder_of(request: Request) -> tuple[Tenant | None, bool]:
    """Return whose a thing is to be, and whether it may be taken from another tenant."""
    wanted = HolderSerializer(data=request.data)
    wanted.is_valid(raise_exception=True)
    tenant_id = wanted.validated_data["tenant_id"]
    if tenant_id is None:
        return None, wanted.validated_data["take"]
    tenant = Tenant.objects.filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("There is no such tenant.")
    return tenant, wanted.validated_data["take"]


class Parts(generics.GenericAPIView[Any]):
    """Things of one kind, as far as the person may see them; subclasses say of which."""

    rows: Callable[..., Any]

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        if getattr(self, "swagger_fake_view", False):
            model: Any = self.get_serializer_class()
            return model.Meta.model.objects.none()
        rows: Any = type(self).rows
        return rows(person_of(self.request), **self.narrowed())

    def narrowed(self) -> dict[str, Any]:
        """Return what the request narrows them to."""
        return {}


class PartList(Parts, generics.ListAPIView[Any]):
    """A list that can be narrowed by chassis and text."""

    def narrowed(self) -> dict[str, Any]:
        """Return the text looked for, and the chassis."""
        return {"search": search_of(self.request), "chassis": number(self.request, "chassis_id", was="chassis")}

    @extend_schema(parameters=[CHASSIS_ID, SEARCH])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List what you may see, in the order of the chassis."""
        return super().get(request, *args, **kwargs)


class PartDetail(Parts, generics.RetrieveAPIView[Any]):
    """One thing."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Show it; 404 where you may not see it."""
        return super().get(request, *args, **kwargs)
