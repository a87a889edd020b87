"""Leases by the API: request, decide, grant, extend and return them; the calendar."""

from __future__ import annotations

from typing import Any

from django.urls import path
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
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
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.api import tenant_by
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import IdField, query_integer
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import Invalid, NotFound
from fabric.inventory.models import Device, HostPort
from fabric.leases.calendar import lease_calendar, parse_first_day
from fabric.leases.ends import lease_extend, lease_extension_decline, lease_extension_request, lease_return
from fabric.leases.models import KINDS, Lease, LeaseItem
from fabric.leases.rules import RequestedParts
from fabric.leases.selectors import lease_rows, requested_parts
from fabric.leases.services import (
    MAX_TEXT_LENGTH,
    lease_approve,
    lease_decline,
    lease_give,
    lease_request,
    lease_withdraw,
    request_objections,
)

MAX_DEVICES = 10_000

REQUEST_EXAMPLE = OpenApiExample(
    "Two GPUs and a host port for a week",
    value={
        "wishes": [{"kind": "gpu", "count": 2}, {"kind": "host_port", "count": 1, "chassis_id": 1}],
        "starts_at": "2026-03-02T08:00:00Z",
        "ends_at": "2026-03-09T08:00:00Z",
        "note": "Training for the paper",
    },
    request_only=True,
)


class WishSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A number of parts of a kind, of one chassis or of any."""

    kind = serializers.ChoiceField(choices=KINDS)
    count = serializers.IntegerField(min_value=1, max_value=1000)
    chassis_id = IdField(required=False, allow_null=True, default=None)


class LeaseItemSerializer(serializers.Serializer[Any]):
    """A device or host port of a lease; `taken_at` null: not yet, `released_at` null: not yet."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=KINDS)
    name = serializers.CharField()
    device_id = serializers.IntegerField(allow_null=True)
    host_port_id = serializers.IntegerField(allow_null=True)
    taken_at = serializers.DateTimeField(allow_null=True)
    released_at = serializers.DateTimeField(allow_null=True)


class LeaseEventSerializer(serializers.Serializer[Any]):
    """A line of the timeline."""

    at = serializers.DateTimeField()
    by_name = serializers.CharField()
    sentence = serializers.CharField()


class LeaseSerializer(serializers.Serializer[Any]):
    """A lease; `ends_at` null is until further notice, `extension_to` the end that is requested instead."""

    id = serializers.IntegerField()
    tenant_id = serializers.IntegerField(allow_null=True)
    tenant_name = serializers.CharField()
    state = serializers.ChoiceField(choices=Lease.State.choices)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField(allow_null=True)
    wishes = serializers.SerializerMethodField()
    note = serializers.CharField()
    asked_by_name = serializers.CharField()
    asked_at = serializers.DateTimeField()
    decided_by_name = serializers.CharField()
    decided_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    extension_to = serializers.DateTimeField(allow_null=True)
    trouble = serializers.CharField(help_text="Why it cannot be returned, at the last try")
    ended_at = serializers.DateTimeField(allow_null=True)
    items = LeaseItemSerializer(many=True, source="items.all")

    @extend_schema_field(WishSerializer(many=True))
    def get_wishes(self, lease: Lease) -> list[dict[str, Any]]:
        """Return the requested parts."""
        return [{"kind": one.kind, "count": one.count, "chassis_id": one.chassis} for one in requested_parts(lease)]


class LeaseDetailSerializer(LeaseSerializer):
    """A lease with its timeline, and the quotas that a request would exceed."""

    events = LeaseEventSerializer(many=True, source="events.all")
    quota = serializers.SerializerMethodField(help_text="A sentence for each quota that the request would exceed")

    def get_quota(self, lease: Lease) -> list[str]:
        """Return the objections of quotas to a pending request."""
        if lease.tenant is None or lease.state != Lease.State.REQUESTED:
            return []
        return request_objections(lease.tenant, requested_parts(lease), lease.starts_at, lease.ends_at, but=lease)


class LeaseRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A request of your tenant; without `starts_at` from its approval on, without `ends_at` until further notice.

    `quota` of the answer lists the quotas that it would exceed: an administrator decides.
    """

    wishes = WishSerializer(many=True)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class ThingsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The parts and times of a lease; `override` lets it exceed a quota."""

    device_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES, required=False, default=list)
    host_port_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES, required=False, default=list)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField(allow_null=True)
    override = serializers.BooleanField(required=False, default=False)


@extend_schema_serializer(component_name="Given")
class LeaseCreationSerializer(ThingsSerializer):
    """A lease that is created without a request."""

    tenant_id = IdField()
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class ReasonSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A message to the tenant."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class ApprovalSerializer(ThingsSerializer, ReasonSerializer):
    """An approval; `reason` is read by the tenant."""


class EndSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Another end (null, by administrators only: until further notice), with a note."""

    ends_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)
    override = serializers.BooleanField(required=False, default=False)


class ReturnSerializer(StrictSerializer, serializers.Serializer[Any]):
    """The items of a lease that are returned, by their ids; all without them."""

    item_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES, required=False, allow_null=True)


class BlockSerializer(serializers.Serializer[Any]):
    """A time in which a part is leased; without a lease's id it is another tenant's: 'in use'."""

    lease_id = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    state = serializers.CharField()
    starts_at = serializers.DateTimeField(source="span.begin")
    ends_at = serializers.DateTimeField(source="span.end", allow_null=True)


class CalendarRowSerializer(serializers.Serializer[Any]):
    """A slot, device or host port with the times in which it is leased; none: it is unassigned."""

    place = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    about = serializers.CharField()
    blocks = BlockSerializer(many=True)


NOT_AVAILABLE = "Another lease needs a part of it then, a quota would be exceeded (`quota`), or it was decided already"


class LeaseList(generics.ListAPIView[Any]):
    """Leases; POST requests one."""

    serializer_class = LeaseSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        state = self.request.query_params.get("state", "")
        if state and state not in Lease.State.values:
            raise Invalid(f"'{state[:50]}' is no state.", errors={"state": f"One of {', '.join(Lease.State.values)}."})
        return lease_rows(person_of(self.request), state=state, tenant=query_integer(self.request, "tenant_id"))

    @extend_schema(
        parameters=[
            OpenApiParameter("state", str, enum=Lease.State.values, description="Keeps those in this state"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Keeps those of the tenant of this id"),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List leases, newest first: your tenant's, or all for administrators."""
        return super().get(request, *args, **kwargs)

    @declare(audited_as=Action.LEASE_REQUEST)
    @extend_schema(request=LeaseRequestSerializer, responses={201: LeaseDetailSerializer}, examples=[REQUEST_EXAMPLE])
    def post(self, request: Request) -> Response:
        """Request a lease for your tenant; an administrator decides."""
        values = validated_body(LeaseRequestSerializer, request)
        wishes = [RequestedParts(one["kind"], one["count"], one["chassis_id"]) for one in values.pop("wishes")]
        lease = lease_request(person=person_of(request), wishes=wishes, **values)
        return LeaseViewSet(request=request).answer(lease, 201)


class LeaseGrant(APIView):
    """Leases that administrators create without a request."""

    permission_classes = ADMINISTRATORS

    @declare(audited_as=Action.LEASE_GIVE)
    @extend_schema(request=LeaseCreationSerializer, responses={201: LeaseDetailSerializer, 409: problem(NOT_AVAILABLE)})
    def post(self, request: Request) -> Response:
        """Create a lease of a tenant; administrators only."""
        values = validated_body(LeaseCreationSerializer, request)
        tenant = tenant_by(values.pop("tenant_id"))
        lease = lease_give(person=person_of(request), tenant=tenant, **_with_parts(values))
        return LeaseViewSet(request=request).answer(lease, 201)


class LeaseViewSet(ResourceViewSet):
    """A lease, and the commands of its tenant."""

    model = Lease
    kind = "lease"
    serializer_class = LeaseDetailSerializer
    address = "api:lease"

    def presented(self, row: Lease) -> Lease:
        """Return a lease as it is now, with its items and its timeline."""
        shown: Lease = lease_rows(self.person).prefetch_related("events").get(pk=row.pk)
        return shown

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a lease with its timeline."""
        return self.answer(self.find_row(pk))

    @command(audited_as=Action.LEASE_WITHDRAW, conflict="It has started, or is over")
    def withdraw(self, lease: Lease, values: dict[str, Any]) -> Lease:
        """Withdraw a request, or a lease that has not started."""
        return lease_withdraw(person=self.person, lease=lease)

    @command(EndSerializer, audited_as=Action.LEASE_EXTEND, conflict=NOT_AVAILABLE)
    def extend(self, lease: Lease, values: dict[str, Any]) -> Lease:
        """Request a later end of your tenant's lease; an administrator sets the end immediately."""
        ends_at, note, override = values["ends_at"], values["note"], values["override"]
        if self.person.is_administrator:
            return lease_extend(person=self.person, lease=lease, ends_at=ends_at, reason=note, override=override)
        if ends_at is None:
            raise Invalid("Give an end to ask for.", errors={"ends_at": "Give a day and a time."})
        return lease_extension_request(person=self.person, lease=lease, ends_at=ends_at, note=note)

    @command(ReturnSerializer, audited_as=Action.LEASE_RETURN, status=202, conflict="It is not active")
    def return_items(self, lease: Lease, values: dict[str, Any]) -> Lease:
        """Return a lease, or items of it: attached devices are detached first. Answers the lease that is returned."""
        ids = values.get("item_ids")
        items = None if ids is None else list(LeaseItem.objects.filter(lease=lease, pk__in=ids))
        if items is not None and len(items) != len(set(ids or ())):
            raise NotFound("The lease does not hold all of that.")
        return lease_return(person=self.person, lease=lease, items=items)


