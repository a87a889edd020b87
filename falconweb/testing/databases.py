"""The databases of a test process: copies of migrated ones; after a test, only tables with rows are emptied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.commands import flush
from django.db import connections

from falconweb.launch.fingerprints import DATABASES
from falconweb.testing.snapshots import copy_databases, locked_folder, template_name

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from pytest_django import DjangoDbBlocker


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Create the databases of this process; replaces pytest-django's fixture, which migrates in each process."""
    with django_db_blocker.unblock():
        on_sqlite = connections["default"].vendor == "sqlite"
        names = _copied_files() if on_sqlite else {"default": _from_template()}
        for alias, name in names.items():
            connection = connections[alias]
            connection.close()
            settings.DATABASES[alias]["NAME"] = connection.settings_dict["NAME"] = name
            _remove_triggers(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", _flush_nonempty_tables)
        # The content types and permissions that would be recreated are not used.
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield
    with django_db_blocker.unblock():
        connections.close_all()
        if not on_sqlite:
            _execute_on_server(f'DROP DATABASE "{names["default"]}" WITH (FORCE)')


def _copied_files() -> dict[str, str]:
    """Copy the site's files; returns their names by alias. Django creates other databases of a suite."""
    copy_databases(settings.CONFIG.data)
    names = {}
    for alias in connections:
        name = str(settings.DATABASES[alias]["NAME"])
        if Path(name).name not in DATABASES:
            name = connections[alias].creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        names[alias] = name
    return names


def _from_template() -> str:
    """Create a database from a migrated template on this server; returns its name."""
    connection = connections["default"]
    template, name = template_name(), f"test_{os.getpid()}"
    with locked_folder():
        if not _execute_on_server("SELECT 1 FROM pg_database WHERE datname = %s", template):
            before, new = connection.settings_dict["NAME"], f"new_{template}"
            _execute_on_server(f'DROP DATABASE IF EXISTS "{new}"')
            _execute_on_server(f'CREATE DATABASE "{new}"')
            connection.settings_dict["NAME"] = new
            call_command("migrate", verbosity=0)
            connection.close()
            connection.settings_dict["NAME"] = before
            _execute_on_server(f'ALTER DATABASE "{new}" RENAME TO "{template}"')
        _execute_on_server(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return name


def _execute_on_server(statement: str, *values: str) -> bool:
    """Execute a statement about databases; returns whether it returned a row."""
    with connections["default"]._nodb_cursor() as cursor:  # noqa: SLF001 - as Django makes its own test databases
        cursor.execute(statement, values)
        return cursor.description is not None and cursor.fetchone() is not None


def _remove_triggers(connection: BaseDatabaseWrapper) -> None:
    """Drop the triggers of the audit log: after a test with real transactions all rows are deleted."""
    from accounts.audit import triggers

    if triggers.ENTRIES in connection.introspection.table_names():
        triggers.lift(connection)


def _flush_nonempty_tables(_style: object, connection: BaseDatabaseWrapper, **_: bool) -> list[str]:
    """Return SQL that empties the tables with rows, a few of a hundred. Django's would empty all."""
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(_nonempty_tables_query(connection.alias))
        return [f"DELETE FROM {quote(table)}" for (table,) in cursor.fetchall()]  # noqa: S608 - names of our tables


@cache
def _nonempty_tables_query(alias: str) -> str:
    connection = connections[alias]
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    quote = connection.ops.quote_name
    return " UNION ALL ".join(
        f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {quote(table)})"  # noqa: S608 - names of the site's tables
        for table in tables
    )
