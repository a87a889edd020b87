"""Records of runs by the API: any set of them exported, and files of them imported."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from benchmarks.records.formats import FORMATS
from benchmarks.records.import_files import BODY_LIMIT, MAX_UPLOAD_BYTES, ImportFile, refuse_problems
from benchmarks.records.schema import record_schema
from benchmarks.records.services import (
    EXPORT_KINDS,
    ExportFilter,
    RecordPreview,
    records_check,
    records_download,
    records_import,
)
from benchmarks.runs.models import Run
from core.api.fields import query_flag
from core.api.requests import problem, refuse_parameters, strict_schema

MAX_NAME_LENGTH = 200
MEDIA_TYPES = ("application/jsonl", "application/json", "text/csv", "text/plain")


def raw_parser(media: str) -> type[BaseParser]:
    """Return a parser that leaves a body as it is: the problems in it are reported with their lines."""

    class RawRecordsParser(BaseParser):
        media_type = media

        def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
            """Return the bytes; one more than is allowed shows that they are too many."""
            return stream.read(MAX_UPLOAD_BYTES + 1)

    return RawRecordsParser


class RecordSerializer(serializers.Serializer[Any]):
    """A record of a file, and the run that it is."""

    line = serializers.IntegerField(help_text="Where it begins in the file")
    title = serializers.CharField()
    workload = serializers.CharField()
    provenance = serializers.CharField(help_text="The provenance of its figures before any import")
    state = serializers.CharField()
    series = serializers.IntegerField(help_text="How many series it has")
    values = serializers.IntegerField(help_text="How many values they have together")
    run_id = serializers.UUIDField(allow_null=True, help_text="The run that it is; null before it is imported")
    known = serializers.BooleanField(help_text="Whether it was here already, and is not made again")


class ImportSerializer(serializers.Serializer[Any]):
    """The result of an import, or its preview."""

    format = serializers.CharField(help_text=f"One of {', '.join(FORMATS)}")
    imported = serializers.IntegerField(help_text="How many runs were made; with `preview` how many would be")
    known = serializers.IntegerField()
    skipped = serializers.IntegerField(help_text="Ignored lines")
    notes = serializers.ListField(child=serializers.CharField())
    records = RecordSerializer(many=True)


@declare(body_limit=BODY_LIMIT)
class Records(APIView):
    """Records of runs."""

    parser_classes = [raw_parser(one) for one in MEDIA_TYPES]

    @strict_schema(
        operation_id="benchmarks_records_export",
        responses={
            (200, "application/jsonl"): OpenApiTypes.BINARY,
            (200, "text/csv"): OpenApiTypes.BINARY,
            404: problem("One of the runs, or the sweep, is not there, or you may not see it"),
            409: problem("One of the runs that are named has not ended"),
        },
        parameters=[
            OpenApiParameter("run", OpenApiTypes.UUID, many=True, description="Exports these; may come several times"),
            OpenApiParameter("sweep", OpenApiTypes.UUID, description="Exports those of the sweep of this id"),
            OpenApiParameter("workload", str, description="Exports those of this workload"),
            OpenApiParameter("provenance", str, enum=Run.Provenance.values, description="Exports those of this kind"),
            OpenApiParameter("as", str, enum=list(EXPORT_KINDS), description="The kind of export; by default jsonl"),
        ],
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Export runs that have ended: whole records, all samples, or a table of results; streamed."""
        given = request.query_params
        wanted = ExportFilter.of(given)
        return records_download(person=person_of(request), wanted=wanted, kind=given.get("as", "jsonl"))

    @declare(audited_as=Action.RECORDS_IMPORT)
    @extend_schema(
        operation_id="benchmarks_records_import",
        request=dict.fromkeys(MEDIA_TYPES, OpenApiTypes.BINARY),
        responses={
            200: OpenApiResponse(ImportSerializer, description="Nothing was made: a preview, or all was here already"),
            201: OpenApiResponse(ImportSerializer, description="Runs were made"),
            400: problem("Something in the file is wrong: `problems` has each with its line and field"),
            413: problem("The file is too large"),
        },
        parameters=[
            OpenApiParameter("preview", bool, description="Answers what the file would become, and makes nothing"),
            OpenApiParameter("kind", str, enum=list(FORMATS), description="The format of the file; else detected"),
            OpenApiParameter("name", str, description="What you call the file"),
        ],
    )
    def post(self, request: Request) -> Response:
        """Import a file of records, or the output of a tool: all of it, or nothing."""
        person = person_of(request)
        refuse_parameters(request, ("preview", "kind", "name"))
        preview, kind = query_flag(request, "preview"), request.query_params.get("kind", "")
        name = "".join(one for one in request.query_params.get("name", "") if one.isprintable())[:MAX_NAME_LENGTH]
        body: Any = request.data
        content = ImportFile(data=body if isinstance(body, bytes) else b"", name=name)
        checked = records_check(person=person, content=content, format=kind)
        if preview:
            refuse_problems(checked.problems, checked.more)
        runs: list[tuple[Run | None, bool]] = [(one.known, one.known is not None) for one in checked.runs]
        made = len(checked.new)
        if not preview:
            imported = records_import(person=person, content=content, format=checked.format)
            runs = [(run, not is_new) for run, is_new in imported.runs]
            made = len(imported.new)
        answer = {
            "format": checked.format,
            "imported": made,
            "known": len(runs) - made,
            "skipped": checked.skipped,
            "notes": list(checked.notes),
            "records": [_record_data(one, run, known) for one, (run, known) in zip(checked.runs, runs, strict=True)],
        }
        return Response(answer, status=201 if made and not preview else 200)


class RecordsSchema(APIView):
    """The schema of a record."""

    @extend_schema(operation_id="benchmarks_records_schema", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """Show the JSON Schema of a line of a record."""
        return Response(record_schema())


def _record_data(preview: RecordPreview, run: Run | None, known: bool) -> dict[str, Any]:
    return {
        "line": preview.line,
        "title": preview.header.title,
        "workload": preview.header.workload,
        "provenance": preview.provenance,
        "state": preview.header.state,
        "series": len(preview.series),
        "values": preview.values,
        "run_id": None if run is None else str(run.pk),
        "known": known,
    }


urlpatterns = [
    path("benchmarks/records/", Records.as_view(), name="records"),
    path("benchmarks/records/schema/", RecordsSchema.as_view(), name="records_schema"),
]
