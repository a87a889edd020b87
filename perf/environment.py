"""The environment of a measurement: its own folder, Valkey and migrated database, and processes in them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from falconweb.config import BASE_DIR
from falconweb.launch.broker import start_broker
from falconweb.launch.processes import terminate_all

TASK_RESULTS = "perf:tasks"  # a list in Redis, an entry per task that a measured worker has ended
# Settings of the real site must not reach a measurement, above all its database and its broker.
SITE_VARIABLES = ("FALCONWEB_", "DATABASE_URL", "REDIS_URL", "PORT", "DJANGO_SETTINGS_MODULE")


class CannotMeasureError(Exception):
    """There is no figure; the text says why in one sentence."""


@contextlib.contextmanager
def measurement_environment() -> Iterator[dict[str, str]]:
    """Create the folder, and yield the environment variables of its processes; all is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="falconweb-perf-", ignore_cleanup_errors=True) as folder:
        data = Path(folder)
        (data / "logs").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(SITE_VARIABLES)}
        environment |= {"FALCONWEB_DATA": folder, "PYTHONUNBUFFERED": "1"}
        broker = start_broker(data, environment)
        try:
            environment["REDIS_URL"] = broker.url
            subprocess.run(  # noqa: S603 - our own command
                [sys.executable, str(BASE_DIR / "manage.py"), "migrate", "--verbosity", "0"],
                env=environment,
                check=True,
            )
            yield environment
        finally:
            terminate_all([broker.child])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process in seconds, that of threads that have ended included.

    Raises CannotMeasureError where it is gone, or off Linux: the clock of another process is Linux's (its
    `clock_getcpuclockid`), in nanoseconds, where utime and stime of /proc come in steps of 10 ms.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise CannotMeasureError(f"the CPU time of process {pid} cannot be read: {error}") from error
