"""Snapshots for the processes of a test run, made once and copied: migrated databases and collected static files.

They are in pytest's cache for later runs, named by the fingerprint of their sources.
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
DEFAULT_FOLDER = BASE_DIR / ".pytest_cache/d/falconweb"  # the default folder
KEPT_SECONDS = 7 * 86400
_MAKES_ONE = ["-m", "django", "prepare", "--skip-bootstrap"]


def choose_folder(config: pytest.Config) -> None:
    """Choose the folder for this run and its child processes; the first process of a run chooses."""
    if FOLDER not in os.environ:
        cache = getattr(config, "cache", None)
        folder = cache.mkdir("falconweb") if cache is not None else Path(os.environ["FALCONWEB_DATA"]) / "prepared"
        os.environ[FOLDER] = str(folder)


def template_name() -> str:
    """Return the name of the template database of a PostgreSQL server for those of test processes."""
    return f"template_{schema_fingerprint():08x}"


def copy_databases(data: Path) -> None:
    """Copy the migrated SQLite files into a data folder."""
    source = _snapshot_folder()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in DATABASES:
        shutil.copyfile(source / name, data / name)
        (data / name).chmod(0o600)


def link_static_files(data: Path) -> None:
    """Link the collected static files into a data folder."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    (data / "static").symlink_to(_snapshot_folder() / "static", target_is_directory=True)


@contextmanager
def locked_folder() -> Iterator[Path]:
    """Lock the folder against other processes, and yield it."""
    folder = Path(os.environ.setdefault(FOLDER, str(DEFAULT_FOLDER)))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _snapshot_folder() -> Path:
    """Return the folder of the present databases and static files, creating it if missing."""
    name = f"{schema_fingerprint():08x}-{static_fingerprint()[:8]}-{_suite_fingerprint()}"
    with locked_folder() as folder:
        found = folder / name
        if not found.is_dir():
            _delete_old(folder)
            new = folder / f"new-{os.getpid()}"
            shutil.rmtree(new, ignore_errors=True)
            # The site's SQLite databases, also for a run on PostgreSQL, which has its own template.
            environment = {**os.environ, "FALCONWEB_DATA": str(new), "DATABASE_URL": ""}
            environment["PYTHONPATH"] = os.pathsep.join(sys.path)
            subprocess.run([sys.executable, *_MAKES_ONE], env=environment, check=True)
            new.rename(found)
        return found


def _suite_fingerprint() -> str:
    """Return the fingerprint of a suite's additions: applications, migrations in other modules, and static files."""
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
