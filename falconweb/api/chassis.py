"""Chassis by the API: everybody reads what they may see, administrators add, change and remove."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import administrator_required
from fabric.models import Chassis
from fabric.services.chassis import LONGEST_PASSWORD, LONGEST_PEM, chassis_add, chassis_edit, chassis_remove
from falconweb.api import views
from falconweb.errors import NotFound


class ChassisSettingsSerializer(serializers.Serializer[Any]):
    """How a chassis is reached. `password` is written and never read; leave it out of a change to keep the stored one.

    `allow_http` confirms an address without encryption.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=100)
    url = serializers.CharField(max_length=300)
    username = serializers.CharField(max_length=100, required=False, allow_blank=True)
    password = serializers.CharField(
        max_length=LONGEST_PASSWORD, required=False, allow_blank=True, write_only=True, trim_whitespace=False
    )
    fingerprint = serializers.CharField(max_length=120, required=False, allow_blank=True)
    ca_pem = serializers.CharField(max_length=LONGEST_PEM, required=False, allow_blank=True)
    enabled = serializers.BooleanField(required=False)
    allow_http = serializers.BooleanField(required=False, write_only=True)


class ChassisList(views.ChassisList):
    """All chassis the person may see; POST adds one."""

    @extend_schema(
        operation_id="chassis_create",
        request=ChassisSettingsSerializer,
        responses={
            201: ChassisSettingsSerializer,
            400: OpenApiResponse(description="The BMC cannot be reached or signed in to like this; nothing was stored"),
        },
    )
    def post(self, request: Request) -> Response:
        """Add a chassis once its BMC answered; administrators only.

        Where the certificate is not trusted, `found_fingerprint` of the problem is the one to compare and send.
        """
        person = views.person_of(request)
        # Before the fields are looked at: those who may not are told nothing else.
        administrator_required(person)
        wanted = ChassisSettingsSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = {"username": "", "password": "", **wanted.validated_data}
        row = chassis_add(person=person, **values)
        address = request.build_absolute_uri(reverse("api:chassis", args=[row.pk]))
        return Response(ChassisSettingsSerializer(row).data, status=201, headers={"Location": address})


class ChassisDetail(views.ChassisDetail):
    """One chassis."""

    @extend_schema(
        operation_id="chassis_partial_update",
        request=ChassisSettingsSerializer(partial=True),
        responses=ChassisSettingsSerializer,
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change what is given and keep the rest; administrators only."""
        person = views.person_of(request)
        administrator_required(person)
        row = _row(pk)
        wanted = ChassisSettingsSerializer(data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        row = chassis_edit(person=person, chassis=row, **wanted.validated_data)
        return Response(ChassisSettingsSerializer(row).data)

    @extend_schema(operation_id="chassis_destroy", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Forget a chassis with its grants and operations; 409 while one has not ended. Administrators only."""
        person = views.person_of(request)
        administrator_required(person)
        chassis_remove(person=person, chassis=_row(pk))
        return Response(status=204)


def _row(pk: int) -> Chassis:
    row: Chassis | None = Chassis.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such chassis.")
    return row
