"""Exports of events by the API, for administrators: defined, tried, run, cancelled, resumed, downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.audit.services import audit_record
from falconweb.api.bodies import asked, refuse_body
from falconweb.api.export_schemas import (
    EXAMPLE,
    ExportPreviewSerializer,
    ExportRunSerializer,
    ExportSerializer,
    TriedSerializer,
)
from falconweb.api.fields import SEARCH, number, search_of
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from telemetry.exports.columns import USUAL
from telemetry.exports.downloads import run_download
from telemetry.exports.models import ExportDefinition, ExportRun, Format, Kind
from telemetry.exports.options import Options, Wanted, wanted_of
from telemetry.exports.runs import run_cancel, run_request, run_resume
from telemetry.exports.selectors import (
    EXPORT_SORTS,
    RUN_SORTS,
    definition_of,
    definitions_found,
    preview_of,
    run_of,
    runs_found,
)
from telemetry.exports.services import export_add, export_edit, export_remove, export_switch, target_try

TAKEN = "A run of it goes on, or was taken over by a later one"


def _sorting(known: Mapping[str, str]) -> OpenApiParameter:
    names = [sign + name for name in known for sign in ("", "-")]
    return OpenApiParameter("sort", str, enum=names, description="What they are ordered by; '-': the other way round")


class ExportList(generics.ListAPIView[ExportDefinition]):
    """Exports; POST adds one."""

    permission_classes = ADMINISTRATORS
    serializer_class = ExportSerializer

    def get_queryset(self) -> Any:
        """Return what fits."""
        if getattr(self, "swagger_fake_view", False):
            return ExportDefinition.objects.none()
        given = self.request.query_params
        return definitions_found(
            person_of(self.request),
            search=search_of(self.request),
            sort=given.get("sort", "") or "name",
            format_=given.get("format_is", ""),
            target=given.get("target", ""),
        )

    @asked(
        operation_id="exports_list",
        parameters=[
            SEARCH,
            _sorting(EXPORT_SORTS),
            OpenApiParameter("format_is", str, enum=Format.values, description="Keeps those of this format"),
            OpenApiParameter("target", str, enum=Kind.values, description="Keeps those to this kind of target"),
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List exports; administrators only."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="exports_create", request=ExportSerializer, responses={201: ExportSerializer}, examples=[EXAMPLE]
    )
    def post(self, request: Request) -> Response:
        """Add an export; administrators only."""
        values = _read(request)
        from_now = values.pop("from_now", False)
        row = export_add(by=person_of(request), wanted=_wanted(values), from_now=from_now)
        where = {"Location": request.build_absolute_uri(reverse("api:export", args=[row.pk]))}
        return Response(ExportSerializer(row).data, status=201, headers=where)


class ExportDetail(APIView):
    """One export."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="exports_retrieve", responses=ExportSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show an export; administrators only."""
        return Response(ExportSerializer(definition_of(person_of(request), pk)).data)

    @extend_schema(operation_id="exports_partial_update", request=ExportSerializer, responses=ExportSerializer)
    def patch(self, request: Request, pk: int) -> Response:
        """Change an export, and `options` of it, by what is given; a run that goes on ends as it began.

        `enabled` alone switches it. Administrators only.
        """
        person = person_of(request)
        row = definition_of(person, pk)
        values = _read(request, partial=True)
        values.pop("from_now", None)
        if set(values) == {"enabled"}:
            row = export_switch(by=person, definition=row, enabled=values["enabled"])
        else:
            row = export_edit(by=person, definition=row, wanted=_wanted(values, wanted_of(row)))
        return Response(ExportSerializer(row).data)

    @extend_schema(operation_id="exports_destroy", responses={204: None, 409: problem("A run of it goes on")})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove an export and its files; the record of its runs stays. Administrators only."""
        person = person_of(request)
        row = definition_of(person, pk)
        refuse_body(request)
        export_remove(by=person, definition=row)
        return Response(status=204)


class ExportPreview(APIView):
    """What an export would give."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="exports_preview", request=ExportSerializer, responses=ExportPreviewSerializer)
    def post(self, request: Request) -> Response:
        """Show the first 20 events as an export would give them; nothing is kept. Administrators only."""
        person = person_of(request)
        values = _read(request)
        values.pop("from_now", None)
        preview = preview_of(person, _wanted(values).checked())
        audit_record(action=Action.EXPORT_PREVIEW, actor=person, after={"name": values["name"]})
        return Response(ExportPreviewSerializer(asdict(preview)).data)


