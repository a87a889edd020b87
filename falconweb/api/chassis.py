"""Chassis by the API: everybody reads what they may see, administrators add, change and remove."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import administrator_required, person_of
from fabric.models import Chassis
from fabric.selectors import fabric_view
from fabric.services.chassis import LONGEST_PASSWORD, LONGEST_PEM, chassis_add, chassis_edit, chassis_remove
from falconweb.api.bodies import Body, refuse_body
from falconweb.api.fields import search_of
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from falconweb.api.serializers import ChassisSerializer
from falconweb.errors import NotFound

AT_ONCE = "Somebody changed the chassis at the same moment"
NO_KEY = "The stored password cannot be read with the keys that the site has"


class ChassisSettingsSerializer(Body, serializers.Serializer[Any]):
    """How a chassis is reached. `password` is written and never read; leave it out of a change to keep the stored one.

    `password_kept` tells whether there is one. `allow_http` confirms an address without encryption.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=100)
    url = serializers.CharField(max_length=300)
    username = serializers.CharField(max_length=100, required=False, allow_blank=True)
    password = serializers.CharField(
        max_length=LONGEST_PASSWORD, required=False, allow_blank=True, write_only=True, trim_whitespace=False
    )
    password_kept = serializers.SerializerMethodField()
    fingerprint = serializers.CharField(max_length=120, required=False, allow_blank=True)
    ca_pem = serializers.CharField(max_length=LONGEST_PEM, required=False, allow_blank=True)
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
        views = fabric_view(person_of(request), search=search_of(request))
        return Response(ChassisSerializer([asdict(view) for view in views], many=True).data)

    @extend_schema(
        operation_id="chassis_create",
        request=ChassisSettingsSerializer,
        responses={
            201: ChassisSettingsSerializer,
            400: problem("The BMC cannot be reached or signed in to like this; nothing was stored"),
            409: problem(AT_ONCE),
        },
    )
    def post(self, request: Request) -> Response:
        """Add a chassis once its BMC answered; administrators only.

        Where the certificate is not trusted, `found_fingerprint` of the problem is the one to compare and send.
        """
        person = person_of(request)
        # Before the fields are looked at: those who may not are told nothing else.
        administrator_required(person)
        wanted = ChassisSettingsSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = {"username": "", "password": "", **wanted.validated_data}
        row = chassis_add(person=person, **values)
        address = request.build_absolute_uri(reverse("api:chassis", args=[row.pk]))
        return Response(ChassisSettingsSerializer(row).data, status=201, headers={"Location": address})


class ChassisDetail(APIView):
    """One chassis."""

    @extend_schema(operation_id="chassis_retrieve", responses=ChassisSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show one chassis; 404 where the person may not see it."""
        views = fabric_view(person_of(request), chassis_id=pk)
        if not views:
            raise NotFound("There is no such chassis.")
        return Response(ChassisSerializer(asdict(views[0])).data)

    @extend_schema(
        operation_id="chassis_partial_update",
        request=ChassisSettingsSerializer(partial=True),
        responses={200: ChassisSettingsSerializer, 409: problem(AT_ONCE), 503: problem(NO_KEY)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change how a chassis is reached: what is not given stays. Administrators only."""
        person = person_of(request)
        administrator_required(person)
        row = _row(pk)
        wanted = ChassisSettingsSerializer(data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        row = chassis_edit(person=person, chassis=row, **wanted.validated_data)
        return Response(ChassisSettingsSerializer(row).data)

    @extend_schema(
        operation_id="chassis_destroy", responses={204: None, 409: problem("An operation of it has not ended")}
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Forget a chassis with its grants and operations; 409 while one has not ended. Administrators only."""
        person = person_of(request)
        administrator_required(person)
        row = _row(pk)
        refuse_body(request)
        chassis_remove(person=person, chassis=row)
        return Response(status=204)


class ChassisSettings(APIView):
    """How one chassis is reached."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="chassis_settings_retrieve", responses=ChassisSettingsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show how a chassis is reached, without its password; administrators only."""
        return Response(ChassisSettingsSerializer(_row(pk)).data)


def _row(pk: int) -> Chassis:
    row: Chassis | None = Chassis.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such chassis.")
    return row
