"""Row locks in one order, which prevents deadlocks, natural order of names, compiled queries, and values of columns.

After waiting for a lock, earlier reads may be outdated, and so may the rows joined to the locked ones: read again
under the lock whatever depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from inspect import signature
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections, models
from django.db.models import Expression, QuerySet
from django.db.models.functions import Collate
from django.db.models.query import get_related_populators

Row = TypeVar("Row", bound=models.Model)

# The collation that sorts numbers inside text as numbers: a migration creates it, or falconweb.sqlite.
NATURAL = "natural"


def natural(field: str) -> Collate:
    """Return an expression that orders by a text field naturally: 'big-2' before 'big-10'."""
    return Collate(field, NATURAL)


def lock_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return a query that locks the rows in the order of their ids; joined rows are not locked."""
    return rows.select_for_update(of=("self",), no_key=True).order_by("pk")


def single(rows: QuerySet[Row]) -> Row | None:
    """Return the row of a query that has one or none, such as by a unique column; in no order.

    `first` orders the rows, for which Django compares each of their columns: as long as the query itself takes.
    """
    return next(iter(rows.order_by()[:1]), None)


class Given(Expression):
    """The stand-in for a value of a compiled query: the one at `place` of those that are given to it."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        """Return a placeholder, with itself as its value."""
        return "%s", (self,)


@dataclass(frozen=True, slots=True)
class _CompiledSql:
    sql: str
    parameters: Sequence[Any]  # constants, and `Given`
    conversions: Sequence[tuple[int, Any, Any]]  # the place of a column, its expression, and what converts its values
    model: Callable[[Sequence[Any]], Any] | None  # makes a row of the model, None where the query has values


class CompiledQuery(Generic[Row]):
    """A query whose SQL is made once a process: Django takes ten times as long for it as the database for a row.

    `make` returns the query. It gets a stand-in for each value that it will be given, which it may compare columns
    with; where it takes none, all values in its SQL are placeholders of such. Rows are locked as by the query: within a
    transaction.
    """

    def __init__(self, make: Callable[..., QuerySet[Row, Any]]) -> None:
        self._make = make
        self._compiled: dict[str, _CompiledSql] = {}  # by the kind of database

    def rows(self, *values: Any) -> list[list[Any]]:
        """Return the rows of a `values_list`."""
        return self._fetch(self._of(connections[DEFAULT_DB_ALIAS], len(values)), values)

    def objects(self, *values: Any) -> list[Row]:
        """Return the rows of the model, with those that the query selects as related."""
        compiled = self._of(connections[DEFAULT_DB_ALIAS], len(values))
        if compiled.model is None:
            raise TypeError("This query has values.")
        return [compiled.model(row) for row in self._fetch(compiled, values)]

    def first(self, *values: Any) -> Row | None:
        """Return the first row of the model, None where there is none."""
        return next(iter(self.objects(*values)), None)

    def _of(self, connection: Any, count: int) -> _CompiledSql:
        found = self._compiled.get(connection.vendor)
        if found is None:
            found = self._compiled[connection.vendor] = self._compile(connection, count)
        return found

    def _fetch(self, compiled: _CompiledSql, values: Sequence[Any]) -> list[list[Any]]:
        connection = connections[DEFAULT_DB_ALIAS]
        given = [_prepared(connection, value) for value in values]
        parameters = [given[one.place] if isinstance(one, Given) else one for one in compiled.parameters]
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, parameters)
            rows = [list(row) for row in cursor.fetchall()]
        for place, expression, converters in compiled.conversions:
            for row in rows:
                for convert in converters:
                    row[place] = convert(row[place], expression, connection)
        return rows

    def _compile(self, connection: Any, count: int) -> _CompiledSql:
        stand_ins = [Given(place) for place in range(len(signature(self._make).parameters))]
        compiler = self._make(*stand_ins).query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        if not stand_ins:
            stand_ins = parameters = [Given(place) for place in range(len(parameters))]
        if len(stand_ins) != count:
            raise TypeError(f"This query takes {len(stand_ins)} values.")
        found = compiler.get_converters([column for column, _, _ in compiler.select])
        conversions = [(place, expression, converters) for place, (converters, expression) in found.items()]
        return _CompiledSql(sql, parameters, conversions, _maker_of(compiler))


def find_row(model: type[Row], pk: Any, *related: str) -> Row | None:
    """Return the row of an id, with its related rows, None where there is none; its SQL is made once a process."""
    return None if pk is None else _by_id(model, related, locks=False).first(pk)


def lock_row(model: type[Row], pk: Any) -> Row | None:
    """Lock and return the row of an id, None where there is none; its SQL is made once a process."""
    return None if pk is None else _by_id(model, (), locks=True).first(pk)


@cache
def _by_id(model: type[Any], related: tuple[str, ...], *, locks: bool) -> CompiledQuery[Any]:
    def make(pk: Given) -> QuerySet[Any]:
        rows: QuerySet[Any] = model._default_manager.filter(pk=pk).order_by()  # noqa: SLF001 - documented by Django
        rows = rows.select_related(*related) if related else rows
        return lock_rows(rows).order_by() if locks else rows

    return CompiledQuery(make)


def _prepared(connection: Any, value: Any) -> Any:
    """Return a value as the columns of its type have it."""
    if isinstance(value, UUID) and not connection.features.has_native_uuid_field:
        return value.hex
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


def _maker_of(compiler: Any) -> Callable[[Sequence[Any]], Any] | None:
    """Return what makes an object of a row, as Django's ModelIterable does; None for a query of values."""
    if not compiler.query.default_cols:
        return None
    kind = compiler.klass_info
    model, first, end = kind["model"], kind["select_fields"][0], kind["select_fields"][-1] + 1
    names = [column.target.attname for column, _, _ in compiler.select[first:end]]
    related = get_related_populators(kind, compiler.select, DEFAULT_DB_ALIAS)  # type: ignore[call-arg]  # stubs of Django 6

    def make(row: Sequence[Any]) -> Any:
        made = model.from_db(DEFAULT_DB_ALIAS, names, row[first:end])
        for one in related:
            one.populate(row, made)
        return made

    return make


def without_nul(value: Any) -> Any:
    """Return JSON without NUL characters, which PostgreSQL refuses in text."""
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return [without_nul(item) for item in value] if isinstance(value, list) else value


def fit_columns(model: type[models.Model], values: dict[str, Any]) -> dict[str, Any]:
    """Return values that the model's columns can store: one invalid value must not block all others."""
    found = dict(values)
    for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's documented name
        value = found.get(field.name)
        if isinstance(field, models.CharField) and isinstance(value, str):
            found[field.name] = value.replace("\0", "")[: field.max_length]
        elif isinstance(field, models.PositiveIntegerField) and isinstance(value, int):
            found[field.name] = value if 0 <= value < 2**31 else None if field.null else 0
        elif isinstance(field, models.BigIntegerField) and isinstance(value, int):
            found[field.name] = value if abs(value) < 2**63 else None
    return found


# The database is unreachable, or was locked for too long: the caller writes nothing, and retries later.
DATABASE_UNAVAILABLE = (OperationalError, InterfaceError)
