"""Recorded readings over any range, and one's own dashboards, by the API."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.viewsets import ResourceViewSet, command
from core.api.fields import query_integer
from core.api.requests import StrictSerializer, problem, strict_schema, validated_body
from core.downloads import Download, csv_download
from core.errors import Invalid
from core.language import _
from telemetry.history import selectors, services
from telemetry.history.encoding import STATS, history_csv, history_json, raw_csv
from telemetry.history.heat_map import MAX_CELLS, heat_map, heat_map_json
from telemetry.history.models import Dashboard, DashboardPanel
from telemetry.history.rules import KINDS, MAX_SUBJECTS, METRICS, TimeRange, iso_utc, parse_subjects, range_between
from telemetry.history.subjects import search_subjects
from telemetry.history.throughput import SORTS, Flow, throughput_of

CSV = "text/csv"
MOMENT = "ISO 8601 (without an offset: UTC), Unix seconds, now, or how long ago, such as -6h (s, m, h, d, w, y)"
POINTS_SCHEMA = {"type": "integer", "minimum": 1, "maximum": selectors.MAX_POINTS}
RANGE_PARAMETERS = [
    OpenApiParameter("since", str, description=f"The begin: {MOMENT}; an hour before the end without it"),
    OpenApiParameter("until", str, description="The end, in the same way; now without it"),
]
SUBJECTS = OpenApiParameter(
    "subjects",
    str,
    required=True,
    description=(
        f"Subjects, comma-separated or repeated, at most {MAX_SUBJECTS}: device/3, slot/3, port/5, drawer/1, "
        "chassis/1, host/2, tenant/4, or one series by itself as series/<chassis id>/<key>"
    ),
)
SERIES_PARAMETERS = [
    SUBJECTS,
    OpenApiParameter(
        "metrics",
        str,
        description="Comma-separated or repeated; not for series. Each of each subject, at most "
        f"{selectors.MAX_LINES} lines. One of {', '.join(METRICS)}",
    ),
    *RANGE_PARAMETERS,
    OpenApiParameter(
        "points",
        {**POINTS_SCHEMA, "default": selectors.DEFAULT_POINTS},
        description=f"At most so many buckets a line, up to {selectors.MAX_POINTS}",
    ),
    OpenApiParameter("stats", str, enum=list(STATS), default="mean", description="band: low and high as well"),
]
TABLE_RESPONSE = OpenApiResponse(OpenApiTypes.STR, description="A table as CSV, formula-safe, streamed")


class PartSerializer(serializers.Serializer[Any]):
    """A series of the live catalogue that is part of a line now."""

    chassis_id = serializers.IntegerField()
    key = serializers.CharField()


class Numbers(serializers.ListField):
    """Numbers, one a bucket: whole ones exact, others with seven significant digits; null where there is none."""

    child = serializers.FloatField(allow_null=True)


class LineSerializer(serializers.Serializer[Any]):
    """A metric of a subject; `made_of` is the combination of several series in words, `combine` its rule.

    Of a sum and a mean, `low` and `high` are bounds; of the highest, `high` is exact.
    """

    subject = serializers.CharField()
    metric = serializers.CharField()
    name = serializers.CharField()
    place = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    unit = serializers.CharField()
    made_of = serializers.CharField()
    combine = serializers.ChoiceField(choices=["sum", "mean", "highest", "lowest"])
    parts = PartSerializer(many=True)
    mean = Numbers()
    low = Numbers(required=False)
    high = Numbers(required=False)


class GapSerializer(serializers.Serializer[Any]):
    """A span of time (Unix s) of which a chassis' readings are missing."""

    chassis_id = serializers.IntegerField()
    since = serializers.FloatField()
    until = serializers.FloatField()
    reason = serializers.CharField()


class LeftOutSerializer(serializers.Serializer[Any]):
    """A requested line without readings, and why."""

    subject = serializers.CharField()
    metric = serializers.CharField()
    why = serializers.CharField()


class HistorySerializer(serializers.Serializer[Any]):
    """Lines on one grid: `at` (Unix s) is the start of each bucket of `step` seconds."""

    since = serializers.FloatField()
    until = serializers.FloatField()
    step = serializers.FloatField()
    at = serializers.ListField(child=serializers.FloatField())
    series = LineSerializer(many=True)
    gaps = GapSerializer(many=True)
    left_out = LeftOutSerializer(many=True)


