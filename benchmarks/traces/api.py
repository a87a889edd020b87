"""Imported traces by the API: import, list, play and delete."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.viewsets import ListedResourceViewSet
from benchmarks.simulation.chakra import MAX_TRACE_BYTES
from benchmarks.simulation.trace import TraceSimulation
from benchmarks.traces.models import ImportedTrace
from benchmarks.traces.selectors import DEFAULT_PLACE, trace_get, trace_list, trace_play
from benchmarks.traces.services import trace_delete, trace_import
from core.api.requests import problem, refuse_body, refuse_parameters, strict_schema
from core.api.serializers import dataclass_serializer
from core.language import gettext_noop

MEDIA_TYPES = ("application/octet-stream", "application/json")
BODY_LIMIT = (MAX_TRACE_BYTES, gettext_noop("The trace is larger than 32 MiB."))


class TraceParser(BaseParser):
    """Leaves a body as it is; one byte more than is allowed shows that they are too many."""

    media_type = MEDIA_TYPES[0]

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream.read(MAX_TRACE_BYTES + 1)


class JsonTraceParser(TraceParser):
    """The same for JSON, which the reader of traces parses within its bounds."""

    media_type = MEDIA_TYPES[1]


class ImportedTraceSerializer(serializers.ModelSerializer[ImportedTrace]):
    """A trace of one device: its nodes and the bytes of its collectives, by kind, and the seconds of its kernels."""

    class Meta:
        model = ImportedTrace
        fields = [
            "id", "title", "sha256", "size", "nodes", "collective_bytes", "compute_seconds", "imported_by_name",
            "imported_at",
        ]  # fmt: skip


class PlayedTraceSerializer(serializers.Serializer[Any]):
    """A play, simulated: `place` is the topology's name, `sent_rate` what each device sends, bytes a second."""

    place = serializers.CharField()
    sent_rate = serializers.FloatField()
    simulation = dataclass_serializer(TraceSimulation, "TraceSimulation")()


class TraceViewSet(ListedResourceViewSet):
    """Imported traces."""

    serializer_class = ImportedTraceSerializer
    address = "api:trace"

    def find_row(self, pk: Any) -> ImportedTrace:
        return trace_get(self.person, pk)

    @strict_schema(operation_id="benchmarks_traces_list")
    def list(self, request: Request) -> Response:
        """List traces, newest first."""
        return self.answer_page(trace_list(self.person))

    @declare(audited_as=Action.TRACE_IMPORT, body_limit=BODY_LIMIT)
    @extend_schema(
        operation_id="benchmarks_traces_import",
        request=dict.fromkeys(MEDIA_TYPES, OpenApiTypes.BINARY),
        responses={
            200: OpenApiResponse(ImportedTraceSerializer, description="It was here already"),
            201: ImportedTraceSerializer,
            400: problem("It is no trace of Chakra, or has too many nodes"),
            409: problem("The tenant has as many traces as it may have"),
            413: problem("It is too large"),
        },
        parameters=[OpenApiParameter("title", str, description="What you call it")],
    )
    def create(self, request: Request) -> Response:
        """Import an execution trace of Chakra.

        Its protobuf stream (`.et`), or its JSON.
        """
        refuse_parameters(request, ("title",))
        body: Any = request.data
        content = body if isinstance(body, bytes) else b""
        row, is_new = trace_import(person=self.person, content=content, title=request.query_params.get("title", ""))
        return self.answer(row, 201 if is_new else 200)

    @strict_schema(operation_id="benchmarks_traces_retrieve")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        """Show a trace."""
        return self.answer(self.find_row(pk))

    @declare(audited_as=Action.TRACE_DELETE)
    @strict_schema(
        operation_id="benchmarks_traces_delete", responses={204: None, 403: problem("Somebody else imported it")}
    )
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a trace that you imported; administrators delete any."""
        row = self.find_row(pk)
        refuse_body(request)
        trace_delete(person=self.person, trace=row)
        return Response(status=204)

    @strict_schema(
        operation_id="benchmarks_traces_play",
        responses={
            200: PlayedTraceSerializer,
            400: problem("The place has too few GPUs"),
            404: problem("There is no such trace or host, or you may not see it"),
        },
        parameters=[
            OpenApiParameter(
                "place", str, description="Id or name of a host, as it is composed now, or a published configuration"
            ),
            OpenApiParameter("devices", str, description="How many GPUs, the first ones; by default all"),
        ],
    )
    def play(self, request: Request, pk: UUID) -> Response:
        """Play a trace on a topology.

        All GPUs of a host, or of a published configuration, do the trace at once: seconds and traffic, simulated.
        """
        given = request.query_params
        found = trace_play(
            self.person, self.find_row(pk), place=given.get("place") or DEFAULT_PLACE, devices=given.get("devices", "")
        )
        return Response(PlayedTraceSerializer(found).data)


urlpatterns = [
    path(
        "benchmarks/traces/",
        TraceViewSet.as_view({"get": "list", "post": "create"}, parser_classes=[TraceParser, JsonTraceParser]),
        name="traces",
    ),
    path("benchmarks/traces/<uuid:pk>/", TraceViewSet.as_view({"get": "retrieve", "delete": "destroy"}), name="trace"),
    path("benchmarks/traces/<uuid:pk>/play/", TraceViewSet.as_view({"get": "play"}), name="trace_play"),
]
