"""Deployments by the API: a job description becomes containers, scripts, reasons and gains."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of, require_composer
from accounts.audit.actions import Action
from accounts.declaration import declare
from benchmarks.deploy.deployment import MAX_REQUEST_BYTES
from benchmarks.deploy.services import deployment_create, host_topology, tuning_create
from benchmarks.deploy.short_form import EXAMPLE
from benchmarks.model import prediction_json
from benchmarks.model.infragraph import infragraph
from core.api.fields import IDEMPOTENCY_KEY, idempotency_key
from core.api.requests import problem, refuse_parameters, strict_schema
from core.errors import Invalid


class DeploymentRequestParser(BaseParser):
    """The bytes of a request, which `deployment_create` parses: it reports what is wrong by field."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return them: up to one byte more than is allowed, so that too many are refused."""
        return stream.read(MAX_REQUEST_BYTES + 1)


class DeploymentFileSerializer(serializers.Serializer[Any]):
    """A generated file."""

    kind = serializers.CharField(help_text="apptainer, docker, slurm, torque or bash")
    name = serializers.CharField()
    text = serializers.CharField()
    is_wanted = serializers.BooleanField(
        help_text="Whether it defines a container, or is the script of the requested queue"
    )


class GainSerializer(serializers.Serializer[Any]):
    """The predicted gain of an option: a factor of the samples a second."""

    option = serializers.CharField()
    value = serializers.CharField()
    against = serializers.CharField()
    factor = serializers.FloatField(allow_null=True, help_text="The median; null where it is unknown")
    low = serializers.FloatField(allow_null=True, help_text="5th percentile")
    high = serializers.FloatField(allow_null=True, help_text="95th percentile")
    taken = serializers.BooleanField(help_text="Whether a generated file has it, and the prediction counts it")
    why = serializers.CharField()
    basis = serializers.CharField(help_text="measured, calibrated, prior or unknown")
    source = serializers.CharField()  # type: ignore[assignment]  # the framework has an attribute of this name


class DeploymentFieldSerializer(serializers.Serializer[Any]):
    """The treatment of a field of the request."""

    pointer = serializers.CharField(help_text="A JSON pointer")
    treatment = serializers.CharField(help_text="used or ignored")
    why = serializers.CharField()


DEPLOYMENT_SCHEMA = inline_serializer(
    "Deployment",
    {
        "form": serializers.CharField(help_text="modak or short"),
        "name": serializers.CharField(),
        "files": DeploymentFileSerializer(many=True),
        "reasons": serializers.ListField(child=serializers.CharField()),
        "told": DeploymentFieldSerializer(many=True),
        "gains": GainSerializer(many=True),
        "prediction": serializers.DictField(allow_null=True),
        "why_not": serializers.CharField(help_text="Why nothing is predicted; '' where something is"),
        "secrets": serializers.DictField(
            child=serializers.CharField(), help_text="Variables to set for the job, with where each was in the request"
        ),
        "tuning": serializers.DictField(allow_null=True, help_text="Of the sweep that the request names; else null"),
    },
)
TUNING_SCHEMA = inline_serializer(
    "DeploymentTuning", {"sweep": serializers.UUIDField(), "request": serializers.DictField()}
)


class Deployments(APIView):
    """Deployments of jobs."""

    parser_classes = [DeploymentRequestParser]

    @declare(audited_as=Action.DEPLOYMENT_MAKE)
    @extend_schema(
        operation_id="benchmarks_deployments_make",
        request=OpenApiTypes.OBJECT,
        examples=[OpenApiExample("This site's own form", value=EXAMPLE, request_only=True)],
        responses={
            200: OpenApiResponse(
                DEPLOYMENT_SCHEMA, description="Files, reasons, gains, and the treatment of each field"
            ),
            400: problem("Something in the request is wrong: `errors` has each by its JSON pointer"),
        },
    )
    def post(self, request: Request) -> Response:
        """Deploy a job: a request in MODAK's form or this site's own, of which nothing is kept."""
        refuse_parameters(request, ())
        made = deployment_create(person_of(request), _text_of(request))
        return Response(
            {
                "form": made.form,
                "name": made.name,
                "files": [asdict(one) for one in made.files],
                "reasons": made.reasons,
                "told": [asdict(one) for one in made.notes],
                "gains": [asdict(one) for one in made.gains],
                "prediction": None if made.prediction is None else prediction_json(made.prediction),
                "why_not": made.why_not,
                "secrets": made.secrets,
                "tuning": None if made.tuning is None else asdict(made.tuning) | {"sentence": made.tuning.sentence},
            }
        )


class DeploymentTuning(APIView):
    """The tuning of a deployment."""

    parser_classes = [DeploymentRequestParser]

    @declare(audited_as=Action.SWEEP_CREATE)
    @extend_schema(
        operation_id="benchmarks_deployments_tune",
        request=OpenApiTypes.OBJECT,
        parameters=[IDEMPOTENCY_KEY],
        examples=[OpenApiExample("This site's own form", value=EXAMPLE, request_only=True)],
        responses={
            202: OpenApiResponse(TUNING_SCHEMA, description="The sweep, and the request that takes its best setting"),
            400: problem("Something in the request is wrong, or nothing can be tuned: the sentence says why"),
        },
    )
    def post(self, request: Request) -> Response:
        """Tune a deployment by a small sweep on its host.

        It varies what the files set. Deploy the returned request when the sweep has ended.
        """
        person = person_of(request)
        require_composer(person, "run anything")
        refuse_parameters(request, ())
        made = deployment_create(person, _text_of(request))
        sweep, text = tuning_create(person, made, idempotency_key=idempotency_key(request))
        return Response({"sweep": sweep.pk, "request": json.loads(text)}, status=202)


class HostInfraGraph(APIView):
    """A host with what is attached to it, for other tools."""

    @strict_schema(
        operation_id="benchmarks_hosts_infragraph",
        parameters=[OpenApiParameter("plan", OpenApiTypes.UUID, description="As after this plan, not as now")],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, pk: int) -> Response:
        """Read a host with its devices as InfraGraph.

        An `Infrastructure`, which its versions from 3 on take: its own GPUs, and what is attached to it.
        """
        text = request.query_params.get("plan", "")
        try:
            plan = UUID(text) if text else None
        except ValueError as error:
            raise Invalid("'plan' is no id.", errors={"plan": "Give the id of a plan."}) from error
        return Response(infragraph(host_topology(person_of(request), pk, plan)))


def _text_of(request: Request) -> str:
    body: Any = request.data
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else ""


urlpatterns = [
    path("benchmarks/deployments/", Deployments.as_view(), name="deployments"),
    path("benchmarks/hosts/<int:pk>/infragraph/", HostInfraGraph.as_view(), name="host_infragraph"),
    path("benchmarks/deployments/tune/", DeploymentTuning.as_view(), name="deployment_tuning"),
]
