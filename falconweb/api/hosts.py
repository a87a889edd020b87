"""Hosts and the host ports that they are cabled to by the API, and whose host ports are."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import administrator_required, person_of
from fabric import listing
from fabric.models import Host, HostPort
from fabric.services.grants import host_port_grant
from falconweb.api.fields import LinkedId, LinkedIds, LinkedText
from falconweb.api.openapi import problem
from falconweb.api.parts import HELD, PART, HolderSerializer, PartDetail, PartList, PartSerializer, holder_of
from falconweb.errors import NotFound


class HostPortRowSerializer(PartSerializer):
    """A host port, the host that is cabled to it, and the devices attached to it."""

    drawer_id = LinkedId("drawer.pk")
    drawer_name = LinkedText("drawer.name")
    port_id = LinkedId("port.pk")
    link_status = LinkedText("port.link_status")
    host_id = LinkedId("host.pk")
    host_name = LinkedText("host.name")
    tenant_id = LinkedId("tenant.pk")
    tenant_name = LinkedText("tenant.name")
    device_ids = LinkedIds("devices")

    class Meta:
        model = HostPort
        fields = [
            *PART, "label", "number", "drawer_id", "drawer_name", "port_id", "link_status", "host_id", "host_name",
            "tenant_id", "tenant_name", "device_ids",
        ]  # fmt: skip


class PortOfHostSerializer(serializers.Serializer[Any]):
    """A host port of a host."""

    id = serializers.IntegerField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    chassis_id = LinkedId("chassis.pk")
    chassis_name = LinkedText("chassis.name")
    drawer_id = LinkedId("drawer.pk")
    device_ids = LinkedIds("devices")


class HostRowSerializer(serializers.ModelSerializer[Host]):
    """A server, and those of its host ports that you may see."""

    host_ports = PortOfHostSerializer(many=True, source="seen_ports", read_only=True)

    class Meta:
        model = Host
        fields = [
            "id", "name", "manufacturer", "model", "serial_number", "power_state", "processor_summary", "memory_gib",
            "local_gpu_count", "health", "host_ports",
        ]  # fmt: skip


class HostPortList(PartList):
    """List host ports."""

    rows = staticmethod(listing.host_port_rows)
    serializer_class = HostPortRowSerializer


class HostPortDetail(PartDetail):
    """Show a host port; 404 where you may not see it."""

    rows = staticmethod(listing.host_port_rows)
    serializer_class = HostPortRowSerializer


class HostList(PartList):
    """List hosts; `chassis_id` keeps those cabled to it."""

    rows = staticmethod(listing.host_rows)
    serializer_class = HostRowSerializer


class HostDetail(PartDetail):
    """Show a host; 404 where you may not see it."""

    rows = staticmethod(listing.host_rows)
    serializer_class = HostRowSerializer


class HostPortTenant(APIView):
    """Whose a host port is."""

    @extend_schema(
        operation_id="host_ports_tenant_update",
        request=HolderSerializer,
        responses={
            200: HostPortRowSerializer,
            409: problem(HELD),
        },
    )
    def put(self, request: Request, pk: int) -> Response:
        """Grant the host port to a tenant, or free it; administrators only."""
        person = person_of(request)
        host_port = HostPort.objects.visible_to(person).filter(pk=pk).first()
        if host_port is None:
            raise NotFound("There is no such host port.")
        administrator_required(person)
        tenant, take = holder_of(request)
        host_port_grant(person=person, host_port=host_port, tenant=tenant, take=take)
        return Response(HostPortRowSerializer(listing.host_port_rows(person).get(pk=pk)).data)
