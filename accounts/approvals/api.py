"""Approvals by the API: administrators decide them all, others see and withdraw their own."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.approvals.models import CHOSEN_DANGERS, ApprovalRequest
from accounts.approvals.selectors import approval_rows, chosen_dangers
from accounts.approvals.services import ApprovalNeeded, approval_approve, approval_refuse, approval_withdraw, policy_set
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import query_choice
from core.api.requests import StrictSerializer, problem, validated_body

ENDED = "It no longer waits"
OWN = "You asked for it yourself, or are no administrator"


class ApprovalRequestSerializer(serializers.ModelSerializer[ApprovalRequest]):
    """An act that waits for a second administrator, or has come to its end; nothing is changed before `done`.

    `facts` are what it was asked on: it is carried out only while they are the same. `reason` is why it was refused,
    expired or failed.
    """

    class Meta:
        model = ApprovalRequest
        fields = [
            "id", "state", "dangers", "sentence", "target_kind", "target_id", "target_name", "service", "facts",
            "requested_by_name", "requested_at", "expires_at", "decided_by_name", "ended_at", "reason", "result_kind",
            "result_id",
        ]  # fmt: skip


class DecisionReasonSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Why it is refused."""

    reason = serializers.CharField(max_length=1000)


class ApprovalPolicySerializer(StrictSerializer, serializers.Serializer[Any]):
    """The dangers that need a second administrator; none by default."""

    dangers = serializers.ListField(
        child=serializers.ChoiceField(choices=[(one.value, one.label) for one in CHOSEN_DANGERS]), max_length=20
    )


@extend_schema_view(
    get=extend_schema(
        parameters=[
            OpenApiParameter("state", str, enum=ApprovalRequest.State.values, description="Keeps those in this state")
        ]
    )
)
class ApprovalList(generics.ListAPIView[ApprovalRequest]):
    """List approvals, those that wait first: all for administrators, one's own requests for others."""

    serializer_class = ApprovalRequestSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        state = query_choice(self.request, "state", ApprovalRequest.State.values)
        return approval_rows(person_of(self.request), state)


class ApprovalViewSet(ResourceViewSet):
    """One approval."""

    model = ApprovalRequest
    kind = "approval"
    serializer_class = ApprovalRequestSerializer
    address = "api:approval"

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show an approval."""
        return self.answer(self.find_row(pk))

    @command(audited_as=Action.APPROVAL_APPROVE, fresh_sign_in=True, conflict=ENDED, problems={403: OWN})
    def approve(self, approval: ApprovalRequest, values: dict[str, Any]) -> ApprovalRequest:
        """Have the act carried out, as the person who asked.

        State `failed` with a `reason` if it is no longer possible. Administrators only, and not who asked. A repetition
        answers the same.
        """
        return approval_approve(by=self.person, approval=approval)

    @command(DecisionReasonSerializer, audited_as=Action.APPROVAL_REFUSE, conflict=ENDED, problems={403: OWN})
    def refuse(self, approval: ApprovalRequest, values: dict[str, Any]) -> ApprovalRequest:
        """Refuse the act, with a reason. Administrators only, and not who asked."""
        return approval_refuse(by=self.person, approval=approval, reason=values["reason"])

    @command(audited_as=Action.APPROVAL_WITHDRAW, conflict=ENDED)
    def withdraw(self, approval: ApprovalRequest, values: dict[str, Any]) -> ApprovalRequest:
        """Withdraw your own request."""
        return approval_withdraw(by=self.person, approval=approval)


class ApprovalPolicyDetail(APIView):
    """The acts that need two people."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="approvals_policy_retrieve", responses=ApprovalPolicySerializer)
    def get(self, request: Request) -> Response:
        """Show what needs a second administrator; administrators only."""
        return Response({"dangers": sorted(chosen_dangers())})

    @declare(audited_as=Action.APPROVAL_POLICY)
    @extend_schema(
        operation_id="approvals_policy_update",
        request=ApprovalPolicySerializer,
        responses={
            200: ApprovalPolicySerializer,
            202: ApprovalRequestSerializer,
            409: problem("You are the only active administrator"),
        },
    )
    def put(self, request: Request) -> Response:
        """Set what needs a second administrator; taking something out needs one too (202). Administrators only."""
        dangers = validated_body(ApprovalPolicySerializer, request)["dangers"]
        return Response({"dangers": policy_set(by=person_of(request), dangers=dangers).dangers})


def approval_needed_answer(needed: ApprovalNeeded, request: Request) -> Response:
    """Return 202 with the approval that an act waits for, and its address."""
    return ApprovalViewSet(request=request).answer(needed.approval, ApprovalNeeded.status)


urlpatterns = [
    path("approvals/", ApprovalList.as_view(), name="approvals"),
    path("approvals/policy/", ApprovalPolicyDetail.as_view(), name="approval_policy"),
    path("approvals/<int:pk>/", ApprovalViewSet.as_view({"get": "retrieve"}), name="approval"),
    path("approvals/<int:pk>/approve/", ApprovalViewSet.as_view({"post": "approve"}), name="approval_approve"),
    path("approvals/<int:pk>/refuse/", ApprovalViewSet.as_view({"post": "refuse"}), name="approval_refuse"),
    path("approvals/<int:pk>/withdraw/", ApprovalViewSet.as_view({"post": "withdraw"}), name="approval_withdraw"),
]
