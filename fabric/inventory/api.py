"""Hardware by the API: drawers, slots, devices, hosts, ports and switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.viewsets import ReadOnlyModelViewSet

from accounts.access import person_of
from core.api.fields import SEARCH, LinkedId, LinkedIds, LinkedText, query_integer, query_search
from fabric.inventory import selectors
from fabric.inventory.models import Device, Drawer, Host, HostPort, Port, Slot, Switch
from fabric.inventory.rules import CounterBaseline, counts_since
from fabric.inventory.selectors import counter_baselines, downgraded

CHASSIS_ID = OpenApiParameter(
    "chassis_id", OpenApiTypes.INT64, description="Keeps what belongs to the chassis of this id"
)
HARDWARE_FIELDS = ["id", "name", "health", "missing_since", "chassis_id", "chassis_name"]


class HardwareSerializer(serializers.ModelSerializer[Any]):
    """What every piece of hardware has; `missing_since`: the chassis no longer reports it."""

    chassis_id = LinkedId("chassis.pk")
    chassis_name = LinkedText("chassis.name")


class OpenOperationSerializer(HardwareSerializer):
    """Hardware with the id of an operation on it that has not ended."""

    operation_id = serializers.SerializerMethodField()

    def get_operation_id(self, row: Any) -> str | None:
        """Return the open operation."""
        return str(row.open_operations[0].pk) if row.open_operations else None


class HardwareViewSet(ReadOnlyModelViewSet[Any]):
    """Hardware of one kind, as far as the person may see it."""

    rows: ClassVar[Callable[..., Any]]  # a selector

    def get_queryset(self) -> Any:
        """Return what the person may see; of a list what the request narrows it to."""
        if self.action != "list":
            return self.rows(person_of(self.request))
        return self.rows(
            person_of(self.request),
            search=query_search(self.request),
            chassis=query_integer(self.request, "chassis_id", was="chassis"),
        )


def describe_hardware(things: str, thing: str) -> Any:
    """Return a class decorator that describes both endpoints of a kind of hardware."""
    return extend_schema_view(
        list=extend_schema(description=f"List {things}.", parameters=[CHASSIS_ID, SEARCH]),
        retrieve=extend_schema(description=f"Show {thing}; 404 where you may not see it."),
    )


class DrawerRowSerializer(OpenOperationSerializer):
    """A drawer. `operation_id` is an operation in it that has not ended."""

    host_port_ids = LinkedIds("host_ports")
    switch_ids = LinkedIds("switches")

    class Meta:
        model = Drawer
        fields = [
            *HARDWARE_FIELDS, "number", "mode", "model", "serial_number", "host_port_ids", "switch_ids", "operation_id",
        ]  # fmt: skip


class SlotRowSerializer(HardwareSerializer):
    """A slot with what is in it."""

    drawer_id = LinkedId("drawer.pk")
    drawer_name = LinkedText("drawer.name")
    port_id = LinkedId("port.pk")
    device_id = LinkedId("device.pk")
    device_name = LinkedText("device.name")

    class Meta:
        model = Slot
        fields = [
            *HARDWARE_FIELDS, "number", "slot_type", "pcie_type", "lanes", "drawer_id", "drawer_name", "port_id",
            "device_id", "device_name",
        ]  # fmt: skip


@describe_hardware("drawers", "a drawer with its slots")
class DrawerViewSet(HardwareViewSet):
    """Drawers."""

    rows = staticmethod(selectors.drawer_rows)
    serializer_class = DrawerRowSerializer


@describe_hardware("slots; of those that hold others' devices, only the chassis says that they are in use", "a slot")
class SlotViewSet(HardwareViewSet):
    """Slots."""

    rows = staticmethod(selectors.slot_rows)
    serializer_class = SlotRowSerializer


class DeviceRowSerializer(OpenOperationSerializer):
    """A device: what it is, where it is, how its link runs, and which host port it is attached to (null: no host).

    `other_host_port_ids` are further ones, of a device that its chassis has in several zones.
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
    other_host_port_ids = LinkedIds("other_host_ports")
    host_id = LinkedId("host_port.host.pk")
    host_name = LinkedText("host_port.host.name")
    tenant_id = LinkedId("tenant.pk")
    tenant_name = LinkedText("tenant.name")
    kind = serializers.CharField()
    pci_vendor_id = serializers.CharField(source="vendor_id")
    pci_device_id = serializers.CharField(source="device_id")
    pci_subsystem_vendor_id = serializers.CharField(source="subsystem_vendor_id")
    pci_subsystem_id = serializers.CharField(source="subsystem_id")
    pci_class_code = serializers.CharField(source="class_code")

    class Meta:
        model = Device
        fields = [
            *HARDWARE_FIELDS, "kind", "manufacturer", "model", "serial_number", "part_number", "firmware_version",
            "pci_vendor_id", "pci_device_id", "pci_subsystem_vendor_id", "pci_subsystem_id", "pci_class_code",
            "memory_bytes", "capacity_bytes",
            "drawer_id", "drawer_name", "slot_id", "slot_number", "port_id", "link_status", "pcie_type",
            "max_pcie_type", "lanes_in_use", "max_lanes", "downgraded", "host_port_id", "host_port_label",
            "other_host_port_ids", "host_id", "host_name", "tenant_id", "tenant_name", "operation_id",
        ]  # fmt: skip

    def get_downgraded(self, row: Device) -> str:
        """Return how the link runs below its capability."""
        return downgraded(row)


