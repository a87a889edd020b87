"""Links by the API: their health, counters and states, and the reset of counters."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.visibility import visible_or_404
from core.api.fields import SEARCH, query_integer, query_search
from core.api.requests import problem, refuse_body, strict_schema
from core.errors import Invalid
from core.language import _
from fabric.inventory.api import CHASSIS_ID
from fabric.inventory.models import Port
from fabric.inventory.port_counters import port_reset_counters
from telemetry.links import selectors
from telemetry.links.counters import Direction
from telemetry.links.models import CounterReset
from telemetry.links.presentation import KIND_LABELS, LEVEL_LABELS, link_views

LEVEL_NAMES = [level.value for level in LEVEL_LABELS]
RESET_NOT_OFFERED = "The chassis offers no reset of the counters, or did not do it"
RESETS_SHOWN = 100
CHASSIS_UNREACHABLE = "The chassis did not answer"


class LinkReasonSerializer(serializers.Serializer[Any]):
    """A reason of a verdict; `code` is for programs."""

    code = serializers.CharField()
    verdict = serializers.ChoiceField(choices=LEVEL_NAMES, source="level")
    sentence = serializers.CharField()


class LinkSerializer(serializers.Serializer[Any]):
    """The link of a port: its verdict with the reasons, worst first, its state, and recent figures.

    Rates are events a second; `flaps` and `recoveries` are those of the last hour; `errors` sums all counters since the
    start of the watch, or of your lease. Speeds are Gb/s one way. `since` is the start of this verdict, `judged_at` the
    newest reading that it is based on; where `stale`, there was no reading since, or it could not be judged.
    """

    port_id = serializers.IntegerField(source="id")
    name = serializers.CharField()
    port_name = serializers.CharField()
    chassis_id = serializers.IntegerField()
    chassis_name = serializers.CharField()
    drawer_name = serializers.CharField()
    kind = serializers.CharField()
    device_id = serializers.IntegerField(allow_null=True)
    host_id = serializers.IntegerField(allow_null=True)
    tenant_name = serializers.CharField()
    verdict = serializers.ChoiceField(choices=LEVEL_NAMES, source="level")
    since = serializers.DateTimeField(allow_null=True)
    judged_at = serializers.DateTimeField(allow_null=True)
    stale = serializers.BooleanField(source="is_stale")
    reasons = LinkReasonSerializer(many=True)
    status = serializers.CharField()
    width = serializers.IntegerField(allow_null=True)
    max_width = serializers.IntegerField(allow_null=True)
    speed_gbps = serializers.FloatField(allow_null=True)
    max_speed_gbps = serializers.FloatField(allow_null=True)
    sent_again_per_second = serializers.FloatField(source="sent_rate")
    came_damaged_per_second = serializers.FloatField(source="received_rate")
    correctable_per_second = serializers.FloatField(source="correctable_rate")
    flaps = serializers.IntegerField()
    recoveries = serializers.IntegerField()
    errors = serializers.IntegerField()  # type: ignore[assignment]  # not the property of that name


class LinkCounterSerializer(serializers.Serializer[Any]):
    """An error counter: the value of the chassis' own counter, and the counts of the last hour and in total.

    For a tenant, each of them counts since the start of its lease.
    `direction` is of the packets, seen from the port: `received`, `sent`, or `both` where it is not specified.
    """

    name = serializers.CharField(source="counter.name")
    direction = serializers.ChoiceField(choices=[one.value for one in Direction], source="counter.direction")
    meaning = serializers.CharField(source="counter.meaning")
    now = serializers.IntegerField(allow_null=True)
    last_hour = serializers.IntegerField(source="hour")
    total = serializers.IntegerField()


class CounterResetSerializer(serializers.Serializer[Any]):
    """A reset of the counters: requested here (`asked`, with the person), by the `bmc`, or by its `reboot`."""

    at = serializers.DateTimeField()
    not_before = serializers.DateTimeField(allow_null=True)
    how = serializers.ChoiceField(choices=CounterReset.How.values)
    person_name = serializers.CharField()


class LinkDetailSerializer(LinkSerializer):
    """A link with its counters; their totals start at `counted_since` and continue over resets."""

    counters = LinkCounterSerializer(many=True)
    counted_since = serializers.DateTimeField(allow_null=True)
    reset_at = serializers.DateTimeField(allow_null=True)
    resets = CounterResetSerializer(many=True)


class LinkStateSerializer(serializers.Serializer[Any]):
    """A span in one state; `until` is null while it lasts. Times without readings are left out.

    `asked` is whether an operation of this site was changing the link at its start. A link that goes down and up too
    often has the status `Flapping`, and `drops` counts how often it went down.
    """

    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    status = serializers.CharField()
    width = serializers.IntegerField(allow_null=True)
    speed_gbps = serializers.FloatField(allow_null=True)
    asked = serializers.BooleanField()
    drops = serializers.IntegerField()


class LinkList(generics.GenericAPIView[Any]):
    """Links."""

    serializer_class = LinkSerializer

    def get_queryset(self) -> Any:
        return selectors.link_rows(person_of(self.request), _link_filter(self.request))

    @strict_schema(
        operation_id="links_list",
        parameters=[
            CHASSIS_ID,
            OpenApiParameter("drawer_id", OpenApiTypes.INT64, description="Keeps the links of the drawer of this id"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Keeps those of the tenant of this id"),
            OpenApiParameter("verdict", str, enum=LEVEL_NAMES, description="Keeps the links with this verdict"),
            OpenApiParameter(
                "kind", str, enum=list(KIND_LABELS), description="Keeps those with this kind of device at the far end"
            ),
            OpenApiParameter(
                "sort",
                str,
                enum=[*selectors.SORTS, *(f"-{name}" for name in selectors.SORTS)],
                default="verdict",
                description="What comes first: the worst, or, with '-' before it, the least",
            ),
            SEARCH,
        ],
        responses=LinkSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List links, worst first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(LinkSerializer(link_views(page), many=True).data)


class LinkDetail(APIView):
    @extend_schema(operation_id="links_retrieve", responses=LinkDetailSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a link with its counters and their resets."""
        return Response(_link_detail(request, pk))


