"""Drawers and slots by the API, and the mode of a drawer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from fabric import listing
from fabric.models import Drawer, Slot
from fabric.outlook import drawer_state
from fabric.permissions import may_change_mode
from fabric.rules import ABOUT_MODES, why_not_mode
from fabric.selectors import fabric_view
from fabric.services.operations import mode_request, refuse_mode_change
from falconweb.api.bodies import Body
from falconweb.api.fields import IDEMPOTENCY_KEY, LinkedId, LinkedIds, LinkedText
from falconweb.api.openapi import problem
from falconweb.api.operations import OperationSerializer, operation_answer
from falconweb.api.parts import PART, PartDetail, PartList, PartSerializer, open_operation
from falconweb.api.serializers import SlotSerializer
from falconweb.errors import NotFound


class DrawerRowSerializer(PartSerializer):
    """A drawer. `operation_id` is an operation in it that has not ended."""

    host_port_ids = LinkedIds("host_ports")
    switch_ids = LinkedIds("switches")
    operation_id = serializers.SerializerMethodField()

    class Meta:
        model = Drawer
        fields = [
            *PART, "number", "mode", "model", "serial_number", "host_port_ids", "switch_ids", "operation_id",
        ]  # fmt: skip

    def get_operation_id(self, row: Any) -> str | None:
        """Return the open operation."""
        return open_operation(row)


class OtherModeSerializer(serializers.Serializer[Any]):
    """A mode that a drawer is not in, and what stands against it now ('' when nothing does)."""

    mode = serializers.CharField()
    about = serializers.CharField()
    reason = serializers.CharField()


class DrawerDetailSerializer(DrawerRowSerializer):
    """A drawer with its slots and, for who may change it, its other modes.

    Of slots whose device is not yours is told that it is `in_use`, or `in_pool`: nobody holds it.
    """

    slots = serializers.SerializerMethodField()
    other_modes = serializers.SerializerMethodField()

    class Meta(DrawerRowSerializer.Meta):
        fields = [*DrawerRowSerializer.Meta.fields, "slots", "other_modes"]

    @extend_schema_field(SlotSerializer(many=True))
    def get_slots(self, row: Drawer) -> list[Any]:
        """Return the slots as the fabric page shows them."""
        views = fabric_view(person_of(self.context["request"]), chassis_id=row.chassis_id)
        found = [drawer for view in views for drawer in view.drawers if drawer.id == row.pk]
        slots = [asdict(slot) for drawer in found for slot in drawer.slots]
        return list(SlotSerializer(slots, many=True).data)

    @extend_schema_field(OtherModeSerializer(many=True))
    def get_other_modes(self, row: Drawer) -> list[Any]:
        """Return the modes that the person may ask for."""
        if row.mode not in ABOUT_MODES or not may_change_mode(person_of(self.context["request"]), row):
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


class ModeSerializer(Body, serializers.Serializer[Any]):
    """A wanted mode of a drawer."""

    mode = serializers.CharField(max_length=30)


class DrawerList(PartList):
    """List drawers."""

    rows = staticmethod(listing.drawer_rows)
    serializer_class = DrawerRowSerializer


class DrawerDetail(PartDetail):
    """Show a drawer with its slots; 404 where you may not see it."""

    rows = staticmethod(listing.drawer_rows)
    serializer_class = DrawerDetailSerializer


class SlotList(PartList):
    """List slots; of those that hold others' devices, only the chassis says that they are in use."""

    rows = staticmethod(listing.slot_rows)
    serializer_class = SlotRowSerializer


class SlotDetail(PartDetail):
    """Show a slot; 404 where you may not see it."""

    rows = staticmethod(listing.slot_rows)
    serializer_class = SlotRowSerializer


class DrawerMode(APIView):
    """The mode of a drawer."""

    @extend_schema(
        operation_id="drawers_mode_create",
        request=ModeSerializer,
        responses={
            202: OperationSerializer,
            409: problem("An operation in the drawer has not ended, or the rules of the mode stand against it"),
        },
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, pk: int) -> Response:
        """Ask for another mode: 202 with the operation's address. Administrators, and who holds all of it."""
        person = person_of(request)
        drawer = Drawer.objects.visible_to(person).filter(pk=pk).select_related("chassis").first()
        if drawer is None:
            raise NotFound("There is no such drawer.")
        # Before the fields are looked at: those who may not are told nothing else.
        refuse_mode_change(person, drawer)
        wanted = ModeSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        operation = mode_request(
            person=person,
            drawer=drawer,
            mode=wanted.validated_data["mode"],
            idempotency_key=request.headers.get("Idempotency-Key", ""),
        )
        return operation_answer(request, operation)
