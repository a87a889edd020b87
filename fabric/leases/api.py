"""Leases by the API: request, decide, grant, extend and return them; the calendar."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import ADMINISTRATORS, person_of
from accounts.api import tenant_by
from accounts.models import User
from core.api.fields import IdField, query_integer
from core.api.requests import StrictSerializer, problem, refuse_body, validated_body
from core.errors import Invalid, NotFound
from fabric.inventory.models import Device, HostPort
from fabric.leases.calendar import lease_calendar
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
    """So many things of a kind, of one chassis or of any."""

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
    """A lease; `ends_at` null is until further notice, `extension_to` the end that is asked for instead."""

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
        """Return what it was asked for."""
        return [{"kind": one.kind, "count": one.count, "chassis_id": one.chassis} for one in requested_parts(lease)]


class LeaseDetailSerializer(LeaseSerializer):
    """A lease with its timeline, and the quotas that a request would pass."""

    events = LeaseEventSerializer(many=True, source="events.all")
    quota = serializers.SerializerMethodField(help_text="A sentence for each quota that the request would pass")

    def get_quota(self, lease: Lease) -> list[str]:
        """Return what the quotas say of a request that waits."""
        if lease.tenant is None or lease.state != Lease.State.REQUESTED:
            return []
        return request_objections(lease.tenant, requested_parts(lease), lease.starts_at, lease.ends_at, but=lease)


class LeaseRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What your tenant asks for; without `starts_at` as soon as it is approved, without `ends_at` until further notice.

    Who may not ask for so long is told so by `quota` of the answer: an administrator decides.
    """

    wishes = WishSerializer(many=True)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class ThingsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What a lease is to hold and when; `override` lets it pass a quota."""

    device_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES, required=False, default=list)
    host_port_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES, required=False, default=list)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField(allow_null=True)
    override = serializers.BooleanField(required=False, default=False)


class ApprovalSerializer(ThingsSerializer):
    """An approval; `reason` is read by the tenant."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class GivenSerializer(ThingsSerializer):
    """A lease that is given unasked."""

    tenant_id = IdField()
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class ReasonSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A word to the tenant."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)


class EndSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Another end (null, by administrators only: until further notice), with a word about it."""

    ends_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_TEXT_LENGTH)
    override = serializers.BooleanField(required=False, default=False)


class ReturnSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What of a lease is returned, by the ids of its items; all without them."""

    item_ids = serializers.ListField(child=IdField(), max_length=MAX_DEVICES, required=False, allow_null=True)


class BlockSerializer(serializers.Serializer[Any]):
    """A time in which something is held; without a lease's id it is somebody else's: 'in use'."""

    lease_id = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    state = serializers.CharField()
    starts_at = serializers.DateTimeField(source="span.begin")
    ends_at = serializers.DateTimeField(source="span.end", allow_null=True)


class CalendarRowSerializer(serializers.Serializer[Any]):
    """A slot, device or host port with the times in which it is held; none: it is free."""

    place = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    about = serializers.CharField()
    blocks = BlockSerializer(many=True)


NOT_AVAILABLE = "Another lease needs some of it then, a quota would be passed (`quota`), or it was decided already"


class LeaseList(generics.ListAPIView[Any]):
    """Leases; POST asks for one."""

    serializer_class = LeaseSerializer

    def get_queryset(self) -> Any:
        """Return what the person may see."""
        if getattr(self, "swagger_fake_view", False):
            return Lease.objects.none()
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

    @extend_schema(request=LeaseRequestSerializer, responses={201: LeaseDetailSerializer}, examples=[REQUEST_EXAMPLE])
    def post(self, request: Request) -> Response:
        """Ask for a lease for your tenant; an administrator decides."""
        values = validated_body(LeaseRequestSerializer, request)
        lease = lease_request(
            person=person_of(request),
            wishes=[RequestedParts(one["kind"], one["count"], one["chassis_id"]) for one in values["wishes"]],
            starts_at=values["starts_at"],
            ends_at=values["ends_at"],
            note=values["note"],
        )
        return _answer(request, lease, status=201)


class LeaseGrant(APIView):
    """Leases that administrators give unasked."""

    permission_classes = ADMINISTRATORS

    @extend_schema(request=GivenSerializer, responses={201: LeaseDetailSerializer, 409: problem(NOT_AVAILABLE)})
    def post(self, request: Request) -> Response:
        """Give a tenant a lease; administrators only."""
        values = validated_body(GivenSerializer, request)
        lease = lease_give(
            person=person_of(request),
            tenant=tenant_by(values["tenant_id"]),
            things=_leased_things(values),
            starts_at=values["starts_at"],
            ends_at=values["ends_at"],
            note=values["note"],
            override=values["override"],
        )
        return _answer(request, lease, status=201)


