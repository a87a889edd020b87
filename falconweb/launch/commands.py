"""How the processes of a site are started: in one place, so that what is measured is what runs."""

from __future__ import annotations

import os
import sys

LARGEST_SOCKET_MESSAGE = 2**16


def web_command(application: str, *, host: str, port: int, processes: int = 1) -> list[str]:
    """Return the command that serves an ASGI application."""
    return [
        sys.executable, "-m", "uvicorn", application, "--host", host, "--port", str(port),
        # One frame deflated for each of a thousand sockets costs more than the network it saves.
        "--ws", "websockets-sansio", "--ws-per-message-deflate", "false", "--lifespan", "off", "--no-server-header",
        "--workers", str(processes), "--no-access-log", "--timeout-graceful-shutdown", "3",
        # What X-Forwarded-For says is believed by accounts.addresses alone, and only of trusted proxies.
        "--no-proxy-headers", "--ws-max-size", str(LARGEST_SOCKET_MESSAGE),
    ]  # fmt: skip


def worker_command(application: str) -> list[str]:
    """Return the command of a Celery worker; threads, since its work waits for BMCs, and many: some wait for long."""
    return [
        sys.executable, "-m", "celery", "--app", application, "worker", "--pool", "threads", "--concurrency", "32",
        "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--hostname", f"worker-{os.getpid()}@%h",
    ]  # fmt: skip


def beat_command(application: str) -> list[str]:
    """Return the command of Celery's scheduler."""
    return [sys.executable, "-m", "celery", "--app", application, "beat", "--loglevel", "WARNING", "--pidfile", ""]
