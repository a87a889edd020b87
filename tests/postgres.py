"""A PostgreSQL server of a test's own, where Debian's binaries are installed: there to be ended and started again.

`python -m tests.postgres PYTEST-ARGUMENTS` runs tests on one: those that have a database run on PostgreSQL then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from falconweb.launch.broker import free_port

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: float(one.parent.name), default=None)
# The server refuses to be run by root.
USER = "nobody" if os.getuid() == 0 else None


class PostgresServer:
    """A server with one database, at `url`; a context manager that ends it and removes what it kept."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="falconweb-postgres-"))
        self.url = f"postgresql://falconweb@127.0.0.1:{self.port}/postgres"
        if USER is not None:
            shutil.chown(self.folder, USER)
        self._run("initdb", "--username", "falconweb", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        self._run("pg_ctl", "start", "--wait", "--log", str(self.folder / "log"), "--options", options)

    def stop(self) -> None:
        """End it as a crash does: whoever is connected is cut off."""
        self._run("pg_ctl", "stop", "--wait", "--mode", "immediate")

    def _run(self, program: str, *arguments: str) -> None:
        if PROGRAMS is None:
            raise RuntimeError("PostgreSQL is not installed")
        command = [str(PROGRAMS / program), *arguments, "--pgdata", str(self.folder / "data")]
        answer = subprocess.run(
            command, user=USER, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if answer.returncode != 0:
            raise RuntimeError(f"{program}: {answer.stderr}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Run pytest on a server of its own; returns its exit status."""
    if PROGRAMS is None:
        sys.stderr.write("PostgreSQL is not installed: apt-get install postgresql\n")
        return 1
    with PostgresServer() as server:
        command = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.run(command, env={**os.environ, "DATABASE_URL": server.url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