class SubjectSerializer(serializers.Serializer[Any]):
    """A subject of metrics; `ref` is its name in requests."""

    ref = serializers.CharField()
    kind = serializers.CharField()
    name = serializers.CharField()
    place = serializers.CharField()


class MetricSerializer(serializers.Serializer[Any]):
    """A metric; `groups` is whether it applies to a drawer, a chassis, a host or a tenant, by the rule `combine`."""

    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    unit = serializers.CharField()
    per = serializers.ChoiceField(choices=["device", "port"])
    combine = serializers.CharField()
    groups = serializers.BooleanField()


class CatalogueSerializer(serializers.Serializer[Any]):
    """The metrics and subjects of requests."""

    kinds = serializers.ListField(child=serializers.CharField())
    metrics = MetricSerializer(many=True)
    subjects = SubjectSerializer(many=True)


class HeatRowSerializer(serializers.Serializer[Any]):
    """A slot; °C."""

    slot_id = serializers.IntegerField()
    number = serializers.IntegerField()
    name = serializers.CharField()
    mean = Numbers()
    high = Numbers()


class HeatMapSerializer(serializers.Serializer[Any]):
    """Slots of a drawer on buckets of `step` seconds that start at `at` (Unix s)."""

    drawer_id = serializers.IntegerField()
    since = serializers.FloatField()
    until = serializers.FloatField()
    step = serializers.FloatField()
    at = serializers.ListField(child=serializers.FloatField())
    slots = HeatRowSerializer(many=True)
    gaps = GapSerializer(many=True)


class FlowSerializer(serializers.Serializer[Any]):
    """One direction: rates in B/s, bytes of the measured share of the range; null where nothing was measured."""

    mean = serializers.FloatField(allow_null=True)
    busiest = serializers.FloatField(allow_null=True)
    bytes = serializers.IntegerField(allow_null=True)
    measured = serializers.FloatField()

    def to_representation(self, flow: Flow) -> dict[str, float | None]:
        """Return its fields; NaN is null."""
        values = {name: None if math.isnan(value) else value for name, value in asdict(flow).items()}
        return values | {"bytes": None if math.isnan(flow.bytes) else round(flow.bytes)}


class CarriedSerializer(serializers.Serializer[Any]):
    """Throughput of a drawer or slot; `rx` is what its ports received from the devices."""

    kind = serializers.ChoiceField(choices=["drawer", "slot"])
    id = serializers.IntegerField()
    drawer = serializers.CharField()
    slot = serializers.CharField()
    device_id = serializers.IntegerField(allow_null=True, source="device.pk")
    rx = FlowSerializer()
    tx = FlowSerializer()


class ThroughputSerializer(serializers.Serializer[Any]):
    """Throughput of drawers and slots; `step` (s) is the width of the busiest bucket."""

    chassis_id = serializers.IntegerField(source="chassis.pk")
    since = serializers.FloatField(source="span.since")
    until = serializers.FloatField(source="span.until")
    step = serializers.FloatField()
    drawers = CarriedSerializer(many=True)
    slots = CarriedSerializer(many=True)


class Telemetry(APIView):
    @strict_schema(operation_id="telemetry_retrieve", parameters=SERIES_PARAMETERS, responses=HistorySerializer)
    def get(self, request: Request) -> HttpResponse:
        """Show metrics of subjects over a range; at the requested resolution."""
        stats = _stats(request)
        return HttpResponse(history_json(_history(request, stats), stats), content_type="application/json")


class TelemetryTable(APIView):
    @strict_schema(
        operation_id="telemetry_table_retrieve", parameters=SERIES_PARAMETERS, responses={(200, CSV): TABLE_RESPONSE}
    )
    def get(self, request: Request) -> Download:
        """Download metrics of subjects as CSV: the same as a table, a row a bucket."""
        stats = _stats(request)
        history = _history(request, stats)
        return _csv_download(history_csv(history, stats), "telemetry", history.span)


class TelemetryRaw(APIView):
    @strict_schema(
        operation_id="telemetry_raw_retrieve",
        parameters=[*SERIES_PARAMETERS[:2], *RANGE_PARAMETERS],
        responses={(200, CSV): TABLE_RESPONSE},
    )
    def get(self, request: Request) -> Download:
        """Download every reading of a range as CSV; within the retention of raw readings."""
        span = _span(request)
        return _csv_download(raw_csv(person_of(request), _subjects(request), _metrics(request), span), "readings", span)


