"""Benchmarks by the API: the catalogue, and runs: asked for, followed, cancelled, tried again, deleted."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import numpy as np
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from benchmarks.runs.asking import asked_of
from benchmarks.runs.log import log_read
from benchmarks.runs.models import Run, Series
from benchmarks.runs.selectors import EXECUTORS, GROUPS, SORTS, RunFilter, run_of, runs_found
from benchmarks.runs.series import series_of, thinned, values_of
from benchmarks.runs.services import run_cancel, run_create, run_delete, run_retry, run_return
from benchmarks.workloads.catalogue import CATALOGUE
from falconweb.api.bodies import asked, refuse_body
from falconweb.api.fields import IDEMPOTENCY_KEY, number
from falconweb.api.openapi import problem
from falconweb.api.run_schemas import (
    RunAskedSerializer,
    RunDetailSerializer,
    RunLogSerializer,
    RunSerializer,
    RunSeriesSerializer,
    WorkloadSerializer,
)
from falconweb.errors import Invalid, NotFound

MOST_KEYS = 64
MOST_POINTS = 20_000
EXAMPLE = OpenApiExample(
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
REFUSED = problem(
    "The host's agent does not report, a device is missing, or a rule stands against it (`rule`, with `objections`)"
)


class WorkloadList(APIView):
    """The catalogue of workloads."""

    @extend_schema(operation_id="benchmarks_workloads", responses=WorkloadSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List what can be run, with its parameters and presets."""
        return Response(WorkloadSerializer(list(CATALOGUE.values()), many=True).data)


