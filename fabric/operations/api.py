"""Operations by the API: attach, detach, move, change a drawer's mode, and follow them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.freshness import require_fresh_sign_in
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet, command
from accounts.visibility import visible_or_404
from core.api.fields import IDEMPOTENCY_KEY, IdField, LinkedId, LinkedText, idempotency_key, query_choice, query_integer
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import NotFound
from fabric.inventory.api import CHASSIS_ID
from fabric.inventory.models import Device, Drawer
from fabric.operations.models import Operation, Proof
from fabric.operations.selectors import operation_rows, visible_host_port
from fabric.operations.services import (
    UNKNOWN,
    initial_steps,
    mode_request,
    operation_cancel,
    operation_request,
    refuse_mode_change,
)

ATTACH_EXAMPLE = OpenApiExample(
    "Attach a device that is attached to no host",
    value={"device_id": 17, "target_host_port_id": 4, "expected_host_port_id": None},
    request_only=True,
)
DETACH_EXAMPLE = OpenApiExample(
    "Detach it from the host port where you saw it",
    value={"device_id": 17, "target_host_port_id": None, "expected_host_port_id": 4},
    request_only=True,
)
ACCEPTED_EXAMPLE = OpenApiExample(
    "It will be attached: ask again until it has ended",
    value={
        "id": "6e1c9f0e-61a5-4d4b-9c62-6a1f7a1d5a3c",
        "kind": "attach",
        "state": "requested",
        "summary": "Attach GPU 3 (Slot 3) to node-1 (H1)",
        "plan_id": None,
        "chassis_id": 1,
        "drawer_id": 1,
        "device_id": 17,
        "source_host_port_id": None,
        "target_host_port_id": 4,
        "managed_part_id": None,
        "mode": "",
        "requested_by_name": "carol",
        "requested_at": "2026-03-02T10:02:11Z",
        "started_at": None,
        "finished_at": None,
        "steps": initial_steps("attach"),
        "error": "",
        "proof": "",
    },
    response_only=True,
    status_codes=["202"],
)


class StepSerializer(serializers.Serializer[Any]):
    """A step of an operation; `sentence` says how it went, or why it failed."""

    name = serializers.CharField()
    state = serializers.CharField(help_text="waiting, running, done, failed or skipped")
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    sentence = serializers.CharField()


class OperationSerializer(serializers.ModelSerializer[Operation]):
    """An operation with its steps; it has ended when `state` is 'done', 'failed' or 'cancelled', and `error` says why.

    What it was about is null where you may not see it.
    """

    chassis_id = LinkedId("chassis.pk")
    drawer_id = LinkedId("drawer.pk")
    device_id = LinkedId("device.pk")
    source_host_port_id = LinkedId("source.pk")
    target_host_port_id = LinkedId("target.pk")
    managed_part_id = LinkedId("managed_part.pk")
    steps = StepSerializer(many=True)
    plan_id = serializers.UUIDField(read_only=True, allow_null=True)
    proof = LinkedText("proof.sentence")

    class Meta:
        model = Operation
        fields = [
            "id", "kind", "state", "summary", "plan_id", "chassis_id", "drawer_id", "device_id", "source_host_port_id",
            "target_host_port_id", "managed_part_id", "mode", "requested_by_name", "requested_at", "started_at",
            "finished_at", "steps", "error", "proof",
        ]  # fmt: skip


class ProofSerializer(serializers.ModelSerializer[Proof]):
    """What was found around an operation before and after; `untouched` is null where it could not be read.

    `zones` have their members, `links` their status, width, active width in lanes, and speed in Gb/s; without what the
    operation is about itself.
    """

    class Meta:
        model = Proof
        fields = ["untouched", "sentence", "before_at", "after_at", "before", "after", "differences"]


class OperationRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A wanted attachment to a host port, null to detach.

    `expected_host_port_id` is where you saw the device (null: at no host): it refuses the request when somebody else
    changed that meanwhile.
    """

    renamed = {"device": "device_id", "target": "target_host_port_id", "expected": "expected_host_port_id"}
    device_id = IdField()
    target_host_port_id = IdField(allow_null=True)
    expected_host_port_id = IdField(allow_null=True, required=False)
    force = serializers.BooleanField(
        required=False, default=False, help_text="Take it although somebody uses it on its host (code `in_use`)"
    )
    confirmation = serializers.CharField(
        max_length=200, required=False, default="", help_text="The device's name, where it is forced"
    )


