"""One's own pinned dashboards by the API."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from falconweb.api.bodies import Body, refuse_body
from falconweb.api.openapi import problem
from falconweb.errors import NotFound
from telemetry.history.models import Dashboard
from telemetry.history.services import LONGEST_NAME, MOST_DASHBOARDS, dashboard_add, dashboard_change, dashboard_remove

TAKEN = "You have one of this name already, or as many as anybody may have"


class DashboardSerializer(Body, serializers.ModelSerializer[Dashboard]):
    """A view of the telemetry page under a name; `query` is what stands behind the '?' of the page's address."""

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=LONGEST_NAME)
    query = serializers.CharField(max_length=4000, allow_blank=True)
    position = serializers.IntegerField(min_value=1, max_value=MOST_DASHBOARDS, required=False)
    saved_at = serializers.DateTimeField(read_only=True)

    class Meta:
        model = Dashboard
        fields = ["id", "name", "query", "position", "saved_at"]


class MyDashboards(generics.ListAPIView[Dashboard]):
    """One's own dashboards; POST keeps one."""

    serializer_class = DashboardSerializer

    def get_queryset(self) -> Any:
        """Return one's own."""
        if getattr(self, "swagger_fake_view", False):
            return Dashboard.objects.none()
        return Dashboard.objects.visible_to(person_of(self.request))

    @extend_schema(operation_id="me_dashboards_list")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List your dashboards in their order."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="me_dashboards_create",
        request=DashboardSerializer,
        responses={201: DashboardSerializer, 409: problem(TAKEN)},
    )
    def post(self, request: Request) -> Response:
        """Pin a view under a name, as the last one or at a position."""
        wanted = DashboardSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        made = dashboard_add(
            person=person_of(request), name=values["name"], query=values["query"], position=values.get("position")
        )
        where = request.build_absolute_uri(reverse("api:my_dashboard", args=[made.pk]))
        return Response(DashboardSerializer(made).data, status=201, headers={"Location": where})


class MyDashboard(APIView):
    """One of one's own dashboards."""

    @extend_schema(operation_id="me_dashboards_retrieve", responses=DashboardSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show one of your dashboards."""
        return Response(DashboardSerializer(_mine(request, pk)).data)

    @extend_schema(
        operation_id="me_dashboards_partial_update",
        request=DashboardSerializer(partial=True),
        responses={200: DashboardSerializer, 409: problem(TAKEN)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Give one of your dashboards another name, view or position."""
        _mine(request, pk)
        wanted = DashboardSerializer(data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        return Response(
            DashboardSerializer(dashboard_change(person=person_of(request), pk=pk, **wanted.validated_data)).data
        )

    @extend_schema(operation_id="me_dashboards_destroy", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove one of your dashboards."""
        refuse_body(request)
        dashboard_remove(person=person_of(request), pk=pk)
        return Response(status=204)


def _mine(request: Request, pk: int) -> Dashboard:
    row = Dashboard.objects.visible_to(person_of(request)).filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such dashboard.")
    return row
