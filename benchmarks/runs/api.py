"""Benchmarks by the API: the catalogue of workloads, and runs."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import msgspec
from django.urls import path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.viewsets import ResourceViewSet, command
from benchmarks.model.infragraph import infragraph
from benchmarks.runs.documents import PlaceSerializer, RunRequestSerializer, composition_document, run_request
from benchmarks.runs.isolation import RESOURCE_LABELS, shown_overlaps
from benchmarks.runs.models import Run, Series
from benchmarks.runs.recording import NO_VALUES, downsample, log_read, series_of, series_values
from benchmarks.runs.rules import Composition
from benchmarks.runs.selectors import EXECUTOR_LABELS, SORT_FIELDS, STATE_GROUPS, RunFilter, run_get, run_list
from benchmarks.runs.services import run_cancel, run_create, run_delete, run_resume, run_retry, run_return
from benchmarks.runs.topology import recorded_topology
from benchmarks.workloads.catalogue import CATALOGUE
from core.api.fields import IDEMPOTENCY_KEY, LinkedId, LinkedText, idempotency_key, query_integer
from core.api.requests import problem, strict_schema, validated_body
from core.errors import Invalid, NotFound


class ParameterSerializer(serializers.Serializer[Any]):
    """A parameter of a workload."""

    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # a field, and an option of fields
    unit = serializers.CharField()
    default = serializers.JSONField()
    least = serializers.IntegerField()
    most = serializers.IntegerField()
    choices = serializers.ListField(child=serializers.JSONField())
    help = serializers.CharField()


class WorkloadSerializer(serializers.Serializer[Any]):
    """A workload of the catalogue; `presets` has for each what differs from a spec's defaults."""

    name = serializers.CharField()
    title = serializers.CharField()
    family = serializers.CharField()
    samples = serializers.CharField(help_text="What a batch counts")
    about = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field, and an option of fields
    data_set = serializers.CharField()
    depth = serializers.IntegerField()
    parameters = ParameterSerializer(many=True)
    presets = serializers.DictField(child=serializers.DictField())
    precisions = serializers.ListField(child=serializers.CharField())
    strategies = serializers.ListField(child=serializers.CharField())


class RunSerializer(serializers.ModelSerializer[Run]):
    """A run in short. Times are seconds; `results` has medians with the 5th and 95th percentile and their units."""

    host_id = LinkedId("host.pk")
    host_name = LinkedText("host.name")
    sweep_id = serializers.UUIDField(allow_null=True, read_only=True)
    results = serializers.DictField(read_only=True)
    overlapped = serializers.SerializerMethodField(
        help_text="Something else used its host, uplinks or switches meanwhile: the model does not learn from it"
    )

    class Meta:
        model = Run
        fields = [
            "id", "title", "state", "workload", "preset", "executor", "provenance", "host_id", "host_name", "spec_hash",
            "phase", "steps_done", "sentence", "trouble", "error", "exit_code", "results", "sweep_id",
            "requested_by_name", "queued_at", "begun_at", "started_at", "ended_at", "finished_at",
            "overlapped",
        ]  # fmt: skip

    def get_overlapped(self, run: Run) -> bool:
        return bool(run.overlaps)


class OverlapSerializer(serializers.Serializer[Any]):
    """What else used resources of a run; `run` is null for runs of others, which are one."""

    by = serializers.ChoiceField(
        choices=["run", "traffic", "gpus"], help_text="Of no run: traffic of other devices, work of GPUs of its host"
    )
    shared = serializers.ListField(child=serializers.ChoiceField(choices=list(RESOURCE_LABELS)))
    seconds = serializers.FloatField()
    run = serializers.UUIDField(allow_null=True)
    title = serializers.CharField()


class RunDetailSerializer(RunSerializer):
    """A run with its specification, where it runs, and what it ran on."""

    spec = serializers.DictField(read_only=True)
    topology = serializers.DictField(read_only=True)
    software = serializers.DictField(read_only=True)
    composition = serializers.SerializerMethodField()
    plan_id = serializers.UUIDField(allow_null=True, read_only=True)
    plan_back_id = serializers.UUIDField(allow_null=True, read_only=True)
    repeat_of_id = serializers.UUIDField(allow_null=True, read_only=True)
    exercise = serializers.DictField(read_only=True, help_text="How it ends badly on purpose; empty for all others")
    overlaps = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

    class Meta(RunSerializer.Meta):
        fields = [
            *RunSerializer.Meta.fields, "spec", "composition", "topology", "software", "limit_seconds", "keep_composed",
            "plan_id", "plan_back_id", "repeat_of_id", "cancel_requested_at", "exercise", "may_share",
            "overlaps", "links",
        ]  # fmt: skip

    @extend_schema_field(PlaceSerializer(allow_null=True))
    def get_composition(self, run: Run) -> dict[str, Any] | None:
        """Return its composition as a request has it; None for an imported run."""
        return composition_document(Composition.from_json(run.composition)) if run.composition else None

    @extend_schema_field(OverlapSerializer(many=True))
    def get_overlaps(self, run: Run) -> list[dict[str, Any]]:
        return [msgspec.structs.asdict(one) for one in shown_overlaps(person_of(self.context["request"]), run)]

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_links(self, run: Run) -> dict[str, str]:
        """Return where its series and its log are."""
        return {name: reverse(f"api:run_{name}", args=[run.pk]) for name in ("series", "log")}


