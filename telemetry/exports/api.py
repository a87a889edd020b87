"""Exports of events and their runs by the API, for administrators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.audit.services import audit_record
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.viewsets import ListedResourceViewSet, command
from core.api.fields import SEARCH, query_integer, query_search
from core.api.requests import StrictSerializer, strict_schema, validated_body
from telemetry.delivery.formats import FACILITIES
from telemetry.events.filters import FILTERS
from telemetry.exports import options as limits
from telemetry.exports import selectors, services
from telemetry.exports.files import run_download
from telemetry.exports.formats import COLUMNS, DEFAULT_COLUMNS
from telemetry.exports.models import ExportDefinition, ExportFormat, ExportRun, ExportSchedule, ExportSpan, ExportTarget
from telemetry.exports.options import ExportOptions, ExportSpec, spec_of

EXPORT_EXAMPLE = OpenApiExample(
    "All warnings to a collector, all the time",
    value={
        "name": "Warnings to the collector",
        "filter": {"severity": ["Warning", "Critical"]},
        "format": "syslog",
        "target": "syslog",
        "options": {"address": "tls://collector.example:6514"},
        "schedule": "stream",
        "from_now": True,
    },
    request_only=True,
)


@extend_schema_field(
    {
        "type": "object",
        "properties": {
            name: {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]} for name in FILTERS
        },
        "additionalProperties": False,
    }
)
class FilterField(serializers.DictField):
    """A filter of events, by the names of the parameters of their list; its values are texts or lists of texts."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return the filter; what a member may be is for the filter to say."""
        if not isinstance(data, dict):
            self.fail("not_a_dict", input_type=type(data).__name__)
        texts = (one for value in data.values() for one in (value if isinstance(value, list) else [value]))
        if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in texts):
            raise serializers.ValidationError("Values are texts, numbers, or lists of them.")
        return data


class OptionsSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What depends on target and format.

    `address` is a webhook's URL, or udp://, tcp:// or tls://host:port of a syslog server; `ca` (PEM) replaces the
    system's trust. `folder` is below the folder of exports. `gzip` is for files and webhooks; `keep_files` and
    `keep_days` 0 are without limit.
    """

    address = serializers.CharField(required=False, allow_blank=True, max_length=2000)
    ca = serializers.CharField(required=False, allow_blank=True, max_length=limits.MAX_CA_LENGTH)
    folder = serializers.CharField(required=False, allow_blank=True, max_length=250)
    gzip = serializers.BooleanField(required=False)
    keep_files = serializers.IntegerField(required=False, min_value=0, max_value=limits.MAX_FILES)
    keep_days = serializers.IntegerField(required=False, min_value=0, max_value=limits.MAX_DAYS)
    minutes = serializers.IntegerField(required=False, min_value=1, max_value=limits.MAX_MINUTES)
    batch = serializers.IntegerField(required=False, min_value=1, max_value=limits.MAX_BATCH)
    facility = serializers.ChoiceField(required=False, choices=list(FACILITIES))
    cef_version = serializers.ChoiceField(required=False, choices=[0, 1])


class ExportSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What is exported, how, whereto and when.

    `secret` is written and never read (`signed` tells whether there is one); leave it out of a change to keep it.
    `from_now` is for a new one that takes what is new: it leaves out what has happened. `cursor` is the number of the
    last event that was delivered, of such.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=limits.MAX_NAME_LENGTH)
    filter = FilterField(required=False)
    columns = serializers.ListField(child=serializers.ChoiceField(choices=list(COLUMNS)), required=False)
    format = serializers.ChoiceField(choices=ExportFormat.choices)
    target = serializers.ChoiceField(choices=ExportTarget.choices)
    options = OptionsSerializer(required=False)
    schedule = serializers.ChoiceField(choices=ExportSchedule.choices, required=False)
    cron = serializers.CharField(required=False, allow_blank=True, max_length=100)
    span = serializers.ChoiceField(choices=ExportSpan.choices, required=False)
    enabled = serializers.BooleanField(required=False)
    secret = serializers.CharField(
        required=False, allow_blank=True, write_only=True, trim_whitespace=False, max_length=limits.MAX_SECRET_LENGTH
    )
    from_now = serializers.BooleanField(required=False, write_only=True)
    signed = serializers.SerializerMethodField()
    cursor = serializers.IntegerField(read_only=True)
    next_at = serializers.DateTimeField(read_only=True, allow_null=True)
    note = serializers.CharField(read_only=True)
    owner_name = serializers.CharField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    changed_at = serializers.DateTimeField(read_only=True)

    def get_signed(self, row: ExportDefinition) -> bool:
        """Return whether requests are signed."""
        return bool(row.secret_encrypted)


class ExportPreviewSerializer(serializers.Serializer[Any]):
    """The first lines that an export would give, a heading included, and how many events fit by now."""

    lines = serializers.ListField(child=serializers.CharField())
    count = serializers.IntegerField()


class TriedSerializer(serializers.Serializer[Any]):
    """What came of a try."""

    sentence = serializers.CharField()


class ExportRunSerializer(serializers.ModelSerializer[ExportRun]):
    """A run: `counted` of `total` events, up to the event `cursor`; `percent` null where nobody can know."""

    export_id = serializers.IntegerField(source="definition_id", allow_null=True)
    percent = serializers.IntegerField(allow_null=True)
    has_file = serializers.BooleanField()

    class Meta:
        model = ExportRun
        fields = [
            "id", "export_id", "name", "state", "trigger", "requested_by_name", "percent", "counted", "total", "bytes",
            "cursor", "until", "has_file", "file", "checksum", "attempts", "retry_at", "error", "created_at",
            "started_at", "resumed_at", "ended_at",
        ]  # fmt: skip


RUN_NOT_RESUMABLE = "A run of it goes on, or was taken over by a later one"


def _sort_parameter(known: Mapping[str, str]) -> OpenApiParameter:
    names = [sign + name for name in known for sign in ("", "-")]
    return OpenApiParameter("sort", str, enum=names, description="What they are ordered by; '-': the other way round")


class ExportViewSet(ListedResourceViewSet):
    permission_classes = ADMINISTRATORS
    model = ExportDefinition
    kind = "export"
    serializer_class = ExportSerializer
    address = "api:export"

    @strict_schema(
        operation_id="exports_list",
        parameters=[
            SEARCH,
            _sort_parameter(selectors.EXPORT_SORTS),
            OpenApiParameter("format_is", str, enum=ExportFormat.values, description="Keeps those of this format"),
            OpenApiParameter("target", str, enum=ExportTarget.values, description="Keeps those to this kind of target"),
        ],
    )
    def list(self, request: Request) -> Response:
        """List exports; administrators only."""
        given = request.query_params
        rows = selectors.find_definitions(
            self.person,
            search=query_search(request),
            sort=given.get("sort", "") or "name",
            format_=given.get("format_is", ""),
            target=given.get("target", ""),
        )
        return self.answer_page(rows)

    @declare(audited_as=Action.EXPORT_ADD)
    @extend_schema(request=ExportSerializer, responses={201: ExportSerializer}, examples=[EXPORT_EXAMPLE])
    def create(self, request: Request) -> Response:
        """Add an export; administrators only."""
        values = validated_body(ExportSerializer, request)
        from_now = values.pop("from_now", False)
        row = services.export_add(by=self.person, spec=_requested_export(values), from_now=from_now)
        return self.answer(row, 201)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show an export; administrators only."""
        return self.answer(self.find_row(pk))

    @command(ExportSerializer, audited_as=Action.EXPORT_EDIT, partial=True)
    def partial_update(self, export: ExportDefinition, values: dict[str, Any]) -> ExportDefinition:
        """Change an export, and `options` of it, by what is given; a run that goes on ends as it began.

        `enabled` alone switches it. Administrators only.
        """
        values.pop("from_now", None)
        if set(values) == {"enabled"}:
            return services.export_switch(by=self.person, definition=export, enabled=values["enabled"])
        spec = _requested_export(values, spec_of(export))
        return services.export_edit(by=self.person, definition=export, spec=spec)

    @command(audited_as=Action.EXPORT_REMOVE, status=204, conflict="A run of it goes on")
    def destroy(self, export: ExportDefinition, values: dict[str, Any]) -> None:
        """Remove an export and its files; the record of its runs stays. Administrators only."""
        services.export_remove(by=self.person, definition=export)

    @command(
        audited_as=Action.EXPORT_TEST,
        answers=TriedSerializer,
        problems={502: "The target did not take it; the sentence says why"},
        operation_id="exports_test",
    )
    def test(self, export: ExportDefinition, values: dict[str, Any]) -> Response:
        """Test a target: send an event, or see that its folder is there. Administrators only."""
        return Response({"sentence": services.target_check(by=self.person, spec=spec_of(export), definition=export)})

    @command(
        audited_as=Action.EXPORT_RUN,
        status=202,
        answers=ExportRunSerializer,
        conflict="A run goes on",
        operation_id="exports_run",
    )
    def run(self, export: ExportDefinition, values: dict[str, Any]) -> Response:
        """Begin a run; `Location` tells how far it is. Administrators only."""
        run = services.run_request(by=self.person, definition=export)
        return ExportRunViewSet(request=self.request).answer(run, 202)


