"""What requests carry: nothing of it is left out unsaid, since that would change what a request means."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request

from fabric.allocation.shape import unknown_word
from falconweb.api.fields import refuse_old_names
from falconweb.api.negotiation import FORMAT
from falconweb.errors import Invalid

MOST_TOLD, LONGEST_NAME = 20, 60
PAGING = ("limit", "offset")


class Body(serializers.BaseSerializer[Any]):
    """A serializer of requests, before the others of its class: it refuses members that it does not know.

    So it does with those that are only read, and with `renamed`, names that members had before.
    """

    renamed: ClassVar[dict[str, str]] = {}

    def to_internal_value(self, data: Any) -> Any:
        """Return the values of a body, or of a part of it; all that is wrong is told at once."""
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)
        refuse_old_names(data, self.renamed)
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
        unknown = [str(name) for name in data if name not in known][:MOST_TOLD]
        return {
            name[:LONGEST_NAME]: f"'{name}' is only read here: leave it out."
            if name in fields
            else unknown_word(name, known)
            for name in unknown
        }


class _Empty(Body, serializers.Serializer[Any]):
    """A body without members."""


def refuse_body(request: Request) -> None:
    """Raise ValidationError where a request has members although its address alone says what is wanted."""
    _Empty(data=request.data or {}).is_valid(raise_exception=True)


def asked(*, parameters: Sequence[OpenApiParameter] = (), **described: Any) -> Callable[[Any], Any]:
    """Describe a method as `extend_schema` does, and let it refuse parameters that are not described.

    One that is left out unsaid, such as a filter that is misspelt, would answer something else than was asked for.
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
    """Raise Invalid where an address has parameters that are neither known nor go without saying (`besides`)."""
    unknown = [name for name in request.query_params if name not in {*known, *besides}][:MOST_TOLD]
    errors = {name[:LONGEST_NAME]: unknown_word(name, known) for name in unknown}
    if errors:
        raise Invalid(" ".join(errors.values()), errors=errors)
