"""Parts by the API: versions, location LEDs, resets. Administrators only."""

from __future__ import annotations

from typing import Any, cast

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet
from accounts.visibility import row_or_404
from core.api.fields import (
    IDEMPOTENCY_KEY,
    SEARCH,
    IdField,
    LinkedId,
    LinkedText,
    idempotency_key,
    query_choice,
    query_flag,
    query_integer,
    query_search,
)
from core.api.requests import StrictSerializer, problem, refuse_body, validated_body
from fabric.inventory.api import CHASSIS_ID, HARDWARE_FIELDS
from fabric.inventory.locate import part_locate
from fabric.inventory.models import ManagedPart
from fabric.maintenance.models import CollectedLog, FirmwareImage
from fabric.maintenance.selectors import PartTable, managed_part_rows
from fabric.maintenance.services import firmware_drain, firmware_request, log_download, logs_request, reset_request
from fabric.operations.api import OperationSerializer, OperationViewSet
from fabric.plans.api import PlanDetailSerializer, PlanViewSet


class ManagedPartSerializer(serializers.ModelSerializer[ManagedPart]):
    """A part with its firmware; `usual_version` is that of most parts like it where its own differs, else ''.

    `label` confirms a reset. `is_lit` is null where it has no location LED, `reset_types` are as its service lists
    them.
    """

    chassis_id = LinkedId("chassis.pk")
    chassis_name = LinkedText("chassis.name")
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    drawer_id = LinkedId("drawer.pk")
    device_id = LinkedId("device.pk")
    host_id = LinkedId("host.pk")
    usual_version = serializers.SerializerMethodField()
    reset_types = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = ManagedPart
        fields = [
            *HARDWARE_FIELDS, "label", "kind", "manufacturer", "model", "serial_number", "version", "usual_version",
            "is_updateable", "is_lit", "power_state", "reset_types", "drawer_id", "device_id", "host_id",
        ]  # fmt: skip

    def get_usual_version(self, row: ManagedPart) -> str:
        """Return the version of most parts like it where its own differs."""
        known: dict[str, PartTable] = cast("Any", self.context)
        if "table" not in known:
            known["table"] = PartTable(person_of(self.context["request"]))
        return known["table"].shown([row])[0].usual


@extend_schema(
    parameters=[
        CHASSIS_ID,
        SEARCH,
        OpenApiParameter("kind", str, enum=ManagedPart.Kind.values, description="Keeps those of this kind"),
        OpenApiParameter("differing", bool, description="Keeps those whose version differs from most like them"),
    ]
)
class ManagedPartList(generics.ListAPIView[ManagedPart]):
    """Parts of all chassis: what has firmware, a location LED or a reset."""

    permission_classes = ADMINISTRATORS
    serializer_class = ManagedPartSerializer

    def get_queryset(self) -> Any:
        """Return what the request narrows it to."""
        return PartTable(
            person_of(self.request),
            search=query_search(self.request),
            kind=query_choice(self.request, "kind", ManagedPart.Kind.values) or "",
            differing=query_flag(self.request, "differing"),
            chassis=query_integer(self.request, "chassis_id"),
        ).rows


class ResetRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A wanted reset. `affected_device_ids` are the attached devices that you know it may interrupt."""

    reset_type = serializers.CharField(max_length=30, help_text="One of the part's `reset_types`")
    confirmation = serializers.CharField(max_length=400, help_text="The part's `label`")
    affected_device_ids = serializers.ListField(child=IdField(), required=False, default=list, max_length=10_000)


class UpdateRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A wanted update from the URI of an image or an uploaded image; `version` is what it should lead to, '' any other.

    `affected_device_ids` are the attached devices that you know the update of a BMC may interrupt.
    """

    image_uri = serializers.CharField(max_length=1000, required=False, default="")
    image_id = IdField(allow_null=True, required=False, default=None)
    version = serializers.CharField(max_length=200, required=False, default="")
    confirmation = serializers.CharField(max_length=400, help_text="The part's `label`")
    affected_device_ids = serializers.ListField(child=IdField(), required=False, default=list, max_length=10_000)


class FirmwareImageSerializer(serializers.ModelSerializer[FirmwareImage]):
    """An uploaded image of firmware; `size` is in bytes."""

    class Meta:
        model = FirmwareImage
        fields = ["id", "name", "size", "sha256", "uploaded_by_name", "uploaded_at"]


class FirmwareImageList(generics.ListAPIView[FirmwareImage]):
    """Uploaded images of firmware; they are uploaded on their page."""

    permission_classes = ADMINISTRATORS
    serializer_class = FirmwareImageSerializer
    queryset = FirmwareImage.objects.all()


class CollectedLogSerializer(serializers.ModelSerializer[CollectedLog]):
    """Logs of a BMC as a file; `size` is in bytes."""

    managed_part_id = LinkedId("managed_part.pk")

    class Meta:
        model = CollectedLog
        fields = ["id", "name", "managed_part_id", "size", "sha256", "collected_by_name", "collected_at"]


class CollectedLogList(generics.ListAPIView[CollectedLog]):
    """Collected logs of BMCs, newest first."""

    permission_classes = ADMINISTRATORS
    serializer_class = CollectedLogSerializer
    queryset = CollectedLog.objects.select_related("managed_part")


class CollectedLogFile(APIView):
    """The file of collected logs."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="collected_logs_file",
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Download the collected logs of a BMC; that is kept in the audit log."""
        return log_download(person_of(request), row_or_404(CollectedLog.objects.all(), pk, "log"))


class LedSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Whether a location LED is lit."""

    lit = serializers.BooleanField()


class ManagedPartViewSet(ResourceViewSet):
    """A part."""

    permission_classes = ADMINISTRATORS
    model = ManagedPart
    kind = "part"
    serializer_class = ManagedPartSerializer

    def rows(self) -> Any:
        """Return all rows with what their labels need."""
        return managed_part_rows(self.person)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a part."""
        return self.answer(self.find_row(pk))

    @declare(audited_as=Action.CHASSIS_LOCATE)
    @extend_schema(
        request=LedSerializer,
        responses={200: ManagedPartSerializer, 409: problem("It has none, or its service does not switch it")},
    )
    def led(self, request: Request, pk: int) -> Response:
        """Switch the location LED of a part, and show it."""
        row: ManagedPart = self.find_row(pk)
        part_locate(person=self.person, part=row, lit=validated_body(LedSerializer, request)["lit"])
        return self.answer(self.find_row(pk))

    @declare(audited_as=Action.PART_RESET, fresh_sign_in=True)
    @extend_schema(
        request=ResetRequestSerializer,
        responses={
            202: OperationSerializer,
            409: problem(
                "It may interrupt attached devices that you did not name (`in_use`; `affected` lists all), its service"
                " offers no reset, or operations of its chassis have not ended"
            ),
        },
        parameters=[IDEMPOTENCY_KEY],
    )
    def reset(self, request: Request, pk: int) -> Response:
        """Reset a part, or switch its power: 202 with the operation's address."""
        row: ManagedPart = self.find_row(pk)
        values = validated_body(ResetRequestSerializer, request)
        operation = reset_request(
            person=self.person,
            part=row,
            reset_type=values["reset_type"],
            confirmation=values["confirmation"],
            affected=values["affected_device_ids"],
            idempotency_key=idempotency_key(request),
        )
        return OperationViewSet(request=request).answer(operation, 202)

    @declare(audited_as=Action.FIRMWARE_UPDATE, fresh_sign_in=True)
    @extend_schema(
        request=UpdateRequestSerializer,
        responses={
            202: OperationSerializer,
            409: problem(
                "What it may interrupt is attached and not drained (`in_use`; `affected` lists it), its service takes"
                " no such image, or operations of its chassis have not ended"
            ),
        },
        parameters=[IDEMPOTENCY_KEY],
    )
    def firmware(self, request: Request, pk: int) -> Response:
        """Update the firmware of a part: 202 with the operation's address."""
        row: ManagedPart = self.find_row(pk)
        values = validated_body(UpdateRequestSerializer, request)
        image = values["image_id"]
        operation = firmware_request(
            person=self.person,
            part=row,
            image_uri=values["image_uri"],
            image=None if image is None else row_or_404(FirmwareImage.objects.all(), image, "image"),
            version=values["version"],
            confirmation=values["confirmation"],
            affected=values["affected_device_ids"],
            idempotency_key=idempotency_key(request),
        )
        return OperationViewSet(request=request).answer(operation, 202)

    @declare(audited_as=Action.PLAN_CREATE)
    @extend_schema(
        request=None,
        responses={
            201: PlanDetailSerializer,
            409: problem("A run or a lease holds a device of it, or nothing of it is attached"),
        },
    )
    def drain(self, request: Request, pk: int) -> Response:
        """Plan to detach what an update of a part interrupts: 201 with the draft. Its undo restores it."""
        refuse_body(request)
        plan = firmware_drain(person=self.person, part=self.find_row(pk))
        return PlanViewSet(request=request).answer(plan, 201)

    @declare(audited_as=Action.LOG_COLLECT)
    @extend_schema(
        request=None,
        responses={202: OperationSerializer, 409: problem("It is no BMC, or the collection before has not ended")},
        parameters=[IDEMPOTENCY_KEY],
    )
    def logs(self, request: Request, pk: int) -> Response:
        """Collect the logs of a BMC into a file: 202 with the operation's address."""
        refuse_body(request)
        operation = logs_request(person=self.person, part=self.find_row(pk), idempotency_key=idempotency_key(request))
        return OperationViewSet(request=request).answer(operation, 202)


urlpatterns = [
    path("collected-logs/", CollectedLogList.as_view(), name="collected_logs"),
    path("collected-logs/<int:pk>/file/", CollectedLogFile.as_view(), name="collected_log_file"),
    path("managed-parts/<int:pk>/logs/", ManagedPartViewSet.as_view({"post": "logs"}), name="logs_collect"),
    path("firmware-images/", FirmwareImageList.as_view(), name="firmware_images"),
    path("managed-parts/<int:pk>/firmware/", ManagedPartViewSet.as_view({"post": "firmware"}), name="firmware_update"),
    path("managed-parts/<int:pk>/drain/", ManagedPartViewSet.as_view({"post": "drain"}), name="firmware_drain"),
    path("managed-parts/", ManagedPartList.as_view(), name="managed_parts"),
    path("managed-parts/<int:pk>/", ManagedPartViewSet.as_view({"get": "retrieve"}), name="managed_part"),
    path("managed-parts/<int:pk>/led/", ManagedPartViewSet.as_view({"post": "led"}), name="part_led"),
    path("managed-parts/<int:pk>/reset/", ManagedPartViewSet.as_view({"post": "reset"}), name="part_reset"),
]