class ExportTest(APIView):
    """Whether the target of an export takes what it is sent."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="exports_test",
        request=None,
        responses={200: TriedSerializer, 502: problem("The target did not take it; the sentence says why")},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Test a target: send an event, or see that its folder is there. Administrators only."""
        person = person_of(request)
        row = definition_of(person, pk)
        refuse_body(request)
        return Response({"sentence": target_try(by=person, wanted=wanted_of(row), definition=row)})


class ExportStart(APIView):
    """A run that somebody wants now."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="exports_run", request=None, responses={202: ExportRunSerializer, 409: problem("A run goes on")}
    )
    def post(self, request: Request, pk: int) -> Response:
        """Begin a run; `Location` tells how far it is. Administrators only."""
        person = person_of(request)
        row = definition_of(person, pk)
        refuse_body(request)
        run = run_request(by=person, definition=row)
        where = {"Location": request.build_absolute_uri(reverse("api:export_run", args=[run.pk]))}
        return Response(ExportRunSerializer(run).data, status=202, headers=where)


class ExportRunList(generics.ListAPIView[ExportRun]):
    """Runs of exports."""

    permission_classes = ADMINISTRATORS
    serializer_class = ExportRunSerializer

    def get_queryset(self) -> Any:
        """Return what fits."""
        if getattr(self, "swagger_fake_view", False):
            return ExportRun.objects.none()
        given = self.request.query_params
        return runs_found(
            person_of(self.request),
            search=search_of(self.request),
            state=given.get("state", ""),
            sort=given.get("sort", "") or "-number",
            definition=number(self.request, "export_id"),
        )

    @asked(
        operation_id="exports_runs_list",
        parameters=[
            SEARCH,
            _sorting(RUN_SORTS),
            OpenApiParameter("state", str, enum=ExportRun.State.values, description="Keeps those in this state"),
            OpenApiParameter("export_id", OpenApiTypes.INT64, description="Keeps those of the export of this id"),
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List runs, newest first unless sorted; administrators only."""
        return super().get(request, *args, **kwargs)


class ExportRunDetail(APIView):
    """One run."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="exports_runs_retrieve", responses=ExportRunSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a run; administrators only."""
        return Response(ExportRunSerializer(run_of(person_of(request), pk)).data)


class ExportRunCancellation(APIView):
    """The end of a run before its end."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="exports_runs_cancel",
        request=None,
        responses={202: ExportRunSerializer, 409: problem("It has ended")},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Cancel a run: it ends within seconds, and can be resumed. Administrators only."""
        person = person_of(request)
        run = run_of(person, pk)
        refuse_body(request)
        return Response(ExportRunSerializer(run_cancel(by=person, run=run)).data, status=202)


class ExportRunResumption(APIView):
    """A run that goes on where it stopped."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="exports_runs_resume", request=None, responses={202: ExportRunSerializer, 409: problem(TAKEN)}
    )
    def post(self, request: Request, pk: int) -> Response:
        """Resume a run that failed or was cancelled. Administrators only."""
        person = person_of(request)
        run = run_of(person, pk)
        refuse_body(request)
        return Response(ExportRunSerializer(run_resume(by=person, run=run)).data, status=202)


class ExportRunFile(APIView):
    """The file that a run made."""

    permission_classes = ADMINISTRATORS

    @extend_schema(
        operation_id="exports_runs_file",
        responses={
            (200, kind): OpenApiTypes.BINARY
            for kind in ("text/csv", "application/jsonl", "text/plain", "application/gzip")
        },
    )
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Download the file of a run that is done; that it was done is kept. Administrators only."""
        person = person_of(request)
        return run_download(by=person, run=run_of(person, pk))


def _read(request: Request, *, partial: bool = False) -> dict[str, Any]:
    body = ExportSerializer(data=request.data, partial=partial)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def _wanted(values: dict[str, Any], before: Wanted | None = None) -> Wanted:
    options = {**(asdict(before.options) if before else {}), **values.pop("options", {})}
    made = {**values, "options": Options.of(options)}
    return replace(before, **made) if before else Wanted(**{"columns": USUAL, **made})
