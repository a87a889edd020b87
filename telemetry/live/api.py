"""Recent readings by the API."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from core.api.requests import problem
from core.errors import Invalid
from core.language import _
from telemetry.live.frames import RECENT_SECONDS
from telemetry.live.selectors import recent_readings, visible_series

READINGS_UNAVAILABLE = "The recent readings are not available now"


class SeriesSerializer(serializers.Serializer[Any]):
    """A series; `object` and `object_id` are what it is measured of, `key` is its name in requests."""

    key = serializers.CharField()
    object = serializers.ChoiceField(choices=["chassis", "drawer", "device", "port"])
    object_id = serializers.IntegerField(source="id")
    quantity = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    unit = serializers.CharField()


class RecentSerializer(serializers.Serializer[Any]):
    """Unix times in s, and for each key the values at these times, null where there was none."""

    at = serializers.ListField(child=serializers.FloatField())
    series = SeriesSerializer(many=True)
    values = serializers.DictField(child=serializers.ListField(child=serializers.FloatField(allow_null=True)))


class SeriesList(APIView):
    @extend_schema(responses={200: SeriesSerializer(many=True), 503: problem(READINGS_UNAVAILABLE)})
    def get(self, request: Request, pk: int) -> Response:
        """List the series of a chassis that you may see."""
        return Response(SeriesSerializer(visible_series(person_of(request), pk), many=True).data)


class RecentReadings(APIView):
    @extend_schema(
        responses={200: RecentSerializer, 503: problem(READINGS_UNAVAILABLE)},
        parameters=[
            OpenApiParameter("keys", str, description="Keys of series, comma-separated, at most 64", required=True),
            OpenApiParameter(
                "seconds",
                {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 600, "default": RECENT_SECONDS},
                description="How far back, at most 600",
            ),
        ],
    )
    def get(self, request: Request, pk: int) -> Response:
        """Show readings of the last minutes, one a second."""
        keys = [key for key in request.query_params.get("keys", "").split(",") if key]
        try:
            seconds = float(request.query_params.get("seconds", RECENT_SECONDS))
        except ValueError as error:
            raise Invalid(_("'seconds' is no number."), errors={"seconds": _("Give a number up to 600.")}) from error
        if not 0 < seconds <= RECENT_SECONDS:
            raise Invalid(_("'seconds' is not between 0 and 600."), errors={"seconds": _("Give a number up to 600.")})
        recent = recent_readings(person_of(request), pk, list(dict.fromkeys(keys)), seconds=seconds)
        return Response(RecentSerializer(recent).data)


urlpatterns = [
    path("chassis/<int:pk>/series/", SeriesList.as_view(), name="series"),
    path("chassis/<int:pk>/readings/", RecentReadings.as_view(), name="readings"),
]
