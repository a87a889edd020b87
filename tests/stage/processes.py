"""The processes of a running site, by what they are, and who of them reads which chassis."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import redis

from tests.site import RunningSite, pids_naming

NAMED = {
    "worker": "celery\0--app\0falconweb.celery:application\0worker",
    "beat": "beat\0--loglevel",
    "web": "falconweb.asgi:application",
    "broker": "server 127.0.0.1:",
    "falcon-1": "simulator\0--chassis\0falcon-1",
}


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 where it has ended."""
    try:
        # The name in parentheses may hold spaces.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def processes_of(site: RunningSite, part: str) -> set[int]:
    """Return the processes that a part of the site consists of, as the launcher started them."""
    return {pid for pid in pids_naming(NAMED[part]) if parent_of(pid) == site.process.pid}


def web_processes(site: RunningSite) -> set[int]:
    """Return the web processes that answer: the web server starts them, with their tracker."""
    servers = processes_of(site, "web")
    return {pid for pid in pids_naming("multiprocessing.spawn") if parent_of(pid) in servers}


def kill(pids: set[int]) -> None:
    """End processes as a power cut does."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


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
