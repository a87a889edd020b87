"""What a start finds done already is not done again, and never taken for more than it is."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from falconweb.launch import fingerprints
from falconweb.testing.snapshots import copy_databases


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with the tables of now."""
    copy_databases(tmp_path)
    return tmp_path


def test_tables_of_now_are_known(data: Path) -> None:
    assert fingerprints.is_migrated(data)


@pytest.mark.parametrize("name", fingerprints.DATABASES)
def test_a_file_that_is_missing_broken_or_from_a_back_up_is_not_taken_for_migrated(data: Path, name: str) -> None:
    file = data / name
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 7")
    assert not fingerprints.is_migrated(data)
    fingerprints.mark_migrated(data)
    assert fingerprints.is_migrated(data)
    file.write_bytes(b"no database at all" * 100)
    assert not fingerprints.is_migrated(data)
    file.unlink()
    assert not fingerprints.is_migrated(data)
    assert not file.exists(), "who looks makes no file"


def test_another_migration_makes_another_fingerprint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fingerprints, "BASE_DIR", tmp_path)
    folder = tmp_path / "room/migrations"
    folder.mkdir(parents=True)
    (folder / "0001_initial.py").write_text("one = 1\n")
    first = fingerprints.schema_fingerprint()
    assert 0 < first < 2**31
    assert fingerprints.schema_fingerprint() == first
    (folder / "0002_more.py").write_text("two = 2\n")
    second = fingerprints.schema_fingerprint()
    (folder / "0002_more.py").write_text("two = 3\n")
    assert len({first, second, fingerprints.schema_fingerprint()}) == 3


def test_static_files_are_collected_again_where_one_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source, static = tmp_path / "source", tmp_path / "static"
    source.mkdir()
    (source / "site.css").write_text("a {}")
    monkeypatch.setattr(fingerprints, "STATIC_SOURCES", (source, tmp_path / "nothing"))
    assert not fingerprints.is_collected(static)
    fingerprints.mark_collected(static)
    (static / fingerprints.MANIFEST).write_text("{}")
    assert fingerprints.is_collected(static)
    os.utime(source / "site.css", (1, 1))
    assert not fingerprints.is_collected(static)
    assert not fingerprints.is_damaged(static)


@pytest.mark.parametrize("damage", [b"", b'{"paths": {', b"\xff\xfe", None])
def test_static_files_are_collected_again_where_their_list_is_damaged(tmp_path: Path, damage: bytes | None) -> None:
    fingerprints.mark_collected(tmp_path)
    manifest = tmp_path / fingerprints.MANIFEST
    manifest.write_text("{}")
    assert fingerprints.is_collected(tmp_path)
    manifest.unlink()
    if damage is not None:
        manifest.write_bytes(damage)
    assert fingerprints.is_damaged(tmp_path)
    assert not fingerprints.is_collected(tmp_path)
