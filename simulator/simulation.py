"""The chassis that one process plays, with their servers: begun at the start, and anew at each reset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from simulator.certificates import ServerCertificate, load_pem, server_certificate
from simulator.clock import Clock
from simulator.hosts import Hosts
from simulator.lab import Lab
from simulator.options import lab_of, options_of_reset
from simulator.server import ChassisServer
from simulator.service import Falcon, Options

ADDRESS = "127.0.0.1"


class Simulation:
    """Clock, chassis and servers; `folder` keeps the certificate where the options name no folder for it."""

    def __init__(self, password: str, folder: Path) -> None:
        self._options = argparse.Namespace()
        self._password = password
        self._folder = folder
        self._servers: list[ChassisServer] = []
        self._ports: list[int] = []
        self.clock = Clock()
        self.chassis: list[Falcon] = []
        self.certificate: ServerCertificate

    @property
    def addresses(self) -> list[str]:
        """The base URL of each chassis."""
        return [f"https://{ADDRESS}:{server.port}" for server in self._servers]

    async def start(self, options: argparse.Namespace, lab: Lab, ports: Sequence[int] = ()) -> None:
        """Play a lab as the options say, on these ports. Raises HostError or OSError where that cannot be."""
        self._options = options
        self.clock = Clock(options.speed)
        self.certificate = server_certificate(options.certificate_directory or self._folder)
        self.chassis = self._built(options, lab)
        if not ports:
            ports = [options.port + number if options.port else 0 for number in range(len(self.chassis))]
        for falcon, port in zip(self.chassis, ports, strict=True):
            context = self.certificate.context()
            falcon.certificate_pem = self.certificate.pem
            falcon.replace_certificate = partial(load_pem, context)
            server = ChassisServer(falcon, context, port, ADDRESS)
            await server.start()
            self._servers.append(server)
        self._ports = [server.port for server in self._servers]

    async def stop(self) -> None:
        """Stop listening, drop every connection, and let the hosts' folder go."""
        for server in self._servers:
            await server.stop()
        for falcon in self.chassis:
            falcon.end()
        self._servers, self.chassis = [], []

    async def reset(self, arguments: list[str] | None = None) -> None:
        """Forget all that happened and begin anew, as before and at the same addresses, or with other options.

        Raises OptionError or LabError, and goes on as before, where the options cannot be; HostError or OSError where
        nothing can be played with them.
        """
        options = self._options if arguments is None else options_of_reset(arguments)
        lab = lab_of(options)
        ports = self._ports if arguments is None else []
        await self.stop()
        await self.start(options, lab, ports)

    def _built(self, options: argparse.Namespace, lab: Lab) -> list[Falcon]:
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
            Falcon(lab, name, lab.chassis[name], password=self._password, clock=self.clock, options=offers, alias=alias)
            for alias in aliases
        ]
        if options.hosts_root is not None:
            place = list(lab.chassis).index(name)
            for number, falcon in enumerate(chassis):
                index = place + number * len(lab.chassis)
                hosts = Hosts(falcon.state, lab, options.hosts_root, self.clock, index=index, hotplug=options.hotplug)
                falcon.play_hosts(hosts)
        return chassis
