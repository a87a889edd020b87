"""Figures of benchmarks by the API: the pages' charts as data, and runs side by side."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from benchmarks.figures.catalogue import TIME_SCALES, figure_availability
from benchmarks.figures.charts import Chart, ChartAxis, ChartBound, ChartLine, ChartMark
from benchmarks.figures.comparison import ComparedFact, ComparedResult, RelativeValue, compare_runs
from benchmarks.figures.presentation import chart_json, comparison_json
from benchmarks.figures.rows import MARK_SOURCES
from benchmarks.figures.selectors import (
    MAX_COMPARED,
    MAX_RUNS,
    MIN_COMPARED,
    OVERLAYS,
    RUN_STATES,
    parse_figure_query,
    render_figure,
    runs_to_compare,
    select_runs,
)
from benchmarks.runs.models import Run
from benchmarks.runs.selectors import EXECUTOR_LABELS
from core.api.requests import strict_schema
from core.api.serializers import dataclass_serializer
from core.errors import Invalid
from core.language import _
from hostwire.training import READINGS

RUN_PARAMETERS = [
    OpenApiParameter("run", OpenApiTypes.UUID, many=True, description=f"The runs of these ids, {MAX_RUNS} at most")
]
SELECTION_PARAMETERS = [
    *RUN_PARAMETERS,
    OpenApiParameter("sweep", OpenApiTypes.UUID, many=True, description="The completed runs of these sweeps"),
    OpenApiParameter("workload", str, many=True, description="Keeps runs of these workloads"),
    OpenApiParameter(
        "provenance", str, many=True, enum=Run.Provenance.values, description="Keeps runs whose figures come from there"
    ),
    OpenApiParameter("host", OpenApiTypes.INT64, many=True, description="Keeps runs on the hosts of these ids"),
    OpenApiParameter("q", str, description="Keeps runs with these words in their title, workload or error"),
    OpenApiParameter(
        "state", str, enum=list(RUN_STATES), description="Keeps runs in this state; completed ones without it"
    ),
    OpenApiParameter("executor", str, enum=list(EXECUTOR_LABELS), description="Keeps runs of this executor"),
    OpenApiParameter("person", str, description="Keeps runs that this person requested"),
    OpenApiParameter("since", str, description="Keeps runs that were queued since: a day, or a moment (UTC)"),
]
DRAWING_PARAMETERS = [
    OpenApiParameter("baseline", str, description="The baseline of relative times: one of `baselines`"),
    OpenApiParameter(
        "time", str, enum=list(TIME_SCALES), default="share", description="How the time of a run is shown"
    ),
    OpenApiParameter(
        "reading", str, enum=list(READINGS), default="utilisation", description="What is shown over a run"
    ),
    OpenApiParameter("with", str, many=True, enum=list(OVERLAYS), description="Overlays on runs, as separate marks"),
]


class OfferSerializer(serializers.Serializer[Any]):
    """A figure, and how many of the runs would be in it; `ready` where that makes sense."""

    name = serializers.CharField(source="entry.name")
    title = serializers.CharField(source="entry.title")
    about = serializers.CharField(source="entry.about")
    needs = serializers.CharField(source="entry.needs")
    options = serializers.ListField(source="entry.options", child=serializers.CharField())
    runs = serializers.IntegerField(source="count")
    ready = serializers.BooleanField(source="is_ready")


class FiguresSerializer(serializers.Serializer[Any]):
    """What can be drawn of some runs: `found` fit, the newest of them are used."""

    found = serializers.IntegerField()
    used = serializers.IntegerField()
    figures = OfferSerializer(many=True)


AxisSerializer = dataclass_serializer(ChartAxis, "Axis")
MarkSerializer = dataclass_serializer(
    ChartMark, "Mark", x=serializers.JSONField(help_text="A text, or a number where the axis has some")
)
FigureLineSerializer = dataclass_serializer(ChartLine, "FigureLine")
ChartSerializer = dataclass_serializer(
    Chart,
    "Chart",
    x=AxisSerializer(),
    y=AxisSerializer(),
    marks=MarkSerializer(many=True),
    lines=FigureLineSerializer(many=True),
    ideals=MarkSerializer(many=True),
    bounds=dataclass_serializer(ChartBound, "ChartBound")(many=True),
    provenances=serializers.ListField(child=serializers.ChoiceField(choices=list(MARK_SOURCES))),
)


class FigureSerializer(serializers.Serializer[Any]):
    """A figure: its charts, and sentences on all of them."""

    name = serializers.CharField()
    title = serializers.CharField()
    notes = serializers.ListField(child=serializers.CharField())
    charts = ChartSerializer(many=True)


class ComparedRunSerializer(serializers.Serializer[Any]):
    """One of the runs side by side."""

    id = serializers.CharField()
    title = serializers.CharField()
    workload = serializers.CharField()
    provenance = serializers.ChoiceField(choices=list(MARK_SOURCES))
    state = serializers.CharField()


FactSerializer = dataclass_serializer(
    ComparedFact, "Fact", part=serializers.CharField(), differs=serializers.BooleanField()
)
AgainstSerializer = dataclass_serializer(RelativeValue, "Against")
ResultSerializer = dataclass_serializer(
    ComparedResult, "Result", values=serializers.ListField(child=AgainstSerializer(allow_null=True))
)


class ComparisonSerializer(serializers.Serializer[Any]):
    """Runs side by side, in the requested order; ratios are to the first."""

    runs = ComparedRunSerializer(many=True)
    facts = FactSerializer(many=True)
    results = ResultSerializer(many=True)


class FigureList(APIView):
    """Which figures there are."""

    @strict_schema(operation_id="figure_list", parameters=SELECTION_PARAMETERS, responses=FiguresSerializer)
    def get(self, request: Request) -> Response:
        """List the figures that can be drawn of runs: by default of all that you may see."""
        selection = select_runs(person_of(request), parse_figure_query(request.query_params))
        found = {"found": selection.found, "used": len(selection.rows), "figures": figure_availability(selection.rows)}
        return Response(FiguresSerializer(found).data)


class FigureDetail(APIView):
    """One figure."""

    @strict_schema(
        operation_id="figure_retrieve",
        parameters=[*SELECTION_PARAMETERS, *DRAWING_PARAMETERS],
        responses=FigureSerializer,
    )
    def get(self, request: Request, name: str) -> Response:
        """Show a figure over runs: charts as data, with intervals, counts and provenance of each mark."""
        drawing = render_figure(person_of(request), name, parse_figure_query(request.query_params))
        charts = [chart_json(figure) for figure in drawing.figures]
        return Response({"name": name, "title": drawing.entry.title, "notes": list(drawing.notes), "charts": charts})


class RunComparison(APIView):
    """Runs side by side."""

    @strict_schema(operation_id="run_comparison_retrieve", parameters=RUN_PARAMETERS, responses=ComparisonSerializer)
    def get(self, request: Request) -> Response:
        """Show two to eight runs side by side: what differs, and what they came to against the first."""
        given = parse_figure_query(request.query_params)
        if not MIN_COMPARED <= len(given.runs) <= MAX_COMPARED:
            wanted = _("Give {least} to {most} ids of runs.", least=MIN_COMPARED, most=MAX_COMPARED)
            raise Invalid(_("So many runs cannot be compared."), errors={"run": wanted})
        return Response(comparison_json(compare_runs(runs_to_compare(person_of(request), given))))


urlpatterns = [
    path("benchmarks/figures/", FigureList.as_view(), name="figures"),
    path("benchmarks/figures/<slug:name>/", FigureDetail.as_view(), name="figure"),
    path("benchmarks/comparison/", RunComparison.as_view(), name="comparison"),
]
