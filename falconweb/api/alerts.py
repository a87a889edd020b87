"""Alerts by the API: what rings and rang, taking notice of it, and silences."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.models import User
from fabric.models import Device
from falconweb.api.bodies import Body, asked, refuse_body
from falconweb.api.fields import CHASSIS_ID, LARGEST_ID, SEARCH, IdField, number, search_of
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from falconweb.errors import NotFound
from telemetry.alerts.models import LONGEST_TEXT, Alert, Severity, Silence
from telemetry.alerts.scopes import SCOPES
from telemetry.alerts.selectors import SHOWS, SORTS, Filter, alert_of, alert_rows, alert_views
from telemetry.alerts.services.acknowledging import MOST_AT_ONCE, alerts_acknowledge
from telemetry.alerts.services.silences import SilenceValues, silence_add, silence_end
from telemetry.alerts.terms import BUILT_INS


class AlertSerializer(serializers.Serializer[Any]):
    """An alert; values are in `unit`, null where there is none or where you did not hold its subject then.

    `cause` is `rule-` and the id of a rule, or the name of a built-in one. One that `is_silenced`, or `is_inhibited`
    by another alert that says enough, notifies nobody.
    """

    id = serializers.IntegerField()
    severity = serializers.ChoiceField(choices=Severity.values)
    state = serializers.ChoiceField(choices=Alert.State.values)
    title = serializers.CharField()
    cause = serializers.CharField()
    rule_id = serializers.IntegerField(allow_null=True)
    object = serializers.ChoiceField(choices=["chassis", "drawer", "device", "port"])
    subject_name = serializers.CharField()
    chassis_id = serializers.IntegerField()
    chassis_name = serializers.CharField()
    drawer_id = serializers.IntegerField(allow_null=True)
    device_id = serializers.IntegerField(allow_null=True)
    port_id = serializers.IntegerField(allow_null=True)
    series_key = serializers.CharField()
    quantity = serializers.CharField()
    unit = serializers.CharField()
    threshold = serializers.CharField()
    value = serializers.FloatField(allow_null=True)
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


class AcknowledgementSerializer(Body, serializers.Serializer[Any]):
    """Which alerts somebody takes notice of, with a note that others read."""

    alert_ids = serializers.ListField(child=IdField(), max_length=MOST_AT_ONCE)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=LONGEST_TEXT)


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


class SilenceSerializer(Body, ScopeSerializer):
    """A silence from `starts_at` (null in a request: now) until `ends_at`; of one rule, one built-in rule, or all."""

    id = serializers.IntegerField(read_only=True)
    rule_id = IdField(required=False, allow_null=True, default=None)
    built_in = serializers.ChoiceField(choices=list(BUILT_INS), required=False, allow_blank=True, default="")
    severity = serializers.ChoiceField(choices=Severity.values, required=False, allow_blank=True, default="")
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField()
    why = serializers.CharField(max_length=500)
    made_by_name = serializers.CharField(read_only=True)
    is_in_force = serializers.BooleanField(read_only=True)


FILTER = [
    CHASSIS_ID,
    SEARCH,
    OpenApiParameter("device_id", OpenApiTypes.INT64, description="Keeps those of the device of this id and its link"),
    OpenApiParameter("port_id", OpenApiTypes.INT64, description="Keeps those of the port of this id"),
    OpenApiParameter("rule_id", OpenApiTypes.INT64, description="Keeps those of the rule of this id"),
    OpenApiParameter("show", str, enum=SHOWS, description="Those that are open (unless told), that are over, or all"),
    OpenApiParameter("severity", str, enum=Severity.values, description="Keeps those of this severity"),
    OpenApiParameter("state", str, enum=Alert.State.values, description="Keeps those in this state"),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="Leaves out what was over before"),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Leaves out what began later"),
    OpenApiParameter("sort", str, enum=list(SORTS), description="The order; worst first unless told"),
]


class AlertList(generics.GenericAPIView[Any]):
    """What rings, and what rang."""

    serializer_class = AlertSerializer

    def get_queryset(self) -> QuerySet[Any]:
        """Return what the person may see and the request keeps."""
        if getattr(self, "swagger_fake_view", False):
            return Alert.objects.none()
        for name in ("chassis_id", "device_id", "port_id", "rule_id"):
            number(self.request, name)
        given = {**self.request.query_params.dict(), "q": search_of(self.request)}
        return Filter.of(given).apply(alert_rows(person_of(self.request)))

    @asked(operation_id="alerts_list", parameters=FILTER, responses=AlertSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List alerts, worst first: of your tenant's devices and host ports, or all for administrators."""
        page = self.paginate_queryset(self.get_queryset())
        views = alert_views(person_of(request), page or [])
        return self.get_paginated_response(self.get_serializer(views, many=True).data)


class AlertDetail(APIView):
    """One alert."""

    @extend_schema(operation_id="alerts_retrieve", responses=AlertSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show an alert, and how it ended."""
        person = person_of(request)
        return Response(AlertSerializer(alert_views(person, [alert_of(person, pk)])[0]).data)


class AlertAcknowledgement(APIView):
    """Notice taken."""

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
        wanted = AcknowledgementSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        given = wanted.validated_data
        results = alerts_acknowledge(person=person_of(request), alerts=given["alert_ids"], note=given["note"])
        return Response(AcknowledgedSerializer(results, many=True).data)


class SilenceList(generics.GenericAPIView[Any]):
    """Silences, for administrators."""

    permission_classes = ADMINISTRATORS
    serializer_class = SilenceSerializer

    def get_queryset(self) -> QuerySet[Any]:
        """Return all of them."""
        if getattr(self, "swagger_fake_view", False):
            return Silence.objects.none()
        return Silence.objects.visible_to(person_of(self.request))

    @asked(operation_id="alert_silences_list", responses=SilenceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List silences, those with the latest end first; administrators only."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response([SilenceSerializer(row).data for row in page or []])

    @extend_schema(operation_id="alert_silences_create", request=SilenceSerializer, responses={201: SilenceSerializer})
    def post(self, request: Request) -> Response:
        """Silence alerts until an end; they are shown and notify nobody. Administrators only."""
        wanted = SilenceSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        row = silence_add(person=person_of(request), values=SilenceValues(**wanted.validated_data))
        return Response(SilenceSerializer(row).data, status=201)


class SilenceEnd(APIView):
    """The end of a silence."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="alert_silences_end",
        request=None,
        responses={200: SilenceSerializer, 409: problem("It is over already")},
    )
    def post(self, request: Request, pk: int) -> Response:
        """End a silence now; administrators only."""
        refuse_body(request)
        person: User = person_of(request)
        row = Silence.objects.visible_to(person).filter(pk=pk).first() if pk <= LARGEST_ID else None
        if row is None:
            raise NotFound("There is no such silence.")
        return Response(SilenceSerializer(silence_end(person=person, silence=row)).data)
