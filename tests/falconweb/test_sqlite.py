"""The engine of SQLite: writers take turns, in the order in which they came, whatever they write, however they end."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import (
    IntegrityError,
    OperationalError,
    close_old_connections,
    connection,
    connections,
    transaction,
)

from accounts.models import Tenant
from core.sqlite_damage import note_damage
from falconweb.api import errors
from falconweb.api.errors import DATABASE_DAMAGED, unavailable_part
from falconweb.sqlite import base
from falconweb.sqlite.base import FairLock

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="another database is set"),
]


@pytest.fixture
def patience() -> Iterator[Callable[[float], None]]:
    """A function that says how long writers wait for each other, s."""
    options: dict[str, Any] = connections.settings["default"]["OPTIONS"]
    before = options["timeout"]

    def changed(seconds: float) -> None:
        options["timeout"] = seconds

    yield changed
    options["timeout"] = before


def in_threads(*works: Callable[[], None]) -> list[threading.Thread]:
    """Start work in threads of their own; each closes its connection."""

    def done(work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            connection.close()

    threads = []
    for work in works:
        threads.append(threading.Thread(target=done, args=(work,)))
        threads[-1].start()
    return threads


def test_writers_come_in_the_order_in_which_they_asked() -> None:
    order: list[int] = []

    def writer(number: int) -> Callable[[], None]:
        def work() -> None:
            with transaction.atomic():
                Tenant.objects.create(name=f"tenant {number}")
                order.append(number)

        return work

    threads = []
    with transaction.atomic():
        for number in range(12):
            threads += in_threads(writer(number))
            while len(base._write_lock._waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == list(range(12))
    assert Tenant.objects.count() == 12


def test_a_write_that_is_a_transaction_of_its_own_waits_its_turn_too() -> None:
    tenant = Tenant.objects.create(name="before")
    begun, ended = threading.Event(), []

    def long() -> None:
        with transaction.atomic():
            Tenant.objects.create(name="long")
            begun.set()
            time.sleep(0.3)
            ended.append("long")

    def short() -> None:
        begun.wait(60)
        Tenant.objects.filter(pk=tenant.pk).update(name="after")
        ended.append("short")

    for thread in in_threads(long, short):
        thread.join()
    assert ended == ["long", "short"]
    tenant.refresh_from_db()
    assert tenant.name == "after"


def test_nobody_waits_for_the_lock_of_a_damaged_file() -> None:
    file = Path(str(connection.settings_dict["NAME"]))
    note_damage(file, "it is empty")
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            connection.close()
            begin = time.monotonic()
            with pytest.raises(OperationalError, match="locked"):
                Tenant.objects.create(name="late")
            assert time.monotonic() - begin < connection.settings_dict["OPTIONS"]["timeout"] / 2
    finally:
        note_damage(file, "")
        connection.close()
    Tenant.objects.create(name="waits again")


def test_a_table_that_is_missing_in_a_damaged_file_is_no_error_of_the_site() -> None:
    note_damage(Path(str(connection.settings_dict["NAME"])), "it is empty")
    try:
        with pytest.raises(OperationalError) as caught, connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM what_there_is_not")
        answer = unavailable_part(caught.value)
        assert answer is not None
        assert answer.sentence == DATABASE_DAMAGED
    finally:
        note_damage(Path(str(connection.settings_dict["NAME"])), "")
    assert unavailable_part(caught.value) is None


def test_a_table_that_is_missing_in_an_emptied_file_is_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OperationalError) as caught, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM what_there_is_not")
    (emptied := tmp_path / "emptied").touch()
    monkeypatch.setattr(errors, "database_file", lambda _: emptied)
    answer = unavailable_part(caught.value)
    assert answer is not None
    assert answer.sentence == DATABASE_DAMAGED


def test_another_process_is_waited_for_and_asked_often() -> None:
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.4, other.execute, ("ROLLBACK",))
        timer.start()
        begin = time.monotonic()
        Tenant.objects.create(name="patient")
        waited = time.monotonic() - begin
        timer.join()  # a connection that is closed under a statement takes the process along
    assert waited > 0.3
    assert Tenant.objects.filter(name="patient").exists()


def test_who_waited_too_long_is_told_so_and_the_next_one_is_not_kept(patience: Callable[[float], None]) -> None:
    patience(0.2)
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="locked"):
            Tenant.objects.create(name="refused")
        with pytest.raises(OperationalError, match="locked"), transaction.atomic():
            Tenant.objects.create(name="refused too")
        other.execute("ROLLBACK")
    Tenant.objects.create(name="let in")
    assert list(Tenant.objects.values_list("name", flat=True)) == ["let in"]


@pytest.mark.parametrize("end", ["error", "rollback", "close"])
def test_a_turn_is_given_back_however_the_transaction_ends(end: str) -> None:
    def broken() -> None:
        with contextlib.suppress(IntegrityError), transaction.atomic():
            Tenant.objects.create(name="undone")
            if end == "error":
                Tenant.objects.create(name="undone")
            if end == "rollback":
                transaction.set_rollback(True)
            if end == "close":
                connection.close()

    for thread in in_threads(broken):
        thread.join()
    begin = time.monotonic()
    Tenant.objects.create(name="next")
    assert time.monotonic() - begin < connection.settings_dict["OPTIONS"]["timeout"] / 4
    assert list(Tenant.objects.values_list("name", flat=True)) == ["next"]


def test_who_gives_up_waiting_is_passed_over() -> None:
    turns = FairLock()
    assert turns.acquire(1)
    given_up = threading.Thread(target=turns.acquire, args=(0.05,))
    given_up.start()
    given_up.join()
    got: list[bool] = []
    waiting = threading.Thread(target=lambda: got.append(turns.acquire(60)))
    waiting.start()
    time.sleep(0.05)
    turns.release()
    waiting.join()
    assert got == [True]
    assert not turns.acquire(0)
    turns.release()
    assert turns.acquire(0)


def raw() -> Any:
    """Return the driver's connection of this thread, opened."""
    connection.ensure_connection()
    return connection.connection


