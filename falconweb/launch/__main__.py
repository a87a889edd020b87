"""`python -m falconweb.launch`: start the site, print its address, end everything on Ctrl-C.

With --demo, as `make up` has it, a new site of simulated chassis gets contents to look at: see falconweb.demo.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import django
import uvicorn
from celery import Celery
from django.core.management import execute_from_command_line
from django.template import engines
from django.urls import get_resolver

from falconweb.config import SECRET_VARIABLES, Config, ConfigurationError
from falconweb.launch.broker import BrokerError, start_broker
from falconweb.launch.commands import bind_listener, serve, server_config, work
from falconweb.launch.processes import (
    ChildProcess,
    ForkedProcess,
    raise_file_limit,
    share_allocations,
    take_variable,
    terminate_all,
)
from falconweb.launch.simulation import (
    PORTS_FILE,
    agents_account,
    hosts_root,
    inject_demo_fault,
    simulated_hosts,
    start_agents,
    start_simulated,
)
from falconweb.launch.watchdog import LOOK_SECONDS, ServiceManager, Watchdog
from falconweb.scheduler import schedule

HEALTH_SECONDS = 60.0


class CannotStartError(Exception):
    """The site cannot start; the text says why in one sentence."""


def main() -> int:
    """Run the site until it is terminated; returns the exit status."""
    # Databases and logs are readable by this account only; child processes inherit this.
    os.umask(0o077)
    raise_file_limit()
    share_allocations()
    stop = _stop_on_signals()
    manager = ServiceManager()
    children: list[ChildProcess] = []
    try:
        config = Config.from_environment()
        password = take_variable("FALCONWEB_ADMIN_PASSWORD")
        _check_https(config)
        lock = _acquire_lock(config.data)
        _start(replace(config, admin_password=""), password, children, _bind(config), stop)
        _print(f"FalconWeb is at {_address(config)} (Ctrl-C ends it)")
        manager.tell("READY=1")
        watchdog = Watchdog(children, os.environ["REDIS_URL"], manager, _print)
        while not stop:
            watchdog.look()
            time.sleep(LOOK_SECONDS)
        del lock
    except (CannotStartError, ConfigurationError, BrokerError, OSError) as error:  # such as a file of another kind
        if not stop:
            _print(f"FalconWeb did not start: {error}")
            return 1
    finally:
        manager.tell("STOPPING=1")
        terminate_all(children, last=[child for child in children if child.name == "broker"])
    return 0


def _start(
    config: Config, password: str, children: list[ChildProcess], listener: socket.socket, stop: list[int]
) -> None:
    """Start the processes that serve requests, wait until they respond, and start the rest.

    `password` is that of the first administrator, '' for none: only the preparation gets it.
    The code of Django and the features is loaded once, while the simulated chassis start; the site's processes are
    forked from there.
    """
    logs = config.data / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "FALCONWEB_DATA": str(config.data), "PYTHONUNBUFFERED": "1"}
    # Of broker, simulators and agents, which are no parts of the site.
    outside = {name: value for name, value in environment.items() if name not in SECRET_VARIABLES}
    broker = None
    if config.redis_url:
        environment["REDIS_URL"] = config.redis_url
    else:
        started = start_broker(config.data, outside, hang_seconds=config.hang_seconds)
        broker = started.child
        children.append(broker)
        environment["REDIS_URL"] = started.url
    root = hosts_root(config.data)
    demo = "--demo" in sys.argv[1:] and config.simulated > 0
    is_first_demo = demo and not (config.data / PORTS_FILE).exists()
    answering = start_simulated(config.data, config.simulated, root, outside, children, demo=demo)
    os.environ.update(environment)
    celery = _load()
    simulated = answering()
    if is_first_demo:
        inject_demo_fault(config.data)
    hosts = simulated_hosts(config.data, root)

    def start(name: str, function: Callable[[], object], orphaned: int = signal.SIGKILL) -> None:
        child = ChildProcess(
            name,
            function,
            environment=environment,
            log=logs / f"{name}.log",
            orphaned=orphaned,
            hang_seconds=config.web_hang_seconds if name.startswith("web") else config.hang_seconds,
        )
        child.start()
        children.append(child)

    _prepare(
        {
            **environment,
            "FALCONWEB_ADMIN_PASSWORD": password,
            "FALCONWEB_SIMULATED_CHASSIS": json.dumps([asdict(one) for one in simulated]),
            "FALCONWEB_SIMULATED_HOSTS": json.dumps([asdict(one) for one in hosts]),
        }
    )
    web = _load_asgi()
    for name in _numbered("web", config.web_processes):
        start(name, partial(serve, web, listener), signal.SIGTERM)
    _wait_until_healthy(config, children, stop)
    # A terminated worker would wait for the broker, which is ending too; leases and operations tolerate
    # a killed worker.
    for number, name in enumerate(_numbered("worker", config.workers), 1):
        start(name, partial(work, celery, number, is_quiet=config.log == "json"))
    start("beat", partial(schedule, celery))
    if hosts:
        account = agents_account(environment["REDIS_URL"], hosts, config.data, broker)
        start_agents(config.data, hosts, account, outside, children, hang_seconds=config.hang_seconds)
    if is_first_demo:
        fill = partial(execute_from_command_line, ["manage.py", "demo"])
        filling = ChildProcess("demo", fill, environment=environment, log=logs / "demo.log", once=True)
        filling.start()
        children.append(filling)


def _load() -> Celery:
    """Import all modules of the site's processes that do not depend on collected static files."""
    gc.disable()  # until all is loaded: there is nothing to collect
    try:
        from falconweb.celery import application

        django.setup()
        import falconweb.urls  # noqa: F401 - all views and their imports

        application.loader.import_default_modules()
        _load_lazy_parts(application)
    except ConfigurationError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise CannotStartError("it cannot be loaded; see the error above.") from error
    return application