@describe_hardware(
    "devices; `search` has the words of the pages, such as `kind:gpu free temp>80`: 400 names a wrong one", "a device"
)
class DeviceViewSet(HardwareViewSet):
    """Devices."""

    rows = staticmethod(selectors.device_rows)
    serializer_class = DeviceRowSerializer


class HostPortRowSerializer(HardwareSerializer):
    """A host port, the host that is cabled to it, and the devices attached to it.

    `other_device_ids` are those that are attached to another host port, too.
    """

    drawer_id = LinkedId("drawer.pk")
    drawer_name = LinkedText("drawer.name")
    port_id = LinkedId("port.pk")
    link_status = LinkedText("port.link_status")
    host_id = LinkedId("host.pk")
    host_name = LinkedText("host.name")
    tenant_id = LinkedId("tenant.pk")
    tenant_name = LinkedText("tenant.name")
    device_ids = LinkedIds("devices")
    other_device_ids = LinkedIds("other_devices")

    class Meta:
        model = HostPort
        fields = [
            *HARDWARE_FIELDS, "label", "number", "drawer_id", "drawer_name", "port_id", "link_status", "host_id",
            "host_name", "tenant_id", "tenant_name", "device_ids", "other_device_ids",
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


@describe_hardware("host ports", "a host port")
class HostPortViewSet(HardwareViewSet):
    """Host ports."""

    rows = staticmethod(selectors.host_port_rows)
    serializer_class = HostPortRowSerializer


@describe_hardware("hosts; `chassis_id` keeps those cabled to it", "a host")
class HostViewSet(HardwareViewSet):
    """Hosts."""

    rows = staticmethod(selectors.host_rows)
    serializer_class = HostRowSerializer


class PortRowSerializer(HardwareSerializer):
    """A port with its link against its capability, its error counters and what is on it; speeds in Gb/s one way.

    For a tenant, the counters have what came since the port is its own.
    """

    switch_id = LinkedId("switch.pk")
    switch_name = LinkedText("switch.name")
    slot_id = LinkedId("slot.pk")
    device_id = LinkedId("slot.device.pk")
    host_port_id = LinkedId("host_port.pk")
    host_id = LinkedId("host_port.host.pk")
    host_name = LinkedText("host_port.host.name")
    errors = serializers.SerializerMethodField()  # type: ignore[assignment]  # not the method of that name

    class Meta:
        model = Port
        fields = [
            *HARDWARE_FIELDS, "port_type", "protocol", "link_state", "link_status", "width", "active_width",
            "speed_gbps", "max_speed_gbps", "errors", "switch_id", "switch_name", "slot_id", "device_id",
            "host_port_id", "host_id", "host_name",
        ]  # fmt: skip

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_errors(self, row: Port) -> dict[str, int]:
        """Return the counters, without what they had before the port was the person's."""
        known: dict[int, Mapping[int, CounterBaseline]] = cast("Any", self.context).setdefault("counted_before", {})
        if row.chassis_id not in known:
            known[row.chassis_id] = counter_baselines(person_of(self.context["request"]), [row.chassis_id])
        return counts_since(row.errors, known[row.chassis_id].get(row.pk))


class SwitchRowSerializer(HardwareSerializer):
    """A switch chip."""

    drawer_id = LinkedId("drawer.pk")
    drawer_name = LinkedText("drawer.name")

    class Meta:
        model = Switch
        fields = [
            *HARDWARE_FIELDS, "manufacturer", "model", "serial_number", "firmware_version", "total_width", "drawer_id",
            "drawer_name",
        ]  # fmt: skip


@describe_hardware("ports", "a port")
class PortViewSet(HardwareViewSet):
    """Ports."""

    rows = staticmethod(selectors.port_rows)
    serializer_class = PortRowSerializer


@describe_hardware("switch chips", "a switch chip")
class SwitchViewSet(HardwareViewSet):
    """Switch chips."""

    rows = staticmethod(selectors.switch_rows)
    serializer_class = SwitchRowSerializer


LIST: dict[str, Any] = {"get": "list"}
RETRIEVE: dict[str, Any] = {"get": "retrieve"}
urlpatterns = [
    path("drawers/", DrawerViewSet.as_view(LIST), name="drawers"),
    path("slots/", SlotViewSet.as_view(LIST), name="slots"),
    path("slots/<int:pk>/", SlotViewSet.as_view(RETRIEVE), name="slot"),
    path("devices/", DeviceViewSet.as_view(LIST), name="devices"),
    path("devices/<int:pk>/", DeviceViewSet.as_view(RETRIEVE), name="device"),
    path("ports/", PortViewSet.as_view(LIST), name="ports"),
    path("ports/<int:pk>/", PortViewSet.as_view(RETRIEVE), name="port"),
    path("host-ports/", HostPortViewSet.as_view(LIST), name="host_ports"),
    path("host-ports/<int:pk>/", HostPortViewSet.as_view(RETRIEVE), name="host_port"),
    path("hosts/", HostViewSet.as_view(LIST), name="hosts"),
    path("hosts/<int:pk>/", HostViewSet.as_view(RETRIEVE), name="host"),
    path("switches/", SwitchViewSet.as_view(LIST), name="switches"),
    path("switches/<int:pk>/", SwitchViewSet.as_view(RETRIEVE), name="switch"),
]
