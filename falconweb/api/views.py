"""Faces of version 1: thin, over the same selectors and services as the pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from fabric.models import Device, HostPort, Operation
from fabric.selectors import fabric_view
from fabric.services.operations import UNKNOWN, operation_request
from falconweb.api import serializers
from falconweb.errors import NotFound


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


class OperationList(generics.ListAPIView[Operation]):
    """Operations, newest first; POST asks for one."""

    serializer_class = serializers.OperationSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        if getattr(self, "swagger_fake_view", False):
            return Operation.objects.none()
        return Operation.objects.visible_to(person_of(self.request)).order_by("-requested_at")

    @extend_schema(
        request=serializers.OperationRequestSerializer,
        responses={202: serializers.OperationSerializer},
        parameters=[
            OpenApiParameter(
                "Idempotency-Key", str, OpenApiParameter.HEADER, description="A repeat answers the same operation"
            )
        ],
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
            idempotency_key=request.headers.get("Idempotency-Key", "")[:200],
        )
        address = request.build_absolute_uri(reverse("api:operation", args=[operation.pk]))
        data = serializers.OperationSerializer(operation).data
        return Response(data, status=202, headers={"Location": address})


class OperationDetail(APIView):
    """One operation."""

    @extend_schema(responses=serializers.OperationSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Show an operation with its steps."""
        operation = Operation.objects.visible_to(person_of(request)).filter(pk=pk).first()
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
