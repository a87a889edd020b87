"""Allocation files by the API: exported, and imported by way of a report and a plan."""

from __future__ import annotations

from typing import Any

from django.urls import path, reverse
from django.utils.http import parse_header_parameters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from core.api.fields import FORMAT, IDEMPOTENCY_KEY, idempotency_key, query_flag, query_integer
from core.api.requests import problem, refuse_parameters
from core.errors import Invalid
from fabric.allocation.reader import BODY_LIMIT, MAX_FILE_BYTES
from fabric.allocation.rules import MAPPING_MODES
from fabric.allocation.schema import SCHEMA
from fabric.allocation.services import allocation_check, allocation_export, allocation_plan, unreadable_file_error


class _DocumentRenderer(BaseRenderer):
    """A document, which is text already."""

    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data).encode()


class AllocationJSONRenderer(_DocumentRenderer):
    media_type = "application/json"
    format = "json"


class AllocationYAMLRenderer(_DocumentRenderer):
    media_type = "application/yaml"
    format = "yaml"


class _RawAllocationParser(BaseParser):
    """The bytes of a body: `parse_file` reports their problems with their positions, which no parser does."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        # One more byte shows that it is too large.
        return stream.read(MAX_FILE_BYTES + 1)


class AllocationJSONParser(_RawAllocationParser):
    media_type = "application/json"


class AllocationYAMLParser(_RawAllocationParser):
    media_type = "application/yaml"


class AllocationXYAMLParser(_RawAllocationParser):
    """YAML by the name that it had before RFC 9512."""

    media_type = "application/x-yaml"


class EntrySerializer(serializers.Serializer[Any]):
    """What one entry of a file comes to here."""

    path = serializers.CharField(help_text="Where it stands, such as chassis[0].drawers[1].slots[3]")
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    what = serializers.CharField(help_text="What it names")
    fit = serializers.CharField(help_text="exact, mapped or does_not_fit")
    sentence = serializers.CharField(help_text="What stands for it, or why nothing does")
    change = serializers.CharField(help_text="What it changes here, '' if nothing")
    note = serializers.CharField(help_text="What else there is to know of it")


class AllocationReportSerializer(serializers.Serializer[Any]):
    """What a file comes to here, and the plan that was made of it."""

    by = serializers.CharField()
    exact = serializers.IntegerField()
    mapped = serializers.IntegerField()
    does_not_fit = serializers.IntegerField()
    changes = serializers.IntegerField(help_text="How many entries change something")
    nothing_to_change = serializers.BooleanField()
    entries = EntrySerializer(many=True)
    plan_id = serializers.UUIDField(allow_null=True, help_text="The draft; null if none was made")


@declare(body_limit=BODY_LIMIT)
class AllocationView(APIView):
    """The allocation as a file."""

    parser_classes = [AllocationJSONParser, AllocationYAMLParser, AllocationXYAMLParser]

    def get_renderers(self) -> list[Any]:
        """Return what can be answered: a file to GET, a report to POST."""
        return (
            [AllocationJSONRenderer(), AllocationYAMLRenderer()]
            if self.request.method in {"GET", "HEAD"}
            else [JSONRenderer()]
        )

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Refuse formats that there are not with a sentence."""
        wanted = request.query_params.get(FORMAT, "json")
        if wanted not in {"json", "yaml"}:
            raise Invalid("An allocation file is JSON or YAML.", errors={FORMAT: "json or yaml."})
        return super().perform_content_negotiation(request, force)

    @extend_schema(
        operation_id="allocation_export",
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "application/yaml"): OpenApiTypes.OBJECT,
            404: problem("There is no such chassis or tenant, or you may not see it"),
        },
        parameters=[
            OpenApiParameter("chassis_id", OpenApiTypes.INT64, description="Exports the chassis of this id alone"),
            OpenApiParameter("tenant_id", OpenApiTypes.INT64, description="Exports what the tenant of this id holds"),
            OpenApiParameter(FORMAT, str, enum=["json", "yaml"]),
        ],
    )
    def get(self, request: Request) -> Response:
        """Export who is attached where: a file that can be imported again."""
        document = allocation_export(
            person=person_of(request),
            chassis_id=query_integer(request, "chassis_id"),
            tenant_id=query_integer(request, "tenant_id"),
        )
        renderer: Any = request.accepted_renderer
        return Response(document.text(renderer.format))

    @declare(audited_as=Action.ALLOCATION_READ)
    @extend_schema(
        operation_id="allocation_import",
        request={"application/json": OpenApiTypes.OBJECT, "application/yaml": OpenApiTypes.OBJECT},
        responses={
            200: OpenApiResponse(AllocationReportSerializer, description="Nothing was made: a dry run, or no change"),
            201: OpenApiResponse(AllocationReportSerializer, description="A draft was made"),
            400: problem("The file has problems, or something of it does not fit: `problems` has each with its place"),
            409: problem("Something wanted is missing, or cannot be composed"),
        },
        parameters=[
            OpenApiParameter(
                "by", str, enum=list(MAPPING_MODES), description="What stands in for what is not the same here"
            ),
            OpenApiParameter("chassis_id", OpenApiTypes.INT64, description="Puts a file's only chassis onto this one"),
            OpenApiParameter("partial", bool, description="Leaves out what does not fit"),
            OpenApiParameter("dry_run", bool, description="Answers the report and makes nothing"),
            IDEMPOTENCY_KEY,
        ],
    )
    def post(self, request: Request) -> Response:
        """Import a file: 201 with a draft plan and the report, and nothing is changed before the plan is applied."""
        person = person_of(request)
        refuse_parameters(request, ("by", "chassis_id", "partial", "dry_run"))
        dry_run, partial = query_flag(request, "dry_run"), query_flag(request, "partial")
        onto = query_integer(request, "chassis_id")
        body: Any = request.data
        kind = parse_header_parameters(request.content_type or "")[0]
        checked = allocation_check(
            person=person,
            # Without a body there is an empty object.
            raw=body or b"",
            format="json" if kind == AllocationJSONParser.media_type else "yaml",
            by=request.query_params.get("by", "exact"),
            onto=onto,
        )
        if checked.report is None:
            raise unreadable_file_error(checked)
        plan = None
        if not dry_run:
            key = idempotency_key(request)
            plan = allocation_plan(person=person, checked=checked, partial=partial, idempotency_key=key)
        answer = {**checked.report.as_json(), "plan_id": None if plan is None else str(plan.pk)}
        if plan is None:
            return Response(answer)
        address = request.build_absolute_uri(reverse("api:plan", args=[plan.pk]))
        return Response(answer, status=201, headers={"Location": address})


class AllocationSchemaView(APIView):
    """What an allocation file may look like."""

    @extend_schema(operation_id="allocation_schema", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """Show the JSON Schema of allocation files."""
        return Response(SCHEMA)


urlpatterns = [
    path("allocation/", AllocationView.as_view(), name="allocation"),
    path("allocation/schema/", AllocationSchemaView.as_view(), name="allocation_schema"),
]
