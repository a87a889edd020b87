"""Faces of version 1: thin, over the same selectors and services as the pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from fabric.listing import operation_rows
from fabric.models import Device, HostPort, Operation
from fabric.selectors import fabric_view
from fabric.services.operations import UNKNOWN, operation_request
from falconweb.api import serializers
from falconweb.api.fields import CHASSIS, IDEMPOTENCY_KEY, number
from falconweb.errors import Invalid, NotFound


def person_of(request: Request) -> User:
    """Return the signed-in person (permission classes have seen to it that there is one)."""
    if not isinstance(request.user, User):
        raise NotFound("There is nobody signed in.")
    return request.user


class ChassisList(APIView):
    """All chassis the person may see."""

    @extend_schema(
        operation_id="chassis_list",
        responses=serializers.ChassisSerializer(many=True),
        parameters=[OpenApiParameter("search", str, description="Keeps the devices that match")],
    )
    def get(self, request: Request) -> Response:
        """List chassis with drawers, slots, devices and host ports."""
        views = fabric_view(person_of(request), search=request.query_params.get("search", ""))
        return Response(serializers.ChassisSerializer([asdict(view) for view in views], many=True).data)


class ChassisDetail(APIView):
    """One chassis."""

    @extend_schema(operation_id="chassis_retrieve", responses=serializers.ChassisSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show one chassis; 404 where the person may not see it."""
        views = fabric_view(person_of(request), chassis_id=pk)
        if not views:
            raise NotFound("There is no such chassis.")
        return Response(serializers.ChassisSerializer(asdict(views[0])).data)


def operation_answer(request: Request, operation: Operation) -> Response:
    """Return 202 with the operation and its address."""
    row = operation_rows(person_of(request)).get(pk=operation.pk)
    address = request.build_absolute_uri(reverse("api:operation", args=[row.pk]))
    return Response(serializers.OperationSerializer(row).data, status=202, headers={"Location": address})


class OperationList(generics.ListAPIView[Operation]):
    """Operations, newest first; POST asks for one."""

    serializer_class = serializers.OperationSerializer

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
            chassis=number(self.request, "chassis"),
            device=number(self.request, "device"),
            state=state,
        )

    @extend_schema(
        parameters=[
            CHASSIS,
            OpenApiParameter("device", OpenApiTypes.INT64, description="Keeps those on the device of this id"),
            OpenApiParameter("state", str, enum=Operation.State.values, description="Keeps those in this state"),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List operations, newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        request=serializers.OperationRequestSerializer,
        responses={202: serializers.OperationSerializer},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Attach, detach or move a device: 202 with the operation's address."""
        person = person_of(request)
        wanted = serializers.OperationRequestSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        device = Device.objects.visible_to(person).filter(pk=values["device"]).first()
        if device is None:
            raise NotFound("There is no such device.")
        expected = _host_port(person, values["expected"]) if "expected" in values else UNKNOWN
        operation, _ = operation_request(
            person=person,
            device=device,
            target=_host_port(person, values["target"]),
            expected=expected,
            idempotency_key=request.headers.get("Idempotency-Key", ""),
        )
        return operation_answer(request, operation)


class OperationDetail(APIView):
    """One operation."""

    @extend_schema(responses=serializers.OperationSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Show an operation with its steps."""
        operation = operation_rows(person_of(request)).filter(pk=pk).first()
        if operation is None:
            raise NotFound("There is no such operation.")
        return Response(serializers.OperationSerializer(operation).data)


def _host_port(person: User, pk: int | None) -> HostPort | None:
    if pk is None:
        return None
    port: HostPort | None = HostPort.objects.visible_to(person).filter(pk=pk).first()
    if port is None:
        raise NotFound("There is no such host port.")
    return port
