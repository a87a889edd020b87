"""Failures by the API: what failed, its replacement, and the policy of a tenant."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.viewsets import ListedResourceViewSet, command
from core.api.fields import IdField, query_choice
from core.api.requests import StrictSerializer, problem, validated_body
from fabric.failures.models import Failure, FailurePolicy
from fabric.failures.selectors import failure_rows, settable_policies, tenant_get
from fabric.failures.services import failure_keep, failure_policy_set, failure_replace

STATES = ("open", "ended")
NOT_OPEN = "It has ended, is being replaced, or the device is no longer free for it"


class FailureSerializer(serializers.ModelSerializer[Failure]):
    """An attached device that failed, or whose link, switch or host did; names are those of the time.

    `state` is `noticed`, `proposed` (a replacement waits for consent), `kept`, `replacing` or `ended`; `end` is
    `recovered`, `replaced`, `detached` or `reassigned` (the tenant of the device has changed), '' while it lasts. `why`
    tells why it is not replaced; `plan_id` is null where you may not see the plan.
    """

    plan_id = serializers.UUIDField(source="plan.pk", read_only=True, allow_null=True)

    class Meta:
        model = Failure
        fields = [
            "id", "chassis_id", "device_id", "device_name", "host_port_id", "host_name", "tenant_id", "cause", "state",
            "spare_id", "spare_name", "plan_id", "decided_by_name", "why", "noticed_at", "ended_at", "end",
        ]  # fmt: skip


class SpareSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The device that replaces the failed one; without an id the proposed one."""

    spare_id = IdField(required=False)


class FailureViewSet(ListedResourceViewSet):
    """Failures of attached devices."""

    model = Failure
    kind = "failure"
    serializer_class = FailureSerializer
    address = "api:failure"

    def rows(self) -> QuerySet[Failure]:
        """Return all failures, newest first."""
        return Failure.objects.order_by("-noticed_at", "-pk")

    @extend_schema(
        operation_id="failures_list",
        parameters=[OpenApiParameter("state", str, enum=STATES, description="Keeps what lasts, or what has ended")],
        responses=FailureSerializer(many=True),
    )
    def list(self, request: Request) -> Response:
        """List failures, newest first."""
        state = query_choice(request, "state", STATES)
        return self.answer_page(failure_rows(self.person, ended=None if state is None else state == "ended"))

    @extend_schema(operation_id="failures_retrieve", responses=FailureSerializer)
    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a failure."""
        return self.answer(self.find_row(pk))

    @command(
        SpareSerializer, audited_as=Action.FAILURE_REPLACE, status=202, conflict=NOT_OPEN,
        operation_id="failures_replace",
    )  # fmt: skip
    def replace(self, failure: Failure, values: dict[str, Any]) -> Failure:
        """Replace the failed device in a plan that starts at once: 202 with the failure, whose `plan_id` it is."""
        return failure_replace(person=self.person, failure=failure, spare=values.get("spare_id"))

    @command(audited_as=Action.FAILURE_KEEP, conflict=NOT_OPEN, operation_id="failures_keep")
    def keep(self, failure: Failure, values: dict[str, Any]) -> Failure:
        """Keep the failed device attached as it is."""
        return failure_keep(person=self.person, failure=failure)


class FailurePolicySerializer(serializers.Serializer[Any]):
    """What is done when an attached device fails: of a tenant, or with null, of nobody."""

    tenant_id = serializers.IntegerField(source="tenant.pk", allow_null=True, default=None)
    choice = serializers.ChoiceField(choices=FailurePolicy.Choice.choices)
    set_by_name = serializers.CharField()
    set_at = serializers.DateTimeField(allow_null=True)


class FailurePolicyBodySerializer(StrictSerializer, serializers.Serializer[Any]):
    """A policy: `keep` alerts only, `ask` proposes a replacement, `replace` replaces at once."""

    tenant_id = IdField(allow_null=True)
    choice = serializers.ChoiceField(choices=FailurePolicy.Choice.choices)


class FailurePolicies(APIView):
    """The policies that the person may set."""

    @extend_schema(operation_id="failure_policies_list", responses=FailurePolicySerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the policies that you may set."""
        return Response(FailurePolicySerializer(settable_policies(person_of(request)), many=True).data)

    @declare(audited_as=Action.FAILURE_POLICY)
    @extend_schema(
        operation_id="failure_policies_set",
        request=FailurePolicyBodySerializer,
        responses={200: FailurePolicySerializer(many=True), 403: problem("It is another tenant's")},
    )
    def put(self, request: Request) -> Response:
        """Set a policy; answers all that you may set."""
        person = person_of(request)
        values = validated_body(FailurePolicyBodySerializer, request)
        given = values["tenant_id"]
        tenant = tenant_get(person, given) if given is not None else None
        failure_policy_set(person=person, tenant=tenant, choice=values["choice"])
        return Response(FailurePolicySerializer(settable_policies(person), many=True).data)


urlpatterns = [
    path("failures/", FailureViewSet.as_view({"get": "list"}), name="failures"),
    path("failures/<int:pk>/", FailureViewSet.as_view({"get": "retrieve"}), name="failure"),
    path("failures/<int:pk>/replacement/", FailureViewSet.as_view({"post": "replace"}), name="failure_replace"),
    path("failures/<int:pk>/keeping/", FailureViewSet.as_view({"post": "keep"}), name="failure_keep"),
    path("failure-policies/", FailurePolicies.as_view(), name="failure_policies"),
]
