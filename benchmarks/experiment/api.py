"""The published experiment by the API: verdicts on its observations, and its figures as data."""

from __future__ import annotations

from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from benchmarks.experiment.published import CONFIGURATIONS, WORKLOADS, PublishedWorkload
from benchmarks.experiment.selectors import (
    RenderedExperimentFigure,
    experiment_figure,
    experiment_figures,
    experiment_runs,
    observation_verdicts,
)
from benchmarks.figures.api import ChartSerializer
from benchmarks.figures.presentation import chart_json
from benchmarks.simulation.observations import SimulatedObservation
from core.api.requests import strict_schema
from core.api.serializers import dataclass_serializer

PublishedWorkloadSerializer = dataclass_serializer(
    PublishedWorkload, "PublishedWorkload", title=serializers.CharField()
)


SimulatedObservationSerializer = dataclass_serializer(SimulatedObservation, "SimulatedObservation")


class JudgedObservationSerializer(serializers.Serializer[Any]):
    """An observation: what was published, how it is read, what is predicted (`value` with its 90 % interval)."""

    key = serializers.CharField(source="judged.observation.key")
    published = serializers.CharField(source="judged.observation.published")
    read_as = serializers.CharField(source="judged.observation.reading")
    predicted = serializers.CharField(source="judged.predicted")
    value = serializers.FloatField(source="judged.value")
    low = serializers.FloatField(source="judged.low", allow_null=True)
    high = serializers.FloatField(source="judged.high", allow_null=True)
    holds = serializers.BooleanField(source="judged.holds")
    fitted = serializers.BooleanField(
        source="judged.fitted", help_text="Whether the model was fitted to it; else its authors had seen it"
    )
    simulated = SimulatedObservationSerializer(allow_null=True, help_text="Null where the simulation cannot show it")


class ExperimentFigureSerializer(serializers.Serializer[Any]):
    """A published table or figure, made anew: its charts, and the keys of what was observed in it."""

    name = serializers.CharField()
    number = serializers.CharField()
    title = serializers.CharField()
    observations = serializers.ListField(child=serializers.CharField())
    charts = ChartSerializer(many=True)


class ExperimentSerializer(serializers.Serializer[Any]):
    """The published experiment: workloads, configurations, observations with verdicts, and figures in their order."""

    workloads = PublishedWorkloadSerializer(many=True)
    configurations = serializers.DictField(child=serializers.CharField())
    observations = JudgedObservationSerializer(many=True)
    figures = ExperimentFigureSerializer(many=True)


class PublishedExperiment(APIView):
    """The published experiment."""

    @strict_schema(operation_id="experiment_retrieve", responses=ExperimentSerializer)
    def get(self, request: Request) -> Response:
        """Show it: each mark is published, predicted, simulated, or of runs that you may see."""
        runs = experiment_runs(person_of(request))
        plain = ExperimentSerializer(
            {
                "workloads": WORKLOADS,
                "configurations": CONFIGURATIONS,
                "observations": observation_verdicts(),
                "figures": [],
            }
        ).data
        return Response({**plain, "figures": [_figure_json(one) for one in experiment_figures(runs)]})


class ExperimentFigureDetail(APIView):
    """One of its figures."""

    @strict_schema(operation_id="experiment_figure_retrieve", responses=ExperimentFigureSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Show one figure: 'table-4', or 'figure-9' to 'figure-16'."""
        return Response(_figure_json(experiment_figure(slug, experiment_runs(person_of(request)))))


def _figure_json(drawing: RenderedExperimentFigure) -> dict[str, Any]:
    return {
        "name": drawing.entry.slug,
        "number": drawing.entry.number,
        "title": drawing.entry.title,
        "observations": [one.judged.observation.key for one in drawing.verdicts],
        "charts": [chart_json(chart) for chart in drawing.charts],
    }


urlpatterns = [
    path("benchmarks/experiment/", PublishedExperiment.as_view(), name="experiment"),
    path("benchmarks/experiment/<slug:slug>/", ExperimentFigureDetail.as_view(), name="experiment_figure"),
]
