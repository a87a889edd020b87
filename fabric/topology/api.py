"""Chassis by the API, as a tree, and a drawer with its slots."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import person_of, require_administrator
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import query_search
from core.api.requests import StrictSerializer, problem, validated_body
from core.api.serializers import DataclassSerializer
from fabric.inventory.api import DrawerRowSerializer, DrawerViewSet
from fabric.inventory.dialect_choice import dialect_choose
from fabric.inventory.labels import DIALECT_LABELS
from fabric.inventory.models import Chassis, Drawer
from fabric.inventory.services import MAX_PASSWORD_LENGTH, MAX_PEM_LENGTH, chassis_add, chassis_edit, chassis_remove
from fabric.topology.presentation import ChassisView, DeviceView, DrawerView, HostPortView, ModeChoice, SlotView
from fabric.topology.selectors import chassis_view, fabric_view, mode_choices


class SlotlessDevice(DataclassSerializer):
    """A device as the person sees it."""

    pci_vendor_id = serializers.CharField(source="vendor_id")
    pci_device_id = serializers.CharField(source="device_id")

    class Meta:
        dataclass = DeviceView
        fields = [
            "id", "name", "kind", "model", "manufacturer", "serial_number", "pci_vendor_id", "pci_device_id",
            "firmware_version", "pcie_type", "max_pcie_type", "lanes_in_use", "max_lanes", "link_status", "downgraded",
            "host_port_id", "host_name", "host_port_label", "tenant_name", "missing_since", "errors_total",
        ]  # fmt: skip


class SlotSerializer(DataclassSerializer):
    """A slot; a device in no slot is one without number.

    Where the device is not yours there is the number only, and `in_use`, or `in_pool`: nobody has leased it.
    """

    device = SlotlessDevice(allow_null=True)

    class Meta:
        dataclass = SlotView
        fields = ["id", "number", "state", "device"]


class DrawerSerializer(DataclassSerializer):
    """A drawer with its slots."""

    slots = SlotSerializer(many=True)

    class Meta:
        dataclass = DrawerView
        fields = ["id", "name", "number", "mode", "slots"]


class HostPortSerializer(DataclassSerializer):
    """A host port and what is attached to it."""

    class Meta:
        dataclass = HostPortView
        fields = [
            "id", "label", "drawer_id", "host_id", "host_name", "link_status", "active_width", "width", "speed_gbps",
            "tenant_name", "device_ids",
        ]  # fmt: skip


class ChassisSerializer(DataclassSerializer):
    """A chassis with all that the person may see of it."""

    drawers = DrawerSerializer(many=True)
    host_ports = HostPortSerializer(many=True)

    class Meta:
        dataclass = ChassisView
        fields = [
            "id", "name", "model", "serial_number", "firmware_version", "health", "dialect", "enabled", "last_error",
            "inventory_at", "progress", "limits", "drawers", "host_ports",
        ]  # fmt: skip


CHANGED_MEANWHILE = "Somebody changed the chassis at the same moment"
NO_KEY = "The stored password cannot be read with the keys that the site has"


class ChassisSettingsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """How a chassis is reached. `password` is written and never read; leave it out of a change to keep the stored one.

    `password_kept`: whether there is one. `allow_http` confirms an address without encryption, `shares_uuid` that it is
    another chassis than the one with the same UUID.
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
    shares_uuid = serializers.BooleanField(required=False)
    allow_http = serializers.BooleanField(required=False, write_only=True)

    def get_password_kept(self, row: Chassis) -> bool:
        """Return whether a password is stored, and nothing of it."""
        return bool(row.password_encrypted)


class ChassisViewSet(ResourceViewSet):
    """Chassis that the person may see, and how they are reached."""

    model = Chassis
    kind = "chassis"
    serializer_class = ChassisSettingsSerializer
    address = "api:chassis"

    def find_row(self, pk: object) -> Any:
        """Return a chassis for those who may see and change how it is reached; raises Forbidden for others."""
        require_administrator(self.person)
        return super().find_row(pk)

    @extend_schema(
        operation_id="chassis_list",
        responses=ChassisSerializer(many=True),
        parameters=[OpenApiParameter("search", str, description="Keeps the devices that match")],
    )
    def list(self, request: Request) -> Response:
        """List chassis with drawers, slots, devices and host ports."""
        views = fabric_view(self.person, search=query_search(request))
        return Response(ChassisSerializer(views, many=True).data)

    @declare(audited_as=Action.CHASSIS_ADD, fresh_sign_in=True)
    @extend_schema(
        operation_id="chassis_create",
        request=ChassisSettingsSerializer,
        responses={
            201: ChassisSettingsSerializer,
            400: problem("The BMC cannot be reached or signed in to like this; nothing was stored"),
            409: problem(CHANGED_MEANWHILE),
        },
    )
    def create(self, request: Request) -> Response:
        """Add a chassis once its BMC answered; administrators only.

        Where the certificate is not trusted, `found_fingerprint` of the problem is the one to compare and send.
        """
        # Before the fields are validated: nothing else is disclosed to those who may not.
        require_administrator(self.person)
        values = {"username": "", "password": "", **validated_body(ChassisSettingsSerializer, request)}
        return self.answer(chassis_add(person=self.person, **values), 201)

    @extend_schema(responses=ChassisSerializer)
    def retrieve(self, request: Request, pk: int) -> Response:
        """Show one chassis; 404 where the person may not see it."""
        return Response(ChassisSerializer(chassis_view(self.person, pk)).data)

    def retrieve_settings(self, request: Request, pk: int) -> Response:
        """Show how a chassis is reached, without its password; administrators only."""
        return self.answer(self.find_row(pk))

    @command(
        ChassisSettingsSerializer,
        audited_as=Action.CHASSIS_EDIT,
        partial=True,
        conflict=CHANGED_MEANWHILE,
        problems={503: NO_KEY},
        fresh_sign_in=True,
    )
    def partial_update(self, chassis: Chassis, values: dict[str, Any]) -> Chassis:
        """Change how a chassis is reached: what is not given stays. Administrators only."""
        return chassis_edit(person=self.person, chassis=chassis, **values)

    @command(audited_as=Action.CHASSIS_REMOVE, status=204, conflict="An operation of it has not ended")
    def destroy(self, chassis: Chassis, values: dict[str, Any]) -> None:
        """Forget a chassis with its grants and operations; 409 while one has not ended. Administrators only."""
        chassis_remove(person=self.person, chassis=chassis)


