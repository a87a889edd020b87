"""API of sweeps: create one from a grid or a manifest, read, pause, resume, halt, retry and delete it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of, require_composer
from accounts.audit.actions import Action
from accounts.audit.services import audit_record
from accounts.declaration import declare
from accounts.viewsets import ResourceViewSet, command
from benchmarks.runs.results import Statistic
from benchmarks.sweeps.expansion import expand_sweep
from benchmarks.sweeps.grid import ExcludedCombination, SweepGrid, validated_grid
from benchmarks.sweeps.manifest import MAX_MANIFEST_LENGTH, FieldExplanation, Manifest, read_manifest
from benchmarks.sweeps.models import Sweep
from benchmarks.sweeps.selectors import (
    POINT_STATES,
    SORT_FIELDS,
    PointStatus,
    point_list,
    progress_of_sweeps,
    sweep_get,
    sweep_list,
)
from benchmarks.sweeps.services import (
    MAX_TITLE_LENGTH,
    sweep_create,
    sweep_delete,
    sweep_halt,
    sweep_pause,
    sweep_resume,
    sweep_retry,
)
from core.api.fields import IDEMPOTENCY_KEY, SEARCH, idempotency_key, query_flag, query_search
from core.api.requests import StrictSerializer, problem, refuse_body, strict_schema, validated_body
from core.api.serializers import dataclass_serializer
from core.errors import Invalid

GRID_EXAMPLE = OpenApiExample(
    "Two workloads over batches and devices, simulated",
    value={
        "title": "Vision over devices",
        "grid": {
            "workload": ["resnet50", "mobilenet_v2"], "batch": [32, 64, 128], "count": [1, 2, 4], "host": [1],
            "placement": ["spread"], "executor": "simulated", "repeats": 2,
            "early": {"objectives": ["time", "devices"], "predicted": True},
        },
    },
    request_only=True,
)  # fmt: skip
MANIFEST_EXAMPLE = OpenApiExample(
    "An FfDL manifest, with the host, which it does not name",
    value={
        "manifest": "name: vision\ngpus: [1, 2, 4]\nlearners: 1\nframework:\n  name: pytorch\nworkload: resnet50\n",
        "grid": {"host": [1], "placement": ["spread"]},
    },
    request_only=True,
)


class SweepRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A sweep to create: a grid, or a manifest with what it leaves open in `grid`.

    Members of `grid`: the axes `workload`, `framework`, `batch`, `accumulation`, `threads`, `loader_workers`, `cores`,
    `precision`, `gradient`, `strategy`, `compile`, `host` (ids), `accelerator` (models), `count`, `placement` ('cpu',
    'local', 'drawer:ID', 'devices:ID,ID', 'spread', 'hybrid') and `storage` ('host', 'own', 'nvme:ID'), each a list;
    `batch_of`, `repeats`, `preset`, `same`, `command`, `executor`, `limit_seconds`, `at_once` and `early`; `parts`, a
    list of objects with such axes in place of the grid's own: the points are those of all of them.
    """

    title = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TITLE_LENGTH, default="")
    grid = serializers.JSONField(required=False, default=dict)
    manifest = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        trim_whitespace=False,
        max_length=MAX_MANIFEST_LENGTH + 1,
        write_only=True,
    )


ExplainedSerializer = dataclass_serializer(
    FieldExplanation, "Explained", fate=serializers.CharField(help_text="used, kept or ignored")
)
LeftOutPointSerializer = dataclass_serializer(ExcludedCombination, "LeftOutPoint")


class SweepPreviewSerializer(serializers.Serializer[Any]):
    """A preview: `moves` of devices in `compositions`; `seconds` are the predicted duration of `predicted` runs."""

    runs = serializers.IntegerField()
    left_out = LeftOutPointSerializer(many=True, source="expanded.expansion.left_out")
    left_out_count = serializers.IntegerField(source="expanded.expansion.left_out_count")
    compositions = serializers.IntegerField(source="expanded.cost.compositions")
    moves = serializers.IntegerField(source="expanded.cost.moves")
    seconds = serializers.FloatField(source="expanded.seconds")
    predicted = serializers.IntegerField(source="expanded.predicted_count")
    explained = ExplainedSerializer(many=True)


