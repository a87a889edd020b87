"""Events by the API: the same filters, order and sight as the page, and a way to pull every one of them once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.urls import path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.viewsets import ListedResourceViewSet, command
from accounts.visibility import visible_or_404
from core.api.fields import LIMIT_SCHEMA, SEARCH, BoundedPagination, query_integer
from core.api.requests import StrictSerializer, problem, strict_schema, validated_body
from telemetry.events import services
from telemetry.events.filters import MESSAGE_SORTS, REGISTRY_NAMES, EventFilter, MessageFilter
from telemetry.events.models import Event, EventSeverity, EventSource, SavedView
from telemetry.events.selectors import events_after, events_page, horizon

VIEW_TAKEN = "You have one of this name already, or as many as anybody may have"
SEVERAL = "; several are separated by commas"
IDS = "^[0-9]+(,[0-9]+)*$"


def _some_of(values: Sequence[str]) -> str:
    """Return the pattern of some of these values, separated by commas."""
    one = f"({'|'.join(values)})"
    return f"^{one}(,{one})*$"


FILTER_PARAMETERS = [
    OpenApiParameter("q", str, description="Keeps what contains these words, in any case"),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="Keeps what happened then or later"),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Keeps what happened before"),
    OpenApiParameter(
        "last", str, pattern="^[1-9][0-9]{0,3}[mhd]$", description="Keeps what came in the last 90m, 24h or 7d"
    ),
    *(
        OpenApiParameter(name, str, pattern=IDS, description=f"Keeps what is about the {name} of this id{SEVERAL}")
        for name in ("chassis", "drawer", "device", "port", "host")
    ),
    OpenApiParameter(
        "tenant", str, pattern=IDS, description=f"Keeps what is about things that this tenant held then{SEVERAL}"
    ),
    OpenApiParameter("source", str, pattern=_some_of(EventSource.values), description=f"Where it is from{SEVERAL}"),
    OpenApiParameter("severity", str, pattern=_some_of(EventSeverity.values), description=f"How grave it is{SEVERAL}"),
    OpenApiParameter("message", str, description=f"A message, with or without its version{SEVERAL}"),
    OpenApiParameter("person", str, description="Keeps what this person did"),
]


class EventSerializer(serializers.ModelSerializer[Event]):
    """An event. `at` is by this site's clock, `told_at` as the BMC's had it; ids are null where nothing fits."""

    source = serializers.ChoiceField(choices=EventSource.choices)  # type: ignore[assignment]  # a field of that name
    severity = serializers.ChoiceField(choices=EventSeverity.choices)
    arguments = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = Event
        fields: ClassVar[list[str]] = [
            "id", "at", "told_at", "received_at", "source", "severity", "message_id", "text", "arguments", "chassis_id",
            "chassis_name", "device_id", "port_id", "drawer_id", "host_id", "tenant_id", "tenant_name", "subject_name",
            "link", "person_name", "origin_uri",
        ]  # fmt: skip


class EventsSerializer(serializers.Serializer[Any]):
    """A part of the list, and where the next one is: null where there is none."""

    next = serializers.CharField(allow_null=True)
    results = EventSerializer(many=True)


class PulledSerializer(serializers.Serializer[Any]):
    """Events in the order in which they came to be known; ask again with `after` = `cursor`.

    `complete` tells that there are no more for now.
    """

    cursor = serializers.IntegerField()
    complete = serializers.BooleanField()
    results = EventSerializer(many=True)


class EventList(APIView):
    @strict_schema(
        operation_id="events_list",
        parameters=[
            *FILTER_PARAMETERS,
            OpenApiParameter("limit", LIMIT_SCHEMA, description="Events in an answer, at most 1000"),
            OpenApiParameter(
                "before", str, pattern="^-?[0-9]{1,17}-[0-9]{1,18}$", description="The place to go on at, from `next`"
            ),
        ],
        responses=EventsSerializer,
    )
    def get(self, request: Request) -> Response:
        """List the events that you may see, newest first. Follow `next` to the end: all of them are there."""
        rows = EventFilter.of(request.query_params).apply(Event.objects.visible_to(person_of(request)))
        limit = BoundedPagination().get_limit(request)
        page = events_page(rows, before=request.query_params.get("before", ""), limit=limit)
        given = [pair for pair in request.query_params.lists() if pair[0] != "before"]
        following = urlencode([*given, ("before", [page.older])], doseq=True)
        where = request.build_absolute_uri(f"{reverse('api:events')}?{following}") if page.older else None
        return Response({"next": where, "results": EventSerializer(page.rows, many=True).data})


class EventPull(APIView):
    @strict_schema(
        operation_id="events_pull_retrieve",
        parameters=[
            *FILTER_PARAMETERS,
            OpenApiParameter("after", OpenApiTypes.INT64, description="The `cursor` of the answer before; 0 to begin"),
            OpenApiParameter("limit", LIMIT_SCHEMA, description="Events in an answer, at most 1000"),
        ],
        responses=PulledSerializer,
    )
    def get(self, request: Request) -> Response:
        """Give the events behind a cursor, each once.

        They come in the order in which they came to be known, late ones included, and none is left out. For copies in
        other systems: keep `cursor` with what you keep of the answer, and ask again from there.
        """
        rows = EventFilter.of(request.query_params).apply(Event.objects.visible_to(person_of(request)))
        limit = BoundedPagination().get_limit(request)
        after, end = query_integer(request, "after") or 0, horizon()
        found = next(events_after(rows, after, until=end, at_once=limit), [])
        complete = len(found) < limit
        cursor = max(after, end) if complete else found[-1].pk
        return Response({"cursor": cursor, "complete": complete, "results": EventSerializer(found, many=True).data})


class EventDetail(APIView):
    @extend_schema(operation_id="events_retrieve", responses=EventSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show an event."""
        return Response(EventSerializer(visible_or_404(Event.objects, person_of(request), pk, "event")).data)


