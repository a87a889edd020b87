"""Plans by the API: a desired state becomes a draft with its steps, and is applied, cancelled, resumed, undone."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    extend_schema_serializer,
)
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.freshness import require_fresh_sign_in
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import IDEMPOTENCY_KEY, IdField, idempotency_key
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import Invalid
from fabric.bmc.chassis_profiles import ALL_MODES
from fabric.bmc.types import DrawerMode
from fabric.operations.models import Plan
from fabric.operations.rules import LANE_COUNTS, PORT_TYPES, PortSetting
from fabric.plans.jobs import plan_cancel, plan_resume
from fabric.plans.permissions import MAX_CHANGES
from fabric.plans.preview import current_differences, plan_warnings
from fabric.plans.rules import DesiredState
from fabric.plans.services import FAILURE_POLICIES, plan_apply, plan_change, plan_create, plan_discard, plan_undo

MODES = [mode.value for mode in ALL_MODES]
PLAN_EXAMPLE = OpenApiExample(
    "Put a drawer into another mode, and two devices to one host",
    value={
        "title": "Two GPUs for training",
        "attachments": [{"device_id": 17, "host_port_id": 4}, {"device_id": 18, "host_port_id": 4}],
        "modes": [{"drawer_id": 1, "mode": "Advanced"}],
    },
    request_only=True,
)
STATE_CHANGED = (
    "The state has changed since the plan was made (`conflict`, and `differences` says what), rules forbid it "
    "(`rule`, and `objections` says which), an operation on a device of it is open, or it was applied before"
)


class AttachmentSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The host port that a device is to be attached to; null: no host."""

    device_id = IdField()
    host_port_id = IdField(allow_null=True)


@extend_schema_serializer(component_name="WantedMode")
class DesiredModeSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The desired mode of a drawer."""

    drawer_id = IdField()
    mode = serializers.ChoiceField(choices=MODES)


class CableSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The host that the cable of a host port is to lead to; null: no cable. Somebody moves it by hand."""

    host_port_id = IdField()
    host_id = IdField(allow_null=True)


class PortSettingSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The desired setting of a switch port: what is left out stays as it is."""

    port_id = IdField()
    port_type = serializers.ChoiceField(choices=PORT_TYPES, required=False)
    configured_width = serializers.ChoiceField(choices=LANE_COUNTS, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a setting without values."""
        if not {"port_type", "configured_width"} & set(attrs):
            raise serializers.ValidationError("Nothing is set. Give port_type, configured_width or both.")
        return attrs


@extend_schema_serializer(component_name="Wanted")
class DesiredStateSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A desired state; what is not named stays as it is."""

    title = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)
    attachments = AttachmentSerializer(many=True, required=False, default=list)
    modes = DesiredModeSerializer(many=True, required=False, default=list)
    cables = CableSerializer(many=True, required=False, default=list)
    port_settings = PortSettingSerializer(many=True, required=False, default=list)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a part that is named twice, no change, and too many changes."""
        keys = {"attachments": "device_id", "modes": "drawer_id", "cables": "host_port_id", "port_settings": "port_id"}
        count = sum(len(attrs[name]) for name in keys)
        if not count:
            raise serializers.ValidationError({"attachments": "Nothing is wanted. Name what shall change."})
        if count > MAX_CHANGES:
            raise serializers.ValidationError({"attachments": f"A plan can change at most {MAX_CHANGES} things."})
        for name, key in keys.items():
            twice = [pk for pk, times in Counter(one[key] for one in attrs[name]).items() if times > 1]
            if twice:
                raise serializers.ValidationError({name: f"{key} {twice[0]} is named more than once."})
        return attrs


def desired_state(values: dict[str, Any]) -> DesiredState:
    """Return the values of a validated `DesiredStateSerializer`."""
    return DesiredState(
        attachments={one["device_id"]: one["host_port_id"] for one in values["attachments"]},
        modes={one["drawer_id"]: DrawerMode(one["mode"]) for one in values["modes"]},
        cables={one["host_port_id"]: one["host_id"] for one in values["cables"]},
        settings={
            one["port_id"]: PortSetting(
                port_type=one.get("port_type", ""), configured_width=one.get("configured_width")
            )
            for one in values["port_settings"]
        },
    )


