"""Serializer fields that read through relations, query parameters, pagination and content negotiation of the API."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from django.core.exceptions import ObjectDoesNotExist
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from core.errors import Invalid
from core.language import _, joined

# The largest row id: a database refuses larger ones.
MAX_ID = 2**63 - 1
MAX_SEARCH_LENGTH = 200
LIMIT_SCHEMA: Final = {"type": "integer", "minimum": 1, "default": 100}
SEARCH = OpenApiParameter(
    "search",
    {"type": "string", "maxLength": MAX_SEARCH_LENGTH},
    description="Keeps what contains this text, in any case",
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description=(
        "Any text of up to 200 characters, new for each thing you want. A repeat with the same key and body does "
        "nothing and answers the same operation with 202; with another body it is refused with 422."
    ),
)


def idempotency_key(request: Request) -> str:
    """Return the key of a request; '' for none."""
    return request.headers.get("Idempotency-Key", "")


class BoundedJSONParser(JSONParser):
    """JSON; too deep nesting and unpaired surrogates are parse errors, as any other invalid JSON."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the parsed body."""
        try:
            value = super().parse(stream, media_type, parser_context)
            # Half a surrogate pair can be neither stored nor encoded in a response.
            json.dumps(value, ensure_ascii=False).encode()
        except RecursionError as error:
            raise ParseError("JSON parse error - it is nested too deeply.") from error
        except UnicodeEncodeError as error:
            raise ParseError("JSON parse error - a text has half a surrogate pair.") from error
        return value


class BoundedPagination(LimitOffsetPagination):
    """A page of a list: `limit` rows (default 100, at most 1000) from `offset`; other values are refused."""

    default_limit = 100
    max_limit = 1000

    def get_limit(self, request: Request) -> int:
        """Return the number of rows in the page."""
        limit = query_integer(request, "limit")
        if limit == 0:
            raise Invalid(_("'limit' is 0."), errors={"limit": _("Give a number from 1 to 1000.")})
        return self.default_limit if limit is None else min(limit, self.max_limit)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return the parameters with the bounds of their values."""
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        for one, bounds in zip(parameters, (LIMIT_SCHEMA, {"type": "integer", "minimum": 0}), strict=True):
            one["schema"] = bounds
        return parameters

    def get_offset(self, request: Request) -> int:
        """Return the number of rows to skip."""
        return query_integer(request, "offset") or 0


def query_integer(request: Request, name: str, *, was: str = "") -> int | None:
    """Return an integer query parameter, None when absent; raises Invalid for other values and for its former name."""
    refuse_renamed(request.query_params, {was: name} if was else {})
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MAX_ID):
        raise Invalid(_("'{name}' is not a number.", name=name), errors={name: _("Give a whole number.")})
    return int(text)


def query_choice(request: Request, name: str, choices: Collection[str]) -> str | None:
    """Return a query parameter that is one of these texts, None when absent; raises Invalid for any other."""
    text = request.query_params.get(name)
    if text is not None and text not in choices:
        sentence = _("'{text}' is no {name}.", text=text[:50], name=name)
        raise Invalid(sentence, errors={name: _("One of {choices}.", choices=", ".join(choices))})
    return text


def query_flag(request: Request, name: str) -> bool:
    """Return a boolean query parameter, False when absent; raises Invalid for anything but true and false."""
    text = request.query_params.get(name, "").lower()
    if text not in {"true", "1", "false", "0", ""}:
        raise Invalid(_("'{name}' is neither true nor false.", name=name), errors={name: _("true or false.")})
    return text in {"true", "1"}


def refuse_renamed(given: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Raise Invalid for a former name: ignored silently, it would change the meaning of the request."""
    errors = {old: _("'{old}' is called '{new}'.", old=old, new=new) for old, new in renamed.items() if old in given}
    if errors:
        raise Invalid(joined(errors.values()), errors=errors)


def query_search(request: Request) -> str:
    """Return the search text; raises Invalid for one that a database refuses."""
    text = request.query_params.get("search", "").strip()
    if "\x00" in text or len(text) > MAX_SEARCH_LENGTH:
        limit = _("Give at most {count} characters.", count=MAX_SEARCH_LENGTH)
        raise Invalid(_("The text to search for cannot be used."), errors={"search": limit})
    return text


class IdField(serializers.IntegerField):
    """The id of a row in a request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_ID, **options)


class LinkedId(serializers.IntegerField):
    """The id of the related object; null where there is none, or none visible to the user."""

    def __init__(self, source: str) -> None:
        super().__init__(source=source, read_only=True, allow_null=True)


class LinkedText(serializers.CharField):
    """A text attribute of the related object; '' where there is none, or none visible to the user."""

    def __init__(self, source: str) -> None:
        super().__init__(source=source, read_only=True)

    def get_attribute(self, instance: Any) -> Any:
        """Read it."""
        try:
            value = super().get_attribute(instance)
        except (serializers.SkipField, ObjectDoesNotExist):
            return ""
        return "" if value is None else value


class LinkedIds(serializers.ListField):
    """The ids of the related objects that are visible to the user."""

    child = serializers.IntegerField()

    def __init__(self, source: str) -> None:
        super().__init__(source=source, read_only=True)

    def to_representation(self, data: Any) -> list[Any]:
        """Return the ids of prefetched rows."""
        return [row.pk for row in (data.all() if hasattr(data, "all") else data)]


FORMAT: Final = "format"  # what addresses call it


class FormatNegotiation(DefaultContentNegotiation):
    """Answers an unsupported `format` with 400 and its sentence, not with the framework's 404."""

    def filter_renderers(self, renderers: Iterable[Any], format: str) -> Any:  # noqa: A002 - the framework's name
        """Return the renderers of a format; raises Invalid where there is none."""
        found = [one for one in renderers if one.format == format]
        if not found:
            known = " or ".join(sorted({one.format for one in renderers}))
            raise Invalid(
                "This address does not answer in such a format.", errors={FORMAT: f"{known}, or leave it out."}
            )
        return found
