"""The shapes of a chassis as a tree; they follow the selectors' views field by field."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class SlotlessDevice(serializers.Serializer[Any]):
    """A device as the person sees it."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    kind = serializers.CharField()
    model = serializers.CharField()
    manufacturer = serializers.CharField()
    serial_number = serializers.CharField()
    pci_vendor_id = serializers.CharField(source="vendor_id")
    pci_device_id = serializers.CharField(source="device_id")
    firmware_version = serializers.CharField()
    pcie_type = serializers.CharField()
    max_pcie_type = serializers.CharField()
    lanes_in_use = serializers.IntegerField(allow_null=True)
    max_lanes = serializers.IntegerField(allow_null=True)
    link_status = serializers.CharField()
    downgraded = serializers.CharField()
    host_port_id = serializers.IntegerField(allow_null=True)
    host_name = serializers.CharField()
    host_port_label = serializers.CharField()
    tenant_name = serializers.CharField()
    missing_since = serializers.DateTimeField(allow_null=True)
    errors_total = serializers.IntegerField()


class SlotSerializer(serializers.Serializer[Any]):
    """A slot; a device in no slot is one without number.

    Where the device is not yours there is the number only, and `in_use`, or `in_pool`: nobody holds it.
    """

    id = serializers.IntegerField(allow_null=True)
    number = serializers.IntegerField(allow_null=True)
    state = serializers.ChoiceField(choices=["empty", "in_use", "in_pool", "occupied", "missing"])
    device = SlotlessDevice(allow_null=True)


class DrawerSerializer(serializers.Serializer[Any]):
    """A drawer with its slots."""

    id = serializers.IntegerField(allow_null=True)
    name = serializers.CharField()
    number = serializers.IntegerField()
    mode = serializers.CharField()
    slots = SlotSerializer(many=True)


class HostPortSerializer(serializers.Serializer[Any]):
    """A host port and what is attached to it."""

    id = serializers.IntegerField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    drawer_id = serializers.IntegerField(allow_null=True)
    host_id = serializers.IntegerField(allow_null=True)
    host_name = serializers.CharField()
    link_status = serializers.CharField()
    active_width = serializers.IntegerField(allow_null=True)
    width = serializers.IntegerField(allow_null=True)
    speed_gbps = serializers.FloatField(allow_null=True)
    tenant_name = serializers.CharField()
    device_ids = serializers.ListField(child=serializers.IntegerField())


class ChassisSerializer(serializers.Serializer[Any]):
    """A chassis with all that the person may see of it."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    model = serializers.CharField()
    serial_number = serializers.CharField()
    firmware_version = serializers.CharField()
    health = serializers.CharField()
    dialect = serializers.CharField()
    enabled = serializers.BooleanField()
    last_error = serializers.CharField()
    inventory_at = serializers.DateTimeField(allow_null=True)
    drawers = DrawerSerializer(many=True)
    host_ports = HostPortSerializer(many=True)
