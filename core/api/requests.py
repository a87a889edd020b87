"""Strict request bodies and query parameters of the API, which refuse unknown names; documented problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request

from core.api.fields import FORMAT, refuse_renamed
from core.documents import unknown_name_sentence
from core.errors import Invalid
from core.language import _, joined

MAX_REPORTED, MAX_NAME_LENGTH = 20, 60
PAGING = ("limit", "offset")


class StrictSerializer(serializers.BaseSerializer[Any]):
    """A mixin for request serializers, first among the bases: it refuses unknown members.

    Read-only members and former names (`renamed`) are refused as well.
    """

    renamed: ClassVar[dict[str, str]] = {}

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values of a body, or of a part of it; one error lists all problems."""
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)
        refuse_renamed(data, self.renamed)
        unknown = self._unknown(data)
        try:
            values = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not isinstance(error.detail, dict):
                raise
            raise serializers.ValidationError({**error.detail, **unknown}) from error
        if unknown:
            raise serializers.ValidationError(unknown)
        return values

    def _unknown(self, data: Mapping[str, Any]) -> dict[str, str]:
        fields: dict[str, Any] = getattr(self, "fields", {})
        known = [name for name, field in fields.items() if not field.read_only]
        unknown = [str(name) for name in data if name not in known][:MAX_REPORTED]
        return {
            name[:MAX_NAME_LENGTH]: _("'{name}' is read-only: leave it out.", name=name)
            if name in fields
            else unknown_name_sentence(name, known)
            for name in unknown
        }


class _EmptyBody(StrictSerializer, serializers.Serializer[Any]):
    """A body without members."""


def refuse_body(request: Request) -> None:
    """Raise ValidationError for a request with members where none are expected."""
    _EmptyBody(data=request.data or {}).is_valid(raise_exception=True)


def strict_schema(*, parameters: Sequence[OpenApiParameter] = (), **described: Any) -> Callable[[Any], Any]:
    """Describe a method as `extend_schema` does, and make it refuse undocumented query parameters.

    A misspelt filter that is ignored silently would answer a different question.
    """
    own = [one.name for one in parameters if one.location == OpenApiParameter.QUERY]

    def decorate(method: Any) -> Any:
        @wraps(method)
        def refusing(view: Any, request: Request, *args: Any, **kwargs: Any) -> Any:
            paged = isinstance(view, GenericAPIView) and view.pagination_class is not None
            refuse_parameters(request, [*own, *(PAGING if paged else ())], besides=(FORMAT,))
            return method(view, request, *args, **kwargs)

        return extend_schema(parameters=list(parameters), **described)(refusing)

    return decorate


def refuse_parameters(request: Request, known: Collection[str], *, besides: Collection[str] = ()) -> None:
    """Raise Invalid for query parameters that are neither `known` nor accepted everywhere (`besides`)."""
    unknown = [name for name in request.query_params if name not in {*known, *besides}][:MAX_REPORTED]
    errors = {name[:MAX_NAME_LENGTH]: unknown_name_sentence(name, known) for name in unknown}
    if errors:
        raise Invalid(joined(errors.values()), errors=errors)


def validated_body(
    serializer: type[serializers.Serializer[Any]], request: Request, *, partial: bool = False
) -> dict[str, Any]:
    """Return the values of a body; raises ValidationError. Of a `partial` one they are those that it has."""
    validated = serializer(data=request.data, partial=partial)
    validated.is_valid(raise_exception=True)
    values: dict[str, Any] = validated.validated_data
    return values


def sentence_by_field(found: Any, place: str = "") -> dict[str, str]:
    """Return a sentence for each invalid field of a serializer's errors; items of lists are named by their index."""
    if isinstance(found, dict):
        inner = [sentence_by_field(value, f"{place}.{name}" if place else str(name)) for name, value in found.items()]
        return {name: sentence for one in inner for name, sentence in one.items()}
    sentences = found if isinstance(found, list) else [found]
    return {place or "non_field_errors": " ".join(str(one) for one in sentences)}


def problem(why: str) -> Any:
    """Return the OpenAPI declaration of an error response of a view; the shape is the same everywhere."""
    return OpenApiResponse(description=why)