class ExportPreview(APIView):
    permission_classes = ADMINISTRATORS

    @declare(audited_as=Action.EXPORT_PREVIEW)
    @extend_schema(operation_id="exports_preview", request=ExportSerializer, responses=ExportPreviewSerializer)
    def post(self, request: Request) -> Response:
        """Show the first 20 events as an export would give them; nothing is kept. Administrators only."""
        person = person_of(request)
        values = validated_body(ExportSerializer, request)
        values.pop("from_now", None)
        preview = selectors.build_preview(person, _requested_export(values).checked())
        audit_record(action=Action.EXPORT_PREVIEW, actor=person, after={"name": values["name"]})
        return Response(ExportPreviewSerializer(asdict(preview)).data)


class ExportRunViewSet(ListedResourceViewSet):
    permission_classes = ADMINISTRATORS
    model = ExportRun
    kind = "run"
    serializer_class = ExportRunSerializer
    address = "api:export_run"

    @strict_schema(
        operation_id="exports_runs_list",
        parameters=[
            SEARCH,
            _sort_parameter(selectors.RUN_SORTS),
            OpenApiParameter("state", str, enum=ExportRun.State.values, description="Keeps those in this state"),
            OpenApiParameter("export_id", OpenApiTypes.INT64, description="Keeps those of the export of this id"),
        ],
    )
    def list(self, request: Request) -> Response:
        """List runs, newest first unless sorted; administrators only."""
        given = request.query_params
        rows = selectors.find_runs(
            self.person,
            search=query_search(request),
            state=given.get("state", ""),
            sort=given.get("sort", "") or "-number",
            definition=query_integer(request, "export_id"),
        )
        return self.answer_page(rows)

    def rows(self) -> Any:
        return ExportRun.objects.select_related("definition")

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a run; administrators only."""
        return self.answer(self.find_row(pk))

    @command(
        audited_as=Action.EXPORT_CANCEL,
        target_kind="export run",
        status=202,
        conflict="It has ended",
        operation_id="exports_runs_cancel",
    )
    def cancel(self, run: ExportRun, values: dict[str, Any]) -> ExportRun:
        """Cancel a run: it ends within seconds, and can be resumed. Administrators only."""
        return services.run_cancel(by=self.person, run=run)

    @command(
        audited_as=Action.EXPORT_RESUME,
        target_kind="export run",
        status=202,
        conflict=RUN_NOT_RESUMABLE,
        operation_id="exports_runs_resume",
    )
    def resume(self, run: ExportRun, values: dict[str, Any]) -> ExportRun:
        """Resume a run that failed or was cancelled. Administrators only."""
        return services.run_resume(by=self.person, run=run)

    @extend_schema(
        operation_id="exports_runs_file",
        responses={
            (200, kind): OpenApiTypes.BINARY
            for kind in ("text/csv", "application/jsonl", "text/plain", "application/gzip")
        },
    )
    def file(self, request: Request, pk: int) -> HttpResponseBase:
        """Download the file of a run that is done; that it was done is kept. Administrators only."""
        return run_download(by=self.person, run=self.find_row(pk))


def _requested_export(values: dict[str, Any], before: ExportSpec | None = None) -> ExportSpec:
    given = {**(asdict(before.options) if before else {}), **values.pop("options", {})}
    made = {**values, "options": ExportOptions(**given)}
    return replace(before, **made) if before else ExportSpec(**{"columns": DEFAULT_COLUMNS, **made})


urlpatterns = [
    path("exports/", ExportViewSet.as_view({"get": "list", "post": "create"}), name="exports"),
    path("exports/preview/", ExportPreview.as_view(), name="export_preview"),
    path("exports/runs/", ExportRunViewSet.as_view({"get": "list"}), name="export_runs"),
    path("exports/runs/<int:pk>/", ExportRunViewSet.as_view({"get": "retrieve"}), name="export_run"),
    path("exports/runs/<int:pk>/cancel/", ExportRunViewSet.as_view({"post": "cancel"}), name="export_run_cancel"),
    path("exports/runs/<int:pk>/resume/", ExportRunViewSet.as_view({"post": "resume"}), name="export_run_resume"),
    path("exports/runs/<int:pk>/file/", ExportRunViewSet.as_view({"get": "file"}), name="export_run_file"),
    path(
        "exports/<int:pk>/",
        ExportViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="export",
    ),
    path("exports/<int:pk>/test/", ExportViewSet.as_view({"post": "test"}), name="export_try"),
    path("exports/<int:pk>/run/", ExportViewSet.as_view({"post": "run"}), name="export_start"),
]
