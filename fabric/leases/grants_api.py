"""Ownership by the API: what tenants hold, quotas and usage."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import ADMINISTRATORS, person_of, require_administrator
from accounts.api import tenant_by
from accounts.models import Tenant
from core.api.fields import IdField, query_integer
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import Invalid, NotFound
from fabric.inventory import selectors
from fabric.inventory.api import DeviceRowSerializer, HostPortRowSerializer
from fabric.inventory.models import Device, HostPort
from fabric.leases.api import MAX_DEVICES
from fabric.leases.grants import device_grant, grants_set, host_port_grant
from fabric.leases.models import KINDS, Quota
from fabric.leases.quotas import MAX_LIMIT, QuotaLimits, quotas_set
from fabric.leases.rules import month_label
from fabric.leases.selectors import ownership_revision
from fabric.leases.usage import usage_of, usage_period


class HeldSerializer(serializers.Serializer[Any]):
    """How long a tenant held things of a kind in a month (UTC), and how many different ones."""

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


class UsageList(APIView):
    """Hours held."""

    @extend_schema(
        operation_id="usage_list",
        parameters=[
            OpenApiParameter("since", str, description="The first month, such as 2026-03; five before the last one"),
            OpenApiParameter("until", str, description="The last month; the present one without it"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Keeps what the tenant of this id held"),
        ],
        responses=HeldSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Show how long what was held, by tenant, kind and month (UTC): your tenant's, or all for administrators."""
        asked = request.query_params
        first, last = usage_period(asked.get("since", ""), asked.get("until", ""))
        for name, month in (("since", first), ("until", last)):
            if asked.get(name) and asked[name] != month_label(month):
                raise Invalid(f"'{name}' is no month that can be shown.", errors={name: "Give one such as 2026-03."})
        held = usage_of(person_of(request), first, last, tenant=query_integer(request, "tenant_id"))
        return Response(HeldSerializer(held, many=True).data)


class TenantQuotas(APIView):
    """How much a tenant may hold."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_quotas_retrieve", responses=LimitsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show the limits of a tenant; kinds without one are left out. Administrators only."""
        return Response(LimitsSerializer({"limits": Quota.objects.filter(tenant=tenant_by(pk))}).data)

    @extend_schema(
        operation_id="tenants_quotas_update",
        request=LimitsSerializer,
        responses={200: LimitsSerializer},
    )
    def put(self, request: Request, pk: int) -> Response:
        """Let these be all limits of a tenant; what it holds already is not touched. Administrators only."""
        tenant = tenant_by(pk)
        wanted = validated_body(LimitsSerializer, request)["limits"]
        limits = {one["kind"]: QuotaLimits(one["most_at_once"], one["most_hours_a_month"]) for one in wanted}
        quotas_set(person=person_of(request), tenant=tenant, limits=limits)
        return Response(LimitsSerializer({"limits": Quota.objects.filter(tenant=tenant)}).data)


HELD_BY_ANOTHER = "Another tenant holds it, or an operation on it has not ended"


class HolderSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Whose a thing is to be: a tenant's id, null for the free pool. `take` allows it to be taken from another."""

    renamed = {"tenant": "tenant_id"}
    tenant_id = IdField(allow_null=True)
    take = serializers.BooleanField(required=False, default=False)


def requested_holder(request: Request) -> tuple[Tenant | None, bool]:
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


class DeviceTenant(APIView):
    """Whose a device is."""

    @extend_schema(
        operation_id="devices_tenant_update",
        request=HolderSerializer,
        responses={
            200: DeviceRowSerializer,
            409: problem(HELD_BY_ANOTHER),
        },
    )
    def put(self, request: Request, pk: int) -> Response:
        """Grant the device to a tenant, or free it; administrators only."""
        person = person_of(request)
        device = Device.objects.visible_to(person).filter(pk=pk).first()
        if device is None:
            raise NotFound("There is no such device.")
        require_administrator(person)
        tenant, take = requested_holder(request)
        device_grant(person=person, device=device, tenant=tenant, take=take)
        return Response(DeviceRowSerializer(selectors.device_rows(person).get(pk=pk)).data)


class HostPortTenant(APIView):
    """Whose a host port is."""

    @extend_schema(
        operation_id="host_ports_tenant_update",
        request=HolderSerializer,
        responses={
            200: HostPortRowSerializer,
            409: problem(HELD_BY_ANOTHER),
        },
    )
    def put(self, request: Request, pk: int) -> Response:
        """Grant the host port to a tenant, or free it; administrators only."""
        person = person_of(request)
        host_port = HostPort.objects.visible_to(person).filter(pk=pk).first()
        if host_port is None:
            raise NotFound("There is no such host port.")
        require_administrator(person)
        tenant, take = requested_holder(request)
        host_port_grant(person=person, host_port=host_port, tenant=tenant, take=take)
        return Response(HostPortRowSerializer(selectors.host_port_rows(person).get(pk=pk)).data)


class GrantsSerializer(StrictSerializer, serializers.Serializer[Any]):
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
    device_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES)
    host_port_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES)
    take_device_ids = serializers.ListField(
        child=IdField(), max_length=MAX_DEVICES, required=False, default=list, write_only=True
    )
    take_host_port_ids = serializers.ListField(
        child=IdField(), max_length=MAX_DEVICES, required=False, default=list, write_only=True
    )
    revision = serializers.CharField(max_length=64, required=False)


class TenantGrants(APIView):
    """What a tenant holds."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_grants_retrieve", responses=GrantsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show the devices and host ports that a tenant holds; administrators only."""
        return Response(_grants_data(tenant_by(pk)))

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
            *_rows_by_id(Device, values["take_device_ids"], "device"),
            *_rows_by_id(HostPort, values["take_host_port_ids"], "host port"),
        ]
        grants_set(
            person=person_of(request),
            tenant=row,
            devices=_rows_by_id(Device, values["device_ids"], "device"),
            host_ports=_rows_by_id(HostPort, values["host_port_ids"], "host port"),
            take=taken,
            seen=values.get("revision"),
        )
        return Response(_grants_data(row))


def _grants_data(tenant: Tenant) -> dict[str, Any]:
    return {
        "device_ids": list(Device.objects.filter(tenant=tenant).order_by("pk").values_list("pk", flat=True)),
        "host_port_ids": list(HostPort.objects.filter(tenant=tenant).order_by("pk").values_list("pk", flat=True)),
        "revision": ownership_revision(),
    }


def _rows_by_id(model: Any, ids: list[int], what: str) -> list[Any]:
    """Return the rows of these ids; raises NotFound when one of them is missing, so that nothing is left out unsaid."""
    wanted = set(ids)
    rows = list(model.objects.filter(pk__in=wanted))
    if missing := wanted - {row.pk for row in rows}:
        raise NotFound(f"There is no {what} {min(missing)}.")
    return rows