# What a process of the site would load at its start or first request, and would have for itself then.
LAZY_MODULES = (
    "celery.apps.worker", "celery.beat", "celery.concurrency.thread", "celery.worker.components",
    "django.core.cache.backends.redis", "falconweb.cache", "falconweb.task_queue", "falconweb.template_loader",
    "multiprocessing.connection", "uvloop",
)  # fmt: skip


def _load_lazy_parts(application: Celery) -> None:
    for name in LAZY_MODULES:
        import_module(name)
    engines.all()
    # These are made when they are read first.
    _ = application.tasks, application.amqp, application.backend, get_resolver().reverse_dict


def _load_asgi() -> uvicorn.Config:
    """Import the modules that handle requests, which read the names of all static files, and configure their server."""
    web = server_config("falconweb.asgi:application")
    web.load()
    # Processes share memory pages that none writes to; garbage collection would write to them.
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)
    return web


def _numbered(name: str, count: int) -> list[str]:
    return [name, *(f"{name}-{number}" for number in range(2, count + 1))]


def _prepare(environment: Mapping[str, str]) -> None:
    """Prepare tables, static files and the simulation in a separate process, which prints its steps."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as terminal:
        prepare = partial(execute_from_command_line, ["manage.py", "prepare"])
        process = ForkedProcess("prepare", prepare, environment, terminal, signal.SIGKILL)
    if process.wait() != 0:
        raise CannotStartError(f"'manage.py prepare' ended with {process.returncode}; see its output above.")


def _wait_until_healthy(config: Config, children: list[ChildProcess], stop: list[int]) -> None:
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
    raise CannotStartError("it was terminated.")


def _address(config: Config) -> str:
    host = "127.0.0.1" if config.host in {"0.0.0.0", "::"} else config.host
    return f"http://{host}:{config.port}/"


def _check_https(config: Config) -> None:
    if config.https and not config.trusted_proxies:
        raise CannotStartError(
            "FALCONWEB_HTTPS needs a reverse proxy that speaks it: say how many with FALCONWEB_TRUSTED_PROXIES=1. "
            "Without one, every page would lead to itself."
        )


def _bind(config: Config) -> socket.socket:
    try:
        return bind_listener(config.host, config.port)
    except OSError as error:
        raise CannotStartError(
            f"port {config.port} is taken ({error.strerror}). Choose another: PORT=8080 make up"
        ) from error


def _acquire_lock(data: Path) -> object:
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (data / "up.lock").open("w")
    try:
        # Only this process has the lock: its forks do not inherit it.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CannotStartError(f"another FalconWeb uses {data}. End it, or set FALCONWEB_DATA.") from error
    return lock


def _stop_on_signals() -> list[int]:
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: received.append(number))
    return received


def _print(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