class RunSeriesSerializer(serializers.Serializer[Any]):
    """A series of a run. `at` are Unix seconds; both are left out of a list, null stands for no value."""

    key = serializers.CharField()
    unit = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field, and an option of fields
    interval = serializers.FloatField(help_text="Seconds that a value is over; 0: of a moment")
    count = serializers.IntegerField()
    at = serializers.ListField(child=serializers.FloatField(), required=False)
    values = serializers.ListField(child=serializers.FloatField(allow_null=True), required=False)


class RunLogSerializer(serializers.Serializer[Any]):
    """A piece of a log, from byte `first` on; ask again from `next`."""

    first = serializers.IntegerField()
    next = serializers.IntegerField()
    text = serializers.CharField()
    more = serializers.BooleanField()


MAX_KEYS = 64
MAX_POINTS = 20_000
RUN_EXAMPLE = OpenApiExample(
    "ResNet-50 on two GPUs of a chassis, simulated",
    value={
        "workload": "resnet50",
        "preset": "paper",
        "spec": {"steps": 30},
        "composition": {"host_id": 1, "devices": [{"device_id": 1, "host_port_id": 1}]},
        "executor": "simulated",
    },
    request_only=True,
)
REFUSED_PROBLEM = problem(
    "The host's agent does not report, a device is missing, or a rule forbids it (`rule`, with `objections`)"
)


