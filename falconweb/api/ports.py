"""Ports and switch chips by the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.access import person_of
from fabric import listing
from fabric.counted import Before, counted_before, theirs
from fabric.models import Port, Switch
from falconweb.api.fields import LinkedId, LinkedText
from falconweb.api.parts import PART, PartDetail, PartList, PartSerializer


class PortRowSerializer(PartSerializer):
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
            *PART, "port_type", "protocol", "link_state", "link_status", "width", "active_width", "speed_gbps",
            "max_speed_gbps", "errors", "switch_id", "switch_name", "slot_id", "device_id", "host_port_id", "host_id",
            "host_name",
        ]  # fmt: skip

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_errors(self, row: Port) -> dict[str, int]:
        """Return the counters, without what they had before the port was the person's."""
        known: dict[int, Mapping[int, Before]] = cast("Any", self.context).setdefault("counted_before", {})
        if row.chassis_id not in known:
            known[row.chassis_id] = counted_before(person_of(self.context["request"]), [row.chassis_id])
        return theirs(row.errors, known[row.chassis_id].get(row.pk))


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
