"""API of recommendations: a request is answered at once; a candidate becomes a plan or a run."""

from __future__ import annotations

from typing import Any

from django.urls import path, reverse
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from benchmarks.model.prediction import StepTerm
from benchmarks.recommend.answer import recommend
from benchmarks.recommend.reports import recommendation_json
from benchmarks.recommend.request import (
    DEFAULT_SAMPLES,
    MAX_BATCHES,
    MAX_EPOCHS,
    MAX_SAMPLES,
    OBJECTIVE_LABELS,
    parse_recommendation_request,
)
from benchmarks.recommend.selectors import recommendation_pool
from benchmarks.recommend.services import recommendation_plan_create, recommendation_run_create
from benchmarks.runs.results import observations
from core.api.fields import IDEMPOTENCY_KEY, IdField, idempotency_key
from core.api.requests import StrictSerializer, problem, validated_body
from core.api.serializers import dataclass_serializer

# What the same three words mean of GPUs and of drives.
GPU_CHOICES = [("any", "all"), ("local", "the host's own"), ("chassis", "of chassis")]
DRIVE_CHOICES = [("local", "the host's own"), ("any", "any drive"), ("chassis", "of a chassis")]
RECOMMENDATION_EXAMPLE = OpenApiExample(
    "Where BERT-large trains with the least energy on at most eight GPUs within a day",
    value={
        "workload": "bert_large",
        "preset": "paper",
        "samples": 177000,
        "objective": "energy",
        "precisions": ["fp32", "fp16"],
        "limits": {"most_devices": 8, "most_hours": 24},
    },
    request_only=True,
)


class RecommendationLimitsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """Constraints; what is left out is none. Those on time and energy hold with a probability of 90 %."""

    least_devices = serializers.IntegerField(min_value=1, max_value=1024, required=False)
    most_devices = serializers.IntegerField(min_value=1, max_value=1024, required=False)
    host_ids = serializers.ListField(child=IdField(), max_length=1000, required=False)
    models = serializers.ListField(
        child=serializers.CharField(max_length=100), max_length=100, required=False,
        help_text="Of GPUs, as the BMC, the agent or the vendor writes them, or a part of the name: V100",
    )  # fmt: skip
    most_hours = serializers.FloatField(min_value=1e-9, max_value=1e9, required=False)
    most_kwh = serializers.FloatField(
        min_value=1e-9, max_value=1e9, required=False, help_text="Of GPUs, host and chassis"
    )
    most_watts = serializers.FloatField(
        min_value=1e-9, max_value=1e9, required=False, help_text="Of all GPUs together, by their data sheets"
    )
    keep_attached = serializers.BooleanField(required=False, help_text="What is attached stays where it is")
    storage = serializers.ChoiceField(
        choices=DRIVE_CHOICES, required=False, help_text="Where data lies; by default local"
    )
    gpus = serializers.ChoiceField(choices=GPU_CHOICES, required=False, help_text="Whose GPUs; by default any")
    same_mode = serializers.BooleanField(required=False, help_text="No drawer changes its mode")
    one_model = serializers.BooleanField(required=False)
    one_place = serializers.BooleanField(required=False, help_text="All GPUs below one switch, or all the host's own")


class RecommendationSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A request. `spec` has what differs from the preset; the number of devices is part of the answer."""

    workload = serializers.CharField(max_length=40)
    preset = serializers.ChoiceField(choices=["tiny", "paper", "custom"], required=False)
    spec = serializers.DictField(required=False)
    samples = serializers.FloatField(
        min_value=1e-9,
        max_value=MAX_SAMPLES,
        required=False,
        help_text=f"The job's work, of each epoch; by default {DEFAULT_SAMPLES:.0f}",
    )
    objective = serializers.ChoiceField(choices=list(OBJECTIVE_LABELS), required=False)
    precisions = serializers.ListField(
        child=serializers.ChoiceField(choices=["fp32", "fp16", "bf16"]), max_length=3, required=False
    )
    strategies = serializers.ListField(
        child=serializers.ChoiceField(choices=["single", "dp", "ddp", "sharded"]), max_length=4, required=False
    )
    batches = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=10**6), max_length=MAX_BATCHES, required=False
    )
    global_batch = serializers.IntegerField(min_value=1, max_value=10**6, required=False)
    epochs = serializers.IntegerField(
        min_value=1, max_value=MAX_EPOCHS, required=False, help_text="Each ends with a whole step; by default 1"
    )
    limits = RecommendationLimitsSerializer(required=False)


class AmountSerializer(serializers.Serializer[Any]):
    """A median with its 90 % interval."""

    median = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class TimePartsSerializer(serializers.Serializer[Any]):
    """The parts of the time, medians in s."""

    compose_seconds = serializers.FloatField()
    start_seconds = serializers.FloatField()
    train_seconds = serializers.FloatField()
    give_back_seconds = serializers.FloatField()


class EnergyPartsSerializer(serializers.Serializer[Any]):
    """The parts of the energy, medians in kWh; a chassis counts with an equal share for each used slot."""

    gpus_kwh = serializers.FloatField()
    host_kwh = serializers.FloatField()
    chassis_kwh = serializers.FloatField()


RecommendedTermSerializer = dataclass_serializer(StepTerm, "RecommendedTerm")


class AttachmentWantedSerializer(serializers.Serializer[Any]):
    """A device that a plan would attach; null: take from its host to make room."""

    device_id = serializers.IntegerField()
    host_port_id = serializers.IntegerField(allow_null=True)


class ModeWantedSerializer(serializers.Serializer[Any]):
    """A drawer whose mode a plan would change."""

    drawer_id = serializers.IntegerField()
    mode = serializers.CharField()


class CandidateSerializer(serializers.Serializer[Any]):
    """A way to run it. `basis` is measured, calibrated or prior; `composition` and `spec` make a run."""

    rank = serializers.IntegerField(allow_null=True)
    composition_words = serializers.CharField()
    variant = serializers.CharField(help_text="Precision, strategy, batch, accumulation, compilation and loaders")
    title = serializers.CharField(help_text="Of a plan or run of it")
    composition = serializers.DictField()
    spec = serializers.DictField()
    gpus = serializers.IntegerField()
    value = AmountSerializer(help_text="Of the objective, in `unit`")
    step_seconds = AmountSerializer()
    job_hours = AmountSerializer(help_text="From composing it to giving it back")
    steps = serializers.IntegerField(help_text="Whole steps of the job")
    time_parts = TimePartsSerializer()
    energy_parts = EnergyPartsSerializer()
    gpu_hours = AmountSerializer()
    energy_kwh = AmountSerializer(help_text="Of the GPUs, the host, and the share of the chassis")
    probability_of_being_best = serializers.FloatField()
    probability_of_being_near_the_best = serializers.FloatField(help_text="No other one saves more than 3 %")
    expected_regret = serializers.FloatField(help_text="Share of the cost of the best")
    basis = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())
    terms = RecommendedTermSerializer(many=True)
    pcie_bytes_per_second = serializers.FloatField()
    memory_bytes = serializers.FloatField(help_text="Of one device")
    attachments = AttachmentWantedSerializer(many=True, help_text="What a plan would change; empty: composed already")
    modes = ModeWantedSerializer(many=True)


class DecidingRunSerializer(serializers.Serializer[Any]):
    """The run that is expected to lower the regret of the choice most."""

    sentence = serializers.CharField()
    expected_regret_before = serializers.FloatField()
    expected_regret_after = serializers.FloatField()
    candidate = CandidateSerializer()


class WithoutSerializer(serializers.Serializer[Any]):
    """What there would be without a constraint."""

    constraint = serializers.CharField()
    sentence = serializers.CharField()


class ImpossibleSerializer(serializers.Serializer[Any]):
    """The constraints that cannot hold together; none: it is not for a constraint."""

    constraints = serializers.ListField(child=serializers.CharField())
    sentence = serializers.CharField()
    without = WithoutSerializer(many=True)


class AnswerSerializer(serializers.Serializer[Any]):
    """The recommendation; everything in it is predicted, even where measured runs were learned from."""

    sentence = serializers.CharField()
    objective = serializers.CharField()
    unit = serializers.CharField()
    abstains = serializers.BooleanField(help_text="The first ones overlap, and it matters")
    exact = serializers.BooleanField(help_text="All that the rules allow was compared")
    search = serializers.CharField()
    considered = serializers.IntegerField()
    compositions = serializers.IntegerField()
    runs_learned_from = serializers.IntegerField()
    provenance = serializers.CharField()
    candidates = CandidateSerializer(many=True)
    deciding_run = DecidingRunSerializer(allow_null=True)
    impossible = ImpossibleSerializer(allow_null=True)
    does_not_fit = serializers.ListField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField(), help_text="On GPU models without a data sheet")
    batch_not_divided_by = serializers.ListField(child=serializers.IntegerField())


class ComposeSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What a candidate changes: its `attachments` and `modes`."""

    attachments = serializers.ListField(child=serializers.DictField(), required=False, default=list, max_length=2000)
    modes = serializers.ListField(child=serializers.DictField(), required=False, default=list, max_length=2000)
    title = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)


class RunRecommendedSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A candidate's `spec` and `composition`, and the executor."""

    spec = serializers.DictField()
    composition = serializers.DictField()
    executor = serializers.ChoiceField(choices=["torch", "simulated"])
    title = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)


class MadeSerializer(serializers.Serializer[Any]):
    """What was made."""

    id = serializers.UUIDField()
    url = serializers.URLField()


class Recommendations(APIView):
    """Recommendations; nothing of them is kept."""

    @declare(audited_as=Action.RECOMMENDATION_ASK)
    @extend_schema(
        operation_id="benchmarks_recommend",
        request=RecommendationSerializer,
        responses={200: AnswerSerializer},
        examples=[RECOMMENDATION_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Recommend what to compose for a training job.

        It compares what is available to you now; nothing is changed.
        """
        person = person_of(request)
        given = validated_body(RecommendationSerializer, request)
        pool = recommendation_pool(person)
        found = recommend(pool, parse_recommendation_request(given, pool), observations(person))
        return Response(recommendation_json(pool, found))


class RecommendationPlan(APIView):
    """A candidate as a plan."""

    @declare(audited_as=Action.PLAN_CREATE)
    @extend_schema(
        operation_id="benchmarks_recommend_plan",
        request=ComposeSerializer,
        responses={201: MadeSerializer, 409: problem("Something requested is missing, or cannot be composed")},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Make a draft plan of what a candidate takes to compose: nothing is changed before it is applied."""
        person = person_of(request)
        values = validated_body(ComposeSerializer, request)
        plan = recommendation_plan_create(
            person=person,
            wanted={
                "attachments": {str(one.get("device_id")): one.get("host_port_id") for one in values["attachments"]},
                "modes": {str(one.get("drawer_id")): one.get("mode") for one in values["modes"]},
            },
            title=values["title"],
            idempotency_key=idempotency_key(request),
        )
        return _created(request, "api:plan", plan.pk)


class RecommendationRun(APIView):
    """A candidate as a run."""

    @declare(audited_as=Action.RUN_CREATE)
    @extend_schema(
        operation_id="benchmarks_recommend_run",
        request=RunRecommendedSerializer,
        responses={201: MadeSerializer, 409: problem("The host's agent does not report, or a rule forbids it")},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Run a candidate: it is composed by a plan, runs, is recorded, and its devices are restored."""
        person = person_of(request)
        values = validated_body(RunRecommendedSerializer, request)
        run = recommendation_run_create(
            person=person,
            spec=values["spec"],
            composition=values["composition"],
            executor=values["executor"],
            title=values["title"],
            idempotency_key=idempotency_key(request),
        )
        return _created(request, "api:run", run.pk)


def _created(request: Request, name: str, pk: Any) -> Response:
    address = request.build_absolute_uri(reverse(name, args=[pk]))
    return Response({"id": str(pk), "url": address}, status=201, headers={"Location": address})


urlpatterns = [
    path("benchmarks/recommendations/", Recommendations.as_view(), name="recommendations"),
    path("benchmarks/recommendations/plan/", RecommendationPlan.as_view(), name="recommendation_plan"),
    path("benchmarks/recommendations/run/", RecommendationRun.as_view(), name="recommendation_run"),
]
