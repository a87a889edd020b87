"""Leases by the API: asked for, decided, given, extended and returned; what is held when, and for how long."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.models import User
from fabric.booking import Wish
from fabric.lease_calendar import calendar_of
from fabric.leases import lease_rows
from fabric.models import Device, HostPort, Lease, LeaseItem, Quota
from fabric.services.lease_ends import (
    lease_extend,
    lease_extension_decline,
    lease_extension_request,
    lease_return,
)
from fabric.services.leases import (
    lease_approve,
    lease_decline,
    lease_give,
    lease_request,
    lease_withdraw,
)
from fabric.services.quotas import Limits, quotas_set
from fabric.usage import month_label, months_shown, usage_of
from falconweb.api.bodies import refuse_body
from falconweb.api.fields import number
from falconweb.api.lease_schemas import (
    ASK,
    ApprovalSerializer,
    CalendarRowSerializer,
    EndSerializer,
    GivenSerializer,
    HeldSerializer,
    LeaseDetailSerializer,
    LeaseRequestSerializer,
    LeaseSerializer,
    LimitsSerializer,
    ReasonSerializer,
    ReturnSerializer,
)
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from falconweb.api.tenants import tenant_by
from falconweb.errors import Invalid, NotFound

OVER = "Another lease needs some of it then, a quota would be passed (`quota`), or it was decided already"


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
        return lease_rows(person_of(self.request), state=state, tenant=number(self.request, "tenant_id"))

    @extend_schema(
        parameters=[
            OpenApiParameter("state", str, enum=Lease.State.values, description="Keeps those in this state"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Keeps those of the tenant of this id"),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List leases, newest first: your tenant's, or all for administrators."""
        return super().get(request, *args, **kwargs)

    @extend_schema(request=LeaseRequestSerializer, responses={201: LeaseDetailSerializer}, examples=[ASK])
    def post(self, request: Request) -> Response:
        """Ask for a lease for your tenant; an administrator decides."""
        values = _read(LeaseRequestSerializer, request)
        lease = lease_request(
            person=person_of(request),
            wishes=[Wish(one["kind"], one["count"], one["chassis_id"]) for one in values["wishes"]],
            starts_at=values["starts_at"],
            ends_at=values["ends_at"],
            note=values["note"],
        )
        return _answer(request, lease, status=201)