def of_another_thread(work: Callable[[], Any]) -> Any:
    """Return what work gives in a thread of its own, as a request is."""
    found: list[Any] = []
    for thread in in_threads(lambda: found.append(work())):
        thread.join(60)
    return found[0]


def test_a_request_has_the_connection_of_one_that_is_over() -> None:
    first = of_another_thread(raw)
    assert of_another_thread(raw) is first


def test_two_requests_at_once_have_connections_of_their_own() -> None:
    both = threading.Barrier(2)
    found: list[Any] = []

    def request() -> None:
        found.append(raw())
        both.wait(60)

    for thread in in_threads(request, request):
        thread.join(60)
    assert found[0] is not found[1]


def test_what_a_request_left_open_is_nothing_to_the_next() -> None:
    Tenant.objects.create(name="early")
    kept: list[Any] = []

    def careless() -> Any:
        cursor = connection.cursor().cursor
        cursor.execute("SELECT name FROM accounts_tenant UNION ALL SELECT 'more'")
        kept.append((cursor, cursor.fetchone()))  # and does not read on
        connection.connection.execute("BEGIN")
        connection.connection.execute("INSERT INTO accounts_tenant (name, created_at) VALUES ('lost', '2026-01-01')")
        return connection.connection

    first = of_another_thread(careless)
    Tenant.objects.create(name="late")  # nobody holds the write lock

    def names() -> tuple[Any, set[str]]:
        return raw(), set(Tenant.objects.values_list("name", flat=True))

    assert of_another_thread(names) == (first, {"early", "late"})


@pytest.mark.parametrize("alias", ["default", "readings"])
def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path, alias: str) -> None:
    path = tmp_path / "site.sqlite3"
    settings = {**connections.settings[alias], "NAME": str(path)}

    def table(name: str = "") -> set[str]:
        one = type(connections[alias])(settings, "replaced")
        with closing(one), one.cursor() as cursor:
            if name:
                cursor.execute(f"CREATE TABLE {name} (id)")
            return set(one.introspection.table_names(cursor))

    assert table("before") == {"before"} == table()
    for left in tmp_path.iterdir():
        left.unlink()
    assert table("after") == {"after"} == table()
    # Nobody holds on to the disk space of the one before.
    assert [one for one in Path("/proc/self/fd").iterdir() if f"{path} (deleted)" in os.path.realpath(one)] == []


def test_a_connection_on_which_something_went_wrong_is_nobody_s_any_more() -> None:
    def goes_wrong() -> Any:
        found = raw()
        with pytest.raises(OperationalError), connection.cursor() as cursor:
            cursor.execute("INSERT INTO nowhere VALUES (1)")
        close_old_connections()  # as the end of a request does
        return found

    first = of_another_thread(goes_wrong)
    assert of_another_thread(raw) is not first
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("SELECT 1")


def test_foreign_keys_count_whatever_somebody_before_left_them_at() -> None:
    def careless() -> Any:
        connection.disable_constraint_checking()
        return connection.connection

    def counts() -> tuple[Any, Any]:
        return raw(), connection.cursor().execute("PRAGMA foreign_keys").fetchone()[0]

    first = of_another_thread(careless)
    assert of_another_thread(counts) == (first, 1)
