"""Alerts, silences, routes and deliveries by the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ListedResourceViewSet, command
from accounts.visibility import row_or_404
from core.api.fields import SEARCH, IdField, query_integer, query_search
from core.api.requests import StrictSerializer, problem, strict_schema, validated_body
from core.errors import Invalid
from core.language import _
from fabric.inventory.api import CHASSIS_ID
from fabric.inventory.models import Device
from telemetry.alerts import route_services
from telemetry.alerts.models import MAX_TEXT_LENGTH, Alert, AlertSeverity, Delivery, Route, Silence
from telemetry.alerts.notifications import enqueue_delivery
from telemetry.alerts.route_services import MAX_SECRET_LENGTH, RouteValues, SilenceValues
from telemetry.alerts.rules import BUILT_IN_RULES, SCOPES
from telemetry.alerts.selectors import SHOW_CHOICES, SORTS, AlertFilter, alert_rows, alert_views
from telemetry.alerts.services import MAX_ACKNOWLEDGED, alerts_acknowledge


class AlertSerializer(serializers.Serializer[Any]):
    """An alert; values are in `unit`, null where there is none or where you did not hold its subject then.

    `value` is that when it fired, `current_value` that of now where it still fires and is measured.
    `cause` is `rule-` and the id of a rule, or the name of a built-in one. One that `is_silenced`, or `is_inhibited`
    by another alert that says enough, notifies nobody.
    """

    id = serializers.IntegerField()
    severity = serializers.ChoiceField(choices=AlertSeverity.values)
    state = serializers.ChoiceField(choices=Alert.State.values)
    title = serializers.CharField()
    cause = serializers.CharField()
    rule_id = serializers.IntegerField(allow_null=True)
    object = serializers.ChoiceField(choices=["chassis", "drawer", "device", "port", "site"])
    subject_name = serializers.CharField()
    chassis_id = serializers.IntegerField(allow_null=True)
    chassis_name = serializers.CharField(source="chassis.name")
    drawer_id = serializers.IntegerField(allow_null=True)
    device_id = serializers.IntegerField(allow_null=True)
    port_id = serializers.IntegerField(allow_null=True)
    series_key = serializers.CharField()
    quantity = serializers.CharField()
    unit = serializers.CharField()
    threshold = serializers.CharField()
    value = serializers.FloatField(allow_null=True)
    current_value = serializers.FloatField(allow_null=True)
    worst_value = serializers.FloatField(allow_null=True)
    note = serializers.CharField()
    since = serializers.DateTimeField()
    fired_at = serializers.DateTimeField(allow_null=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by_name = serializers.CharField()
    acknowledged_note = serializers.CharField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolved_because = serializers.CharField()
    is_silenced = serializers.BooleanField()
    is_inhibited = serializers.BooleanField()
    may_acknowledge = serializers.BooleanField()
    chart_url = serializers.CharField()


class AcknowledgementSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Which alerts somebody takes notice of, with a note that others read."""

    alert_ids = serializers.ListField(child=IdField(), max_length=MAX_ACKNOWLEDGED)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class AcknowledgedSerializer(serializers.Serializer[Any]):
    """What became of one: `sentence` is '' where your word was the first, else it says whose was, or that it ended."""

    alert_id = serializers.IntegerField(source="alert")
    name = serializers.CharField()
    sentence = serializers.CharField()


class ScopeSerializer(serializers.Serializer[Any]):
    """What something is about: `scope` says what `scope_id` is of; `device_kind` goes with the scope of that name."""

    scope = serializers.ChoiceField(choices=SCOPES, required=False, default="all")
    scope_id = IdField(required=False, allow_null=True, default=None)
    device_kind = serializers.ChoiceField(
        choices=Device.Kind.values, required=False, allow_blank=True, default="", help_text="'' for none"
    )


def whole_scope(values: dict[str, Any]) -> dict[str, Any]:
    """Return what a change gives; with another scope what went with the one before is none, where nothing is given."""
    return {"scope_id": None, "device_kind": "", **values} if "scope" in values else values


class SilenceSerializer(StrictSerializer, ScopeSerializer):
    """A silence from `starts_at` (null in a request: now) until `ends_at`; of one rule, one built-in rule, or all.

    With `from_time` and `until_time` (of the next day where that is not later), UTC, it is in force at these times
    only, on `days` of the week (none: each; 0 is Sunday).
    """

    id = serializers.IntegerField(read_only=True)
    rule_id = IdField(required=False, allow_null=True, default=None)
    built_in = serializers.ChoiceField(choices=list(BUILT_IN_RULES), required=False, allow_blank=True, default="")
    severity = serializers.ChoiceField(choices=AlertSeverity.values, required=False, allow_blank=True, default="")
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField()
    from_time = serializers.TimeField(required=False, allow_null=True, default=None)
    until_time = serializers.TimeField(required=False, allow_null=True, default=None)
    days = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=6), required=False, default=list, max_length=7
    )
    why = serializers.CharField(max_length=500)
    made_by_name = serializers.CharField(read_only=True)
    is_in_force = serializers.BooleanField(read_only=True)