class MessageSerializer(serializers.Serializer[Any]):
    """What a message means, and what to do; its name is without a version."""

    name = serializers.CharField()
    registry = serializers.CharField()
    severity = serializers.ChoiceField(choices=EventSeverity.choices)
    explanation = serializers.CharField()
    advice = serializers.CharField()


class EventCatalogue(APIView):
    @strict_schema(
        operation_id="events_catalogue_list",
        parameters=[
            SEARCH,
            OpenApiParameter("registry", str, enum=REGISTRY_NAMES, description="Keeps the messages of this registry"),
            OpenApiParameter("severity", str, enum=EventSeverity.values, description="Keeps those of this severity"),
            OpenApiParameter("sort", str, enum=list(MESSAGE_SORTS), description="The order; by registry unless told"),
        ],
        responses=MessageSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List the messages that are known, with severity and meaning."""
        found = MessageFilter.of(request.query_params, search="search").found()
        return Response(MessageSerializer(found, many=True).data)


class EventViewSerializer(StrictSerializer, serializers.ModelSerializer[SavedView]):
    """A search under a name; `query` is what stands behind the '?' of the page and of the list of events."""

    name = serializers.CharField(max_length=services.MAX_NAME_LENGTH)
    query = serializers.CharField(max_length=services.MAX_QUERY_LENGTH, allow_blank=True)
    is_default = serializers.BooleanField(required=False)

    class Meta:
        model = SavedView
        fields: ClassVar[list[str]] = ["id", "name", "query", "is_default"]


class OwnEventViewSet(ListedResourceViewSet):
    serializer_class = EventViewSerializer
    address = "api:my_event_view"

    @strict_schema(operation_id="me_event_views_list")
    def list(self, request: Request) -> Response:
        """List your views of events."""
        return self.answer_page(self.person.event_views.all())

    @declare(audited_as=Action.EVENT_VIEW_ADD)
    @extend_schema(request=EventViewSerializer, responses={201: EventViewSerializer, 409: problem(VIEW_TAKEN)})
    def create(self, request: Request) -> Response:
        """Keep a search under a name."""
        made = services.saved_view_add(person=self.person, **validated_body(EventViewSerializer, request))
        return self.answer(made, 201)

    def find_row(self, pk: Any) -> SavedView:
        return services.saved_view_get(self.person, pk)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show one of your views of events."""
        return self.answer(self.find_row(pk))

    @command(EventViewSerializer, audited_as=Action.EVENT_VIEW_CHANGE, partial=True, conflict=VIEW_TAKEN)
    def partial_update(self, view: SavedView, values: dict[str, Any]) -> SavedView:
        """Change one of your views of events.

        Its name, its search, or whether the page opens with it.
        """
        return services.saved_view_change(person=self.person, pk=view.pk, **values)

    @command(audited_as=Action.EVENT_VIEW_REMOVE, status=204)
    def destroy(self, view: SavedView, values: dict[str, Any]) -> None:
        """Remove one of your views."""
        services.saved_view_remove(person=self.person, pk=view.pk)


urlpatterns = [
    path("events/", EventList.as_view(), name="events"),
    path("events/pull/", EventPull.as_view(), name="events_pull"),
    path("events/catalogue/", EventCatalogue.as_view(), name="events_catalogue"),
    path("events/<int:pk>/", EventDetail.as_view(), name="event"),
    path("me/event-views/", OwnEventViewSet.as_view({"get": "list", "post": "create"}), name="my_event_views"),
    path(
        "me/event-views/<int:pk>/",
        OwnEventViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="my_event_view",
    ),
]
