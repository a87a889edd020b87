"""Chassis by the API, as a tree, and a drawer with its slots."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of, require_administrator
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import query_search
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import NotFound
from fabric.inventory.api import DrawerRowSerializer, DrawerViewSet
from fabric.inventory.models import Chassis, Drawer
from fabric.inventory.selectors import may_change_mode
from fabric.inventory.services import MAX_PASSWORD_LENGTH, MAX_PEM_LENGTH, chassis_add, chassis_edit, chassis_remove
from fabric.operations.projected_state import projected_drawer_state
from fabric.operations.rules import MODE_DESCRIPTIONS, mode_violation
from fabric.topology.selectors import fabric_view


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


CHANGED_MEANWHILE = "Somebody changed the chassis at the same moment"
NO_KEY = "The stored password cannot be read with the keys that the site has"


class ChassisSettingsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """How a chassis is reached. `password` is written and never read; leave it out of a change to keep the stored one.

    `password_kept` tells whether there is one. `allow_http` confirms an address without encryption.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=100)
    url = serializers.CharField(max_length=300)
    username = serializers.CharField(max_length=100, required=False, allow_blank=True)
    password = serializers.CharField(
        max_length=MAX_PASSWORD_LENGTH, required=False, allow_blank=True, write_only=True, trim_whitespace=False
    )
    password_kept = serializers.SerializerMethodField()
    fingerprint = serializers.CharField(max_length=120, required=False, allow_blank=True)
    ca_pem = serializers.CharField(max_length=MAX_PEM_LENGTH, required=False, allow_blank=True)
    enabled = serializers.BooleanField(required=False)
    allow_http = serializers.BooleanField(required=False, write_only=True)

    def get_password_kept(self, row: Chassis) -> bool:
        """Tell whether a password is kept, and nothing of it."""
        return bool(row.password_encrypted)


class ChassisList(APIView):
    """All chassis the person may see; POST adds one."""

    @extend_schema(
        operation_id="chassis_list",
        responses=ChassisSerializer(many=True),
        parameters=[OpenApiParameter("search", str, description="Keeps the devices that match")],
    )
    def get(self, request: Request) -> Response:
        """List chassis with drawers, slots, devices and host ports."""
        views = fabric_view(person_of(request), search=query_search(request))
        return Response(ChassisSerializer([asdict(view) for view in views], many=True).data)

    @declare(audited_as=Action.CHASSIS_ADD)
    @extend_schema(
        operation_id="chassis_create",
        request=ChassisSettingsSerializer,
        responses={
            201: ChassisSettingsSerializer,
            400: problem("The BMC cannot be reached or signed in to like this; nothing was stored"),
            409: problem(CHANGED_MEANWHILE),
        },
    )
    def post(self, request: Request) -> Response:
        """Add a chassis once its BMC answered; administrators only.

        Where the certificate is not trusted, `found_fingerprint` of the problem is the one to compare and send.
        """
        person = person_of(request)
        # Before the fields are looked at: those who may not are told nothing else.
        require_administrator(person)
        values = {"username": "", "password": "", **validated_body(ChassisSettingsSerializer, request)}
        return ChassisViewSet(request=request).answer(chassis_add(person=person, **values), 201)


class ChassisViewSet(ResourceViewSet):
    """One chassis, and how it is reached."""

    model = Chassis
    kind = "chassis"
    serializer_class = ChassisSettingsSerializer
    address = "api:chassis"

    def find_row(self, pk: object) -> Any:
        """Return a chassis for those who may see and change how it is reached; raises Forbidden for others."""
        require_administrator(self.person)
        return super().find_row(pk)

    @extend_schema(responses=ChassisSerializer)
    def retrieve(self, request: Request, pk: int) -> Response:
        """Show one chassis; 404 where the person may not see it."""
        views = fabric_view(self.person, chassis_id=pk)
        if not views:
            raise NotFound("There is no such chassis.")
        return Response(ChassisSerializer(asdict(views[0])).data)

    def retrieve_settings(self, request: Request, pk: int) -> Response:
        """Show how a chassis is reached, without its password; administrators only."""
        return self.answer(self.find_row(pk))

    @command(
        ChassisSettingsSerializer,
        audited_as=Action.CHASSIS_EDIT,
        partial=True,
        conflict=CHANGED_MEANWHILE,
        problems={503: NO_KEY},
    )
    def partial_update(self, chassis: Chassis, values: dict[str, Any]) -> Chassis:
        """Change how a chassis is reached: what is not given stays. Administrators only."""
        return chassis_edit(person=self.person, chassis=chassis, **values)

    @command(audited_as=Action.CHASSIS_REMOVE, status=204, conflict="An operation of it has not ended")
    def destroy(self, chassis: Chassis, values: dict[str, Any]) -> None:
        """Forget a chassis with its grants and operations; 409 while one has not ended. Administrators only."""
        chassis_remove(person=self.person, chassis=chassis)


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
        if row.mode not in MODE_DESCRIPTIONS or not may_change_mode(person_of(self.context["request"]), row):
            return []
        state = projected_drawer_state(row)
        return [
            {"mode": mode.value, "about": about, "reason": mode_violation(state, mode)}
            for mode, about in MODE_DESCRIPTIONS.items()
            if mode.value != row.mode
        ]


class DrawerDetailViewSet(DrawerViewSet):
    """A drawer with its slots."""

    serializer_class = DrawerDetailSerializer


urlpatterns = [
    path("chassis/", ChassisList.as_view(), name="chassis_list"),
    path(
        "chassis/<int:pk>/",
        ChassisViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="chassis",
    ),
    path(
        "chassis/<int:pk>/settings/",
        ChassisViewSet.as_view({"get": "retrieve_settings"}, permission_classes=ADMINISTRATORS),
        name="chassis_settings",
    ),
    path("drawers/<int:pk>/", DrawerDetailViewSet.as_view({"get": "retrieve"}), name="drawer"),
]
