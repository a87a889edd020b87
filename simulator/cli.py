"""The command line: `python -m simulator`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from aiohttp import web

from simulator.accounts import MAX_PASSWORD, MIN_PASSWORD
from simulator.certificates import load_pem, server_certificate
from simulator.clock import MAX_SPEED, Clock
from simulator.control import Control
from simulator.hosts import Hosts
from simulator.hostsite import HostError
from simulator.lab import Lab, LabError, load_lab
from simulator.server import ChassisServer
from simulator.service import DIALECTS, Falcon, Options

TICK_SECONDS = 0.1
ADDRESS = "127.0.0.1"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Plays a Falcon 4016: a Redfish service over HTTPS on 127.0.0.1, with accounts administrator, "
        "operator and viewer. The password is that of SIMULATOR_PASSWORD, or one is made and printed.",
        epilog="The faults and the lab file are described in docs/simulator.md.",
    )
    made.add_argument("--port", type=int, default=8443, help="port of the service; 0 finds a free one (default 8443)")
    made.add_argument("--control-port", type=int, help="port of the control address for faults; 0 finds a free one")
    made.add_argument("--seed", type=int, default=1, help="the same seed gives the same readings (default 1)")
    made.add_argument("--lab", type=Path, help="lab file (JSON); default: two Falcons, three hosts")
    made.add_argument("--chassis", help="the chassis of the lab to play (default: the first)")
    made.add_argument(
        "--chassis-count",
        type=int,
        default=0,
        metavar="N",
        help="play N copies of the chassis, on N ports from --port on, for load tests",
    )
    made.add_argument(
        "--hosts-root",
        type=Path,
        metavar="DIR",
        help="play the hosts, too: what each sees lies in DIR/HOST, for an agent with that root",
    )
    made.add_argument("--hotplug", action="store_true", help="hosts see a new device without scanning their bus")
    made.add_argument("--speed", type=float, default=1.0, help="simulated seconds in a second (default 1)")
    made.add_argument(
        "--certificate-directory", type=Path, help="folder that keeps the certificate (default: a temporary one)"
    )
    less = made.add_argument_group("a service that offers less, or works otherwise")
    less.add_argument("--no-expand", action="store_true", help="$expand is answered 501")
    less.add_argument("--no-sessions", action="store_true", help="session creation is answered 401, Basic works")
    less.add_argument("--no-report", action="store_true", help="no telemetry service")
    less.add_argument(
        "--dialect",
        choices=DIALECTS,
        default="both",
        help="how devices are attached: by PATCH of zones, as older PSME have it, by the standard actions, by PATCH "
        "and actions (default), by resource blocks of systems, or not at all",
    )
    less.add_argument(
        "--slow-bind", type=float, default=0.0, metavar="SECONDS", help="a change of a zone takes this long"
    )
    less.add_argument("--bind-by-task", action="store_true", help="a change of a zone is answered 202 with a task")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the simulator until it is told to end; returns the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    made = parser()
    options = made.parse_args(arguments)
    if not 0 < options.speed <= MAX_SPEED:
        made.error(f"--speed must lie between 0 and {MAX_SPEED:g}")
    if options.chassis_count < 0:
        made.error("--chassis-count must not be negative")
    try:
        lab = load_lab(options.lab)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    if options.chassis is not None and options.chassis not in lab.chassis:
        print(f"the lab has no chassis {options.chassis!r}; it has {', '.join(lab.chassis)}", file=sys.stderr)
        return 2
    password = os.environ.get("SIMULATOR_PASSWORD", "")
    if password and not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        print(f"SIMULATOR_PASSWORD must have {MIN_PASSWORD} to {MAX_PASSWORD} characters", file=sys.stderr)
        return 2
    if not password:
        password = secrets.token_urlsafe(12)
        print(f"password {password}", flush=True)
    try:
        asyncio.run(_serve(options, lab, password))
    except HostError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


def _chassis(options: argparse.Namespace, lab: Lab, password: str, clock: Clock) -> list[Falcon]:
    name = options.chassis or next(iter(lab.chassis))
    offers = Options(
        expand=not options.no_expand,
        sessions=not options.no_sessions,
        report=not options.no_report,
        dialect=options.dialect,
        slow_bind=options.slow_bind,
        bind_by_task=options.bind_by_task,
        seed=options.seed,
    )
    aliases: list[str | None] = [None]
    if options.chassis_count:
        aliases = [f"{name}-{number}" for number in range(1, options.chassis_count + 1)]
    chassis = [
        Falcon(lab, name, lab.chassis[name], password=password, clock=clock, options=offers, alias=alias)
        for alias in aliases
    ]
    if options.hosts_root is not None:
        place = list(lab.chassis).index(name)
        for number, falcon in enumerate(chassis):
            index = place + number * len(lab.chassis)
            hosts = Hosts(falcon.state, lab, options.hosts_root, clock, index=index, hotplug=options.hotplug)
            falcon.play_hosts(hosts)
    return chassis


async def _serve(options: argparse.Namespace, lab: Lab, password: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, ended.set)
    clock = Clock(options.speed)
    chassis = _chassis(options, lab, password, clock)
    with contextlib.ExitStack() as stack:
        folder = options.certificate_directory
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simulator-")))
        certificate = server_certificate(folder)
        servers = []
        for number, falcon in enumerate(chassis):
            context = certificate.context()
            falcon.certificate_pem = certificate.pem
            falcon.replace_certificate = partial(load_pem, context)
            server = ChassisServer(falcon, context, options.port + number if options.port else 0, ADDRESS)
            await server.start()
            servers.append(server)
            print(f"address https://{ADDRESS}:{server.port}")
        print(f"fingerprint {certificate.fingerprint}")
        print(f"certificate {certificate.certificate.resolve()}")
        runner = None
        if options.control_port is not None:
            runner = web.AppRunner(Control(chassis, clock).application(), access_log=None)
            await runner.setup()
            await web.TCPSite(runner, ADDRESS, options.control_port).start()
            print(f"control http://{ADDRESS}:{runner.addresses[0][1]}")
        ticker = asyncio.create_task(_tick(chassis))
        print("ready", flush=True)
        await ended.wait()
        ticker.cancel()
        for server in servers:
            await server.stop()
        if runner is not None:
            await runner.cleanup()


async def _tick(chassis: list[Falcon]) -> None:
    """Keep time going where nobody asks, so that events come when they are due."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        for number, falcon in enumerate(chassis):
            falcon.advance()
            if number % 20 == 19:
                await asyncio.sleep(0)
