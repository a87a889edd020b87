"""How the processes of a site are started: in one place, so that what is measured is what runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

LARGEST_SOCKET_MESSAGE = 2**16
JSON_LOGS = Path(__file__).parent / "logs.json"  # how the web server logs until Django has set the site's own log up


def web_command(application: str, *, host: str, port: int, processes: int = 1, log: str = "plain") -> list[str]:
    """Return the command that serves an ASGI application; `log` is how the server itself logs, plain or json."""
    return [
        sys.executable, "-m", "uvicorn", application, "--host", host, "--port", str(port),
        # One frame deflated for each of a thousand sockets costs more than the network it saves.
        "--ws", "falconweb.sockets:Protocol", "--ws-per-message-deflate", "false", "--lifespan", "off",
        "--no-server-header",
        "--workers", str(processes), "--no-access-log", "--timeout-graceful-shutdown", "3",
        # What X-Forwarded-For says is believed by accounts.addresses alone, and only of trusted proxies.
        "--no-proxy-headers", "--ws-max-size", str(LARGEST_SOCKET_MESSAGE),
        *(["--log-config", str(JSON_LOGS)] if log == "json" else []),
    ]  # fmt: skip


def worker_command(application: str, number: int = 1, *, log: str = "plain") -> list[str]:
    """Return the command of a Celery worker; threads, since its work waits for BMCs, and many: some wait for long.

    `number` tells it from others of one launch. With `log` json it prints no banner.
    """
    name = f"worker-{os.getpid()}" + (f"-{number}" if number > 1 else "")
    return [
        *_celery(application, log), "worker", "--pool", "threads", "--concurrency", "32",
        "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--hostname", f"{name}@%h",
    ]  # fmt: skip


def beat_command(application: str, *, log: str = "plain") -> list[str]:
    """Return the command of Celery's scheduler; with `log` json it prints no banner."""
    return [*_celery(application, log), "beat", "--loglevel", "WARNING", "--pidfile", ""]


def _celery(application: str, log: str) -> list[str]:
    return [sys.executable, "-m", "celery", *(["--quiet"] if log == "json" else []), "--app", application]