class LeaseGiven(APIView):
    """Leases that administrators give unasked."""

    permission_classes = ADMINISTRATORS

    @extend_schema(request=GivenSerializer, responses={201: LeaseDetailSerializer, 409: problem(OVER)})
    def post(self, request: Request) -> Response:
        """Give a tenant a lease; administrators only."""
        values = _read(GivenSerializer, request)
        lease = lease_give(
            person=person_of(request),
            tenant=tenant_by(values["tenant_id"]),
            things=_things(values),
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

    @extend_schema(request=ApprovalSerializer, responses={200: LeaseDetailSerializer, 409: problem(OVER)})
    def post(self, request: Request, pk: int) -> Response:
        """Approve a request with these things; what starts now is the tenant's at once. Administrators only."""
        person = person_of(request)
        values = _read(ApprovalSerializer, request)
        lease = lease_approve(
            person=person,
            lease=_lease(person, pk),
            things=_things(values),
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
        reason = _read(ReasonSerializer, request)["reason"]
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

    @extend_schema(request=EndSerializer, responses={200: LeaseDetailSerializer, 409: problem(OVER)})
    def post(self, request: Request, pk: int) -> Response:
        """Ask for a later end of your tenant's lease; an administrator sets the end at once."""
        person = person_of(request)
        lease = _lease(person, pk)
        values = _read(EndSerializer, request)
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
        reason = _read(ReasonSerializer, request)["reason"]
        return _answer(request, lease_extension_decline(person=person, lease=_lease(person, pk), reason=reason))


class LeaseReturn(APIView):
    """The return of a lease before its end."""

    @extend_schema(request=ReturnSerializer, responses={202: LeaseDetailSerializer, 409: problem("It is not active")})
    def post(self, request: Request, pk: int) -> Response:
        """Return a lease, or some of it: what is attached is detached first. Answers the lease that returns it."""
        person = person_of(request)
        lease = _lease(person, pk)
        ids = _read(ReturnSerializer, request).get("item_ids")
        items = None if ids is None else list(LeaseItem.objects.filter(lease=lease, pk__in=ids))
        if items is not None and len(items) != len(set(ids or ())):
            raise NotFound("The lease does not hold all of that.")
        return _answer(request, lease_return(person=person, lease=lease, items=items), status=202)


class Usage(APIView):
    """Hours held."""

    @extend_schema(
        operation_id="usage_list",
        parameters=[
            OpenApiParameter("since", str, description="The first month, such as 2026-03; five before the last one"),
            OpenApiParameter("until", str, description="The last month; the present one without it"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Keeps what the tenant of this id held"),
        ],
        responses=HeldSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Show how long what was held, by tenant, kind and month (UTC): your tenant's, or all for administrators."""
        asked = request.query_params
        first, last = months_shown(asked.get("since", ""), asked.get("until", ""))
        for name, month in (("since", first), ("until", last)):
            if asked.get(name) and asked[name] != month_label(month):
                raise Invalid(f"'{name}' is no month that can be shown.", errors={name: "Give one such as 2026-03."})
        held = usage_of(person_of(request), first, last, tenant=number(request, "tenant_id"))
        return Response(HeldSerializer(held, many=True).data)


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
        shown = calendar_of(
            person_of(request),
            first=_day(request.query_params.get("from", "")),
            step="weeks" if request.query_params.get("step") == "weeks" else "days",
            chassis=number(request, "chassis_id"),
        )
        rows = [
            {"place": group.label, "label": row.label, "about": row.about, "blocks": row.blocks}
            for group in shown.groups
            for row in group.rows
        ]
        return Response(CalendarRowSerializer(rows, many=True).data)


class TenantQuotas(APIView):
    """How much a tenant may hold."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_quotas_retrieve", responses=LimitsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show the limits of a tenant; kinds without one are left out. Administrators only."""
        return Response(LimitsSerializer({"limits": Quota.objects.filter(tenant=tenant_by(pk))}).data)

    @extend_schema(
        operation_id="tenants_quotas_update",
        request=LimitsSerializer,
        responses={200: LimitsSerializer},
    )
    def put(self, request: Request, pk: int) -> Response:
        """Let these be all limits of a tenant; what it holds already is not touched. Administrators only."""
        tenant = tenant_by(pk)
        wanted = _read(LimitsSerializer, request)["limits"]
        limits = {one["kind"]: Limits(one["most_at_once"], one["most_hours_a_month"]) for one in wanted}
        quotas_set(person=person_of(request), tenant=tenant, limits=limits)
        return Response(LimitsSerializer({"limits": Quota.objects.filter(tenant=tenant)}).data)


def _read(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    wanted = serializer(data=request.data)
    wanted.is_valid(raise_exception=True)
    values: dict[str, Any] = wanted.validated_data
    return values


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


def _things(values: dict[str, Any]) -> list[Device | HostPort]:
    found: list[Device | HostPort] = []
    for model, name, what in ((Device, "device_ids", "device"), (HostPort, "host_port_ids", "host port")):
        wanted = set(values[name])
        rows = list(model.objects.filter(pk__in=wanted))
        if missing := wanted - {row.pk for row in rows}:
            raise NotFound(f"There is no {what} {min(missing)}.")
        found += rows
    return found


def _day(text: str) -> date:
    if not text:
        return timezone.now().date()
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not date(2000, 1, 1) <= day <= date(2200, 1, 1):
        raise Invalid("'from' is no day that can be shown.", errors={"from": "Give one such as 2026-03-02."})
    return day