class TelemetryCatalogue(APIView):
    @strict_schema(
        operation_id="telemetry_catalogue_retrieve",
        parameters=[
            OpenApiParameter("search", str, description="Keeps subjects whose name or place contains this text"),
            OpenApiParameter("chassis_id", OpenApiTypes.INT64, description="Keeps those of the chassis of this id"),
        ],
        responses=CatalogueSerializer,
    )
    def get(self, request: Request) -> Response:
        """List metrics, and the subjects that you may see: at most 200."""
        search, chassis = request.query_params.get("search", ""), query_integer(request, "chassis_id")
        found = search_subjects(person_of(request), search, chassis=chassis, most=200)
        known = {"kinds": [*KINDS, "series"], "metrics": list(METRICS.values()), "subjects": found}
        return Response(CatalogueSerializer(known).data)


class TelemetryHeatMap(APIView):
    @strict_schema(
        operation_id="telemetry_heat_map_retrieve",
        parameters=[
            OpenApiParameter("drawer_id", OpenApiTypes.INT64, required=True, description="Of which drawer"),
            *RANGE_PARAMETERS,
            OpenApiParameter("points", {**POINTS_SCHEMA, "default": MAX_CELLS}, description="At most so many buckets"),
        ],
        responses=HeatMapSerializer,
    )
    def get(self, request: Request) -> HttpResponse:
        """Show the temperatures of a drawer's slots; over a range, by default the last day."""
        drawer = _required_id(request, "drawer")
        given = request.query_params
        span = range_between(given.get("since", "-24h"), given.get("until", ""), now=time.time())
        found = heat_map(person_of(request), drawer, span, cells=_points(request, MAX_CELLS))
        return HttpResponse(heat_map_json(found), content_type="application/json")


class TelemetryThroughput(APIView):
    @strict_schema(
        operation_id="telemetry_throughput_retrieve",
        parameters=[
            OpenApiParameter("chassis_id", OpenApiTypes.INT64, required=True, description="Of which chassis"),
            *RANGE_PARAMETERS,
            OpenApiParameter("sort", str, enum=SORTS, description="Most first; by their place without it"),
        ],
        responses=ThroughputSerializer,
    )
    def get(self, request: Request) -> Response:
        """Show the throughput of the drawers and slots of a chassis."""
        chassis = _required_id(request, "chassis")
        sort = request.query_params.get("sort", "place")
        if sort not in SORTS:
            raise Invalid(
                _("It cannot be sorted so."), errors={"sort": _("One of {choices}.", choices=", ".join(SORTS))}
            )
        found = throughput_of(person_of(request), chassis, _span(request), sort=sort)
        return Response(ThroughputSerializer(found).data)


def _required_id(request: Request, kind: str) -> int:
    pk = query_integer(request, f"{kind}_id")
    if pk is None:
        raise Invalid(f"Of which {kind}?", errors={f"{kind}_id": f"Give the id of a {kind}."})
    return pk


def _history(request: Request, stats: Sequence[str]) -> selectors.MetricHistory:
    points = _points(request, selectors.DEFAULT_POINTS)
    return selectors.read_history(
        person_of(request), _subjects(request), _metrics(request), _span(request), points=points, band="low" in stats
    )


def _subjects(request: Request) -> list[str]:
    refs = parse_subjects(_comma_separated(request, "subjects"))
    if not refs:
        raise Invalid(_("Nothing is named."), errors={"subjects": _("Name at least one, such as device/3.")})
    return refs


def _metrics(request: Request) -> list[Any]:
    metrics = selectors.parse_metrics(_comma_separated(request, "metrics"))
    if not metrics and any(not one.startswith("series/") for one in _comma_separated(request, "subjects")):
        raise Invalid(_("No metric is named."), errors={"metrics": _("One of {choices}.", choices=", ".join(METRICS))})
    return metrics


def _comma_separated(request: Request, name: str) -> list[str]:
    return [part for text in request.query_params.getlist(name) for part in text.split(",") if part.strip()]


def _span(request: Request) -> TimeRange:
    given = request.query_params
    return range_between(given.get("since", ""), given.get("until", ""), now=time.time())


