"""Fingerprints of the preparations of earlier starts: migrated tables and collected static files.

Each is a fingerprint of the sources, stored with the result: in the header of a SQLite file, so that a file restored
from a backup has its own, and in the folder of the static files.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sysconfig
from contextlib import closing
from pathlib import Path

from falconweb.config import BASE_DIR

DATABASES = ("falconweb.sqlite3", "readings.sqlite3")
STATIC_SOURCES = (BASE_DIR / "static", BASE_DIR / "node_modules")
MANIFEST = "staticfiles.json"  # the names of the files, by servestatic
_STAMP = ".collected-from"


def schema_fingerprint() -> int:
    """Return the 31-bit fingerprint of all migrations: the site's by their text, those of libraries by version."""
    digest = hashlib.sha256(_libraries())
    for pattern in ("*/migrations/*.py", "*/*/migrations/*.py"):
        for file in sorted(BASE_DIR.glob(pattern)):
            digest.update(f"{file.relative_to(BASE_DIR)}\n".encode() + file.read_bytes())
    return int.from_bytes(digest.digest()[:4]) & 0x7FFF_FFFF


def static_fingerprint() -> str:
    """Return the fingerprint of the sources of static files: names, sizes and modification times."""
    digest = hashlib.sha256(_libraries())
    for file in sorted(file for folder in STATIC_SOURCES for file in folder.rglob("*") if file.is_file()):
        found = file.stat()
        digest.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def is_migrated(data: Path) -> bool:
    """Return whether the SQLite files of a data folder match the present migrations."""
    fingerprint = schema_fingerprint()
    return all(_version(data / name) == fingerprint for name in DATABASES)


def mark_migrated(data: Path) -> None:
    """Store the fingerprint in the SQLite files of a data folder."""
    for name in DATABASES:
        with closing(sqlite3.connect(data / name)) as connection:
            connection.execute(f"PRAGMA user_version = {schema_fingerprint()}")


def is_collected(static: Path) -> bool:
    """Return whether a folder has the present static files."""
    try:
        return not is_damaged(static) and (static / _STAMP).read_text() == static_fingerprint()
    except (OSError, ValueError):
        return False


def is_damaged(static: Path) -> bool:
    """Return whether the list of the collected static files is missing or damaged, or the fingerprint is no file."""
    try:
        json.loads((static / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return True
    return (static / _STAMP).is_dir()


def mark_collected(static: Path) -> None:
    """Store the fingerprint in a folder of static files."""
    static.mkdir(parents=True, exist_ok=True)
    (static / _STAMP).write_text(static_fingerprint())


def _version(file: Path) -> int:
    """Return the fingerprint in a SQLite file; 0 where it has none, or does not exist."""
    if not file.is_file():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.DatabaseError:
        return 0


def _libraries() -> bytes:
    """Return the names and versions of the installed packages."""
    folder = Path(sysconfig.get_path("purelib"))
    return "\n".join(sorted(found.name for found in folder.glob("*.dist-info"))).encode()
