"""Operations by the API: attach, detach, move, change a drawer's mode, and follow them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import ADMINISTRATORS, person_of
from accounts.models import User
from core.api.fields import IDEMPOTENCY_KEY, IdField, LinkedId, LinkedText, query_integer
from core.api.requests import StrictSerializer, problem, refuse_body
from core.errors import Invalid, NotFound
from fabric.inventory.api import CHASSIS_ID
from fabric.inventory.models import Device, Drawer, HostPort
from fabric.operations.models import Operation, Proof
from fabric.operations.selectors import operation_rows
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
    steps = StepSerializer(many=True)
    plan_id = serializers.UUIDField(read_only=True, allow_null=True)
    proof = LinkedText("proof.sentence")

    class Meta:
        model = Operation
        fields = [
            "id", "kind", "state", "summary", "plan_id", "chassis_id", "drawer_id", "device_id", "source_host_port_id",
            "target_host_port_id", "mode", "requested_by_name", "requested_at", "started_at", "finished_at", "steps",
            "error", "proof",
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


def operation_accepted(request: Request, operation: Operation) -> Response:
    """Return 202 with the operation and its address."""
    row = operation_rows(person_of(request)).get(pk=operation.pk)
    address = request.build_absolute_uri(reverse("api:operation", args=[row.pk]))
    return Response(OperationSerializer(row).data, status=202, headers={"Location": address})


class OperationList(generics.ListAPIView[Operation]):
    """Operations, newest first; POST asks for one."""

    serializer_class = OperationSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        if getattr(self, "swagger_fake_view", False):
            return Operation.objects.none()
        state = self.request.query_params.get("state")
        if state is not None and state not in Operation.State.values:
            raise Invalid(
                f"'{state[:50]}' is no state.", errors={"state": f"One of {', '.join(Operation.State.values)}."}
            )
        return operation_rows(
            person_of(self.request),
            chassis=query_integer(self.request, "chassis_id", was="chassis"),
            device=query_integer(self.request, "device_id", was="device"),
            state=state,
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
        wanted = OperationRequestSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        device = Device.objects.visible_to(person).filter(pk=values["device_id"]).first()
        if device is None:
            raise NotFound("There is no such device.")
        seen_at = "expected_host_port_id"
        operation, _ = operation_request(
            person=person,
            device=device,
            target=_host_port(person, values["target_host_port_id"]),
            expected=_host_port(person, values[seen_at]) if seen_at in values else UNKNOWN,
            idempotency_key=request.headers.get("Idempotency-Key", ""),
            force=values["force"],
            confirmation=values["confirmation"],
        )
        return operation_accepted(request, operation)


class OperationDetail(APIView):
    """One operation."""

    @extend_schema(responses=OperationSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Show an operation with its steps."""
        operation = operation_rows(person_of(request)).filter(pk=pk).first()
        if operation is None:
            raise NotFound("There is no such operation.")
        return Response(OperationSerializer(operation).data)


class OperationProof(APIView):
    """The proof of an operation."""

    permission_classes = ADMINISTRATORS

    @extend_schema(responses=ProofSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Show what was around an operation before and after. Administrators only: it names everybody's hardware."""
        proof = Proof.objects.filter(operation=pk).first()
        if proof is None:
            raise NotFound("There is no proof of such an operation.")
        return Response(ProofSerializer(proof).data)


class OperationCancellation(APIView):
    """The cancellation of an operation."""

    @extend_schema(
        request=None,
        responses={202: OperationSerializer, 409: problem("It has ended, or is a step of a plan: cancel that")},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Cancel an operation. One that runs ends as soon as it honestly can."""
        person = person_of(request)
        operation = Operation.objects.visible_to(person).filter(pk=pk).first()
        if operation is None:
            raise NotFound("There is no such operation.")
        refuse_body(request)
        return operation_accepted(request, operation_cancel(person=person, operation=operation))


def _host_port(person: User, pk: int | None) -> HostPort | None:
    if pk is None:
        return None
    port: HostPort | None = HostPort.objects.visible_to(person).filter(pk=pk).first()
    if port is None:
        raise NotFound("There is no such host port.")
    return port


class ModeSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A wanted mode of a drawer."""

    mode = serializers.CharField(max_length=30)


class DrawerModeChange(APIView):
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
        return operation_accepted(request, operation)
