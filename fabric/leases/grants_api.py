"""Ownership by the API: the parts of tenants, quotas and usage."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of, require_administrator
from accounts.api import TenantViewSet, tenant_or_none
from accounts.audit.actions import Action
from accounts.models import Tenant
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import IdField, query_integer
from core.api.requests import StrictSerializer
from core.errors import Invalid
from fabric.inventory import selectors
from fabric.inventory.api import DeviceRowSerializer, HostPortRowSerializer
from fabric.inventory.models import Device, HostPort
from fabric.leases.api import MAX_DEVICES, rows_by_id
from fabric.leases.grants import device_grant, grants_set, host_port_grant
from fabric.leases.models import KINDS, Quota
from fabric.leases.quotas import MAX_LIMIT, QuotaLimits, quotas_set
from fabric.leases.rules import month_label
from fabric.leases.selectors import ownership_revision
from fabric.leases.usage import usage_of, usage_period


@extend_schema_serializer(component_name="Held")
class UsageSerializer(serializers.Serializer[Any]):
    """How long a tenant had parts of a kind in a month (UTC), and how many different ones."""

    tenant_name = serializers.CharField(source="tenant")
    kind = serializers.ChoiceField(choices=KINDS)
    month = serializers.CharField(source="month_label")
    hours = serializers.FloatField()
    seconds = serializers.FloatField()
    things = serializers.IntegerField()


class LimitSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The limits of a kind; null is none."""

    kind = serializers.ChoiceField(choices=KINDS)
    most_at_once = serializers.IntegerField(
        min_value=0, max_value=MAX_LIMIT, allow_null=True, required=False, default=None
    )
    most_hours_a_month = serializers.IntegerField(
        min_value=0, max_value=MAX_LIMIT, allow_null=True, required=False, default=None
    )


class LimitsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """All limits of a tenant; kinds that are left out have none."""

    limits = LimitSerializer(many=True)

    def validate_limits(self, limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Refuse a kind that is named twice: which of the two is meant would be a guess."""
        twice = [kind for kind, count in Counter(one["kind"] for one in limits).items() if count > 1]
        if twice:
            raise serializers.ValidationError(f"The kind '{twice[0]}' is named more than once.")
        return limits


MONTH = "^[0-9]{4}-(0[1-9]|1[0-2])$"


class UsageList(APIView):
    """Usage in hours."""

    @extend_schema(
        operation_id="usage_list",
        parameters=[
            OpenApiParameter("since", str, pattern=MONTH, description="The first month; five before the last one"),
            OpenApiParameter("until", str, pattern=MONTH, description="The last month; the present one without it"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Keeps the usage of the tenant of this id"),
        ],
        responses=UsageSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Show usage in hours by tenant, kind and month (UTC): your tenant's, or all for administrators."""
        query = request.query_params
        first, last = usage_period(query.get("since", ""), query.get("until", ""))
        for name, month in (("since", first), ("until", last)):
            if query.get(name) and query[name] != month_label(month):
                raise Invalid(f"'{name}' is no month that can be shown.", errors={name: "Give one such as 2026-03."})
        records = usage_of(person_of(request), first, last, tenant=query_integer(request, "tenant_id"))
        return Response(UsageSerializer(records, many=True).data)


class TenantQuotaViewSet(TenantViewSet):
    """The quotas of a tenant."""

    serializer_class = LimitsSerializer

    def presented(self, row: Tenant) -> Any:
        """Return the limits of a tenant."""
        return {"limits": Quota.objects.filter(tenant=row)}

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show the limits of a tenant; kinds without one are left out. Administrators only."""
        return self.answer(self.find_row(pk))

    @command(LimitsSerializer, audited_as=Action.QUOTA_SET)
    def update(self, tenant: Tenant, values: dict[str, Any]) -> Tenant:
        """Replace all limits of a tenant; what it has already is not touched. Administrators only."""
        limits = {one["kind"]: QuotaLimits(one["most_at_once"], one["most_hours_a_month"]) for one in values["limits"]}
        quotas_set(person=self.person, tenant=tenant, limits=limits)
        return tenant


OWNED_BY_ANOTHER = "Another tenant owns it, or an operation on it has not ended"


@extend_schema_serializer(component_name="Holder")
class OwnerSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The new owner of a part: a tenant's id, null for none. `take` allows it to be taken from another."""

    renamed = {"tenant": "tenant_id"}
    tenant_id = IdField(allow_null=True)
    take = serializers.BooleanField(required=False, default=False)


class OwnershipViewSet(ResourceViewSet):
    """The owner of a device or host port: whoever sees it gets 403 for a change, unless they are an administrator."""

    def find_row(self, pk: object) -> Any:
        """Return the part; raises NotFound, and Forbidden for those who see it but are no administrators."""
        row = super().find_row(pk)
        require_administrator(self.person)
        return row


class DeviceTenantViewSet(OwnershipViewSet):
    """The owner of a device."""

    model = Device
    kind = "device"
    serializer_class = DeviceRowSerializer

    def presented(self, row: Device) -> Any:
        """Return the device as lists have it."""
        return selectors.device_rows(self.person).get(pk=row.pk)

    @command(OwnerSerializer, audited_as=Action.GRANT_CHANGE, target_kind="device", conflict=OWNED_BY_ANOTHER)
    def update(self, device: Device, values: dict[str, Any]) -> Device:
        """Grant the device to a tenant, or unassign it; administrators only."""
        tenant = tenant_or_none(values["tenant_id"])
        return device_grant(person=self.person, device=device, tenant=tenant, take=values["take"])


class HostPortTenantViewSet(OwnershipViewSet):
    """The owner of a host port."""

    model = HostPort
    kind = "host port"
    serializer_class = HostPortRowSerializer

    def presented(self, row: HostPort) -> Any:
        """Return the host port as lists have it."""
        return selectors.host_port_rows(self.person).get(pk=row.pk)

    @command(OwnerSerializer, audited_as=Action.GRANT_CHANGE, target_kind="host port", conflict=OWNED_BY_ANOTHER)
    def update(self, host_port: HostPort, values: dict[str, Any]) -> HostPort:
        """Grant the host port to a tenant, or unassign it; administrators only."""
        tenant = tenant_or_none(values["tenant_id"])
        return host_port_grant(person=self.person, host_port=host_port, tenant=tenant, take=values["take"])


class GrantsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What a tenant owns, by id; all other parts that it owned become unassigned.

    A part of another tenant is refused unless it is in `take_device_ids` or `take_host_port_ids` too.
    `revision` (of all grants, as GET answered it) refuses the change when somebody changed grants meanwhile.
    """

    renamed = {
        "devices": "device_ids",
        "host_ports": "host_port_ids",
        "take_devices": "take_device_ids",
        "take_host_ports": "take_host_port_ids",
    }
    device_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES)
    host_port_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES)
    take_device_ids = serializers.ListField(
        child=IdField(), max_length=MAX_DEVICES, required=False, default=list, write_only=True
    )
    take_host_port_ids = serializers.ListField(
        child=IdField(), max_length=MAX_DEVICES, required=False, default=list, write_only=True
    )
    revision = serializers.CharField(max_length=64, required=False)


class TenantGrantsViewSet(TenantViewSet):
    """What a tenant owns."""

    serializer_class = GrantsSerializer

    def presented(self, row: Tenant) -> Any:
        """Return the ids of what a tenant owns, and the revision of all grants."""
        return {
            "device_ids": list(Device.objects.filter(tenant=row).order_by("pk").values_list("pk", flat=True)),
            "host_port_ids": list(HostPort.objects.filter(tenant=row).order_by("pk").values_list("pk", flat=True)),
            "revision": ownership_revision(),
        }

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show the devices and host ports that a tenant owns; administrators only."""
        return self.answer(self.find_row(pk))

    @command(
        GrantsSerializer,
        audited_as=Action.GRANTS_SET,
        target_kind="tenant",
        conflict="Another tenant owns it, an operation has not ended, or grants are not as you saw them",
    )
    def update(self, tenant: Tenant, values: dict[str, Any]) -> Tenant:
        """Grant a tenant exactly these devices and host ports; all or none of them. Administrators only."""
        taken: list[Device | HostPort] = [
            *rows_by_id(Device, values["take_device_ids"], "device"),
            *rows_by_id(HostPort, values["take_host_port_ids"], "host port"),
        ]
        grants_set(
            person=self.person,
            tenant=tenant,
            devices=rows_by_id(Device, values["device_ids"], "device"),
            host_ports=rows_by_id(HostPort, values["host_port_ids"], "host port"),
            take=taken,
            seen=values.get("revision"),
        )
        return tenant


urlpatterns = [
    path("devices/<int:pk>/tenant/", DeviceTenantViewSet.as_view({"put": "update"}), name="device_tenant"),
    path("host-ports/<int:pk>/tenant/", HostPortTenantViewSet.as_view({"put": "update"}), name="host_port_tenant"),
    path(
        "tenants/<int:pk>/grants/",
        TenantGrantsViewSet.as_view({"get": "retrieve", "put": "update"}),
        name="tenant_grants",
    ),
    path(
        "tenants/<int:pk>/quotas/",
        TenantQuotaViewSet.as_view({"get": "retrieve", "put": "update"}),
        name="tenant_quotas",
    ),
    path("usage/", UsageList.as_view(), name="usage"),
]
