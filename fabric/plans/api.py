"""Plans by the API: a wanted allocation becomes a draft with its steps, and is applied, cancelled, resumed, undone."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import IDEMPOTENCY_KEY, IdField, idempotency_key
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import Invalid
from fabric.bmc.types import DrawerMode
from fabric.operations.models import Plan
from fabric.operations.rules import LANE_COUNTS, MODE_DESCRIPTIONS, PORT_TYPES, PortSetting
from fabric.plans.jobs import plan_cancel, plan_resume
from fabric.plans.permissions import MAX_CHANGES
from fabric.plans.preview import current_differences
from fabric.plans.rules import DesiredState
from fabric.plans.services import FAILURE_POLICIES, plan_apply, plan_change, plan_create, plan_discard, plan_undo

MODES = [mode.value for mode in MODE_DESCRIPTIONS]
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
    "The state has changed since the plan was made (`conflict`, and `differences` says what), rules stand against it "
    "(`rule`, and `objections` says which), an operation on a device of it is open, or it was applied before"
)


class AttachmentSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Where a device shall be attached; null: to no host."""

    device_id = IdField()
    host_port_id = IdField(allow_null=True)


class WantedModeSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The mode that a drawer shall be in."""

    drawer_id = IdField()
    mode = serializers.ChoiceField(choices=MODES)


class CableSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The host that the cable of a host port shall lead to; null: no cable. Somebody moves it by hand."""

    host_port_id = IdField()
    host_id = IdField(allow_null=True)


class PortSettingSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What a switch port shall be: what is left out stays as it is."""

    port_id = IdField()
    port_type = serializers.ChoiceField(choices=PORT_TYPES, required=False)
    configured_width = serializers.ChoiceField(choices=LANE_COUNTS, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse what sets nothing."""
        if not {"port_type", "configured_width"} & set(attrs):
            raise serializers.ValidationError("Nothing is set. Give port_type, configured_width or both.")
        return attrs


class WantedSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A wanted allocation; what is not named stays as it is."""

    title = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)
    attachments = AttachmentSerializer(many=True, required=False, default=list)
    modes = WantedModeSerializer(many=True, required=False, default=list)
    cables = CableSerializer(many=True, required=False, default=list)
    port_settings = PortSettingSerializer(many=True, required=False, default=list)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse what names one thing twice, and what is too much."""
        keys = {"attachments": "device_id", "modes": "drawer_id", "cables": "host_port_id", "port_settings": "port_id"}
        desired = sum(len(attrs[name]) for name in keys)
        if not desired:
            raise serializers.ValidationError({"attachments": "Nothing is wanted. Name what shall change."})
        if desired > MAX_CHANGES:
            raise serializers.ValidationError({"attachments": f"A plan can change at most {MAX_CHANGES} things."})
        for name, key in keys.items():
            twice = [pk for pk, count in Counter(one[key] for one in attrs[name]).items() if count > 1]
            if twice:
                raise serializers.ValidationError({name: f"{key} {twice[0]} is named more than once."})
        return attrs


def desired_state(values: dict[str, Any]) -> DesiredState:
    """Return the wanted allocation that a validated `WantedSerializer` has."""
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
    interrupts = serializers.BooleanField(help_text="Whether a device is taken out here and put back where it was")


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
    """A plan. A draft has `steps`, or `objections` that keep it from being applied; an applied one has `operations`."""

    wanted = serializers.SerializerMethodField()
    steps = serializers.SerializerMethodField()
    objections = serializers.SerializerMethodField()

    class Meta:
        model = Plan
        fields = [
            "id", "title", "state", "origin", "wanted", "steps", "objections", "on_failure", "requested_by_name",
            "created_at", "applied_at", "finished_at", "acting_name", "sentence",
        ]  # fmt: skip

    @extend_schema_field(WantedSerializer)
    def get_wanted(self, plan: Plan) -> dict[str, Any]:
        """Return the wanted allocation as it is asked for."""
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
        """Return the steps as they were agreed to."""
        steps = [step for step in plan.preview if "objection" not in step]
        return list(PlannedStepSerializer(steps, many=True).data)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_objections(self, plan: Plan) -> list[str]:
        """Return the rules that stand against it."""
        return [step["objection"] for step in plan.preview if "objection" in step]


