"""Tenants and what they hold by the API: for administrators, like their pages."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import services
from accounts.access import person_of
from accounts.models import Tenant
from accounts.selectors import holdings_of, tenants_found
from fabric.holdings import holdings_revision
from fabric.models import Device, HostPort
from fabric.services.grants import grants_set
from falconweb.api.bodies import Body, refuse_body
from falconweb.api.fields import SEARCH, IdField, search_of
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from falconweb.errors import NotFound

MOST_THINGS = 10_000


class TenantSerializer(Body, serializers.Serializer[Any]):
    """A tenant: how many people it has, and what it holds in words."""

    id = serializers.IntegerField(source="tenant.pk", read_only=True)
    name = serializers.CharField(source="tenant.name", max_length=100)
    created_at = serializers.DateTimeField(source="tenant.created_at", read_only=True)
    people = serializers.IntegerField(read_only=True)
    holds = serializers.ListField(child=serializers.CharField(), read_only=True)


class GrantsSerializer(Body, serializers.Serializer[Any]):
    """What a tenant holds, by id; all others that it held become free.

    What another tenant holds is refused unless it stands in `take_device_ids` or `take_host_port_ids` too.
    `revision` (of all grants, as GET answered it) refuses the change when somebody changed grants meanwhile.
    """

    renamed = {
        "devices": "device_ids",
        "host_ports": "host_port_ids",
        "take_devices": "take_device_ids",
        "take_host_ports": "take_host_port_ids",
    }
    device_ids = serializers.ListField(child=IdField(), max_length=MOST_THINGS)
    host_port_ids = serializers.ListField(child=IdField(), max_length=MOST_THINGS)
    take_device_ids = serializers.ListField(
        child=IdField(), max_length=MOST_THINGS, required=False, default=list, write_only=True
    )
    take_host_port_ids = serializers.ListField(
        child=IdField(), max_length=MOST_THINGS, required=False, default=list, write_only=True
    )
    revision = serializers.CharField(max_length=64, required=False)


class TenantList(generics.ListAPIView[Any]):
    """Tenants; POST adds one."""

    permission_classes = ADMINISTRATORS
    serializer_class = TenantSerializer

    def get_queryset(self) -> Any:
        """Return tenants that match the search (a list: they are few, and counted with what they hold)."""
        return [] if getattr(self, "swagger_fake_view", False) else tenants_found(search_of(self.request))

    @extend_schema(parameters=[SEARCH])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List tenants; administrators only."""
        return super().get(request, *args, **kwargs)

    @extend_schema(responses={201: TenantSerializer})
    def post(self, request: Request) -> Response:
        """Add a tenant, which has nobody and holds nothing. Administrators only."""
        row = services.tenant_add(by=person_of(request), name=_name(request))
        address = request.build_absolute_uri(reverse("api:tenant", args=[row.pk]))
        return Response(_tenant_data(row), status=201, headers={"Location": address})


class TenantDetail(APIView):
    """One tenant."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_retrieve", responses=TenantSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a tenant; administrators only."""
        return Response(_tenant_data(tenant_by(pk)))

    @extend_schema(operation_id="tenants_partial_update", request=TenantSerializer, responses=TenantSerializer)
    def patch(self, request: Request, pk: int) -> Response:
        """Give a tenant another name; administrators only."""
        row = tenant_by(pk)
        return Response(_tenant_data(services.tenant_edit(by=person_of(request), tenant=row, name=_name(request))))

    @extend_schema(
        operation_id="tenants_destroy",
        responses={204: None, 409: problem("It still has people or holds something")},
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a tenant that has nobody and holds nothing. Administrators only."""
        row = tenant_by(pk)
        refuse_body(request)
        services.tenant_remove(by=person_of(request), tenant=row)
        return Response(status=204)


class TenantGrants(APIView):
    """What a tenant holds."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_grants_retrieve", responses=GrantsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show the devices and host ports that a tenant holds; administrators only."""
        return Response(_grants(tenant_by(pk)))

    @extend_schema(
        operation_id="tenants_grants_update",
        request=GrantsSerializer,
        responses={
            200: GrantsSerializer,
            409: problem("Another tenant holds it, an operation has not ended, or grants are not as you saw them"),
        },
    )
    def put(self, request: Request, pk: int) -> Response:
        """Let a tenant hold exactly these devices and host ports; all or nothing happens. Administrators only."""
        row = tenant_by(pk)
        wanted = GrantsSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        taken: list[Device | HostPort] = [
            *_things(Device, values["take_device_ids"], "device"),
            *_things(HostPort, values["take_host_port_ids"], "host port"),
        ]
        grants_set(
            person=person_of(request),
            tenant=row,
            devices=_things(Device, values["device_ids"], "device"),
            host_ports=_things(HostPort, values["host_port_ids"], "host port"),
            take=taken,
            seen=values.get("revision"),
        )
        return Response(_grants(row))


def tenant_by(pk: int) -> Tenant:
    """Return a tenant; raises NotFound."""
    row = Tenant.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such tenant.")
    return row


def _name(request: Request) -> str:
    wanted = TenantSerializer(data=request.data)
    wanted.is_valid(raise_exception=True)
    name: str = wanted.validated_data["tenant"]["name"]
    return name


def _tenant_data(row: Tenant) -> Any:
    holds = holdings_of([row.pk]).get(row.pk, [])
    return TenantSerializer({"tenant": row, "people": row.people.count(), "holds": holds}).data


def _grants(tenant: Tenant) -> dict[str, Any]:
    return {
        "device_ids": list(Device.objects.filter(tenant=tenant).order_by("pk").values_list("pk", flat=True)),
        "host_port_ids": list(HostPort.objects.filter(tenant=tenant).order_by("pk").values_list("pk", flat=True)),
        "revision": holdings_revision(),
    }


def _things(model: Any, ids: list[int], what: str) -> list[Any]:
    """Return the rows of these ids; raises NotFound when one of them is missing, so that nothing is left out unsaid."""
    wanted = set(ids)
    rows = list(model.objects.filter(pk__in=wanted))
    if missing := wanted - {row.pk for row in rows}:
        raise NotFound(f"There is no {what} {min(missing)}.")
    return rows