class SweepSerializer(serializers.ModelSerializer[Sweep]):
    """A sweep; `runs` counts its points by state, `settled`: all its devices are restored."""

    runs = serializers.SerializerMethodField()
    left_out = LeftOutPointSerializer(many=True)

    class Meta:
        model = Sweep
        fields = [
            "id", "title", "state", "sentence", "note", "grid", "manifest", "runs", "left_out", "left_out_count",
            "compositions", "moves", "settled", "requested_by_name", "created_at", "finished_at",
        ]  # fmt: skip

    def get_runs(self, sweep: Sweep) -> dict[str, int]:
        """Return the number of points in each state, and of all."""
        found = (self.context.get("progress") or progress_of_sweeps([sweep]))[sweep.pk]
        return {"all": found.total, **found.counts}


PointFigureSerializer = dataclass_serializer(Statistic, "PointFigure")


class PointSerializer(serializers.Serializer[PointStatus]):
    """A point: its values, its newest run with its results, and the prediction, seconds a step.

    `low` and `high` of the prediction are the ends of its 90 % interval.
    """

    position = serializers.IntegerField()
    values = serializers.DictField()
    state = serializers.ChoiceField(POINT_STATES)
    sentence = serializers.CharField()
    run_id = serializers.UUIDField(source="run.pk", allow_null=True, default=None)
    provenance = serializers.CharField(source="run.provenance", allow_null=True, default=None)
    step_seconds = PointFigureSerializer(source="figures.step_seconds", allow_null=True, default=None)
    samples_per_second = PointFigureSerializer(source="figures.samples_per_second", allow_null=True, default=None)
    predicted = serializers.DictField()


class SweepList(generics.ListAPIView[Sweep]):
    """Sweeps; POST creates one."""

    serializer_class = SweepSerializer

    def get_queryset(self) -> Any:
        given = self.request.query_params
        return sweep_list(
            person_of(self.request),
            search=query_search(self.request),
            state=given.get("state", ""),
            sort=given.get("sort", ""),
        )

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        """Return the serializer of a page, with the progress of all its sweeps."""
        context = {**self.get_serializer_context(), "progress": progress_of_sweeps(args[0]) if args else {}}
        return SweepSerializer(*args, **{**kwargs, "context": context})

    @strict_schema(
        operation_id="benchmarks_sweeps_list",
        parameters=[
            SEARCH,
            OpenApiParameter("state", str, enum=Sweep.State.values, description="Keeps those in this state"),
            OpenApiParameter(
                "sort", str, enum=[sign + name for name in SORT_FIELDS for sign in ("", "-")],
                description="The order; '-' reverses it",
            ),
        ],
    )  # fmt: skip
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List sweeps, newest first unless sorted."""
        return super().get(request, *args, **kwargs)

    @declare(audited_as=Action.SWEEP_CREATE)
    @extend_schema(
        request=SweepRequestSerializer,
        responses={202: SweepSerializer, 409: problem("Too many sweeps of yours have not ended")},
        parameters=[IDEMPOTENCY_KEY],
        examples=[GRID_EXAMPLE, MANIFEST_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Create a sweep: 202 with its address; its first runs start within seconds."""
        person = person_of(request)
        require_composer(person, "run anything")
        grid, manifest = _sweep_request(request)
        sweep = sweep_create(
            person=person,
            grid=grid,
            title=manifest.title,
            manifest=manifest.kept,
            idempotency_key=idempotency_key(request),
        )
        return SweepViewSet(request=request).answer(sweep, 202)


