"""Devices by the API, and whose they are."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import administrator_required, person_of
from fabric import listing
from fabric.models import Device
from fabric.selectors import downgraded
from fabric.services.grants import device_grant
from falconweb.api.fields import LinkedId, LinkedText
from falconweb.api.openapi import problem
from falconweb.api.parts import (
    HELD,
    PART,
    HolderSerializer,
    PartDetail,
    PartList,
    PartSerializer,
    holder_of,
    open_operation,
)
from falconweb.errors import NotFound


class DeviceRowSerializer(PartSerializer):
    """A device: what it is, where it is, how its link runs, and which host port it is attached to (null: no host).

    `downgraded` says how the link runs below its capability; `operation_id` is an operation on it that has not ended.
    What begins with `pci_` is what the device says of itself on the bus, such as '0x10DE'.
    """

    drawer_id = LinkedId("slot.drawer.pk")
    drawer_name = LinkedText("slot.drawer.name")
    slot_id = LinkedId("slot.pk")
    slot_number = LinkedId("slot.number")
    port_id = LinkedId("slot.port.pk")
    link_status = LinkedText("slot.port.link_status")
    downgraded = serializers.SerializerMethodField()
    host_port_id = LinkedId("host_port.pk")
    host_port_label = LinkedText("host_port.label")
    host_id = LinkedId("host_port.host.pk")
    host_name = LinkedText("host_port.host.name")
    tenant_id = LinkedId("tenant.pk")
    tenant_name = LinkedText("tenant.name")
    operation_id = serializers.SerializerMethodField()
    kind = serializers.CharField()
    pci_vendor_id = serializers.CharField(source="vendor_id")
    pci_device_id = serializers.CharField(source="device_id")
    pci_subsystem_vendor_id = serializers.CharField(source="subsystem_vendor_id")
    pci_subsystem_id = serializers.CharField(source="subsystem_id")
    pci_class_code = serializers.CharField(source="class_code")

    class Meta:
        model = Device
        fields = [
            *PART, "kind", "manufacturer", "model", "serial_number", "part_number", "firmware_version",
            "pci_vendor_id", "pci_device_id", "pci_subsystem_vendor_id", "pci_subsystem_id", "pci_class_code",
            "memory_bytes", "capacity_bytes",
            "drawer_id", "drawer_name", "slot_id", "slot_number", "port_id", "link_status", "pcie_type",
            "max_pcie_type", "lanes_in_use", "max_lanes", "downgraded", "host_port_id", "host_port_label", "host_id",
            "host_name", "tenant_id", "tenant_name", "operation_id",
        ]  # fmt: skip

    def get_downgraded(self, row: Device) -> str:
        """Return how the link runs below its capability."""
        return downgraded(row)

    def get_operation_id(self, row: Device) -> str | None:
        """Return the open operation."""
        return open_operation(row)


class DeviceList(PartList):
    """List devices."""

    rows = staticmethod(listing.device_rows)
    serializer_class = DeviceRowSerializer


class DeviceDetail(PartDetail):
    """Show a device; 404 where you may not see it."""

    rows = staticmethod(listing.device_rows)
    serializer_class = DeviceRowSerializer


class DeviceTenant(APIView):
    """Whose a device is."""

    @extend_schema(
        operation_id="devices_tenant_update",
        request=HolderSerializer,
        responses={
            200: DeviceRowSerializer,
            409: problem(HELD),
        },
    )
    def put(self, request: Request, pk: int) -> Response:
        """Grant the device to a tenant, or free it; administrators only."""
        person = person_of(request)
        device = Device.objects.visible_to(person).filter(pk=pk).first()
        if device is None:
            raise NotFound("There is no such device.")
        administrator_required(person)
        tenant, take = holder_of(request)
        device_grant(person=person, device=device, tenant=tenant, take=take)
        return Response(DeviceRowSerializer(listing.device_rows(person).get(pk=pk)).data)
