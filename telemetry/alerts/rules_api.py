"""Alert rules by the API, for administrators: added, changed, tried on what is stored, and the built-in ones."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.urls import path
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ListedResourceViewSet, command
from core.api.fields import SEARCH, query_search
from core.api.requests import StrictSerializer, problem, strict_schema, validated_body
from fabric.inventory.models import Device
from telemetry.alerts import rule_services
from telemetry.alerts.api import ScopeSerializer, whole_scope
from telemetry.alerts.facts import active_rule, enabled_built_ins
from telemetry.alerts.models import MAX_TEXT_LENGTH, AlertSeverity, Rule
from telemetry.alerts.preview import RulePreview, rule_preview
from telemetry.alerts.rule_services import MAX_HOLD_SECONDS, RuleValues
from telemetry.alerts.rules import BUILT_IN_RULES, SCOPES, Condition

RULE_TAKEN = "There is a rule of that name already"
CONDITIONS = [one.value for one in Condition]


class AlertRuleSerializer(StrictSerializer, ScopeSerializer):
    """A rule: `metric` is a quantity (`power_watts`) or a pattern of keys (`port/*/errors/*/rate`), values in its unit.

    It rings once the condition has held for `hold_seconds`, and clears at `clear_value` (null: at `value`).
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=100)
    metric = serializers.CharField(max_length=200)
    condition = serializers.ChoiceField(choices=CONDITIONS)
    value = serializers.FloatField(required=False, allow_null=True, default=None)
    clear_value = serializers.FloatField(required=False, allow_null=True, default=None)
    hold_seconds = serializers.FloatField(required=False, default=0.0, min_value=0, max_value=MAX_HOLD_SECONDS)
    severity = serializers.ChoiceField(choices=AlertSeverity.values, required=False, default="Warning")
    enabled = serializers.BooleanField(required=False, default=True)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)
    changed_at = serializers.DateTimeField(read_only=True)
    changed_by_name = serializers.CharField(read_only=True)


class TrialSerializer(AlertRuleSerializer):
    name = serializers.CharField(required=False, default="Trial", max_length=100)
    since = serializers.DateTimeField(required=False, allow_null=True, default=None)
    until = serializers.DateTimeField(required=False, allow_null=True, default=None)


class EpisodeSerializer(serializers.Serializer[Any]):
    """A time during which it would have fired; `until` null: it would fire still. Unix s."""

    chassis_id = serializers.IntegerField(source="check.subject.chassis")
    chassis_name = serializers.CharField()
    series_key = serializers.CharField(source="check.key")
    subject_name = serializers.CharField(source="check.subject.name")
    quantity = serializers.CharField(source="check.quantity")
    unit = serializers.CharField(source="check.unit")
    since = serializers.FloatField()
    fired_at = serializers.FloatField()
    until = serializers.FloatField(allow_null=True)
    worst = serializers.FloatField(allow_null=True)


class PreviewSerializer(serializers.Serializer[Any]):
    """What a rule would have done: how often (`fired`), for how long together (`seconds`), and when.

    `step` is how many seconds were judged at a time; `left_out` are series that were not looked at.
    """

    sentence = serializers.CharField()
    since = serializers.FloatField()
    until = serializers.FloatField()
    step = serializers.FloatField()
    series = serializers.IntegerField()
    fired = serializers.IntegerField()
    seconds = serializers.FloatField()
    gaps = serializers.IntegerField()
    left_out = serializers.IntegerField()
    episodes = EpisodeSerializer(many=True)


class BuiltInSerializer(serializers.Serializer[Any]):
    """A rule that comes with the site."""

    name = serializers.CharField()
    words = serializers.CharField()
    explanation = serializers.CharField()
    severity = serializers.ChoiceField(choices=AlertSeverity.values)
    hold_seconds = serializers.FloatField(source="hold")
    enabled = serializers.BooleanField(source="is_on")


class SwitchSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Whether it is on."""

    enabled = serializers.BooleanField()


RULE_EXAMPLE = OpenApiExample(
    "GPUs above 80 degrees for a minute",
    value={
        "name": "Hot GPUs", "metric": "temperature_celsius", "condition": "above", "value": 80, "clear_value": 76,
        "hold_seconds": 60, "severity": "Warning", "scope": "device_kind", "device_kind": "gpu",
        "note": "Look at the fans of the drawer.",
    },
    request_only=True,
)  # fmt: skip


class AlertRuleViewSet(ListedResourceViewSet):
    permission_classes = ADMINISTRATORS
    model = Rule
    kind = "rule"
    serializer_class = AlertRuleSerializer
    address = "api:alert_rule"

    @strict_schema(parameters=[SEARCH])
    def list(self, request: Request) -> Response:
        """List alert rules by name; administrators only."""
        rows = Rule.objects.visible_to(self.person)
        text = query_search(request)
        return self.answer_page(rows.filter(name__icontains=text) if text else rows)

    @declare(audited_as=Action.ALERT_RULE_ADD)
    @extend_schema(
        request=AlertRuleSerializer,
        examples=[RULE_EXAMPLE],
        responses={201: AlertRuleSerializer, 409: problem(RULE_TAKEN)},
    )
    def create(self, request: Request) -> Response:
        """Add an alert rule; it counts within a few seconds. Administrators only."""
        values = RuleValues(**validated_body(AlertRuleSerializer, request))
        return self.answer(rule_services.rule_add(person=self.person, values=values), 201)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show an alert rule; administrators only."""
        return self.answer(self.find_row(pk))

    @command(AlertRuleSerializer, audited_as=Action.ALERT_RULE_EDIT, partial=True, conflict=RULE_TAKEN)
    def partial_update(self, rule: Rule, values: dict[str, Any]) -> Rule:
        """Change an alert rule: the given fields, such as whether it is on. Administrators only."""
        wanted = replace(rule_services.rule_values(rule), **whole_scope(values))
        return rule_services.rule_edit(person=self.person, rule=rule, values=wanted)

    @command(audited_as=Action.ALERT_RULE_REMOVE, status=204)
    def destroy(self, rule: Rule, values: dict[str, Any]) -> None:
        """Delete an alert rule; what it raised stays. Administrators only."""
        rule_services.rule_remove(person=self.person, rule=rule)


class AlertRulePreview(APIView):
    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="alert_rules_preview",
        parameters=[
            OpenApiParameter("metric", str, required=True, description="As of a rule; so are the others"),
            OpenApiParameter("condition", str, required=True, enum=CONDITIONS),
            OpenApiParameter("value", float),
            OpenApiParameter("clear_value", float),
            OpenApiParameter("hold_seconds", {"type": "number", "minimum": 0, "maximum": MAX_HOLD_SECONDS}),
            OpenApiParameter("scope", str, enum=[name for name, _ in SCOPES]),
            OpenApiParameter("scope_id", OpenApiTypes.INT64),
            OpenApiParameter("device_kind", str, enum=Device.Kind.values),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="A day before the end unless told"),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="Now unless told"),
        ],
        responses=PreviewSerializer,
    )
    def get(self, request: Request) -> Response:
        """Try an alert rule on what is stored, without saving it; administrators only."""
        wanted = TrialSerializer(data=request.query_params.dict())
        wanted.is_valid(raise_exception=True)
        given = dict(wanted.validated_data)
        until = given.pop("until") or timezone.now()
        since = given.pop("since") or until - timedelta(days=1)
        row = Rule(pk=0)
        rule_services.rule_fill(row, RuleValues(**given))
        end = min(until.timestamp(), time.time())
        preview: RulePreview = rule_preview(
            person=person_of(request), rule=active_rule(row), since=since.timestamp(), until=end
        )
        return Response(PreviewSerializer(preview).data)


class AlertBuiltInList(APIView):
    permission_classes = ADMINISTRATORS

    @strict_schema(operation_id="alert_built_ins_list", responses=BuiltInSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the built-in alert rules; administrators only."""
        on = enabled_built_ins()
        rules = [replace(known, is_on=name in on) for name, known in BUILT_IN_RULES.items()]
        return Response(BuiltInSerializer(rules, many=True).data)


class AlertBuiltInDetail(APIView):
    permission_classes = ADMINISTRATORS

    @declare(audited_as=Action.ALERT_BUILT_IN)
    @extend_schema(operation_id="alert_built_ins_partial_update", request=SwitchSerializer, responses=BuiltInSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Switch a built-in alert rule on or off; administrators only."""
        enabled = validated_body(SwitchSerializer, request)["enabled"]
        known = rule_services.built_in_switch(person=person_of(request), name=name, enabled=enabled)
        return Response(BuiltInSerializer(replace(known, is_on=enabled)).data)


urlpatterns = [
    path("alert-rules/", AlertRuleViewSet.as_view({"get": "list", "post": "create"}), name="alert_rules"),
    path("alert-rules/preview/", AlertRulePreview.as_view(), name="alert_rule_preview"),
    path("alert-rules/built-in/", AlertBuiltInList.as_view(), name="alert_built_ins"),
    path("alert-rules/built-in/<slug:name>/", AlertBuiltInDetail.as_view(), name="alert_built_in"),
    path(
        "alert-rules/<int:pk>/",
        AlertRuleViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="alert_rule",
    ),
]