class SweepPreview(APIView):
    """The preview of a sweep."""

    @declare(audited_as=Action.SWEEP_READ)
    @extend_schema(
        operation_id="benchmarks_sweeps_preview",
        request=SweepRequestSerializer,
        responses=SweepPreviewSerializer,
        examples=[GRID_EXAMPLE, MANIFEST_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Preview a grid or manifest: its runs, what is left out and why, and the number of compositions."""
        person = person_of(request)
        require_composer(person, "run anything")
        grid, manifest = _sweep_request(request)
        expanded = expand_sweep(person, validated_grid(grid))
        runs = len(expanded.points)
        audit_record(action=Action.SWEEP_READ, actor=person, after={"name": manifest.title, "runs": runs})
        found: Any = {"runs": runs, "expanded": expanded, "explained": manifest.explained}
        return Response(SweepPreviewSerializer(found).data)


class SweepViewSet(ResourceViewSet):
    """One sweep."""

    serializer_class = SweepSerializer
    address = "api:sweep"

    def find_row(self, pk: Any) -> Sweep:
        """Return a sweep with its requester."""
        return sweep_get(self.person, pk)

    def retrieve(self, request: Request, pk: UUID) -> Response:
        """Show a sweep and its progress."""
        return self.answer(self.find_row(pk))

    @declare(audited_as=Action.SWEEP_DELETE)
    @strict_schema(
        responses={
            204: None,
            403: problem("`runs`, and others requested some of them; or you are read-only"),
            409: problem("It has not ended, or its devices are not restored yet"),
        },
        parameters=[OpenApiParameter("runs", bool, description="Deletes its runs with all their records, too")],
    )
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a sweep that has ended.

        Its runs stay as runs of their own, unless `runs` is given: then all go with it, or nothing does.
        """
        sweep = self.find_row(pk)
        refuse_body(request)
        sweep_delete(person=self.person, sweep=sweep, runs=query_flag(request, "runs"))
        return Response(status=204)

    @extend_schema(operation_id="benchmarks_sweeps_points", responses=PointSerializer(many=True))
    def points(self, request: Request, pk: UUID) -> Response:
        """List the points of a sweep.

        All of them, in the order in which they run, with the results of their runs.
        """
        points: Any = point_list(self.find_row(pk))
        return Response(PointSerializer(points, many=True).data)

    @command(
        audited_as=Action.SWEEP_PAUSE,
        status=202,
        conflict="It is not running",
        operation_id="benchmarks_sweeps_pause",
    )
    def pause(self, sweep: Sweep, values: dict[str, Any]) -> Sweep:
        """Pause a sweep: running runs complete, then its devices are restored."""
        return sweep_pause(person=self.person, sweep=sweep)

    @command(
        audited_as=Action.SWEEP_RESUME,
        status=202,
        conflict="It is neither paused nor halted",
        operation_id="benchmarks_sweeps_resume",
    )
    def resume(self, sweep: Sweep, values: dict[str, Any]) -> Sweep:
        """Resume a sweep that was paused or halted; runs that a halt stopped are run again."""
        return sweep_resume(person=self.person, sweep=sweep)

    @command(audited_as=Action.SWEEP_HALT, status=202, conflict="It has ended", operation_id="benchmarks_sweeps_halt")
    def halt(self, sweep: Sweep, values: dict[str, Any]) -> Sweep:
        """Halt a sweep: all its runs are stopped, then its devices are restored. It can be resumed."""
        return sweep_halt(person=self.person, sweep=sweep)

    @command(
        audited_as=Action.SWEEP_RETRY,
        status=202,
        conflict="None has failed",
        operation_id="benchmarks_sweeps_retry",
    )
    def retry(self, sweep: Sweep, values: dict[str, Any]) -> Sweep:
        """Run points of a sweep again that did not complete.

        Those that failed, were cancelled or could not start. A halted sweep also continues with the rest; a paused one
        stays paused, and they run when it is resumed.
        """
        return sweep_retry(person=self.person, sweep=sweep)


def _sweep_request(request: Request) -> tuple[SweepGrid, Manifest]:
    """Return the grid of a request, and its manifest; without one, a manifest with the title alone."""
    values = validated_body(SweepRequestSerializer, request)
    if not isinstance(values["grid"], dict):
        raise Invalid("'grid' is an object.", errors={"grid": "An object: axes and their lists of values."})
    if not values["manifest"]:
        return SweepGrid.from_json(values["grid"]), Manifest(title=values["title"])
    manifest = read_manifest(values["manifest"])
    return manifest.grid_with(values["grid"]), replace(manifest, title=values["title"] or manifest.title)


urlpatterns = [
    path("benchmarks/sweeps/", SweepList.as_view(), name="sweeps"),
    path("benchmarks/sweeps/preview/", SweepPreview.as_view(), name="sweep_preview"),
    path("benchmarks/sweeps/<uuid:pk>/", SweepViewSet.as_view({"get": "retrieve", "delete": "destroy"}), name="sweep"),
    path("benchmarks/sweeps/<uuid:pk>/points/", SweepViewSet.as_view({"get": "points"}), name="sweep_points"),
    path("benchmarks/sweeps/<uuid:pk>/pause/", SweepViewSet.as_view({"post": "pause"}), name="sweep_pause"),
    path("benchmarks/sweeps/<uuid:pk>/resume/", SweepViewSet.as_view({"post": "resume"}), name="sweep_resume"),
    path("benchmarks/sweeps/<uuid:pk>/halt/", SweepViewSet.as_view({"post": "halt"}), name="sweep_halt"),
    path("benchmarks/sweeps/<uuid:pk>/retry/", SweepViewSet.as_view({"post": "retry"}), name="sweep_retry"),
]