class ChassisDialectSerializer(StrictSerializer, serializers.ModelSerializer[Chassis]):
    """How a chassis attaches devices: the dialect in use and why. `choice`: '' for what its walks find.

    `settle_seconds`: how long its BMC takes to show a change, as seen of late; null where none was seen.
    """

    choice = serializers.ChoiceField(["", *(name.value for name in DIALECT_LABELS)], source="dialect_choice")

    class Meta:
        model = Chassis
        fields = ["id", "dialect", "dialect_reason", "choice", "settle_seconds"]
        read_only_fields = ["dialect", "dialect_reason", "settle_seconds"]


class ChassisDialectViewSet(ResourceViewSet):
    """How a chassis attaches devices; administrators only."""

    model = Chassis
    kind = "chassis"
    serializer_class = ChassisDialectSerializer

    def find_row(self, pk: object) -> Any:
        """Return a chassis for administrators; raises Forbidden for others."""
        require_administrator(self.person)
        return super().find_row(pk)

    @extend_schema(operation_id="chassis_dialect_retrieve", responses=ChassisDialectSerializer)
    def retrieve(self, request: Request, pk: int) -> Response:
        """Show how a chassis attaches devices, and why."""
        return self.answer(self.find_row(pk))

    @command(
        ChassisDialectSerializer,
        audited_as=Action.CHASSIS_DIALECT,
        conflict="An operation of it has not ended",
        fresh_sign_in=True,
        operation_id="chassis_dialect_update",
    )
    def update(self, chassis: Chassis, values: dict[str, Any]) -> Chassis:
        """Choose how devices are attached, whatever walks find; '' returns to that. Nothing is written to the BMC."""
        return dialect_choose(person=self.person, chassis=chassis, choice=values["dialect_choice"])


class OtherModeSerializer(DataclassSerializer):
    """A mode that a drawer is not in, and what blocks it now ('' for nothing)."""

    class Meta:
        dataclass = ModeChoice
        fields = ["mode", "about", "reason"]


class DrawerDetailSerializer(DrawerRowSerializer):
    """A drawer with its slots and, for who may change it, its other modes.

    A slot whose device is not yours is only `in_use`, or `in_pool`: nobody has leased it.
    """

    slots = serializers.SerializerMethodField()
    other_modes = serializers.SerializerMethodField()

    class Meta(DrawerRowSerializer.Meta):
        fields = [*DrawerRowSerializer.Meta.fields, "slots", "other_modes"]

    @extend_schema_field(SlotSerializer(many=True))
    def get_slots(self, row: Drawer) -> list[Any]:
        """Return the slots as the fabric page shows them."""
        view = chassis_view(person_of(self.context["request"]), row.chassis_id)
        found = [drawer for drawer in view.drawers if drawer.id == row.pk]
        return list(SlotSerializer([slot for drawer in found for slot in drawer.slots], many=True).data)

    @extend_schema_field(OtherModeSerializer(many=True))
    def get_other_modes(self, row: Drawer) -> list[Any]:
        """Return the modes that the person may request."""
        return list(OtherModeSerializer(mode_choices(person_of(self.context["request"]), row), many=True).data)


class DrawerDetailViewSet(DrawerViewSet):
    """A drawer with its slots."""

    serializer_class = DrawerDetailSerializer


urlpatterns = [
    path("chassis/", ChassisViewSet.as_view({"get": "list", "post": "create"}), name="chassis_list"),
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
    path(
        "chassis/<int:pk>/dialect/",
        ChassisDialectViewSet.as_view({"get": "retrieve", "put": "update"}, permission_classes=ADMINISTRATORS),
        name="chassis_dialect",
    ),
    path("drawers/<int:pk>/", DrawerDetailViewSet.as_view({"get": "retrieve"}), name="drawer"),
]
