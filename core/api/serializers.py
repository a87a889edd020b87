"""Serializers whose fields follow from the annotations of a dataclass."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from rest_framework import serializers

FIELDS: dict[type, type[serializers.Field[Any, Any, Any, Any]]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
    datetime: serializers.DateTimeField,
    UUID: serializers.UUIDField,
    dict: serializers.DictField,
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


def dataclass_serializer(shape: type, name: str, **others: Any) -> type[serializers.Serializer[Any]]:
    """Return `<name>Serializer` for responses that show a dataclass or a msgspec.Struct, with its docstring.

    `others` are fields in the place of its own, such as nested ones, or besides them.
    """
    own = {field: field_for(hint) for field, hint in type_hints(shape).items() if field not in others}
    made = type(f"{name}Serializer", (serializers.Serializer,), {"__doc__": shape.__doc__, **own, **others})
    return cast("type[serializers.Serializer[Any]]", made)


def field_for(hint: Any, **options: Any) -> serializers.Field[Any, Any, Any, Any]:
    """Return the field of an annotation: of a plain type, a literal, a dict, or a tuple of such; None is null."""
    arguments = get_args(hint)
    if get_origin(hint) in {Union, UnionType}:
        (plain,) = (one for one in arguments if one is not type(None))
        return field_for(plain, allow_null=True)
    if get_origin(hint) is Literal:
        return serializers.ChoiceField(choices=list(arguments), **options)
    if get_origin(hint) is tuple:
        return serializers.ListField(child=field_for(arguments[0]), **options)
    return FIELDS[get_origin(hint) or hint](**options)