class LinkStates(generics.GenericAPIView[Any]):
    serializer_class = LinkStateSerializer

    @strict_schema(operation_id="links_states_list", responses=LinkStateSerializer(many=True))
    def get(self, request: Request, pk: int) -> Response:
        """List the states of a link, newest first; a tenant's start with its lease."""
        person = person_of(request)
        port, _ = selectors.link_get(person, pk)
        visible_from = selectors.visible_since(person, port)
        page = self.paginate_queryset(selectors.state_spans(person, pk)) or []
        for span in page:
            span.since = selectors.span_begin(span, visible_from)
        return self.get_paginated_response(LinkStateSerializer(page, many=True).data)


class LinkCounterReset(APIView):
    @declare(audited_as=Action.PORT_COUNTERS)
    @extend_schema(
        operation_id="links_counter_reset",
        request=None,
        responses={200: LinkDetailSerializer, 409: problem(RESET_NOT_OFFERED), 503: problem(CHASSIS_UNREACHABLE)},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Reset the counters of the chassis to zero; for the owner of the link, and administrators. Totals continue."""
        person = person_of(request)
        port = visible_or_404(Port.objects.all(), person, pk, "link")
        refuse_body(request)
        port_reset_counters(person=person, port=port)
        return Response(_link_detail(request, pk))


def _link_detail(request: Request, pk: int) -> Any:
    person = person_of(request)
    port, view = selectors.link_get(person, pk)
    counted = selectors.port_counters(person, port)
    resets = selectors.counter_resets(person, port, most=RESETS_SHOWN)
    details = {"counters": counted.counters, "counted_since": counted.since, "reset_at": counted.reset_at}
    return LinkDetailSerializer({**vars(view), **details, "resets": resets}).data


def _link_filter(request: Request) -> selectors.LinkFilter:
    given = request.query_params
    verdict, kind, sort = given.get("verdict", ""), given.get("kind", ""), given.get("sort", "") or "verdict"
    errors = {}
    if verdict and verdict not in LEVEL_NAMES:
        errors["verdict"] = _("Give one of {choices}.", choices=", ".join(LEVEL_NAMES))
    if kind and kind not in KIND_LABELS:
        errors["kind"] = _("Give one of {choices}.", choices=", ".join(KIND_LABELS))
    if sort.removeprefix("-") not in selectors.SORTS:
        errors["sort"] = _("Give one of {choices}.", choices=", ".join(selectors.SORTS))
    if errors:
        raise Invalid(_("The filter is not valid."), errors=errors)
    return selectors.LinkFilter(
        chassis=query_integer(request, "chassis_id"),
        drawer=query_integer(request, "drawer_id"),
        tenant=query_integer(request, "tenant_id"),
        verdict=verdict,
        kind=kind,
        search=query_search(request),
        sort=sort,
    )


urlpatterns = [
    path("links/", LinkList.as_view(), name="links"),
    path("links/<int:pk>/", LinkDetail.as_view(), name="link"),
    path("links/<int:pk>/states/", LinkStates.as_view(), name="link_states"),
    path("links/<int:pk>/counter-reset/", LinkCounterReset.as_view(), name="link_counter_reset"),
]
