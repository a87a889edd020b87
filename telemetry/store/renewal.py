"""Looks for damage of the site's SQLite files; readings begin anew where theirs is damaged."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from core.enqueue import enqueue
from core.sqlite_damage import file_damage, known_damage, note_damage, set_aside

logger = logging.getLogger(__name__)

START_SECONDS = 10.0  # of a look at each file before a start
CHECK_SECONDS = 600.0  # of the daily one
ASKED_SECONDS = 60  # between two checks that queries which met damage ask for
TABLES = ("store_catalogue", "store_chunk", "store_due", "store_gap")


def database_file(alias: str) -> Path | None:
    """Return the SQLite file of a database; None for one of a server."""
    connection = connections[alias]
    return Path(str(connection.settings_dict["NAME"])) if connection.vendor == "sqlite" else None


def databases_check(*, seconds: float = CHECK_SECONDS) -> None:
    """Look for damage in the site's SQLite files within `seconds` each, set damaged readings aside, and log it."""
    if (file := database_file("default")) is not None:
        damage = file_damage(file, seconds=seconds)
        if damage and damage != known_damage(file):
            logger.error("%s is damaged: %s. Restore a backup (docs/operate.md)", file, damage)
        note_damage(file, damage)
    if settings.READINGS_DATABASE != "default":
        readings_renew(seconds=seconds)


def readings_renew(*, seconds: float) -> str:
    """Begin the readings anew where their file is damaged; returns a sentence about that, or ''."""
    file = database_file(settings.READINGS_DATABASE)
    found = set_aside(file, _create, seconds=seconds) if file is not None else None
    if found is None:
        return ""
    damage, aside = found
    sentence = f"{file} is damaged: {damage}. It was set aside as {aside.name}, and readings begin anew."
    logger.error("%s", sentence)
    return sentence


def ask_for_check(**_: Any) -> None:
    """Have a worker look at the files, since a query met damage; at most once in a while."""
    try:
        if cache.add("store:check-asked", 1, ASKED_SECONDS):
            logger.error("a database is damaged; a worker looks for it")
            enqueue("telemetry.store.check")
    except (RedisError, OperationalError, OSError) as error:
        logger.warning("nobody looks for the damage of a database now: %s", error)


def _create(path: Path) -> None:
    """Create an empty database of readings."""
    alias = settings.READINGS_DATABASE
    known = connections[alias]
    connection = type(known)({**known.settings_dict, "NAME": str(path)}, alias)
    # Migrations find their database by its alias; of this thread alone.
    connections[alias] = connection
    try:
        executor = MigrationExecutor(connection)
        executor.migrate([one for one in executor.loader.graph.leaf_nodes() if one[0] == "store"])
        with connection.cursor() as cursor:
            # Processes remember ids of the old file: none of them may mean another row of the new one.
            begin = int(time.time())
            cursor.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [(t, begin) for t in TABLES])
    finally:
        connections[alias] = known
        if connection.connection is not None:
            connection.connection.close()  # for good: the file is renamed, and an idle one would keep its old name
        connection.close()
    path.chmod(0o600)
