"""A damaged database: readings begin anew under open connections; the site's own is refused with what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connection, connections
from django.test import Client

from core.sqlite_damage import files_set_aside, known_damage
from falconweb.api.errors import DATABASE_DAMAGED, unavailable_part
from falconweb.testing.snapshots import copy_databases, link_static_files
from telemetry.pipeline.selectors import storage_sizes
from telemetry.store import renewal
from telemetry.store.models import Catalogue, Gap
from tests.processes import ROOT

pytestmark = [
    pytest.mark.django_db(transaction=True, databases="__all__"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="files are SQLite's"),
]


def destroy(file: Path) -> None:
    """Overwrite all of a database and its journal, as a disk that is ill does."""
    for one in (file, file.with_name(f"{file.name}-wal")):
        if one.exists():
            with one.open("r+b") as opened:
                opened.write(os.urandom(one.stat().st_size))


def elsewhere(alias: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the tables of an alias lie in a copy for this test; return the file."""
    copy_databases(folder)
    file = folder / ("falconweb.sqlite3" if alias == "default" else "readings.sqlite3")
    connections[alias].close()
    monkeypatch.setitem(connections[alias].settings_dict, "NAME", str(file))
    return file


@pytest.fixture
def readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the readings of this test."""
    yield elsewhere(settings.READINGS_DATABASE, tmp_path, monkeypatch)
    connections[settings.READINGS_DATABASE].close()
    cache.delete("store:check-asked")


def met_by_another() -> DatabaseError | None:
    """Read gaps on a connection of another thread, as a request does; return the error."""
    met: list[DatabaseError] = []

    def read() -> None:
        try:
            list(Gap.objects.all())
        except DatabaseError as error:
            met.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    return met[0] if met else None


def test_damaged_readings_are_set_aside_under_open_connections_and_begin_anew(readings: Path) -> None:
    Gap.objects.create(chassis=1, since=1.0, until=2.0)
    old = Catalogue.objects.create(chassis=1, digest="0", data=b"").pk
    assert renewal.readings_renew(seconds=60) == ""
    destroy(readings)
    error = met_by_another()
    refused = unavailable_part(error)
    assert refused is not None
    assert (refused.status, refused.sentence) == (503, DATABASE_DAMAGED)
    assert cache.get("store:check-asked") == 1, "a worker was asked to look"
    renewal.databases_check(seconds=60)
    (aside,) = files_set_aside(readings)
    # This thread's connection is still the one to the old file.
    assert Gap.objects.count() == 0
    assert met_by_another() is None
    # An id that some process remembers from the old file is nobody's in the new one.
    assert Catalogue.objects.create(chassis=2, digest="1", data=b"").pk > old + 10**9
    assert Client().get("/readyz").json()["readings"] == "set aside"
    assert storage_sizes().set_aside == aside.name
    aside.unlink()
    assert Client().get("/readyz").json()["readings"] == "ok"
    assert storage_sizes().set_aside == ""


def test_a_damaged_database_of_the_site_is_told_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readings: Path
) -> None:
    file = elsewhere("default", tmp_path / "main", monkeypatch)
    good = file.read_bytes()
    try:
        os.truncate(file, len(good) // 2)
        renewal.databases_check(seconds=60)
        assert known_damage(file)
        answer = Client().get("/readyz")
        assert (answer.status_code, answer.json()["status"], answer.json()["database"]) == (503, "down", "damaged")
        assert file.stat().st_size == len(good) // 2
        assert files_set_aside(file) == []
        connection.close()
        file.write_bytes(good)
        renewal.databases_check(seconds=60)
        assert Client().get("/readyz").json()["database"] == "ok"
    finally:
        connection.close()


@pytest.mark.process
def test_a_start_refuses_a_damaged_database_and_begins_damaged_readings_anew(tmp_path: Path) -> None:
    copy_databases(tmp_path)
    link_static_files(tmp_path)
    main, readings = tmp_path / "falconweb.sqlite3", tmp_path / "readings.sqlite3"

    def prepared() -> tuple[int, str]:
        command = [sys.executable, "-m", "django", "prepare", "--skip-bootstrap"]
        environment = {**os.environ, "FALCONWEB_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr

    shutil.copyfile(main, tmp_path / "backup")
    destroy(main)
    destroy(readings)
    status, said = prepared()
    assert status != 0
    assert f"{main} is damaged: file is not a database. Restore it from a backup ('Back up' in docs/operate.md)" in said
    assert "Traceback" not in said
    assert files_set_aside(readings) == [], "nothing is changed by a start that is refused"
    shutil.copyfile(tmp_path / "backup", main)
    status, said = prepared()
    assert status == 0, said
    (aside,) = files_set_aside(readings)
    assert f"{readings} is damaged: file is not a database. It was set aside as {aside.name}" in said
    assert prepared() == (0, "")
