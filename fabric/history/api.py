"""The state of the fabric at an earlier time by the API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import person_of
from accounts.models import User
from core.api.fields import query_integer
from fabric.history.selectors import attachment_rows, attachment_views


class TimeSerializer(serializers.Serializer[Any]):
    """A time during which a device was in one slot, attached to one host port or to none, held by one tenant or none.

    `until` is null while it lasts. Names are those of the time; '' where there was nothing, or nothing you may see.
    """

    id = serializers.IntegerField()
    device_id = serializers.IntegerField()
    device_name = serializers.CharField()
    serial_number = serializers.CharField()
    slot_id = serializers.IntegerField(allow_null=True)
    slot_name = serializers.CharField()
    host_name = serializers.CharField()
    host_port_label = serializers.CharField()
    place = serializers.CharField()
    tenant_name = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    begun = serializers.CharField()
    begun_by_operation_id = serializers.UUIDField(source="begun_by_id", allow_null=True)
    ended = serializers.CharField()
    ended_by_operation_id = serializers.UUIDField(source="ended_by_id", allow_null=True)


class PresentedList(generics.ListAPIView[Any]):
    """A list of which each page is put into words for the person."""

    present: Callable[[User, Sequence[Any]], list[Any]]

    def paginate_queryset(self, queryset: Any) -> list[Any]:
        """Return the rows of a page in words."""
        return type(self).present(person_of(self.request), super().paginate_queryset(queryset) or [])


class HistoryList(PresentedList):
    """Who held which slot, when."""

    serializer_class = TimeSerializer
    present = staticmethod(attachment_views)

    def get_queryset(self) -> QuerySet[Any]:
        """Return what the person may see."""
        return attachment_rows(
            person_of(self.request),
            slot=query_integer(self.request, "slot_id"),
            device=query_integer(self.request, "device_id"),
        )

    @extend_schema(
        operation_id="history_list",
        parameters=[
            OpenApiParameter("slot_id", OpenApiTypes.INT64, description="Keeps the times of the slot of this id"),
            OpenApiParameter("device_id", OpenApiTypes.INT64, description="Keeps the times of the device of this id"),
        ],
        responses=TimeSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List who held which slot when, newest first; a tenant sees the time since a device is its own."""
        return self.list(request)


urlpatterns = [path("history/", HistoryList.as_view(), name="history")]
