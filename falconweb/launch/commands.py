"""The commands of a site's processes: shared with measurements, so that they measure the production setup."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from celery import Celery
from kombu.utils.imports import symbol_by_name

if TYPE_CHECKING:
    import uvicorn

MAX_SOCKET_MESSAGE_BYTES = 2**16


def bind_listener(host: str, port: int) -> socket.socket:
    """Return a socket that web processes can share; raises OSError where the port is taken."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, proto=socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def server_config(application: str) -> uvicorn.Config:
    """Return the configuration of a web process that serves an ASGI application; `load` imports all that it needs."""
    import uvicorn

    return uvicorn.Config(
        application,
        # Deflating a frame for each of a thousand sockets costs more than it saves in traffic.
        ws="falconweb.sockets:Protocol", ws_per_message_deflate=False, ws_max_size=MAX_SOCKET_MESSAGE_BYTES,
        # Only accounts.sign_in.security evaluates X-Forwarded-For, and only from trusted proxies.
        proxy_headers=False, server_header=False, lifespan="off",
        log_config=None, access_log=False, timeout_graceful_shutdown=3,
    )  # fmt: skip


def serve(config: uvicorn.Config, listener: socket.socket) -> None:
    """Serve an ASGI application until terminated; the application configures logging."""
    import uvicorn

    from falconweb.launch.processes import keep_allocations
    from telemetry.instrumentation.publisher import heartbeat

    keep_allocations()

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:  # each second
                heartbeat("web")
            return await super().on_tick(counter)

    server = Server(config)
    server.run([listener])
    if not server.started:
        sys.exit(1)


def work(application: Celery, number: int = 1, *, is_quiet: bool = False) -> None:
    """Carry tasks out until terminated; with many threads, since tasks wait for BMCs, some for long.

    `number` distinguishes the worker from others of one launch. A quiet one prints no banner. This is what `celery
    worker` does, but without Celery's command line, whose imports take 17 MB of each worker.
    """
    name = f"worker-{os.getppid()}" + (f"-{number}" if number > 1 else "")
    worker = application.Worker(
        hostname=f"{name}@{socket.gethostname()}", pool="threads", concurrency=32, loglevel="INFO", quiet=is_quiet,
        without_gossip=True, without_mingle=True, without_heartbeat=True,
    )  # fmt: skip
    worker.start()
    sys.exit(worker.exitcode)


SCHEDULER_COMMAND = (sys.executable, "-m", "falconweb.scheduler")


def worker_command(application: str, number: int = 1) -> list[str]:
    """Return the command of a separate worker."""
    return [sys.executable, "-m", "falconweb.launch.commands", "worker", application, str(number)]


def web_command(application: str, port: int) -> list[str]:
    """Return the command of a separate web process."""
    return [sys.executable, "-m", "falconweb.launch.commands", "web", application, str(port)]


def main() -> None:
    """Run one of the separate processes."""
    kind, application, number = sys.argv[1:]
    if kind == "web":
        serve(server_config(application), bind_listener("127.0.0.1", int(number)))
    else:
        work(symbol_by_name(application), int(number))


if __name__ == "__main__":
    main()