class RunList(generics.ListAPIView[Run]):
    """Runs; POST asks for one."""

    serializer_class = RunSerializer

    def get_queryset(self) -> Any:
        """Return what fits."""
        if getattr(self, "swagger_fake_view", False):
            return Run.objects.none()
        given = self.request.query_params
        return runs_found(person_of(self.request), RunFilter.of({**given.dict(), "q": given.get("search", "")}))

    @asked(
        operation_id="benchmarks_runs_list",
        parameters=[
            OpenApiParameter("search", str, description="Keeps runs with these words in title, workload or error"),
            OpenApiParameter("workload", str, description="Keeps those of this workload"),
            OpenApiParameter("provenance", str, enum=Run.Provenance.values, description="Keeps those of this kind"),
            OpenApiParameter("state", str, enum=[*Run.State.values, *GROUPS], description="Keeps those in this state"),
            OpenApiParameter("host", OpenApiTypes.INT64, description="Keeps those on the host of this id"),
            OpenApiParameter("executor", str, enum=list(EXECUTORS), description="Keeps those of this executor"),
            OpenApiParameter("sweep", OpenApiTypes.UUID, description="Keeps those of this sweep"),
            OpenApiParameter("person", str, description="Keeps those that this person asked for"),
            OpenApiParameter(
                "sort",
                str,
                enum=[sign + name for name in SORTS for sign in ("", "-")],
                description="What they are ordered by; '-': the other way round",
            ),
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List runs, newest first: your tenant's, or all for administrators."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="benchmarks_runs_create",
        request=RunAskedSerializer,
        responses={202: RunDetailSerializer, 409: REFUSED},
        parameters=[IDEMPOTENCY_KEY],
        examples=[EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """Ask for a run: it waits for its devices, is composed, runs, gives them back. `Location` tells how it goes."""
        given = RunAskedSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        wanted = asked_of(dict(given.validated_data))
        run = run_create(
            person=person_of(request),
            spec=wanted.spec,
            composition=wanted.composition,
            executor=wanted.executor,
            preset=wanted.preset,
            title=wanted.title,
            limit_seconds=wanted.limit_seconds,
            keep_composed=wanted.keep_composed,
            exercise=wanted.exercise,
            idempotency_key=request.headers.get("Idempotency-Key", ""),
        )
        return _answer(request, run, 202)


class RunDetail(APIView):
    """One run."""

    @extend_schema(operation_id="benchmarks_runs_retrieve", responses=RunDetailSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Show a run of a benchmark: how it stands, what it came to, and what it ran on."""
        return Response(RunDetailSerializer(run_of(person_of(request), pk)).data)

    @extend_schema(operation_id="benchmarks_runs_destroy", responses={204: None, 409: problem("It has not ended")})
    def delete(self, request: Request, pk: UUID) -> Response:
        """Delete a run that has ended, with its record.

        Yours, or any for administrators.
        """
        person = person_of(request)
        run = run_of(person, pk)
        refuse_body(request)
        run_delete(person=person, run=run)
        return Response(status=204)


class RunCancellation(APIView):
    """The end of a run before its time."""

    @extend_schema(
        operation_id="benchmarks_runs_cancel",
        request=None,
        responses={202: RunDetailSerializer, 409: problem("It has ended, or is being cancelled")},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Cancel a run of a benchmark: its processes are ended, then its devices go back."""
        person = person_of(request)
        run = run_of(person, pk)
        refuse_body(request)
        return _answer(request, run_cancel(person=person, run=run), 202)


class RunRetry(APIView):
    """The same run once more."""

    @extend_schema(
        operation_id="benchmarks_runs_retry",
        request=None,
        responses={202: RunDetailSerializer, 409: problem("It has not ended, or was imported")},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Ask for the same run once more, in your name; `Location` is that of the new one."""
        person = person_of(request)
        run = run_of(person, pk)
        refuse_body(request)
        key = request.headers.get("Idempotency-Key", "")
        return _answer(request, run_retry(person=person, run=run, idempotency_key=key), 202)


class RunReturn(APIView):
    """Devices of a run that could not be given back at its end."""

    @extend_schema(
        operation_id="benchmarks_runs_return",
        request=None,
        responses={202: RunDetailSerializer, 409: problem("It has not ended, or has nothing to give back")},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Give devices back that a run could not give back at its end."""
        person = person_of(request)
        run = run_of(person, pk)
        refuse_body(request)
        return _answer(request, run_return(person=person, run=run), 202)


class RunSeries(APIView):
    """What was recorded of a run."""

    @asked(
        operation_id="benchmarks_runs_series",
        parameters=[
            OpenApiParameter("key", str, many=True, description="Series to read, once for each; none: all, no values"),
            OpenApiParameter("points", int, description="At most so many values of each, evenly over its length"),
        ],
        responses=RunSeriesSerializer(many=True),
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """List the series of a run, or read some of them."""
        run = run_of(person_of(request), pk)
        keys = request.query_params.getlist("key")
        rows = {row.key: row for row in series_of(run)}
        if not keys:
            return Response([_shape(row) for row in rows.values()])
        if len(keys) > MOST_KEYS:
            raise Invalid("These are too many series.", errors={"key": f"Ask for at most {MOST_KEYS} at a time."})
        if unknown := [key for key in keys if key not in rows]:
            raise NotFound(f"The run has no series '{unknown[0][:100]}'.")
        points = min(number(request, "points") or MOST_POINTS, MOST_POINTS)
        found = values_of(run, keys)
        answer = []
        for key in dict.fromkeys(keys):
            nothing = (np.zeros(0), np.zeros(0))
            at, values = thinned(*found.get(key, nothing), points)
            plain = [None if not math.isfinite(one) else float(one) for one in values]
            answer.append({**_shape(rows[key]), "at": [float(one) for one in at], "values": plain})
        return Response(answer)


class RunLog(APIView):
    """What the processes of a run wrote."""

    @asked(
        operation_id="benchmarks_runs_log",
        parameters=[OpenApiParameter("first", OpenApiTypes.INT64, description="The byte to read from; 0 unless told")],
        responses=RunLogSerializer,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Read the log of a run from a byte on.

        At most 256 KiB at a time.
        """
        run = run_of(person_of(request), pk)
        piece = log_read(run, number(request, "first") or 0)
        return Response({"first": piece.first, "next": piece.next, "text": piece.text, "more": piece.more})


def _shape(row: Series) -> dict[str, Any]:
    return {"key": row.key, "unit": row.unit, "source": row.source, "interval": row.interval, "count": row.count}


def _answer(request: Request, run: Run, status: int) -> Response:
    where = {"Location": request.build_absolute_uri(reverse("api:run", args=[run.pk]))}
    return Response(RunDetailSerializer(run_of(person_of(request), run.pk)).data, status=status, headers=where)
