"""Damaged SQLite files are found, and set aside once; sound ones are let be."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.sqlite_damage import (
    SET_ASIDE_FORMAT,
    file_damage,
    files_set_aside,
    has_no_table,
    is_damage,
    known_damage,
    limited,
    note_damage,
    set_aside,
)


def make(path: Path, rows: int = 0) -> None:
    """Make a database in the mode of the site's."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE one (id INTEGER PRIMARY KEY, data BLOB)")
        connection.executemany("INSERT INTO one (data) VALUES (?)", [(os.urandom(900),) for _ in range(rows)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    make(path := tmp_path / "readings.sqlite3", rows=500)
    return path


def overwrite(file: Path, begin: int, length: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(begin)
        opened.write(os.urandom(length))


def middle(file: Path) -> None:
    overwrite(file, file.stat().st_size // 2 // 4096 * 4096, 3 * 4096)


def header(file: Path) -> None:
    overwrite(file, 0, 100)


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = [middle, header, truncated, emptied, folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_the_file_set_aside_with_its_journals(file: Path, damage: Callable[[Path], None]) -> None:
    damage(file)
    before = file.read_bytes() if file.is_file() else b""
    for journal in ("-wal", "-shm"):
        if damage is not emptied:
            file.with_name(file.name + journal).write_bytes(b"")
    assert file_damage(file, seconds=60)
    found = set_aside(file, make, seconds=60)
    assert found is not None
    assert found[1].parent == file.parent
    assert found[1].is_dir() if damage is folder else found[1].read_bytes() == before
    assert file_damage(file, seconds=60) == ""
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM one").fetchone() == (0,)
    assert files_set_aside(file) == [found[1]]
    assert not file.with_name("readings.sqlite3.new").exists()
    # It is not damaged any more: who comes later does nothing.
    assert set_aside(file, make, seconds=60) is None


def test_a_sound_file_none_and_one_that_is_locked_are_no_damage(file: Path, tmp_path: Path) -> None:
    assert file_damage(file, seconds=60) == ""
    assert file_damage(tmp_path / "none", seconds=60) == ""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("INSERT INTO one (data) VALUES (x'00')")
        assert file_damage(file, seconds=60) == ""
    assert set_aside(file, make, seconds=60) is None


def test_a_look_that_takes_too_long_ends_without_a_verdict(file: Path) -> None:
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
        with pytest.raises(sqlite3.OperationalError, match="interrupted") as caught, limited(connection, 0.1):
            connection.execute(endless).fetchone()
        assert not is_damage(caught.value)


@pytest.mark.process
def test_of_many_that_find_the_damage_at_once_one_sets_it_aside(file: Path) -> None:
    middle(file)
    children = []
    for _ in range(4):
        if (pid := os.fork()) == 0:
            # Threads of one process, too.
            threads = [threading.Thread(target=set_aside, args=(file, make), kwargs={"seconds": 60}) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert len(files_set_aside(file)) == 1
    assert file_damage(file, seconds=60) == ""


def test_where_no_new_file_can_be_made_the_old_one_stays(file: Path) -> None:
    middle(file)

    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        set_aside(file, full, seconds=60)
    assert files_set_aside(file) == []
    assert file.is_file()
    assert set_aside(file, make, seconds=60) is not None


def test_a_file_that_was_set_aside_is_shown_for_a_day_or_until_it_is_moved_away(file: Path) -> None:
    now = datetime.now(UTC)
    for at in (now, now - timedelta(hours=30)):
        aside = file.with_name(f"{file.name}.damaged-{at:{SET_ASIDE_FORMAT}}")
        aside.touch()
        aside.with_name(f"{aside.name}-wal").touch()
    file.with_name(f"{file.name}.damaged-copy").touch()  # of somebody
    (shown,) = files_set_aside(file)
    shown.unlink()
    assert files_set_aside(file) == []


def test_what_is_known_of_a_file_is_known_to_all(file: Path) -> None:
    assert known_damage(file) == ""
    note_damage(file, "it is empty")
    assert known_damage(file) == "it is empty"
    note_damage(file, "")
    note_damage(file, "")
    assert known_damage(file) == ""


def test_errors_of_damage_are_told_from_others(file: Path) -> None:
    header(file)
    errors: list[Exception] = []
    for statement in ("SELECT * FROM one", "nonsense"):
        with closing(sqlite3.connect(file if not errors else ":memory:")) as connection:
            try:
                connection.execute(statement)
            except sqlite3.Error as error:
                errors.append(error)
    assert [is_damage(error) for error in errors] == [True, False]
    assert not is_damage(None)
    assert not is_damage(ValueError())


def test_an_emptied_file_has_no_table(file: Path) -> None:
    assert not has_no_table(file)
    with closing(sqlite3.connect(file)):
        file.write_bytes(b"")
        assert has_no_table(file)
    header(file)
    assert not has_no_table(file)
    assert not has_no_table(file.with_name("there-is-none"))
