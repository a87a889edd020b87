"""Serializers whose fields follow from the annotations of a dataclass."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from rest_framework import serializers

FIELDS: dict[type, type[serializers.Field[Any, Any, Any, Any]]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
    datetime: serializers.DateTimeField,
    UUID: serializers.UUIDField,
}


type_hints = cache(get_type_hints)


class DataclassSerializer(serializers.Serializer[Any]):
    """Shows the fields of `Meta.fields`, in this order: as declared in the class, else by `Meta.dataclass`."""

    Meta: ClassVar[Any]

    def get_fields(self) -> dict[str, Any]:
        """Return the fields."""
        declared = super().get_fields()
        hints = type_hints(self.Meta.dataclass)
        return {name: declared[name] if name in declared else field_for(hints[name]) for name in self.Meta.fields}


def field_for(hint: Any) -> serializers.Field[Any, Any, Any, Any]:
    """Return the field of an annotation: of a plain type, a literal, or a tuple of plain ones; None is null."""
    arguments = get_args(hint)
    if get_origin(hint) in {Union, UnionType}:
        (plain,) = (one for one in arguments if one is not type(None))
        return FIELDS[plain](allow_null=True)
    if get_origin(hint) is Literal:
        return serializers.ChoiceField(choices=arguments)
    if get_origin(hint) is tuple:
        return serializers.ListField(child=FIELDS[arguments[0]]())
    return FIELDS[hint]()
