"""`python -m simulator`: the command line.

`OPTIONS and OPTIONS` simulates several in one process, each with its own options, clock and control address.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from simulator.accounts import MAX_PASSWORD, MIN_PASSWORD
from simulator.control import ControlHandlers
from simulator.host_state import HostError
from simulator.lab import Lab, LabError
from simulator.server import ADDRESS
from simulator.simulation import OptionError, Simulation, argument_parser, lab_from_options

logger = logging.getLogger(__name__)
TICK_SECONDS = 0.1
AND = "and"


def main(arguments: list[str] | None = None) -> int:
    """Run the simulator until it is terminated; returns the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    parser = argument_parser()
    try:
        wanted = []
        for words in _parts(sys.argv[1:] if arguments is None else arguments):
            options = parser.parse_args(words)
            wanted.append((options, lab_from_options(options)))
    except OptionError as error:
        parser.error(str(error))
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    password = os.environ.get("SIMULATOR_PASSWORD", "")
    if password and not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        print(f"SIMULATOR_PASSWORD must have {MIN_PASSWORD} to {MAX_PASSWORD} characters", file=sys.stderr)
        return 2
    if not password:
        password = secrets.token_urlsafe(12)
        print(f"password {password}", flush=True)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(wanted, password))
    except HostError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop: uvloop where it is installed, whose TLS takes half the time of asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _parts(arguments: list[str]) -> list[list[str]]:
    """Return the arguments before, between and after the words AND."""
    parts: list[list[str]] = [[]]
    for word in arguments:
        if word == AND:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


async def _serve(wanted: Sequence[tuple[argparse.Namespace, Lab]], password: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, ended.set)
    async with AsyncExitStack() as started:
        simulations = [await _start(options, lab, password, started) for options, lab in wanted]
        ticker = asyncio.create_task(_tick(simulations))
        # Hundreds of chassis are millions of objects that stay: no collection looks through them again.
        gc.freeze()
        print("ready", flush=True)
        await ended.wait()
        ticker.cancel()


async def _start(options: argparse.Namespace, lab: Lab, password: str, started: AsyncExitStack) -> Simulation:
    """Start one simulation, which ends with `started`, and print where it is."""
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="simulator-"))
    simulation = Simulation(password, Path(folder))
    await simulation.start(options, lab)
    started.push_async_callback(simulation.stop)
    for address in simulation.addresses:
        print(f"address {address}")
    print(f"fingerprint {simulation.certificate.fingerprint}")
    print(f"certificate {simulation.certificate.certificate.resolve()}")
    if options.control_port is not None:
        runner = web.AppRunner(ControlHandlers(simulation).application(), access_log=None)
        await runner.setup()
        started.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, ADDRESS, options.control_port).start()
        print(f"control http://{ADDRESS}:{runner.addresses[0][1]}")
    return simulation


async def _tick(simulations: Sequence[Simulation]) -> None:
    """Advance the simulated time without requests, so that events are sent when they are due."""
    failing: set[str] = set()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        for number, falcon in enumerate([falcon for one in simulations for falcon in one.chassis]):
            try:
                falcon.advance()
                failing.discard(falcon.name)
            except Exception:
                # A failing chassis (such as one whose hosts' folder was removed) stops neither the others
                # nor the simulation after a reset.
                if falcon.name not in failing:
                    logger.exception("%s stopped", falcon.name)
                failing.add(falcon.name)
            if number % 20 == 19:
                await asyncio.sleep(0)


if __name__ == "__main__":
    sys.exit(main())
