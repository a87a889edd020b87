"""The pipeline's own health by the API: for administrators, like its page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.permissions import ADMINISTRATORS
from core.api.requests import problem
from telemetry.pipeline.rules import HealthLevel
from telemetry.pipeline.selectors import pipeline_status

LEVELS = [level.name.lower() for level in HealthLevel]


class LevelField(serializers.ChoiceField):
    """How bad something is, by its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(choices=LEVELS, **options)

    def to_representation(self, value: Any) -> str:
        """Return its name."""
        return HealthLevel(value).name.lower()


class FindingSerializer(serializers.Serializer[Any]):
    """Something that is wrong: what, what it means, what to do."""

    level = LevelField()
    words = serializers.CharField()
    means = serializers.CharField()
    do = serializers.CharField()


class ProcessSerializer(serializers.Serializer[Any]):
    """A process that was heard of late; what its gauges measure ends with its unit."""

    name = serializers.CharField()
    kind = serializers.CharField()
    begun_at = serializers.DateTimeField(source="begun")
    heard_at = serializers.DateTimeField(source="heard")
    gauges = serializers.DictField(child=serializers.FloatField())


class ChassisHealthSerializer(serializers.Serializer[Any]):
    """How a chassis is read; counts are of the last minutes, `on_time` is a share of 0 to 1."""

    chassis_id = serializers.IntegerField(source="id")
    chassis_name = serializers.CharField(source="name")
    level = LevelField()
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
    """Bad input, or what was lost; `chassis_id` is null for the site as a whole."""

    name = serializers.CharField()
    words = serializers.CharField()
    chassis_id = serializers.IntegerField(allow_null=True)
    chassis_name = serializers.CharField()
    recent = serializers.IntegerField(source="counted.recent")
    total = serializers.IntegerField(source="counted.total")
    seen_at = serializers.DateTimeField(source="counted.seen", allow_null=True)
    means = serializers.CharField(source="meaning.means")
    do = serializers.CharField(source="meaning.do")


class WaitingSerializer(serializers.Serializer[Any]):
    """What is not delivered yet."""

    what = serializers.CharField()
    count = serializers.IntegerField()
    oldest_at = serializers.SerializerMethodField()

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_oldest_at(self, waiting: Any) -> datetime | None:
        """Return since when the oldest waits, null where nothing does."""
        return waiting.oldest if waiting.count else None


class TierSerializer(serializers.Serializer[Any]):
    """How much is stored of a tier of readings."""

    tier = serializers.CharField()
    rows = serializers.IntegerField()
    chunks = serializers.IntegerField()
    bytes = serializers.IntegerField()


class SizesSerializer(serializers.Serializer[Any]):
    """Bytes; null where they cannot be told just now."""

    database = serializers.IntegerField(allow_null=True)
    readings = serializers.IntegerField(allow_null=True)
    disk_free = serializers.IntegerField(allow_null=True)
    disk = serializers.IntegerField(allow_null=True)
    tiers = TierSerializer(many=True)


class PipelineSerializer(serializers.Serializer[Any]):
    """The pipeline's health: what is wrong and each chassis worst first; `seconds` is how far `recent` goes back."""

    level = LevelField()
    findings = FindingSerializer(many=True)
    since = serializers.DateTimeField(source="pipeline.begun")
    seconds = serializers.FloatField(source="pipeline.seconds")
    tasks_waiting = serializers.IntegerField(source="pipeline.queue")
    redis_bytes = serializers.IntegerField(source="pipeline.redis_bytes")
    sizes = SizesSerializer()
    processes = ProcessSerializer(source="pipeline.processes", many=True)
    chassis = ChassisHealthSerializer(many=True)
    counts = CountSerializer(source="rows", many=True)
    waiting = WaitingSerializer(many=True)


class PipelineHealth(APIView):
    """The pipeline's own health."""

    permission_classes = ADMINISTRATORS

    @extend_schema(responses={200: PipelineSerializer, 503: problem("Redis does not answer")})
    def get(self, request: Request) -> Response:
        """Show how readings come in: what is wrong, processes, chassis, what was lost. Administrators only."""
        return Response(PipelineSerializer(pipeline_status(person_of(request))).data)


urlpatterns = [path("pipeline/", PipelineHealth.as_view(), name="pipeline")]
