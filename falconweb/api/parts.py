"""Hardware by the API: drawers, slots, devices, ports, host ports, hosts and switch chips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics
from rest_framework import serializers as shapes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import administrator_required
from accounts.models import Tenant
from fabric import listing
from fabric.models import Device, Drawer, Host, HostPort, Port, Slot, Switch
from fabric.rules import ABOUT_MODES, why_not_mode
from fabric.selectors import downgraded, fabric_view
from fabric.services.grants import device_grant, host_port_grant
from fabric.services.operations import drawer_state, mode_request
from falconweb.api import serializers
from falconweb.api.fields import (
    CHASSIS,
    IDEMPOTENCY_KEY,
    SEARCH,
    IdField,
    LinkedId,
    LinkedIds,
    LinkedText,
    number,
    search_of,
)
from falconweb.api.views import operation_answer, person_of
from falconweb.errors import NotFound

PART = ["id", "name", "health", "missing_since", "chassis_id", "chassis_name"]


class PartSerializer(shapes.ModelSerializer[Any]):
    """What every piece of hardware has; `missing_since`: the chassis no longer reports it."""

    chassis_id = LinkedId("chassis.pk")
    chassis_name = LinkedText("chassis.name")


class DrawerRowSerializer(PartSerializer):
    """A drawer. `operation_id` is an operation in it that has not ended."""

    host_port_ids = LinkedIds("host_ports")
    switch_ids = LinkedIds("switches")
    operation_id = shapes.SerializerMethodField()

    class Meta:
        model = Drawer
        fields = [
            *PART, "number", "mode", "model", "serial_number", "host_port_ids", "switch_ids", "operation_id",
        ]  # fmt: skip

    def get_operation_id(self, row: Any) -> str | None:
        """Return the open operation."""
        return open_operation(row)


class OtherModeSerializer(shapes.Serializer[Any]):
    """A mode that a drawer is not in, and what stands against it now ('' when nothing does)."""

    mode = shapes.CharField()
    about = shapes.CharField()
    reason = shapes.CharField()


class DrawerDetailSerializer(DrawerRowSerializer):
    """A drawer with its slots (others' are 'in_use' and nothing else) and, for administrators, its other modes."""

    slots = shapes.SerializerMethodField()
    other_modes = shapes.SerializerMethodField()

    class Meta(DrawerRowSerializer.Meta):
        fields = [*DrawerRowSerializer.Meta.fields, "slots", "other_modes"]

    @extend_schema_field(serializers.SlotSerializer(many=True))
    def get_slots(self, row: Drawer) -> list[Any]:
        """Return the slots as the fabric page shows them."""
        views = fabric_view(person_of(self.context["request"]), chassis_id=row.chassis_id)
        found = [drawer for view in views for drawer in view.drawers if drawer.id == row.pk]
        slots = [asdict(slot) for drawer in found for slot in drawer.slots]
        return list(serializers.SlotSerializer(slots, many=True).data)

    @extend_schema_field(OtherModeSerializer(many=True))
    def get_other_modes(self, row: Drawer) -> list[Any]:
        """Return the modes that an administrator may ask for."""
        if not person_of(self.context["request"]).is_administrator or row.mode not in ABOUT_MODES:
            return []
        state = drawer_state(row)
        return [
            {"mode": mode.value, "about": about, "reason": why_not_mode(state, mode)}
            for mode, about in ABOUT_MODES.items()
            if mode.value != row.mode
        ]


class SlotRowSerializer(PartSerializer):
    """A slot with what is in it."""

    drawer_id = LinkedId("drawer.pk")
    drawer_name = LinkedText("drawer.name")
    port_id = LinkedId("port.pk")
    device_id = LinkedId("device.pk")
    device_name = LinkedText("device.name")

    class Meta:
        model = Slot
        fields = [
            *PART, "number", "slot_type", "pcie_type", "lanes", "drawer_id", "drawer_name", "port_id", "device_id",
            "device_name",
        ]  # fmt: skip


class DeviceRowSerializer(PartSerializer):
    """A device: what it is, where it is, how its link runs, and which host port it is attached to (null: no host).

    `downgraded` says how the link runs below its capability; `operation_id` is an operation on it that has not ended.
    """

    drawer_id = LinkedId("slot.drawer.pk")
    drawer_name = LinkedText("slot.drawer.name")
    slot_id = LinkedId("slot.pk")
    slot_number = LinkedId("slot.number")
    port_id = LinkedId("slot.port.pk")
    link_status = LinkedText("slot.port.link_status")
    downgraded = shapes.SerializerMethodField()
    host_port_id = LinkedId("host_port.pk")
    host_port_label = LinkedText("host_port.label")
    host_id = LinkedId("host_port.host.pk")
    host_name = LinkedText("host_port.host.name")
    tenant_id = LinkedId("tenant.pk")
    tenant_name = LinkedText("tenant.name")
    operation_id = shapes.SerializerMethodField()
    kind = shapes.CharField()

    class Meta:
        model = Device
        fields = [
            *PART, "kind", "manufacturer", "model", "serial_number", "part_number", "firmware_version", "vendor_id",
            "device_id", "subsystem_vendor_id", "subsystem_id", "class_code", "memory_bytes", "capacity_bytes",
            "drawer_id", "drawer_name", "slot_id", "slot_number", "port_id", "link_status", "pcie_type",
            "max_pcie_type", "lanes_in_use", "max_lanes", "downgraded", "host_port_id", "host_port_label", "host_id",
            "host_name", "tenant_id", "tenant_name", "operation_id",
        ]  # fmt: skip

    def get_downgraded(self, row: Device) -> str:
        """Return how the link runs below its capability."""
        return downgraded(row)

    def get_operation_id(self, row: Any) -> str | None:
        """Return the open operation."""
        return open_operation(row)


class PortRowSerializer(PartSerializer):
    """A port with its link against its capability, its error counters and what is on it; speeds in Gb/s one way."""

    switch_id = LinkedId("switch.pk")
    switch_name = LinkedText("switch.name")
    slot_id = LinkedId("slot.pk")
    device_id = LinkedId("slot.device.pk")
    host_port_id = LinkedId("host_port.pk")
    host_id = LinkedId("host_port.host.pk")
    host_name = LinkedText("host_port.host.name")
    errors = shapes.DictField(child=shapes.IntegerField())  # type: ignore[assignment]  # not the method of that name

    class Meta:
        model = Port
        fields = [
            *PART, "port_type", "protocol", "link_state", "link_status", "width", "active_width", "speed_gbps",
            "max_speed_gbps", "errors", "switch_id", "switch_name", "slot_id", "device_id", "host_port_id", "host_id",
            "host_name",
        ]  # fmt: skip


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


class PortOfHostSerializer(shapes.Serializer[Any]):
    """A host port of a host."""

    id = shapes.IntegerField()
    label = shapes.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    chassis_id = LinkedId("chassis.pk")
    chassis_name = LinkedText("chassis.name")
    drawer_id = LinkedId("drawer.pk")
    device_ids = LinkedIds("devices")


class HostRowSerializer(shapes.ModelSerializer[Host]):
    """A server, and those of its host ports that you may see."""

    host_ports = PortOfHostSerializer(many=True, source="seen_ports", read_only=True)

    class Meta:
        model = Host
        fields = [
            "id", "name", "manufacturer", "model", "serial_number", "power_state", "processor_summary", "memory_gib",
            "local_gpu_count", "health", "host_ports",
        ]  # fmt: skip


class SwitchRowSerializer(PartSerializer):
    """A switch chip."""

    drawer_id = LinkedId("drawer.pk")
    drawer_name = LinkedText("drawer.name")

    class Meta:
        model = Switch
        fields = [
            *PART, "manufacturer", "model", "serial_number", "firmware_version", "total_width", "drawer_id",
            "drawer_name",
        ]  # fmt: skip


class ModeSerializer(shapes.Serializer[Any]):
    """A wanted mode of a drawer."""

    mode = shapes.CharField(max_length=30)


class HolderSerializer(shapes.Serializer[Any]):
    """Whose a thing is to be: a tenant's id, null for the free pool. `take` allows it to be taken from another."""

    tenant = IdField(allow_null=True)
    take = shapes.BooleanField(required=False, default=False)


def open_operation(row: Any) -> str | None:
    """Return the id of an operation on a prefetched row that has not ended."""
    return str(row.open_operations[0].pk) if row.open_operations else None


class PartList(generics.ListAPIView[Any]):
    """A list that can be narrowed by chassis and text; subclasses say of what."""

    rows: Callable[..., Any]

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        if getattr(self, "swagger_fake_view", False):
            model: Any = self.get_serializer_class()
            return model.Meta.model.objects.none()
        rows: Any = type(self).rows
        return rows(person_of(self.request), search=search_of(self.request), chassis=number(self.request, "chassis"))

    @extend_schema(parameters=[CHASSIS, SEARCH])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List what you may see, in the order of the chassis."""
        return super().get(request, *args, **kwargs)


class PartDetail(generics.RetrieveAPIView[Any]):
    """One thing; subclasses say of what."""

    rows: Callable[..., Any]

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        if getattr(self, "swagger_fake_view", False):
            model: Any = self.get_serializer_class()
            return model.Meta.model.objects.none()
        rows: Any = type(self).rows
        return rows(person_of(self.request))

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Show it; 404 where you may not see it."""
        return super().get(request, *args, **kwargs)


class DrawerList(PartList):
    """Drawers."""

    rows = staticmethod(listing.drawer_rows)
    serializer_class = DrawerRowSerializer


class DrawerDetail(PartDetail):
    """One drawer."""

    rows = staticmethod(listing.drawer_rows)
    serializer_class = DrawerDetailSerializer


class SlotList(PartList):
    """Slots; of those that hold others' devices, only the chassis says that they are in use."""

    rows = staticmethod(listing.slot_rows)
    serializer_class = SlotRowSerializer


class SlotDetail(PartDetail):
    """One slot."""

    rows = staticmethod(listing.slot_rows)
    serializer_class = SlotRowSerializer


class DeviceList(PartList):
    """Devices."""

    rows = staticmethod(listing.device_rows)
    serializer_class = DeviceRowSerializer


class DeviceDetail(PartDetail):
    """One device."""

    rows = staticmethod(listing.device_rows)
    serializer_class = DeviceRowSerializer


class PortList(PartList):
    """Ports."""

    rows = staticmethod(listing.port_rows)
    serializer_class = PortRowSerializer


class PortDetail(PartDetail):
    """One port."""

    rows = staticmethod(listing.port_rows)
    serializer_class = PortRowSerializer


class HostPortList(PartList):
    """Host ports."""

    rows = staticmethod(listing.host_port_rows)
    serializer_class = HostPortRowSerializer


class HostPortDetail(PartDetail):
    """One host port."""

    rows = staticmethod(listing.host_port_rows)
    serializer_class = HostPortRowSerializer


class HostList(PartList):
    """Hosts; `chassis` keeps those cabled to it."""

    rows = staticmethod(listing.host_rows)
    serializer_class = HostRowSerializer


class HostDetail(PartDetail):
    """One host."""

    rows = staticmethod(listing.host_rows)
    serializer_class = HostRowSerializer


class SwitchList(PartList):
    """Switch chips."""

    rows = staticmethod(listing.switch_rows)
    serializer_class = SwitchRowSerializer


class SwitchDetail(PartDetail):
    """One switch chip."""

    rows = staticmethod(listing.switch_rows)
    serializer_class = SwitchRowSerializer


class DrawerMode(APIView):
    """The mode of a drawer."""

    @extend_schema(
        operation_id="drawers_mode_create",
        request=ModeSerializer,
        responses={202: serializers.OperationSerializer},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, pk: int) -> Response:
        """Ask for another mode: 202 with the operation's address; administrators only."""
        person = person_of(request)
        drawer = Drawer.objects.visible_to(person).filter(pk=pk).select_related("chassis").first()
        if drawer is None:
            raise NotFound("There is no such drawer.")
        # Before the fields are looked at: those who may not are told nothing else.
        administrator_required(person)
        wanted = ModeSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        operation = mode_request(
            person=person,
            drawer=drawer,
            mode=wanted.validated_data["mode"],
            idempotency_key=request.headers.get("Idempotency-Key", ""),
        )
        return operation_answer(request, operation)


class DeviceTenant(APIView):
    """Whose a device is."""

    @extend_schema(operation_id="devices_tenant_update", request=HolderSerializer, responses=DeviceRowSerializer)
    def put(self, request: Request, pk: int) -> Response:
        """Grant the device to a tenant, or free it; administrators only."""
        person = person_of(request)
        device = Device.objects.visible_to(person).filter(pk=pk).first()
        if device is None:
            raise NotFound("There is no such device.")
        administrator_required(person)
        tenant, take = _holder(request)
        device_grant(person=person, device=device, tenant=tenant, take=take)
        return Response(DeviceRowSerializer(listing.device_rows(person).get(pk=pk)).data)


class HostPortTenant(APIView):
    """Whose a host port is."""

    @extend_schema(operation_id="host_ports_tenant_update", request=HolderSerializer, responses=HostPortRowSerializer)
    def put(self, request: Request, pk: int) -> Response:
        """Grant the host port to a tenant, or free it; administrators only."""
        person = person_of(request)
        host_port = HostPort.objects.visible_to(person).filter(pk=pk).first()
        if host_port is None:
            raise NotFound("There is no such host port.")
        administrator_required(person)
        tenant, take = _holder(request)
        host_port_grant(person=person, host_port=host_port, tenant=tenant, take=take)
        return Response(HostPortRowSerializer(listing.host_port_rows(person).get(pk=pk)).data)


def _holder(request: Request) -> tuple[Tenant | None, bool]:
    wanted = HolderSerializer(data=request.data)
    wanted.is_valid(raise_exception=True)
    tenant_id = wanted.validated_data["tenant"]
    if tenant_id is None:
        return None, wanted.validated_data["take"]
    tenant = Tenant.objects.filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("There is no such tenant.")
    return tenant, wanted.validated_data["take"]