FILTER_PARAMETERS = [
    CHASSIS_ID,
    SEARCH,
    OpenApiParameter("device_id", OpenApiTypes.INT64, description="Keeps those of the device of this id and its link"),
    OpenApiParameter("port_id", OpenApiTypes.INT64, description="Keeps those of the port of this id"),
    OpenApiParameter("rule_id", OpenApiTypes.INT64, description="Keeps those of the rule of this id"),
    OpenApiParameter(
        "show", str, enum=SHOW_CHOICES, description="Those that are open (unless told), that are over, or all"
    ),
    OpenApiParameter("severity", str, enum=AlertSeverity.values, description="Keeps those of this severity"),
    OpenApiParameter("state", str, enum=Alert.State.values, description="Keeps those in this state"),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="Leaves out what was over before"),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Leaves out what began later"),
    OpenApiParameter("sort", str, enum=list(SORTS), description="The order; worst first unless told"),
]


class AlertViewSet(ListedResourceViewSet):
    serializer_class = AlertSerializer

    @strict_schema(operation_id="alerts_list", parameters=FILTER_PARAMETERS)
    def list(self, request: Request) -> Response:
        """List alerts, worst first: of your tenant's devices and host ports, or all for administrators."""
        for name in ("chassis_id", "device_id", "port_id", "rule_id"):
            query_integer(request, name)
        wanted = AlertFilter.of({**request.query_params.dict(), "q": query_search(request)})
        page = self.paginate_queryset(wanted.apply(alert_rows(self.person)))
        views = alert_views(self.person, page or [], with_current=True)
        response: Response = self.get_paginated_response(self.get_serializer(views, many=True).data)
        return response

    @extend_schema(operation_id="alerts_retrieve")
    def retrieve(self, request: Request, pk: int) -> Response:
        """Show an alert, and how it ended."""
        row = row_or_404(alert_rows(self.person), pk, "alert")
        return self.answer(alert_views(self.person, [row], with_current=True)[0])


class AlertAcknowledgement(APIView):
    @declare(audited_as=Action.ALERT_ACKNOWLEDGE)
    @extend_schema(
        operation_id="alerts_acknowledge",
        request=AcknowledgementSerializer,
        responses={
            200: AcknowledgedSerializer(many=True),
            409: problem("Nothing was left to acknowledge: `differences` says why of each"),
        },
    )
    def post(self, request: Request) -> Response:
        """Acknowledge alerts that fire. Viewers may not; of each it is answered whose word was the first."""
        given = validated_body(AcknowledgementSerializer, request)
        results = alerts_acknowledge(person=person_of(request), alerts=given["alert_ids"], note=given["note"])
        return Response(AcknowledgedSerializer(results, many=True).data)


class SilenceViewSet(ListedResourceViewSet):
    permission_classes = ADMINISTRATORS
    model = Silence
    kind = "silence"
    serializer_class = SilenceSerializer

    @strict_schema()
    def list(self, request: Request) -> Response:
        """List silences, those with the latest end first; administrators only."""
        return self.answer_page(Silence.objects.visible_to(self.person))

    @declare(audited_as=Action.SILENCE_ADD)
    @extend_schema(request=SilenceSerializer, responses={201: SilenceSerializer})
    def create(self, request: Request) -> Response:
        """Silence alerts until an end; they are shown and notify nobody. Administrators only."""
        values = SilenceValues(**validated_body(SilenceSerializer, request))
        return self.answer(route_services.silence_add(person=self.person, values=values), 201)

    @command(audited_as=Action.SILENCE_END, conflict="It is over already", operation_id="alert_silences_end")
    def end(self, silence: Silence, values: dict[str, Any]) -> Silence:
        """End a silence now; administrators only."""
        return route_services.silence_end(person=self.person, silence=silence)


ROUTE_TAKEN = "There is a route of that name already"


