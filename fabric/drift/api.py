"""Drift by the API: what has drifted, and what to do about it."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.models import User
from accounts.visibility import row_or_404
from core.api.fields import IdField, query_choice, query_integer
from core.api.requests import StrictSerializer, problem, validated_body
from core.api.serializers import DataclassSerializer
from fabric.drift.models import Drift
from fabric.drift.selectors import DriftView, drift_rows, drift_views
from fabric.drift.services import MAX_AT_ONCE, drifts_accept, drifts_of_chassis, drifts_reapply
from fabric.history.api import PresentedList
from fabric.inventory.api import CHASSIS_ID
from fabric.plans.api import PlanSerializer

STATES = ("open", "ended")
DIFFERENT_PROBLEM = problem(
    "One of them ended meanwhile, is otherwise by now, or is being changed by an operation: `differences` says which, "
    "and nothing is done to any"
)


class DriftSerializer(DataclassSerializer):
    """Something that has drifted: `found` against `expected`, in words.

    `because` says who changed it and when, as far as that is known: `cause` is `operation` (one that did not get to its
    end left it so), `log` (of the chassis) or `unknown`. It came between `not_before` and `noticed_at`.
    `end` is how it ended: `accepted`, `re_applied`, `went_away` or `superseded`, '' while it lasts.
    """

    kind = serializers.ChoiceField(choices=Drift.Kind.values)
    cause = serializers.ChoiceField(choices=Drift.Cause.values)
    ended_by_operation_id = serializers.UUIDField(source="ended_in_id", allow_null=True)

    class Meta:
        dataclass = DriftView
        fields = [
            "id", "kind", "chassis_id", "chassis_name", "device_id", "what", "expected", "found", "sentence",
            "not_before", "noticed_at", "cause", "because", "changed_at", "operation_id", "ended_at", "end",
            "ended_by_name", "ended_by_operation_id", "may_accept", "may_reapply",
        ]  # fmt: skip


class ChosenSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Which drift: by its ids, or all of a chassis that is yours to change. Give one of the two."""

    drift_ids = serializers.ListField(child=IdField(), required=False, max_length=MAX_AT_ONCE)
    chassis_id = IdField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse neither and both: what is meant would be a guess."""
        if ("drift_ids" in attrs) == ("chassis_id" in attrs):
            raise serializers.ValidationError({"drift_ids": "Give either drift_ids or chassis_id."})
        return attrs


class DriftList(PresentedList):
    """What has drifted, and what had."""

    serializer_class = DriftSerializer
    present = staticmethod(drift_views)

    def get_queryset(self) -> QuerySet[Any]:
        """Return what the person may see."""
        state = query_choice(self.request, "state", STATES)
        return drift_rows(
            person_of(self.request),
            chassis=query_integer(self.request, "chassis_id"),
            device=query_integer(self.request, "device_id"),
            is_open=None if state is None else state == "open",
        )

    @extend_schema(
        operation_id="drift_list",
        parameters=[
            CHASSIS_ID,
            OpenApiParameter("device_id", OpenApiTypes.INT64, description="Keeps what the device of this id is about"),
            OpenApiParameter("state", str, enum=STATES, description="Keeps what lasts, or what has ended"),
        ],
        responses=DriftSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List drift, newest first."""
        return self.list(request)


class DriftViewSet(ViewSet):
    """One drift, and what is done about several."""

    @extend_schema(operation_id="drift_retrieve", responses=DriftSerializer)
    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a drift, and how it ended."""
        person = person_of(request)
        row = row_or_404(drift_rows(person), pk, "drift")
        return Response(DriftSerializer(drift_views(person, [row])[0]).data)

    @declare(audited_as=Action.DRIFT_ACCEPT)
    @extend_schema(
        operation_id="drift_accept",
        request=ChosenSerializer,
        responses={200: DriftSerializer(many=True), 409: DIFFERENT_PROBLEM},
    )
    def accept(self, request: Request) -> Response:
        """Make what is found the approved state, of each or of none."""
        person = person_of(request)
        rows = drifts_accept(person=person, drifts=_chosen_drifts(request, person, reapply=False))
        ended: list[DriftView] = drift_views(person, drift_rows(person).filter(pk__in=[row.pk for row in rows]))
        return Response(DriftSerializer(ended, many=True).data)

    @declare(audited_as=Action.DRIFT_REAPPLY)
    @extend_schema(
        operation_id="drift_reapply",
        request=ChosenSerializer,
        responses={202: PlanSerializer, 409: DIFFERENT_PROBLEM},
    )
    def reapply(self, request: Request) -> Response:
        """Have it made again as it was approved: 202 with the plan that does it."""
        person = person_of(request)
        plan = drifts_reapply(person=person, drifts=_chosen_drifts(request, person, reapply=True))
        address = request.build_absolute_uri(reverse("api:plan", args=[plan.pk]))
        answer = PlanSerializer(plan, context={"request": request}).data
        return Response(answer, status=202, headers={"Location": address})


def _chosen_drifts(request: Request, person: User, *, reapply: bool) -> list[int]:
    chosen = validated_body(ChosenSerializer, request)
    if "chassis_id" in chosen:
        return drifts_of_chassis(person=person, chassis=chosen["chassis_id"], reapply=reapply)
    return sorted(set(chosen["drift_ids"]))


urlpatterns = [
    path("drift/", DriftList.as_view(), name="drifts"),
    path("drift/<int:pk>/", DriftViewSet.as_view({"get": "retrieve"}), name="drift"),
    path("drift/acceptance/", DriftViewSet.as_view({"post": "accept"}), name="drift_accept"),
    path("drift/re-application/", DriftViewSet.as_view({"post": "reapply"}), name="drift_reapply"),
]