class PlanDetailSerializer(PlanSerializer):
    """A plan with its operations; `differences` is what has changed since a draft was made."""

    operations = serializers.SerializerMethodField()
    differences = serializers.SerializerMethodField()

    class Meta(PlanSerializer.Meta):
        fields = [*PlanSerializer.Meta.fields, "operations", "differences"]

    @extend_schema_field(PlanOperationSerializer(many=True))
    def get_operations(self, plan: Plan) -> list[Any]:
        """Return the operations in the order of their positions; those of a way back come last."""
        return list(PlanOperationSerializer(plan.operations.order_by("position"), many=True).data)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_differences(self, plan: Plan) -> list[str]:
        """Return what keeps a draft from being applied as it was looked at."""
        if plan.state != Plan.State.DRAFT:
            return []
        return current_differences(person_of(self.context["request"]), plan)


class ApplySerializer(StrictSerializer, serializers.Serializer[Any]):
    """How to carry a plan out; `force_device_ids` are taken although somebody uses them on their host."""

    on_failure = serializers.ChoiceField(choices=FAILURE_POLICIES, default="stop")
    force_device_ids = serializers.ListField(child=IdField(), required=False, default=list, max_length=MAX_CHANGES)
    confirmation = serializers.CharField(
        max_length=200, required=False, default="", help_text="The plan's title, where devices are forced"
    )


class CancelSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Whether what the plan has changed is brought back to where it was."""

    roll_back = serializers.BooleanField(default=False)


class PlanList(generics.ListAPIView[Plan]):
    """Plans, newest first; POST makes a draft."""

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
        request=WantedSerializer,
        responses={201: PlanDetailSerializer, 409: problem("Something wanted is missing, or cannot be composed")},
        parameters=[IDEMPOTENCY_KEY],
        examples=[PLAN_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Make a draft of the steps that lead to a wanted allocation: nothing is changed yet."""
        values = validated_body(WantedSerializer, request)
        plan = plan_create(
            person=person_of(request),
            desired=desired_state(values),
            title=values["title"],
            origin="api",
            idempotency_key=idempotency_key(request),
        )
        return PlanViewSet(request=request).answer(plan, 201)


class PlanViewSet(ResourceViewSet):
    """A plan, and what can be done with it."""

    model = Plan
    kind = "plan"
    serializer_class = PlanDetailSerializer
    address = "api:plan"

    def retrieve(self, request: Request, pk: UUID) -> Response:
        """Show a plan with its steps. Once it is applied, `operations` tell how they stand."""
        return self.answer(self.find_row(pk))

    @command(WantedSerializer, audited_as=Action.PLAN_CHANGE, conflict=STATE_CHANGED)
    def update(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Let a draft want something else; it is planned anew on what is now."""
        return plan_change(person=self.person, plan=plan, desired=desired_state(values), title=values["title"] or None)

    @command(audited_as=Action.PLAN_DISCARD, status=204, conflict="It was applied")
    def destroy(self, plan: Plan, values: dict[str, Any]) -> None:
        """Throw a draft away."""
        plan_discard(person=self.person, plan=plan)

    @command(ApplySerializer, audited_as=Action.PLAN_APPLY, status=202, conflict=STATE_CHANGED)
    def apply(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Carry a draft out, as one job: 202 with the plan, whose state tells how it goes."""
        return plan_apply(
            person=self.person,
            plan=plan,
            on_failure=values["on_failure"],
            force=values["force_device_ids"],
            confirmation=values["confirmation"],
        )

    @command(CancelSerializer, audited_as=Action.PLAN_CANCEL, status=202, conflict="It has ended")
    def cancel(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Cancel a plan. Nothing new begins, what runs ends as soon as it honestly can; then back, if wanted."""
        return plan_cancel(person=self.person, plan=plan, roll_back=values["roll_back"])

    @command(audited_as=Action.PLAN_RESUME, status=202, conflict="It has not stopped")
    def resume(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Go on with a plan that stopped. What failed is tried again, then the rest, planned anew on what is now."""
        return plan_resume(person=self.person, plan=plan)

    @command(audited_as=Action.PLAN_UNDO, status=201, conflict="It has not ended")
    def undo(self, plan: Plan, values: dict[str, Any]) -> Plan:
        """Plan the way back. The draft leads to where everything that the plan changed was before it."""
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
