"""Routes of alerts and their deliveries by the API, for administrators."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.models import User
from falconweb.api.alerts import ScopeSerializer
from falconweb.api.bodies import Body, asked, refuse_body
from falconweb.api.fields import LARGEST_ID, number
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from falconweb.errors import Invalid, NotFound
from telemetry.alerts.models import Delivery, Route, Severity
from telemetry.alerts.services.asking import send_soon
from telemetry.alerts.services.routes import (
    LONGEST_SECRET,
    RouteValues,
    delivery_retry,
    route_add,
    route_edit,
    route_remove,
    route_test,
)

TAKEN = "There is a route of that name already"
COLUMNS = ("name", "kind", "address", "severity", "scope", "scope_id", "device_kind", "enabled")


class AlertRouteSerializer(Body, ScopeSerializer):
    """Who is told of alerts that are at least as bad as `severity`, and how.

    `address`: e-mail addresses with commas between them, the URL of a webhook, or udp://, tcp:// or tls://host:port of
    a syslog server. `secret` signs the messages of a webhook; it is never shown, and one that is left out is kept.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(choices=Route.Kind.values)
    address = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    secret = serializers.CharField(
        max_length=LONGEST_SECRET, required=False, allow_blank=True, write_only=True, trim_whitespace=False
    )
    has_secret = serializers.BooleanField(read_only=True)
    severity = serializers.ChoiceField(choices=Severity.values, required=False, default="Warning")
    enabled = serializers.BooleanField(required=False, default=True)


class DeliverySerializer(serializers.Serializer[Any]):
    """One notification: what is sent is the same at each try, under the same `id`."""

    id = serializers.UUIDField()
    number = serializers.IntegerField()
    route_id = serializers.IntegerField()
    route_name = serializers.CharField(source="route.name")
    is_test = serializers.BooleanField()
    summary = serializers.CharField()
    state = serializers.ChoiceField(choices=Delivery.State.values)
    made_at = serializers.DateTimeField()
    attempts = serializers.IntegerField()
    next_try_at = serializers.DateTimeField()
    last_error = serializers.CharField()
    delivered_at = serializers.DateTimeField(allow_null=True)


class AlertRouteList(generics.GenericAPIView[Any]):
    """Routes of alerts."""

    permission_classes = ADMINISTRATORS
    serializer_class = AlertRouteSerializer

    def get_queryset(self) -> QuerySet[Any]:
        """Return all of them."""
        if getattr(self, "swagger_fake_view", False):
            return Route.objects.none()
        return Route.objects.visible_to(person_of(self.request))

    @asked(operation_id="alert_routes_list", responses=AlertRouteSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List routes of alerts by name; administrators only."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response([AlertRouteSerializer(row).data for row in page or []])

    @extend_schema(
        operation_id="alert_routes_create",
        request=AlertRouteSerializer,
        responses={201: AlertRouteSerializer, 409: problem(TAKEN)},
    )
    def post(self, request: Request) -> Response:
        """Add a route of alerts; what fires from now on is told by it. Administrators only."""
        wanted = AlertRouteSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        row = route_add(person=person_of(request), values=RouteValues(**wanted.validated_data))
        address = request.build_absolute_uri(reverse("api:alert_route", args=[row.pk]))
        return Response(AlertRouteSerializer(row).data, status=201, headers={"Location": address})


class AlertRouteDetail(APIView):
    """One route."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="alert_routes_retrieve", responses=AlertRouteSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a route of alerts; administrators only."""
        return Response(AlertRouteSerializer(_route(person_of(request), pk)).data)

    @extend_schema(
        operation_id="alert_routes_partial_update",
        request=AlertRouteSerializer(partial=True),
        responses={200: AlertRouteSerializer, 409: problem(TAKEN)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields of a route of alerts; what waits goes to the new address. Administrators only."""
        person = person_of(request)
        row = _route(person, pk)
        wanted = AlertRouteSerializer(data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        given = {**{name: getattr(row, name) for name in COLUMNS}, **wanted.validated_data}
        if "scope" in wanted.validated_data:
            for name, none in (("scope_id", None), ("device_kind", "")):
                given[name] = wanted.validated_data.get(name, none)
        return Response(AlertRouteSerializer(route_edit(person=person, route=row, values=RouteValues(**given))).data)

    @extend_schema(operation_id="alert_routes_destroy", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete a route of alerts with its log; what waits is not delivered. Administrators only."""
        refuse_body(request)
        person = person_of(request)
        route_remove(person=person, route=_route(person, pk))
        return Response(status=204)


class AlertRouteTest(APIView):
    """A test of a route."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="alert_routes_test", request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Send a test by a route of alerts: 202 with the delivery, which says how it went. Administrators only."""
        refuse_body(request)
        person = person_of(request)
        delivery = route_test(person=person, route=_route(person, pk))
        send_soon()
        return Response(DeliverySerializer(delivery).data, status=202)


class DeliveryList(generics.GenericAPIView[Any]):
    """What was delivered."""

    permission_classes = ADMINISTRATORS
    serializer_class = DeliverySerializer

    def get_queryset(self) -> QuerySet[Any]:
        """Return what the request keeps."""
        if getattr(self, "swagger_fake_view", False):
            return Delivery.objects.none()
        rows = Delivery.objects.visible_to(person_of(self.request)).select_related("route")
        if (route := number(self.request, "route_id")) is not None:
            rows = rows.filter(route=route)
        state = self.request.query_params.get("state", "")
        if state and state not in Delivery.State.values:
            raise Invalid("That is no state.", errors={"state": f"One of {', '.join(Delivery.State.values)}."})
        return rows.filter(state=state) if state else rows

    @asked(
        operation_id="alert_deliveries_list",
        parameters=[
            OpenApiParameter("route_id", OpenApiTypes.INT64, description="Keeps those of the route of this id"),
            OpenApiParameter("state", str, enum=Delivery.State.values, description="Keeps those in this state"),
        ],
        responses=DeliverySerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List notifications of alerts, newest first: what arrived, what waits and why. Administrators only."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class DeliveryRetry(APIView):
    """Another try."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="alert_deliveries_retry",
        request=None,
        responses={202: DeliverySerializer, 409: problem("It has arrived already")},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Try a notification of alerts now, also one that was given up. Administrators only."""
        refuse_body(request)
        person = person_of(request)
        row = Delivery.objects.visible_to(person).filter(pk=pk).first()
        if row is None:
            raise NotFound("There is no such delivery.")
        row = delivery_retry(person=person, delivery=row)
        send_soon()
        return Response(DeliverySerializer(row).data, status=202)


def _route(person: User, pk: int) -> Route:
    row: Route | None = Route.objects.visible_to(person).filter(pk=pk).first() if pk <= LARGEST_ID else None
    if row is None:
        raise NotFound("There is no such route.")
    return row