class LeaseDecisionViewSet(LeaseViewSet):
    """Decisions of administrators about a lease."""

    permission_classes = ADMINISTRATORS

    @command(ApprovalSerializer, audited_as=Action.LEASE_APPROVE, conflict=NOT_AVAILABLE)
    def approve(self, lease: Lease, values: dict[str, Any]) -> Lease:
        """Approve a request with these parts; they are granted immediately if it starts now. Administrators only."""
        return lease_approve(person=self.person, lease=lease, **_with_parts(values))

    @command(ReasonSerializer, audited_as=Action.LEASE_DECLINE, conflict="It was decided")
    def decline(self, lease: Lease, values: dict[str, Any]) -> Lease:
        """Decline a request; administrators only."""
        return lease_decline(person=self.person, lease=lease, reason=values["reason"])

    @command(ReasonSerializer, audited_as=Action.LEASE_EXTENSION_DECLINE, conflict="No extension is requested")
    def decline_extension(self, lease: Lease, values: dict[str, Any]) -> Lease:
        """Decline a requested extension: the lease keeps its end. Administrators only."""
        return lease_extension_decline(person=self.person, lease=lease, reason=values["reason"])


class LeaseCalendar(APIView):
    """The calendar of leases."""

    @extend_schema(
        operation_id="leases_calendar_list",
        parameters=[
            OpenApiParameter("from", OpenApiTypes.DATE, description="The first day; today without it"),
            OpenApiParameter("step", str, enum=["days", "weeks"], description="14 days, or 12 weeks"),
            OpenApiParameter("chassis_id", OpenApiTypes.INT64, description="Keeps what belongs to this chassis"),
        ],
        responses=CalendarRowSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Show when devices and host ports are leased; those of other tenants are 'in use'."""
        text = request.query_params.get("from", "")
        first = parse_first_day(text) if text else timezone.now().date()
        if first is None:
            raise Invalid("'from' is no day that can be shown.", errors={"from": "Give one such as 2026-03-02."})
        shown = lease_calendar(
            person_of(request),
            first=first,
            span="weeks" if request.query_params.get("step") == "weeks" else "days",
            chassis=query_integer(request, "chassis_id"),
        )
        return Response(CalendarRowSerializer(shown.rows, many=True).data)


def _with_parts(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a body with its devices and host ports in the place of their ids."""
    devices = rows_by_id(Device, values.pop("device_ids"), "device")
    host_ports = rows_by_id(HostPort, values.pop("host_port_ids"), "host port")
    return {**values, "things": [*devices, *host_ports]}


def rows_by_id(model: Any, ids: list[int], what: str) -> list[Any]:
    """Return the rows of these ids; raises NotFound when one of them is missing."""
    rows = list(model.objects.filter(pk__in=ids))
    if missing := set(ids) - {row.pk for row in rows}:
        raise NotFound(f"There is no {what} {min(missing)}.")
    return rows


urlpatterns = [
    path("leases/", LeaseList.as_view(), name="leases"),
    path("leases/given/", LeaseGrant.as_view(), name="leases_given"),
    path("leases/calendar/", LeaseCalendar.as_view(), name="lease_calendar"),
    path("leases/<int:pk>/", LeaseViewSet.as_view({"get": "retrieve"}), name="lease"),
    path("leases/<int:pk>/approval/", LeaseDecisionViewSet.as_view({"post": "approve"}), name="lease_approval"),
    path("leases/<int:pk>/decline/", LeaseDecisionViewSet.as_view({"post": "decline"}), name="lease_decline"),
    path("leases/<int:pk>/withdrawal/", LeaseViewSet.as_view({"post": "withdraw"}), name="lease_withdrawal"),
    path("leases/<int:pk>/extension/", LeaseViewSet.as_view({"post": "extend"}), name="lease_extension"),
    path(
        "leases/<int:pk>/extension/decline/",
        LeaseDecisionViewSet.as_view({"post": "decline_extension"}),
        name="lease_extension_decline",
    ),
    path("leases/<int:pk>/return/", LeaseViewSet.as_view({"post": "return_items"}), name="lease_return"),
]
