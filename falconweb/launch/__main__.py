"""`python -m falconweb.launch`: start the site, print its address, end everything on Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

from falconweb.config import BASE_DIR, Config, ConfigurationError
from falconweb.launch.agents import SimulatedHost, hosts_root, simulated_hosts, start_agents
from falconweb.launch.broker import BrokerError, start_broker
from falconweb.launch.commands import beat_command, web_command, worker_command
from falconweb.launch.prepared import is_collected, is_migrated
from falconweb.launch.processes import Child, allow_many_files, end_all
from falconweb.launch.simulated import SimulatedChassis, start_simulated

HEALTH_SECONDS = 60.0


class CannotStartError(Exception):
    """Why the site does not start, in one sentence."""


def main() -> int:
    """Run the site until it is asked to end; returns the exit status."""
    # Databases and logs are nobody else's on this machine; the processes below inherit this.
    os.umask(0o077)
    allow_many_files()
    stop = _stop_on_signals()
    children: list[Child] = []
    try:
        config = Config.from_environment()
        _can_be_reached(config)
        lock = _only_one(config.data)
        _port_is_free(config)
        _start(config, children, stop)
        _say(f"FalconWeb is at {_address(config)} (Ctrl-C ends it)")
        while not stop:
            for child in children:
                if sentence := child.look_after():
                    _say(sentence)
            time.sleep(0.2)
        del lock
    except (CannotStartError, ConfigurationError, BrokerError, TimeoutError) as error:
        if not stop:
            _say(f"FalconWeb did not start: {error}")
            return 1
    finally:
        end_all(children, last=[child for child in children if child.name == "broker"])
    return 0


def _start(config: Config, children: list[Child], stop: list[int]) -> None:
    """Start what makes the site answer, wait until it does, and start the rest.

    Where an earlier start left nothing to prepare, the web process begins beside the simulated chassis.
    """
    logs = config.data / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "FALCONWEB_DATA": str(config.data), "PYTHONUNBUFFERED": "1"}
    if config.redis_url:
        environment["REDIS_URL"] = config.redis_url
    else:
        broker = start_broker(config.data, environment)
        children.append(broker.child)
        environment["REDIS_URL"] = broker.url
    is_prepared = not config.database_url and is_migrated(config.data) and is_collected(config.data / "static")

    def start(name: str, command: list[str], orphaned: int = signal.SIGKILL) -> None:
        child = Child(name, command, environment=environment, log=logs / f"{name}.log", orphaned=orphaned)
        child.start()
        children.append(child)

    def start_web() -> None:
        command = web_command(
            "falconweb.asgi:application",
            host=config.host,
            port=config.port,
            processes=config.web_processes,
            log=config.log,
        )
        start("web", command, signal.SIGTERM)

    if is_prepared:
        start_web()
    root = hosts_root(config.data)
    simulated = start_simulated(config.data, config.simulated, root, environment, children)
    hosts = simulated_hosts(config.data, root)
    told = {"FALCONWEB_SIMULATED_CHASSIS": _as_json(simulated), "FALCONWEB_SIMULATED_HOSTS": _hosts_as_json(hosts)}
    _manage("prepare", environment={**environment, **told})
    if not is_prepared:
        start_web()
    _wait_until_healthy(config, children, stop)
    # A worker that is asked to end waits for a broker that is ending, too; its leases and operations are made for
    # a worker that is gone.
    celery = "falconweb.celery:application"
    for number, name in enumerate(_workers(config), 1):
        start(name, worker_command(celery, number, log=config.log))
    start("beat", beat_command(celery, log=config.log))
    start_agents(config.data, hosts, environment, children)


def _workers(config: Config) -> list[str]:
    return ["worker", *(f"worker-{number}" for number in range(2, config.workers + 1))]


def _manage(*arguments: str, environment: dict[str, str]) -> None:
    answer = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, str(BASE_DIR / "manage.py"), *arguments], env=environment, check=False
    )
    if answer.returncode != 0:
        raise CannotStartError(f"'manage.py {arguments[0]}' ended with {answer.returncode}; its words are above.")


def _as_json(simulated: list[SimulatedChassis]) -> str:
    return json.dumps(
        [
            {"name": chassis.name, "url": chassis.url, "fingerprint": chassis.fingerprint, "password": chassis.password}
            for chassis in simulated
        ]
    )


def _hosts_as_json(hosts: list[SimulatedHost]) -> str:
    return json.dumps([{"name": host.name, "identity": host.identity, "key": host.key} for host in hosts])


def _wait_until_healthy(config: Config, children: list[Child], stop: list[int]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + HEALTH_SECONDS
    while not stop:
        try:
            with opener.open(f"{_address(config)}healthz", timeout=2):
                return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise CannotStartError(f"/healthz answered {error.code}.") from error
        except OSError:
            pass
        web = next(child for child in children if child.name == "web")
        if not web.alive or time.monotonic() > deadline:
            raise CannotStartError(f"the web process does not answer. Its log: {web.log}")
        time.sleep(0.05)
    raise CannotStartError("it was asked to end.")


def _address(config: Config) -> str:
    host = "127.0.0.1" if config.host in {"0.0.0.0", "::"} else config.host
    return f"http://{host}:{config.port}/"


def _can_be_reached(config: Config) -> None:
    if config.https and not config.trusted_proxies:
        raise CannotStartError(
            "FALCONWEB_HTTPS needs a reverse proxy that speaks it: say how many with FALCONWEB_TRUSTED_PROXIES=1. "
            "Without one, every page would lead to itself."
        )


def _port_is_free(config: Config) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((config.host, config.port))
        except OSError as error:
            raise CannotStartError(
                f"port {config.port} is taken ({error.strerror}). Choose another: PORT=8080 make up"
            ) from error


def _only_one(data: Path) -> object:
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (data / "up.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CannotStartError(f"another FalconWeb uses {data}. End it, or set FALCONWEB_DATA.") from error
    return lock


def _stop_on_signals() -> list[int]:
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)
    return asked


def _say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