def _points(request: Request, usual: int) -> int:
    points = query_integer(request, "points")
    if points is not None and not 1 <= points <= selectors.MAX_POINTS:
        raise Invalid(
            _("So many points cannot be answered."),
            errors={"points": _("Give a number from 1 to {most}.", most=selectors.MAX_POINTS)},
        )
    return usual if points is None else points


def _stats(request: Request) -> tuple[str, ...]:
    name = request.query_params.get("stats", "mean")
    if name not in STATS:
        raise Invalid(
            _("There is no '{name}'.", name=name[:20]),
            errors={"stats": _("One of {choices}.", choices=", ".join(STATS))},
        )
    return STATS[name]


def _csv_download(lines: Iterator[str], name: str, span: TimeRange) -> Download:
    return csv_download(lines, f"{name}-{iso_utc(span.since).replace(':', '')}.csv")


DASHBOARD_TAKEN = "You have one of this name already, or as many as anybody may have"


class DashboardPanelSerializer(serializers.ModelSerializer[DashboardPanel]):
    """A view of the telemetry page on a dashboard."""

    class Meta:
        model = DashboardPanel
        fields = ["id", "title", "query", "follows"]


class DashboardSerializer(StrictSerializer, serializers.ModelSerializer[Dashboard]):
    """Panels under a name; `query` is the first one's view: what stands behind the '?' of the address of the charts."""

    id = serializers.IntegerField(read_only=True)
    query = serializers.CharField(max_length=4000, allow_blank=True)
    position = serializers.IntegerField(min_value=1, max_value=services.MAX_DASHBOARDS, required=False)
    panels = DashboardPanelSerializer(many=True, read_only=True)

    class Meta:
        model = Dashboard
        fields = ["id", "name", "query", "position", "shared", "panels", "saved_at"]


class OwnDashboardList(generics.ListAPIView[Dashboard]):
    """One's own dashboards; POST adds one."""

    serializer_class = DashboardSerializer

    def get_queryset(self) -> Any:
        return Dashboard.objects.filter(person=person_of(self.request)).prefetch_related("panels")

    @extend_schema(operation_id="me_dashboards_list")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List your dashboards in their order."""
        return super().get(request, *args, **kwargs)

    @declare(audited_as=Action.DASHBOARD_ADD)
    @extend_schema(request=DashboardSerializer, responses={201: DashboardSerializer, 409: problem(DASHBOARD_TAKEN)})
    def post(self, request: Request) -> Response:
        """Create a dashboard of one view, last or at a position."""
        made = services.dashboard_add(person=person_of(request), **validated_body(DashboardSerializer, request))
        return OwnDashboardViewSet(request=request).answer(made, 201)


class OwnDashboardViewSet(ResourceViewSet):
    model = Dashboard
    kind = "dashboard"
    serializer_class = DashboardSerializer
    address = "api:my_dashboard"

    def rows(self) -> Any:
        """Return one's own: those that others share are seen on pages only."""
        return Dashboard.objects.filter(person=self.person)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show one of your dashboards."""
        return self.answer(self.find_row(pk))

    @command(DashboardSerializer, audited_as=Action.DASHBOARD_CHANGE, partial=True, conflict=DASHBOARD_TAKEN)
    def partial_update(self, dashboard: Dashboard, values: dict[str, Any]) -> Dashboard:
        """Rename, move or share one of your dashboards."""
        return services.dashboard_change(person=self.person, pk=dashboard.pk, **values)

    @command(audited_as=Action.DASHBOARD_REMOVE, status=204)
    def destroy(self, dashboard: Dashboard, values: dict[str, Any]) -> None:
        """Remove one of your dashboards."""
        services.dashboard_remove(person=self.person, pk=dashboard.pk)


urlpatterns = [
    path("telemetry/", Telemetry.as_view(), name="telemetry"),
    path("telemetry/table/", TelemetryTable.as_view(), name="telemetry_table"),
    path("telemetry/raw/", TelemetryRaw.as_view(), name="telemetry_raw"),
    path("telemetry/catalogue/", TelemetryCatalogue.as_view(), name="telemetry_catalogue"),
    path("telemetry/heat-map/", TelemetryHeatMap.as_view(), name="telemetry_heat_map"),
    path("telemetry/throughput/", TelemetryThroughput.as_view(), name="telemetry_throughput"),
    path("me/dashboards/", OwnDashboardList.as_view(), name="my_dashboards"),
    path(
        "me/dashboards/<int:pk>/",
        OwnDashboardViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="my_dashboard",
    ),
]
