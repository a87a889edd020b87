"""The parameters of a service as JSON and back: rows by ids, instants, collections, dataclasses, enumerations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from importlib import import_module
from typing import Any

import msgspec
from django.apps import apps
from django.db import models

from core.errors import Conflict
from core.language import _


def sealed_parameters(value: Any) -> Any:
    """Return a parameter as plain JSON; raises TypeError for a type that has no such form."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():  # before text, which some are too
            return {"enum": _place(value), "name": value.name}
        case str():
            return value
        case datetime():
            return {"instant": value.isoformat()}
        case models.Model():
            return {"model": value._meta.label, "id": str(value.pk)}  # noqa: SLF001 - documented by Django
        case Mapping():
            return {"members": {str(name): sealed_parameters(one) for name, one in value.items()}}
        case _ if is_dataclass(value):
            members = {one.name: sealed_parameters(getattr(value, one.name)) for one in fields(value)}
            return {"dataclass": _place(value), "fields": members}
        case Collection():
            return [sealed_parameters(one) for one in value]
    raise TypeError(f"{type(value).__name__} cannot wait for an approval.")


def opened_parameters(value: Any) -> Any:
    """Return what `sealed_parameters` was given, with rows as they are now; raises Conflict for one that is gone."""
    match value:
        case {"enum": str(place), "name": str(name)}:
            return _kind_at(place)[name]
        case {"dataclass": str(place), "fields": dict(members)}:
            return _kind_at(place)(**{name: opened_parameters(one) for name, one in members.items()})
        case {"instant": str(text)}:
            return datetime.fromisoformat(text)
        case {"model": str(label), "id": str(pk)}:
            model = apps.get_model(label)
            row = model._default_manager.filter(pk=pk).first()  # noqa: SLF001 - documented by Django
            if row is None:
                kind = str(model._meta.verbose_name)  # noqa: SLF001 - documented by Django
                raise Conflict(_("A {kind} that it is about is no longer there.", kind=_(kind)))
            return row
        case {"members": dict(members)}:
            return {name: opened_parameters(one) for name, one in members.items()}
        case list(items):
            return [opened_parameters(one) for one in items]
    return value


def _place(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__name__}"


def _kind_at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def plain_facts(facts: Mapping[str, object]) -> dict[str, Any]:
    """Return facts as JSON holds them, so that stored ones equal present ones."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(facts))
    return plain
