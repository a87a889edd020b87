"""Endpoints of one resource: its rows visible to a person, and their commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ViewSet

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.models import User
from accounts.visibility import visible_or_404
from core.api.requests import problem, refuse_body, validated_body

BodySerializer = type[serializers.Serializer[Any]]


class ResourceViewSet(ViewSet):
    """One row of a model by its id, with methods declared by `command`.

    Addresses map HTTP methods to them: `PlanViewSet.as_view({"post": "apply"})`.
    """

    request: Request
    model: ClassVar[Any]  # its manager has `visible_to`
    kind: ClassVar[str]  # its name in a 404: 'plan'
    serializer_class: ClassVar[BodySerializer]
    address: ClassVar[str] = ""  # the name of the address of one row, for `Location` after a command; '' for none

    def __init_subclass__(cls, **options: Any) -> None:
        """Describe the commands of a class, which answer with its serializer unless they declare another."""
        super().__init_subclass__(**options)
        for member in vars(cls).values():
            if describe := getattr(member, "describe", None):
                describe(cls.serializer_class)

    @property
    def person(self) -> User:
        """The user of the request."""
        return person_of(self.request)

    def rows(self) -> Any:
        """Return all rows; `find_row` searches those visible to the person."""
        return self.model.objects.all()

    def find_row(self, pk: object) -> Any:
        """Return a row; raises NotFound where none with that id is visible to the person."""
        return visible_or_404(self.rows(), self.person, pk, self.kind)

    def answer(self, row: Any, status: int = 200) -> Response:
        """Return a serialized row, with its address after a command that created or started something."""
        headers = {"Location": self.location(row)} if self.address and status != 200 else None
        shown = self.serializer_class(self.presented(row), context={"request": self.request, "view": self})
        return Response(shown.data, status=status, headers=headers)

    def presented(self, row: Any) -> Any:
        """Return the instance for the serializer: the row itself, unless a class overrides it."""
        return row

    def location(self, row: Any) -> str:
        """Return the full address of a row."""
        where: str = self.request.build_absolute_uri(reverse(self.address, args=[row.pk]))
        return where


PagedViewSet: Any = GenericViewSet  # both it and `ResourceViewSet` declare a serializer


class ListedResourceViewSet(ResourceViewSet, PagedViewSet):  # type: ignore[misc]  # a class of type Any
    """A resource with a list of its rows at an address of its own: GET `list`, POST `create`."""

    def answer_page(self, rows: QuerySet[Any]) -> Response:
        page = self.paginate_queryset(rows)
        response: Response = self.get_paginated_response(self.get_serializer(page, many=True).data)
        return response


def command(
    body: BodySerializer | None = None,
    *,
    audited_as: Action,
    target_kind: str = "",
    partial: bool = False,
    status: int = 200,
    answers: Any = None,
    conflict: str = "",
    problems: Mapping[int, str] | None = None,
    fresh_sign_in: bool = False,
    **described: Any,
) -> Callable[[Any], Any]:
    """Declare a method of a `ResourceViewSet` as a command: `method(view, row, values)` returns the row afterwards.

    The row is looked up first, then the body is validated (None: it must be empty; `partial`: members may be missing).
    With status 204 there is no content. A method may return its own response instead of a row; `answers` is then the
    serializer in the schema. `conflict` describes 409, `problems` other statuses.
    """

    def decorate(method: Any) -> Any:
        @wraps(method)
        def handler(view: ResourceViewSet, request: Request, pk: object) -> Response:
            row = view.find_row(pk)
            values: dict[str, Any] = {}
            if body is None:
                refuse_body(request)
            else:
                values = validated_body(body, request, partial=partial)
            result = method(view, row, values)
            if status == 204:
                return Response(status=204)
            return result if isinstance(result, Response) else view.answer(result, status)

        declared = declare(audited_as=audited_as, target_kind=target_kind, fresh_sign_in=fresh_sign_in)(handler)

        def describe(serializer: BodySerializer) -> None:
            answered = None if status == 204 else serializer if answers is None else answers
            refused = {code: problem(why) for code, why in {409: conflict, **(problems or {})}.items() if why}
            extend_schema(request=body, responses={status: answered, **refused}, **described)(declared)

        declared.describe = describe  # type: ignore[attr-defined]  # `ResourceViewSet` knows the serializer
        return declared

    return decorate
