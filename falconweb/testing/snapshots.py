"""What the processes of a test run begin with, made once and copied: migrated databases and collected static files.

It is kept in pytest's cache for later runs, under the fingerprint of what it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings

from falconweb.config import BASE_DIR
from falconweb.launch.fingerprints import DATABASES, schema_fingerprint, static_fingerprint

FOLDER = "FALCONWEB_TESTING_PREPARED"
DEFAULT_FOLDER = BASE_DIR / ".pytest_cache/d/falconweb"  # where nobody chose another folder
KEPT_SECONDS = 7 * 86400
_MAKES_ONE = ["-m", "django", "prepare", "--skip-bootstrap"]


def keep_in(config: pytest.Config) -> None:
    """Choose the folder for this run and whatever it starts; the first process of a run chooses."""
    if FOLDER not in os.environ:
        cache = getattr(config, "cache", None)
        folder = cache.mkdir("falconweb") if cache is not None else Path(os.environ["FALCONWEB_DATA"]) / "prepared"
        os.environ[FOLDER] = str(folder)


def template_name() -> str:
    """Return the name of the database of a PostgreSQL server that those of test processes are copied from."""
    return f"template_{schema_fingerprint():08x}"


def copy_databases(data: Path) -> None:
    """Copy the migrated SQLite files into a data folder."""
    source = _snapshot_folder()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in DATABASES:
        shutil.copyfile(source / name, data / name)
        (data / name).chmod(0o600)


def link_static_files(data: Path) -> None:
    """Let a data folder have the collected static files."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    (data / "static").symlink_to(_snapshot_folder() / "static", target_is_directory=True)


@contextmanager
def only_one() -> Iterator[Path]:
    """Keep other processes out of the folder meanwhile, and yield it."""
    folder = Path(os.environ.setdefault(FOLDER, str(DEFAULT_FOLDER)))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _snapshot_folder() -> Path:
    """Return the folder of the databases and static files of now, made where there is none."""
    name = f"{schema_fingerprint():08x}-{static_fingerprint()[:8]}-{_suite_fingerprint()}"
    with only_one() as folder:
        found = folder / name
        if not found.is_dir():
            _delete_old(folder)
            new = folder / f"new-{os.getpid()}"
            shutil.rmtree(new, ignore_errors=True)
            # The site's own databases, whatever this run is on: PostgreSQL has a template of its own.
            told = {**os.environ, "FALCONWEB_DATA": str(new), "DATABASE_URL": ""}
            told["PYTHONPATH"] = os.pathsep.join(sys.path)
            subprocess.run([sys.executable, *_MAKES_ONE], env=told, check=True)
            new.rename(found)
        return found


def _suite_fingerprint() -> str:
    """Return the fingerprint of what a suite adds: applications, their migrations elsewhere, and static files."""
    names = ("INSTALLED_APPS", "MIGRATION_MODULES", "STATICFILES_DIRS", "STATICFILES_FINDERS", "STORAGES")
    digest = hashlib.sha256(repr([getattr(settings, name) for name in names]).encode())
    for application in apps.get_app_configs():
        for file in sorted(Path(application.path).glob("migrations/*.py")):
            if "site-packages" not in file.parts and not file.is_relative_to(BASE_DIR):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def _delete_old(folder: Path) -> None:
    for other in folder.iterdir():
        if other.is_dir() and time.time() - other.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
