"""The store on both databases: a SQLite file of its own, and PostgreSQL where it is installed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import dj_database_url
import pytest
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from telemetry.store.chunks import clear_caches
from telemetry.store.writer import StoreWriter
from tests.postgres import PostgresServer
from tests.telemetry.store.feeding import Feed

_numbers = itertools.count(1000)


@pytest.fixture(scope="module")
def postgres(
    postgres_server: PostgresServer, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[PostgresServer]:
    """Let readings of this module's tests lie in PostgreSQL."""
    settings, before = connections.settings["readings"], connections["readings"]
    with django_db_blocker.unblock():
        other = {"default": dj_database_url.parse(postgres_server.url)}
        connections.settings["readings"] = connections.configure_settings(other)["default"]
        connections["readings"] = connections.create_connection("readings")
        try:
            yield postgres_server
        finally:
            connections["readings"].close()
            connections.settings["readings"], connections["readings"] = settings, before
            clear_caches()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, django_db_setup: None) -> str:
    """The engine of this run of the module's tests."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres")
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Remember no catalogue of the test before: its rows are gone."""
    clear_caches()
    yield
    clear_caches()


@pytest.fixture
def writer() -> Iterator[StoreWriter]:
    """A writer of the test's own, which waits for nobody."""
    writer = StoreWriter(gather=0.0)
    yield writer
    writer.stop()


@pytest.fixture
def feed(writer: StoreWriter) -> Callable[..., Feed]:
    """A function that makes a chassis whose readings a test makes up; `feed(since=...)`."""

    def make(**more: float) -> Feed:
        return Feed(next(_numbers), writer, **more)

    return make