class PlannedStepSerializer(serializers.Serializer[Any]):
    """A step of a plan: `after` are the positions of the steps before it that it needs."""

    position = serializers.IntegerField()
    kind = serializers.CharField()
    sentence = serializers.CharField()
    chassis_id = serializers.IntegerField(source="chassis")
    drawer_id = serializers.IntegerField(source="drawer", allow_null=True)
    device_id = serializers.IntegerField(source="device", allow_null=True)
    source_host_port_id = serializers.IntegerField(source="source", allow_null=True)
    target_host_port_id = serializers.IntegerField(source="target", allow_null=True)
    after = serializers.ListField(child=serializers.IntegerField())
    interrupts = serializers.BooleanField(help_text="Whether a device is detached here only to be reattached")


class PlanOperationSerializer(serializers.Serializer[Any]):
    """An operation of an applied plan, in short."""

    id = serializers.UUIDField()
    position = serializers.IntegerField()
    kind = serializers.CharField()
    state = serializers.CharField()
    summary = serializers.CharField()
    is_rollback = serializers.BooleanField()
    error = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class PlanSerializer(serializers.ModelSerializer[Plan]):
    """A plan. A draft has `steps`, or `objections` that prevent it; an applied plan has `operations`."""

    wanted = serializers.SerializerMethodField()
    steps = serializers.SerializerMethodField()
    objections = serializers.SerializerMethodField()

    class Meta:
        model = Plan
        fields = [
            "id", "title", "state", "origin", "wanted", "steps", "objections", "on_failure", "requested_by_name",
            "created_at", "applied_at", "finished_at", "acting_name", "sentence",
        ]  # fmt: skip

    @extend_schema_field(DesiredStateSerializer)
    def get_wanted(self, plan: Plan) -> dict[str, Any]:
        """Return the desired state as a request has it."""
        desired = DesiredState.from_json(plan.wanted)
        return {
            "attachments": [{"device_id": one, "host_port_id": to} for one, to in desired.attachments.items()],
            "modes": [{"drawer_id": one, "mode": mode.value} for one, mode in desired.modes.items()],
            "cables": [{"host_port_id": one, "host_id": host} for one, host in desired.cables.items()],
            "port_settings": [
                {"port_id": one, **{name: value for name, value in asdict(setting).items() if value}}
                for one, setting in desired.settings.items()
            ],
        }

    @extend_schema_field(PlannedStepSerializer(many=True))
    def get_steps(self, plan: Plan) -> list[Any]:
        """Return the steps of the preview."""
        steps = [step for step in plan.preview if "objection" not in step]
        return list(PlannedStepSerializer(steps, many=True).data)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_objections(self, plan: Plan) -> list[str]:
        """Return the sentences of the rules that forbid it."""
        return [step["objection"] for step in plan.preview if "objection" in step]


class PlanDetailSerializer(PlanSerializer):
    """A plan with its operations; `differences` is what has changed since a draft was made."""

    operations = serializers.SerializerMethodField()
    differences = serializers.SerializerMethodField()
    warnings = serializers.SerializerMethodField()

    class Meta(PlanSerializer.Meta):
        fields = [*PlanSerializer.Meta.fields, "operations", "differences", "warnings"]

    @extend_schema_field(PlanOperationSerializer(many=True))
    def get_operations(self, plan: Plan) -> list[Any]:
        """Return the operations by position; those of a rollback come last."""
        return list(PlanOperationSerializer(plan.operations.order_by("position"), many=True).data)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_differences(self, plan: Plan) -> list[str]:
        """Return what has changed since a draft was made."""
        if plan.state != Plan.State.DRAFT:
            return []
        return current_differences(person_of(self.context["request"]), plan)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_warnings(self, plan: Plan) -> list[str]:
        """Return what hosts may not be able to hold with the devices of a draft, which can be applied all the same."""
        return list(plan_warnings(person_of(self.context["request"]), plan)) if plan.state == Plan.State.DRAFT else []


class ApplySerializer(StrictSerializer, serializers.Serializer[Any]):
    """How to apply a plan; `force_device_ids` are detached although they are in use on their host."""

    on_failure = serializers.ChoiceField(choices=FAILURE_POLICIES, default="stop")
    force_device_ids = serializers.ListField(child=IdField(), required=False, default=list, max_length=MAX_CHANGES)
    confirmation = serializers.CharField(
        max_length=200, required=False, default="", help_text="The plan's title, where devices are forced"
    )


class CancelSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Whether the changes of the plan are rolled back."""

    roll_back = serializers.BooleanField(default=False)


class PlanList(generics.ListAPIView[Plan]):
    """Plans, newest first; POST creates a draft."""

    serializer_class = PlanSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        rows = Plan.objects.visible_to(person_of(self.request)).order_by("-created_at")
        state = self.request.query_params.get("state")
        if state is None:
            return rows
        if state not in Plan.State.values:
            raise Invalid(f"'{state[:50]}' is no state.", errors={"state": f"One of {', '.join(Plan.State.values)}."})
        return rows.filter(state=state)

    @extend_schema(
        parameters=[OpenApiParameter("state", str, enum=Plan.State.values, description="Keeps those in this state")]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List plans, newest first: your tenant's, or all for administrators."""
        return super().get(request, *args, **kwargs)

    @declare(audited_as=Action.PLAN_CREATE)
    @extend_schema(
        request=DesiredStateSerializer,
        responses={201: PlanDetailSerializer, 409: problem("A part of it is missing, or cannot be composed")},
        parameters=[IDEMPOTENCY_KEY],
        examples=[PLAN_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Create a draft with the steps that lead to a desired state: nothing is changed yet."""
        values = validated_body(DesiredStateSerializer, request)
        plan = plan_create(
            person=person_of(request),
            desired=desired_state(values),
            title=values["title"],
            origin="api",
            idempotency_key=idempotency_key(request),
        )
        return PlanViewSet(request=request).answer(plan, 201)


class PlanViewSet(ResourceViewSet):
    """A plan, and its commands."""

    model = Plan
    kind = "plan"
    serializer_class = PlanDetailSerializer
    address = "api:plan"

    def retrieve(self, request: Request, pk: UUID) -> Response:
        """Show a plan with its steps. Once it is applied, `operations` have their states."""
        return self.answer(self.find_row(pk))

    @command(DesiredStateSerializer, audited_as=Action.PLAN_CHANGE, conflict=STATE_CHANGED)
    def update(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Change the desired state of a draft; it is planned again on the present state."""
        return plan_change(person=self.person, plan=plan, desired=desired_state(values), title=values["title"] or None)

    @command(audited_as=Action.PLAN_DISCARD, status=204, conflict="It was applied")
    def destroy(self, plan: Plan, values: dict[str, Any]) -> None:
        """Discard a draft."""
        plan_discard(person=self.person, plan=plan)

    @command(ApplySerializer, audited_as=Action.PLAN_APPLY, status=202, conflict=STATE_CHANGED)
    def apply(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Apply a draft as one job: 202 with the plan, whose state shows the progress."""
        if values["force_device_ids"]:
            require_fresh_sign_in(self.request)
        return plan_apply(
            person=self.person,
            plan=plan,
            on_failure=values["on_failure"],
            force=values["force_device_ids"],
            confirmation=values["confirmation"],
        )

    @command(CancelSerializer, audited_as=Action.PLAN_CANCEL, status=202, conflict="It has ended")
    def cancel(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Cancel a plan. No further step begins, running ones end as soon as possible; a rollback may follow."""
        return plan_cancel(person=self.person, plan=plan, roll_back=values["roll_back"])

    @command(audited_as=Action.PLAN_RESUME, status=202, conflict="It has not stopped")
    def resume(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Resume a plan that stopped. Failed steps are retried, then the rest, replanned on the present state."""
        return plan_resume(person=self.person, plan=plan)

    @command(audited_as=Action.PLAN_UNDO, status=201, conflict="It has not ended")
    def undo(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Create a draft that undoes a plan; it restores what the plan changed to its state before."""
        return plan_undo(person=self.person, plan=plan)


urlpatterns = [
    path("plans/", PlanList.as_view(), name="plans"),
    path(
        "plans/<uuid:pk>/",
        PlanViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
        name="plan",
    ),
    path("plans/<uuid:pk>/apply/", PlanViewSet.as_view({"post": "apply"}), name="plan_apply"),
    path("plans/<uuid:pk>/cancel/", PlanViewSet.as_view({"post": "cancel"}), name="plan_cancel"),
    path("plans/<uuid:pk>/resume/", PlanViewSet.as_view({"post": "resume"}), name="plan_resume"),
    path("plans/<uuid:pk>/undo/", PlanViewSet.as_view({"post": "undo"}), name="plan_undo"),
]
