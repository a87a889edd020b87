"""The commands of a site's processes: shared with measurements, so that they measure the production setup."""

from __future__ import annotations

import os
import socket
import sys

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


def serve(application: str, listener: socket.socket) -> None:
    """Serve an ASGI application until terminated; the application configures logging."""
    import uvicorn

    from telemetry.instrumentation.publisher import heartbeat

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:  # each second
                heartbeat("web")
            return await super().on_tick(counter)

    config = uvicorn.Config(
        application,
        # Deflating a frame for each of a thousand sockets costs more than it saves in traffic.
        ws="falconweb.sockets:Protocol", ws_per_message_deflate=False, ws_max_size=MAX_SOCKET_MESSAGE_BYTES,
        # Only accounts.sign_in.security evaluates X-Forwarded-For, and only from trusted proxies.
        proxy_headers=False, server_header=False, lifespan="off",
        log_config=None, access_log=False, timeout_graceful_shutdown=3,
    )  # fmt: skip
    server = Server(config)
    server.run([listener])
    if not server.started:
        sys.exit(1)


def worker_arguments(number: int = 1, *, log: str = "plain") -> list[str]:
    """Return Celery's arguments for a worker; with many threads, since tasks wait for BMCs, some for long.

    `number` distinguishes it from others of one launch. With `log` json it prints no banner.
    """
    name = f"worker-{os.getpid()}" + (f"-{number}" if number > 1 else "")
    return [
        *(["--quiet"] if log == "json" else []), "worker", "--pool", "threads", "--concurrency", "32",
        "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat", "--hostname", f"{name}@%h",
    ]  # fmt: skip


SCHEDULER_COMMAND = (sys.executable, "-m", "falconweb.scheduler")


def celery_command(application: str, arguments: list[str]) -> list[str]:
    """Return the command of a separate Celery process."""
    return [sys.executable, "-m", "celery", "--app", application, *arguments]


def web_command(application: str, port: int) -> list[str]:
    """Return the command of a separate web process."""
    return [sys.executable, "-m", "falconweb.launch.commands", application, str(port)]


if __name__ == "__main__":
    serve(sys.argv[1], bind_listener("127.0.0.1", int(sys.argv[2])))