class LeaseDetail(APIView):
    """One lease."""

    @extend_schema(operation_id="leases_retrieve", responses=LeaseDetailSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a lease with its timeline."""
        return _answer(request, _lease(person_of(request), pk))


class LeaseApproval(APIView):
    """The approval of a request."""

    permission_classes = ADMINISTRATORS

    @extend_schema(request=ApprovalSerializer, responses={200: LeaseDetailSerializer, 409: problem(NOT_AVAILABLE)})
    def post(self, request: Request, pk: int) -> Response:
        """Approve a request with these things; what starts now is the tenant's at once. Administrators only."""
        person = person_of(request)
        values = validated_body(ApprovalSerializer, request)
        lease = lease_approve(
            person=person,
            lease=_lease(person, pk),
            things=_leased_things(values),
            starts_at=values["starts_at"],
            ends_at=values["ends_at"],
            reason=values["reason"],
            override=values["override"],
        )
        return _answer(request, lease)


class LeaseDecline(APIView):
    """The refusal of a request."""

    permission_classes = ADMINISTRATORS

    @extend_schema(request=ReasonSerializer, responses={200: LeaseDetailSerializer, 409: problem("It was decided")})
    def post(self, request: Request, pk: int) -> Response:
        """Decline a request; administrators only."""
        person = person_of(request)
        reason = validated_body(ReasonSerializer, request)["reason"]
        return _answer(request, lease_decline(person=person, lease=_lease(person, pk), reason=reason))


class LeaseWithdrawal(APIView):
    """What is taken back before it starts."""

    @extend_schema(request=None, responses={200: LeaseDetailSerializer, 409: problem("It has started, or is over")})
    def post(self, request: Request, pk: int) -> Response:
        """Withdraw a request, or a lease that has not started."""
        person = person_of(request)
        lease = _lease(person, pk)
        refuse_body(request)
        return _answer(request, lease_withdraw(person=person, lease=lease))


class LeaseExtension(APIView):
    """Another end of a lease."""

    @extend_schema(request=EndSerializer, responses={200: LeaseDetailSerializer, 409: problem(NOT_AVAILABLE)})
    def post(self, request: Request, pk: int) -> Response:
        """Ask for a later end of your tenant's lease; an administrator sets the end at once."""
        person = person_of(request)
        lease = _lease(person, pk)
        values = validated_body(EndSerializer, request)
        if person.is_administrator:
            done = lease_extend(
                person=person,
                lease=lease,
                ends_at=values["ends_at"],
                reason=values["note"],
                override=values["override"],
            )
            return _answer(request, done)
        if values["ends_at"] is None:
            raise Invalid("Give an end to ask for.", errors={"ends_at": "Give a day and a time."})
        done = lease_extension_request(person=person, lease=lease, ends_at=values["ends_at"], note=values["note"])
        return _answer(request, done)


class LeaseExtensionDecline(APIView):
    """The refusal of another end."""

    permission_classes = ADMINISTRATORS

    @extend_schema(request=ReasonSerializer, responses={200: LeaseDetailSerializer, 409: problem("Nobody asks for it")})
    def post(self, request: Request, pk: int) -> Response:
        """Let a lease keep its end although another was asked for; administrators only."""
        person = person_of(request)
        reason = validated_body(ReasonSerializer, request)["reason"]
        return _answer(request, lease_extension_decline(person=person, lease=_lease(person, pk), reason=reason))


class LeaseReturn(APIView):
    """The return of a lease before its end."""

    @extend_schema(request=ReturnSerializer, responses={202: LeaseDetailSerializer, 409: problem("It is not active")})
    def post(self, request: Request, pk: int) -> Response:
        """Return a lease, or some of it: what is attached is detached first. Answers the lease that returns it."""
        person = person_of(request)
        lease = _lease(person, pk)
        ids = validated_body(ReturnSerializer, request).get("item_ids")
        items = None if ids is None else list(LeaseItem.objects.filter(lease=lease, pk__in=ids))
        if items is not None and len(items) != len(set(ids or ())):
            raise NotFound("The lease does not hold all of that.")
        return _answer(request, lease_return(person=person, lease=lease, items=items), status=202)


class LeaseCalendar(APIView):
    """Who holds what when."""

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
        """Show when devices and host ports are held; what others hold is 'in use'."""
        shown = lease_calendar(
            person_of(request),
            first=_query_day(request.query_params.get("from", "")),
            step="weeks" if request.query_params.get("step") == "weeks" else "days",
            chassis=query_integer(request, "chassis_id"),
        )
        rows = [
            {"place": group.label, "label": row.label, "about": row.about, "blocks": row.blocks}
            for group in shown.groups
            for row in group.rows
        ]
        return Response(CalendarRowSerializer(rows, many=True).data)


def _answer(request: Request, lease: Lease, *, status: int = 200) -> Response:
    row = lease_rows(person_of(request)).prefetch_related("events").get(pk=lease.pk)
    address = request.build_absolute_uri(reverse("api:lease", args=[row.pk]))
    headers = {"Location": address} if status in {201, 202} else None
    return Response(LeaseDetailSerializer(row).data, status=status, headers=headers)


def _lease(person: User, pk: int) -> Lease:
    row: Lease | None = lease_rows(person).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such lease.")
    return row


def _leased_things(values: dict[str, Any]) -> list[Device | HostPort]:
    found: list[Device | HostPort] = []
    for model, name, what in ((Device, "device_ids", "device"), (HostPort, "host_port_ids", "host port")):
        wanted = set(values[name])
        rows = list(model.objects.filter(pk__in=wanted))
        if missing := wanted - {row.pk for row in rows}:
            raise NotFound(f"There is no {what} {min(missing)}.")
        found += rows
    return found


def _query_day(text: str) -> date:
    if not text:
        return timezone.now().date()
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not date(2000, 1, 1) <= day <= date(2200, 1, 1):
        raise Invalid("'from' is no day that can be shown.", errors={"from": "Give one such as 2026-03-02."})
    return day