class WorkloadList(APIView):
    """The catalogue of workloads."""

    @extend_schema(operation_id="benchmarks_workloads", responses=WorkloadSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List what can be run, with its parameters and presets."""
        return Response(WorkloadSerializer(list(CATALOGUE.values()), many=True).data)


class RunList(generics.ListAPIView[Run]):
    """Runs; POST requests one."""

    serializer_class = RunSerializer

    def get_queryset(self) -> Any:
        given = self.request.query_params
        return run_list(person_of(self.request), RunFilter.of({**given.dict(), "q": given.get("search", "")}))

    @strict_schema(
        operation_id="benchmarks_runs_list",
        parameters=[
            OpenApiParameter("search", str, description="Keeps runs with these words in title, workload or error"),
            OpenApiParameter("workload", str, description="Keeps those of this workload"),
            OpenApiParameter("provenance", str, enum=Run.Provenance.values, description="Keeps those of this kind"),
            OpenApiParameter(
                "state", str, enum=[*Run.State.values, *STATE_GROUPS], description="Keeps those in this state"
            ),
            OpenApiParameter("host", OpenApiTypes.INT64, description="Keeps those on the host of this id"),
            OpenApiParameter("executor", str, enum=list(EXECUTOR_LABELS), description="Keeps those of this executor"),
            OpenApiParameter("sweep", OpenApiTypes.UUID, description="Keeps those of this sweep"),
            OpenApiParameter("person", str, description="Keeps those that this person asked for"),
            OpenApiParameter(
                "sort",
                str,
                enum=[sign + name for name in SORT_FIELDS for sign in ("", "-")],
                description="What they are ordered by; '-': the other way round",
            ),
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List runs, newest first: your tenant's, or all for administrators."""
        return super().get(request, *args, **kwargs)

    @declare(audited_as=Action.RUN_CREATE)
    @extend_schema(
        request=RunRequestSerializer,
        responses={202: RunDetailSerializer, 409: REFUSED_PROBLEM},
        parameters=[IDEMPOTENCY_KEY],
        examples=[RUN_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Request a run: it waits for its devices, attaches them, runs, restores them. `Location` has its address."""
        run = run_create(
            person=person_of(request),
            request=run_request(validated_body(RunRequestSerializer, request)),
            idempotency_key=idempotency_key(request),
        )
        return RunViewSet(request=request).answer(run, 202)


class RunViewSet(ResourceViewSet):
    """One run."""

    serializer_class = RunDetailSerializer
    address = "api:run"

    def find_row(self, pk: Any) -> Run:
        return run_get(self.person, pk)

    def answer(self, row: Run, status: int = 200) -> Response:
        return super().answer(self.find_row(row.pk), status)

    def retrieve(self, request: Request, pk: UUID) -> Response:
        """Show a run of a benchmark: its state, its results, and what it ran on."""
        return super().answer(self.find_row(pk))

    @command(audited_as=Action.RUN_DELETE, status=204, conflict="It has not ended")
    def destroy(self, run: Run, values: dict[str, Any]) -> None:
        """Delete a run that has ended, with its record.

        Yours, or any for administrators.
        """
        run_delete(person=self.person, run=run)

    @command(
        audited_as=Action.RUN_CANCEL,
        status=202,
        conflict="It has ended, or is being cancelled",
        operation_id="benchmarks_runs_cancel",
    )
    def cancel(self, run: Run, values: dict[str, Any]) -> Run:
        """Cancel a run of a benchmark: its processes are stopped, then its devices are restored."""
        return run_cancel(person=self.person, run=run)

    @command(
        audited_as=Action.RUN_RETRY,
        status=202,
        conflict="It has not ended, or was imported",
        operation_id="benchmarks_runs_retry",
        parameters=[IDEMPOTENCY_KEY],
    )
    def retry(self, run: Run, values: dict[str, Any]) -> Run:
        """Request the same run again, in your name; `Location` is that of the new one."""
        return run_retry(person=self.person, run=run, idempotency_key=idempotency_key(self.request))

    @command(
        audited_as=Action.RUN_RETRY,
        status=202,
        conflict="It has not ended, or left no checkpoint",
        operation_id="benchmarks_runs_resume",
        parameters=[IDEMPOTENCY_KEY],
    )
    def resume(self, run: Run, values: dict[str, Any]) -> Run:
        """Request a run that continues a halted one at its checkpoint; `Location` is that of it."""
        return run_resume(person=self.person, run=run, idempotency_key=idempotency_key(self.request))

    @command(
        audited_as=Action.RUN_RETURN,
        status=202,
        conflict="It has not ended, or has nothing to return",
        operation_id="benchmarks_runs_return",
    )
    def return_devices(self, run: Run, values: dict[str, Any]) -> Run:
        """Return the devices that a run could not return at its end."""
        return run_return(person=self.person, run=run)


class RunSeries(APIView):
    """What was recorded of a run."""

    @strict_schema(
        operation_id="benchmarks_runs_series",
        parameters=[
            OpenApiParameter("key", str, many=True, description="Series to read, once for each; none: all, no values"),
            OpenApiParameter("points", OpenApiTypes.INT64, description="At most so many values of each, evenly spread"),
        ],
        responses=RunSeriesSerializer(many=True),
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """List the series of a run, or read some of them."""
        run = run_get(person_of(request), pk)
        keys = request.query_params.getlist("key")
        rows = {row.key: row for row in series_of(run)}
        if not keys:
            return Response([_series_data(row) for row in rows.values()])
        if len(keys) > MAX_KEYS:
            raise Invalid("These are too many series.", errors={"key": f"Ask for at most {MAX_KEYS} at a time."})
        if unknown := [key for key in keys if key not in rows]:
            raise NotFound(f"The run has no series '{unknown[0][:100]}'.")
        points = min(query_integer(request, "points") or MAX_POINTS, MAX_POINTS)
        found = series_values(run, keys)
        answer = []
        for key in dict.fromkeys(keys):
            at, values = downsample(*found.get(key, NO_VALUES), points)
            plain = [None if not math.isfinite(one) else float(one) for one in values]
            answer.append({**_series_data(rows[key]), "at": [float(one) for one in at], "values": plain})
        return Response(answer)


class RunLog(APIView):
    """What the processes of a run wrote."""

    @strict_schema(
        operation_id="benchmarks_runs_log",
        parameters=[OpenApiParameter("first", OpenApiTypes.INT64, description="The byte to read from, 0 by default")],
        responses=RunLogSerializer,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Read the log of a run from a byte on.

        At most 256 KiB at a time.
        """
        run = run_get(person_of(request), pk)
        piece = log_read(run, query_integer(request, "first") or 0)
        return Response({"first": piece.first, "next": piece.next, "text": piece.text, "more": piece.more})


class RunInfraGraph(APIView):
    """The topology of a run for other tools."""

    @strict_schema(operation_id="benchmarks_runs_infragraph", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: UUID) -> Response:
        """Read the topology of a run as InfraGraph.

        An `Infrastructure`, which its versions from 3 on take.
        """
        topology = recorded_topology(run_get(person_of(request), pk))
        if topology is None:
            raise NotFound("The topology of this run is unknown.")
        return Response(infragraph(topology))


def _series_data(row: Series) -> dict[str, Any]:
    return {"key": row.key, "unit": row.unit, "source": row.source, "interval": row.interval, "count": row.count}


urlpatterns = [
    path("benchmarks/workloads/", WorkloadList.as_view(), name="workloads"),
    path("benchmarks/runs/", RunList.as_view(), name="runs"),
    path("benchmarks/runs/<uuid:pk>/", RunViewSet.as_view({"get": "retrieve", "delete": "destroy"}), name="run"),
    path("benchmarks/runs/<uuid:pk>/cancel/", RunViewSet.as_view({"post": "cancel"}), name="run_cancel"),
    path("benchmarks/runs/<uuid:pk>/retry/", RunViewSet.as_view({"post": "retry"}), name="run_retry"),
    path("benchmarks/runs/<uuid:pk>/resume/", RunViewSet.as_view({"post": "resume"}), name="run_resume"),
    path("benchmarks/runs/<uuid:pk>/give-back/", RunViewSet.as_view({"post": "return_devices"}), name="run_return"),
    path("benchmarks/runs/<uuid:pk>/series/", RunSeries.as_view(), name="run_series"),
    path("benchmarks/runs/<uuid:pk>/log/", RunLog.as_view(), name="run_log"),
    path("benchmarks/runs/<uuid:pk>/infragraph/", RunInfraGraph.as_view(), name="run_infragraph"),
]