class OperationList(generics.ListAPIView[Operation]):
    """Operations, newest first; POST requests one."""

    serializer_class = OperationSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        return operation_rows(
            person_of(self.request),
            chassis=query_integer(self.request, "chassis_id", was="chassis"),
            device=query_integer(self.request, "device_id", was="device"),
            state=query_choice(self.request, "state", Operation.State.values),
        )

    @extend_schema(
        parameters=[
            CHASSIS_ID,
            OpenApiParameter("device_id", OpenApiTypes.INT64, description="Keeps those on the device of this id"),
            OpenApiParameter("state", str, enum=Operation.State.values, description="Keeps those in this state"),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List operations, newest first."""
        return super().get(request, *args, **kwargs)

    @declare(audited_as=Action.OPERATION_REQUEST)
    @extend_schema(
        request=OperationRequestSerializer,
        responses={
            202: OperationSerializer,
            404: problem("There is no such device or host port, or you may not see it"),
            409: problem(
                "The rules of the drawer stand against it (`rule`), or an operation that has not ended or a device that"
                " is elsewhere by now (`conflict`)"
            ),
        },
        parameters=[IDEMPOTENCY_KEY],
        examples=[ATTACH_EXAMPLE, DETACH_EXAMPLE, ACCEPTED_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Attach, detach or move a device: 202 with the operation's address."""
        person = person_of(request)
        values = validated_body(OperationRequestSerializer, request)
        if values["force"]:
            require_fresh_sign_in(request)
        device: Device = visible_or_404(Device.objects.all(), person, values["device_id"], "device")
        seen_at = "expected_host_port_id"
        operation = operation_request(
            person=person,
            device=device,
            target=visible_host_port(person, values["target_host_port_id"]),
            expected=visible_host_port(person, values[seen_at]) if seen_at in values else UNKNOWN,
            idempotency_key=idempotency_key(request),
            force=values["force"],
            confirmation=values["confirmation"],
        )
        return OperationViewSet(request=request).answer(operation, 202)


class OperationViewSet(ResourceViewSet):
    """An operation, to be followed and cancelled."""

    model = Operation
    kind = "operation"
    serializer_class = OperationSerializer
    address = "api:operation"

    def presented(self, row: Operation) -> Operation:
        """Return an operation as it is now, with what of its parts the person may see."""
        shown: Operation = operation_rows(self.person).get(pk=row.pk)
        return shown

    def retrieve(self, request: Request, pk: UUID) -> Response:
        """Show an operation with its steps."""
        return self.answer(self.find_row(pk))

    @command(
        audited_as=Action.OPERATION_CANCEL, status=202, conflict="It has ended, or is a step of a plan: cancel that"
    )
    def cancel(self, operation: Operation, values: dict[str, Any]) -> Operation:
        """Cancel an operation. One that runs ends as soon as it honestly can."""
        return operation_cancel(person=self.person, operation=operation)

    @extend_schema(responses=ProofSerializer)
    def proof(self, request: Request, pk: UUID) -> Response:
        """Show what was around an operation before and after. Administrators only: it names everybody's hardware."""
        row = Proof.objects.filter(operation=pk).first()
        if row is None:
            raise NotFound("There is no proof of such an operation.")
        return Response(ProofSerializer(row).data)


class ModeSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A wanted mode of a drawer."""

    mode = serializers.CharField(max_length=30)


class DrawerModeChange(APIView):
    """The mode of a drawer."""

    @declare(audited_as=Action.DRAWER_MODE)
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
        """Request another mode: 202 with the operation's address. Administrators, and the owner of the whole drawer."""
        person = person_of(request)
        drawer: Drawer = visible_or_404(Drawer.objects.select_related("chassis"), person, pk, "drawer")
        # Before the fields are validated: nothing else is disclosed to those who may not.
        refuse_mode_change(person, drawer)
        operation = mode_request(
            person=person,
            drawer=drawer,
            mode=validated_body(ModeSerializer, request)["mode"],
            idempotency_key=idempotency_key(request),
        )
        return OperationViewSet(request=request).answer(operation, 202)


urlpatterns = [
    path("drawers/<int:pk>/mode/", DrawerModeChange.as_view(), name="drawer_mode"),
    path("operations/", OperationList.as_view(), name="operations"),
    path("operations/<uuid:pk>/", OperationViewSet.as_view({"get": "retrieve"}), name="operation"),
    path(
        "operations/<uuid:pk>/proof/",
        OperationViewSet.as_view({"get": "proof"}, permission_classes=ADMINISTRATORS),
        name="operation_proof",
    ),
    path("operations/<uuid:pk>/cancel/", OperationViewSet.as_view({"post": "cancel"}), name="operation_cancel"),
]
