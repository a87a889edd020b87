"""Row locks in one order, which prevents deadlocks, natural order of names, compiled queries, and values of columns.

After waiting for a lock, earlier reads may be outdated, and so may the rows joined to the locked ones: read again
under the lock whatever depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections, models
from django.db.models import QuerySet
from django.db.models.functions import Collate

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


class CompiledQuery:
    """A query whose SQL is made once a process: Django takes ten times as long for it as the database for a row.

    `make` returns the query, a `values_list`, with placeholders for the values that are given to `rows`.
    """

    def __init__(self, make: Callable[[], QuerySet[Any, Any]]) -> None:
        self._make = make
        self._compiled: dict[str, tuple[str, list[tuple[int, Any, Any]]]] = {}  # by the kind of database

    def rows(self, *values: Any) -> list[list[Any]]:
        """Return the rows for values, which are in the order in which the SQL has them."""
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.vendor not in self._compiled:
            self._compiled[connection.vendor] = self._compile(connection, len(values))
        sql, conversions = self._compiled[connection.vendor]
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows = [list(row) for row in cursor.fetchall()]
        for place, expression, converters in conversions:
            for row in rows:
                for convert in converters:
                    row[place] = convert(row[place], expression, connection)
        return rows

    def _compile(self, connection: Any, count: int) -> tuple[str, list[tuple[int, Any, Any]]]:
        compiler = self._make().query.get_compiler(connection=connection)
        sql, placeholders = compiler.as_sql()
        if len(placeholders) != count:
            raise TypeError(f"This query takes {len(placeholders)} values.")
        found = compiler.get_converters([column for column, _, _ in compiler.select])
        return sql, [(place, expression, converters) for place, (converters, expression) in found.items()]


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
