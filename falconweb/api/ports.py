"""Ports and switch chips by the API."""

from __future__ import annotations

from rest_framework import serializers

from fabric import listing
from fabric.models import Port, Switch
from falconweb.api.fields import LinkedId, LinkedText
from falconweb.api.parts import PART, PartDetail, PartList, PartSerializer


class PortRowSerializer(PartSerializer):
    """A port with its link against its capability, its error counters and what is on it; speeds in Gb/s one way."""

    switch_id = LinkedId("switch.pk")
    switch_name = LinkedText("switch.name")
    slot_id = LinkedId("slot.pk")
    device_id = LinkedId("slot.device.pk")
    host_port_id = LinkedId("host_port.pk")
    host_id = LinkedId("host_port.host.pk")
    host_name = LinkedText("host_port.host.name")
    errors = serializers.DictField(child=serializers.IntegerField())  # type: ignore[assignment]  # not the method of that name

    class Meta:
        model = Port
        fields = [
            *PART, "port_type", "protocol", "link_state", "link_status", "width", "active_width", "speed_gbps",
            "max_speed_gbps", "errors", "switch_id", "switch_name", "slot_id", "device_id", "host_port_id", "host_id",
            "host_name",
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


class PortList(PartList):
    """List ports."""

    rows = staticmethod(listing.port_rows)
    serializer_class = PortRowSerializer


class PortDetail(PartDetail):
    """Show a port; 404 where you may not see it."""

    rows = staticmethod(listing.port_rows)
    serializer_class = PortRowSerializer


class SwitchList(PartList):
    """List switch chips."""

    rows = staticmethod(listing.switch_rows)
    serializer_class = SwitchRowSerializer


class SwitchDetail(PartDetail):
    """Show a switch chip; 404 where you may not see it."""

    rows = staticmethod(listing.switch_rows)
    serializer_class = SwitchRowSerializer