class AlertRouteSerializer(StrictSerializer, ScopeSerializer):
    """Who is told of alerts that are at least as bad as `severity`, and how.

    `address`: e-mail addresses with commas between them, the URL of a webhook, or udp://, tcp:// or tls://host:port of
    a syslog server. `secret` signs the messages of a webhook; it is never shown, and one that is left out is kept.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(choices=Route.Kind.values)
    address = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    secret = serializers.CharField(
        max_length=MAX_SECRET_LENGTH, required=False, allow_blank=True, write_only=True, trim_whitespace=False
    )
    has_secret = serializers.BooleanField(read_only=True)
    severity = serializers.ChoiceField(choices=AlertSeverity.values, required=False, default="Warning")
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


class AlertRouteViewSet(ListedResourceViewSet):
    permission_classes = ADMINISTRATORS
    model = Route
    kind = "route"
    serializer_class = AlertRouteSerializer
    address = "api:alert_route"

    @strict_schema()
    def list(self, request: Request) -> Response:
        """List routes of alerts by name; administrators only."""
        return self.answer_page(Route.objects.visible_to(self.person))

    @declare(audited_as=Action.ALERT_ROUTE_ADD)
    @extend_schema(request=AlertRouteSerializer, responses={201: AlertRouteSerializer, 409: problem(ROUTE_TAKEN)})
    def create(self, request: Request) -> Response:
        """Add a route of alerts; what fires from now on is told by it. Administrators only."""
        values = RouteValues(**validated_body(AlertRouteSerializer, request))
        return self.answer(route_services.route_add(person=self.person, values=values), 201)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a route of alerts; administrators only."""
        return self.answer(self.find_row(pk))

    @command(AlertRouteSerializer, audited_as=Action.ALERT_ROUTE_EDIT, partial=True, conflict=ROUTE_TAKEN)
    def partial_update(self, route: Route, values: dict[str, Any]) -> Route:
        """Change the given fields of a route of alerts; what waits goes to the new address. Administrators only."""
        wanted = replace(route_services.route_values(route), **whole_scope(values))
        return route_services.route_edit(person=self.person, route=route, values=wanted)

    @command(audited_as=Action.ALERT_ROUTE_REMOVE, status=204)
    def destroy(self, route: Route, values: dict[str, Any]) -> None:
        """Delete a route of alerts with its log; what waits is not delivered. Administrators only."""
        route_services.route_remove(person=self.person, route=route)

    @command(
        audited_as=Action.ALERT_ROUTE_TEST, status=202, answers=DeliverySerializer, operation_id="alert_routes_test"
    )
    def test(self, route: Route, values: dict[str, Any]) -> Response:
        """Send a test by a route of alerts: 202 with the delivery, which says how it went. Administrators only."""
        delivery = route_services.route_test(person=self.person, route=route)
        enqueue_delivery()
        return DeliveryViewSet(request=self.request).answer(delivery, 202)


class DeliveryViewSet(ListedResourceViewSet):
    permission_classes = ADMINISTRATORS
    model = Delivery
    kind = "delivery"
    serializer_class = DeliverySerializer

    @strict_schema(
        parameters=[
            OpenApiParameter("route_id", OpenApiTypes.INT64, description="Keeps those of the route of this id"),
            OpenApiParameter("state", str, enum=Delivery.State.values, description="Keeps those in this state"),
        ],
    )
    def list(self, request: Request) -> Response:
        """List notifications of alerts, newest first: what arrived, what waits and why. Administrators only."""
        rows = Delivery.objects.visible_to(self.person).select_related("route")
        if (route := query_integer(request, "route_id")) is not None:
            rows = rows.filter(route=route)
        state = request.query_params.get("state", "")
        if state and state not in Delivery.State.values:
            raise Invalid(
                _("That is no state."),
                errors={"state": _("One of {choices}.", choices=", ".join(Delivery.State.values))},
            )
        return self.answer_page(rows.filter(state=state) if state else rows)

    @command(
        audited_as=Action.DELIVERY_RETRY,
        status=202,
        conflict="It has arrived already",
        operation_id="alert_deliveries_retry",
    )
    def retry(self, delivery: Delivery, values: dict[str, Any]) -> Delivery:
        """Try a notification of alerts now, also one that was given up. Administrators only."""
        tried = route_services.delivery_retry(person=self.person, delivery=delivery)
        enqueue_delivery()
        return tried


urlpatterns = [
    path("alerts/", AlertViewSet.as_view({"get": "list"}), name="alerts"),
    path("alerts/<int:pk>/", AlertViewSet.as_view({"get": "retrieve"}), name="alert"),
    path("alerts/acknowledgement/", AlertAcknowledgement.as_view(), name="alert_acknowledge"),
    path("alert-silences/", SilenceViewSet.as_view({"get": "list", "post": "create"}), name="alert_silences"),
    path("alert-silences/<int:pk>/end/", SilenceViewSet.as_view({"post": "end"}), name="alert_silence_end"),
    path("alert-routes/", AlertRouteViewSet.as_view({"get": "list", "post": "create"}), name="alert_routes"),
    path(
        "alert-routes/<int:pk>/",
        AlertRouteViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="alert_route",
    ),
    path("alert-routes/<int:pk>/test/", AlertRouteViewSet.as_view({"post": "test"}), name="alert_route_test"),
    path("alert-deliveries/", DeliveryViewSet.as_view({"get": "list"}), name="alert_deliveries"),
    path("alert-deliveries/<uuid:pk>/retry/", DeliveryViewSet.as_view({"post": "retry"}), name="alert_delivery_retry"),
]
