"""The processes of a running site, by what they are, and who of them reads which chassis."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import redis

from tests.site import RunningSite, processes_of


def broker_of(site: RunningSite) -> tuple[int, redis.Redis]:
    """Return the process id of a site's own Valkey, and a client of it."""
    (pid,) = processes_of(site, "broker")
    port = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"127.0.0.1:")[1].split(b"\0")[0].split()[0]
    password = (site.data / "secrets" / "broker_password").read_text().strip()
    return pid, redis.Redis(port=int(port), password=password)


def poller_of(broker: redis.Redis, chassis: int) -> int:
    """Return the id of the worker process that has the lease of a chassis, 0 where nobody has."""
    holder = broker.get(f"polling:{chassis}")
    return int(holder.split(b":")[-2]) if isinstance(holder, bytes) else 0


def workers_at(site: RunningSite, *steps: str) -> set[int]:
    """Return the worker processes that are at one of these steps of an operation."""
    with closing(sqlite3.connect(site.data / "falconweb.sqlite3")) as database:
        rows = database.execute("SELECT worker, steps FROM fabric_operation WHERE state = 'running'").fetchall()
    found = {
        int(worker.split(":")[-2])
        for worker, told in rows
        if any(one["name"] in steps and one["state"] == "running" for one in json.loads(told))
    }
    return found & processes_of(site, "worker")
