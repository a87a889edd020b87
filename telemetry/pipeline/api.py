"""The pipeline's own health by the API, for administrators."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.permissions import ADMINISTRATORS
from core.api.requests import problem
from telemetry.pipeline.rules import HealthLevel
from telemetry.pipeline.selectors import pipeline_status

LEVELS = [level.label for level in HealthLevel]


class FindingSerializer(serializers.Serializer[Any]):
    """A problem: label, meaning and advice."""

    level = serializers.ChoiceField(choices=LEVELS, source="level.label")
    words = serializers.CharField()
    means = serializers.CharField()
    do = serializers.CharField()


class ProcessSerializer(serializers.Serializer[Any]):
    """A process with a recent heartbeat; names of gauges end with their units."""

    name = serializers.CharField()
    kind = serializers.CharField()
    begun_at = serializers.DateTimeField(source="started_at")
    heard_at = serializers.DateTimeField(source="beat_at")
    gauges = serializers.DictField(child=serializers.FloatField())


class ChassisHealthSerializer(serializers.Serializer[Any]):
    """Health of a chassis' polling; counts are of the last minutes, `on_time` is a share of 0 to 1."""

    chassis_id = serializers.IntegerField(source="id")
    chassis_name = serializers.CharField(source="name")
    level = serializers.ChoiceField(choices=LEVELS, source="level.label")
    worker = serializers.CharField()
    period = serializers.FloatField(allow_null=True)
    lag = serializers.FloatField(allow_null=True)
    on_time = serializers.FloatField(allow_null=True)
    done = serializers.IntegerField()
    late = serializers.IntegerField()
    skipped = serializers.IntegerField()
    failed = serializers.IntegerField()
    sentence = serializers.CharField()


class CountSerializer(serializers.Serializer[Any]):
    """Bad input or a loss; `chassis_id` is null for the site as a whole."""

    name = serializers.CharField()
    words = serializers.CharField(source="meaning.words")
    chassis_id = serializers.IntegerField(allow_null=True)
    chassis_name = serializers.CharField()
    recent = serializers.IntegerField(source="counted.recent")
    total = serializers.IntegerField(source="counted.total")
    seen_at = serializers.DateTimeField(source="counted.seen_at", allow_null=True)
    means = serializers.CharField(source="meaning.means")
    do = serializers.CharField(source="meaning.do")


class WaitingSerializer(serializers.Serializer[Any]):
    """Undelivered items; `oldest_at` is since when the oldest waits, null for none."""

    what = serializers.CharField()
    count = serializers.IntegerField()
    oldest_at = serializers.DateTimeField(read_only=True, allow_null=True)


class TierSerializer(serializers.Serializer[Any]):
    """Size of a tier of stored readings."""

    tier = serializers.CharField()
    rows = serializers.IntegerField()
    chunks = serializers.IntegerField()
    bytes = serializers.IntegerField()


class SizesSerializer(serializers.Serializer[Any]):
    """Sizes in bytes; null where they are not available."""

    database = serializers.IntegerField(allow_null=True)
    readings = serializers.IntegerField(allow_null=True)
    disk_free = serializers.IntegerField(allow_null=True)
    disk = serializers.IntegerField(allow_null=True)
    tiers = TierSerializer(many=True)


class PipelineSerializer(serializers.Serializer[Any]):
    """The pipeline's health: problems and chassis, worst first; `recent` counts cover the last `seconds`."""

    level = serializers.ChoiceField(choices=LEVELS, source="level.label")
    findings = FindingSerializer(many=True)
    since = serializers.DateTimeField(source="pipeline.since")
    seconds = serializers.FloatField(source="pipeline.seconds")
    tasks_waiting = serializers.IntegerField(source="pipeline.queue")
    redis_bytes = serializers.IntegerField(source="pipeline.redis_bytes")
    sizes = SizesSerializer()
    processes = ProcessSerializer(source="pipeline.processes", many=True)
    chassis = ChassisHealthSerializer(many=True)
    counts = CountSerializer(source="rows", many=True)
    waiting = WaitingSerializer(many=True)


class PipelineHealth(APIView):
    permission_classes = ADMINISTRATORS

    @extend_schema(responses={200: PipelineSerializer, 503: problem("Redis does not answer")})
    def get(self, request: Request) -> Response:
        """Show how readings arrive: problems, processes, chassis, losses. Administrators only."""
        return Response(PipelineSerializer(pipeline_status(person_of(request))).data)


urlpatterns = [path("pipeline/", PipelineHealth.as_view(), name="pipeline")]
