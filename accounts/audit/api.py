"""The audit log by the API: for administrators, like its pages."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action, Outcome
from accounts.audit.exports import FORMATS, audit_export
from accounts.audit.models import AuditEntry, columns
from accounts.audit.selectors import AUDIT_FILTERS, AuditFilter, find_entries
from accounts.audit.verification import last_verification, verification_request
from accounts.declaration import declare
from accounts.permissions import ADMINISTRATORS
from accounts.visibility import row_or_404
from core.api.fields import FORMAT, SEARCH, query_search, refuse_renamed
from core.api.requests import problem, refuse_body

FILTER_PARAMETERS = [
    SEARCH,
    OpenApiParameter("person", str, description="Keeps what this person did, under former names too"),
    OpenApiParameter("action", str, description="Keeps this action, such as person.add, or all that begin so: person"),
    OpenApiParameter("outcome", str, enum=Outcome.values, description="Keeps what ended so"),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="Keeps what happened then or later"),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Keeps what happened before"),
    OpenApiParameter("target_kind", str, description="Keeps what is about this kind of thing, such as device"),
    OpenApiParameter("target_id", str, description="Keeps what is about the thing of this id"),
    OpenApiParameter("request_id", str, description="Keeps what came of this request"),
]


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    """An entry: who, from where, what, before and after, and how it ended.

    `digest` is the SHA-256 of all other members as an export has them; `previous` is that of the entry before.
    """

    outcome = serializers.ChoiceField(choices=Outcome.choices)
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)

    class Meta:
        model = AuditEntry
        fields = list(columns())


class VerificationSerializer(serializers.Serializer[Any]):
    """The last verification: when, whether the log was whole, and what was found, in a sentence; null before any."""

    at = serializers.DateTimeField(allow_null=True)
    whole = serializers.BooleanField(allow_null=True)
    sentence = serializers.CharField()


@extend_schema_view(get=extend_schema(operation_id="audit_list", parameters=FILTER_PARAMETERS))
class AuditList(generics.ListAPIView[AuditEntry]):
    """List entries, newest first; administrators only."""

    permission_classes = ADMINISTRATORS
    serializer_class = AuditEntrySerializer

    def get_queryset(self) -> Any:
        """Return what fits the filter."""
        return find_entries(person_of(self.request), _filter(self.request))


class AuditDetail(APIView):
    """One entry."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="audit_retrieve", responses=AuditEntrySerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show an entry; administrators only."""
        return Response(AuditEntrySerializer(row_or_404(AuditEntry.objects.all(), pk, "entry")).data)


class AuditExport(APIView):
    """The log as a file."""

    permission_classes = ADMINISTRATORS

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Refuse the name that other addresses have for the format: here it is `as`."""
        refuse_renamed(request.query_params, {FORMAT: "as"})
        return super().perform_content_negotiation(request, force)

    @extend_schema(
        operation_id="audit_export_retrieve",
        parameters=[
            *FILTER_PARAMETERS,
            OpenApiParameter("as", str, enum=list(FORMATS), description="jsonl by default"),
        ],
        responses={(200, one.partition(";")[0]): OpenApiTypes.STR for one in FORMATS.values()},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Download entries, oldest first, as JSON Lines or CSV; that it was done is kept too. Administrators only."""
        kind = request.query_params.get("as", "jsonl")
        return audit_export(by=person_of(request), filters=_filter(request), kind=kind)


class AuditVerification(APIView):
    """Whether the log is whole."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="audit_verification_retrieve", responses=VerificationSerializer)
    def get(self, request: Request) -> Response:
        """Show the last verification of the log; administrators only."""
        return Response(_verification_data())

    @declare(audited_as=Action.AUDIT_VERIFY_REQUEST)
    @extend_schema(
        operation_id="audit_verification_create",
        request=None,
        responses={202: VerificationSerializer, 503: problem("No worker can be reached")},
    )
    def post(self, request: Request) -> Response:
        """Have the log verified: 202 with the verification before; ask again for the new one. Administrators only."""
        refuse_body(request)
        verification_request(by=person_of(request))
        return Response(_verification_data(), status=202)


def _filter(request: Request) -> AuditFilter:
    given = {name: request.query_params[name] for name in AUDIT_FILTERS if name in request.query_params}
    return AuditFilter.of({**given, "q": query_search(request)})


def _verification_data() -> Any:
    row = last_verification()
    return VerificationSerializer(
        {
            "at": row.at if row else None,
            "whole": row.outcome == Outcome.DONE if row else None,
            "sentence": row.sentence if row else "",
        }
    ).data


urlpatterns = [
    path("audit/", AuditList.as_view(), name="audit"),
    path("audit/<int:pk>/", AuditDetail.as_view(), name="audit_entry"),
    path("audit/export/", AuditExport.as_view(), name="audit_export"),
    path("audit/verification/", AuditVerification.as_view(), name="audit_verification"),
]
