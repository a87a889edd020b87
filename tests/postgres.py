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

import psycopg

from falconweb.launch.broker import free_port
from falconweb.launch.fingerprints import schema_fingerprint
from falconweb.testing.snapshots import locked_folder, template_name
from tests.processes import ROOT

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: float(one.parent.name), default=None)
# The server refuses to be run by root.
USER = "nobody" if os.getuid() == 0 else None


class PostgresServer:
    """A server with one migrated database, at `url`; a context manager that ends it and removes what it kept.

    The server is a copy of one that was made and migrated once, and is kept with what else is prepared for tests.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="falconweb-postgres-"))
        self.url = f"postgresql://falconweb@127.0.0.1:{self.port}/falconweb"
        with locked_folder() as prepared:
            kept = prepared / f"postgres-{schema_fingerprint():08x}"
            if not kept.is_dir():
                self._make()
                shutil.copytree(self.folder / "data", kept)
            elif not (self.folder / "data").exists():
                shutil.copytree(kept, self.folder / "data")
                self._give_away()
        self.start()

    def _make(self) -> None:
        """Make a server with the tables of the site: in its database, and in the template that test processes copy."""
        self._give_away()
        self._run("initdb", "--username", "falconweb", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        self.start()
        base = self.url.removesuffix("falconweb")
        with psycopg.connect(f"{base}postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE falconweb")
        told = {**os.environ, "DATABASE_URL": self.url, "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, env=told, check=True)
        with psycopg.connect(f"{base}postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {template_name()} TEMPLATE falconweb")
        self._run("pg_ctl", "stop", "--wait", "--mode", "fast")

    def _give_away(self) -> None:
        """Let the server's account have its folder."""
        if USER is not None:
            for path in (self.folder, *self.folder.rglob("*")):
                shutil.chown(path, USER)

    def new_database(self, name: str) -> str:
        """Make another migrated database; return its address."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template_name()}")
        return self.url.removesuffix("falconweb") + name

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
