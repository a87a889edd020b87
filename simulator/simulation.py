"""The simulated chassis of one process, with their servers, and the options of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import NoReturn, get_args

from simulator.certificates import ServerCertificate, load_pem, server_certificate
from simulator.hosts import HostSimulation
from simulator.lab import Lab, LabError, load_lab, with_profile
from simulator.physics import MAX_SPEED, Clock
from simulator.resources import register_all
from simulator.rules import profile_names
from simulator.server import ADDRESS, ChassisServer
from simulator.service import DIALECTS, Falcon, NamedMethods, ServiceOptions


class Simulation:
    """Clock, chassis and servers; the certificate is in `folder` unless the options name another."""

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
        """Start a lab with these options, on these ports. Raises HostError or OSError where that is not possible."""
        self._options = options
        self.clock = Clock(options.speed)
        self.certificate = server_certificate(options.certificate_directory or self._folder)
        self.chassis = self._build_chassis(options, lab)
        if not ports:
            ports = [options.port + number if options.port else 0 for number in range(len(self.chassis))]
        for falcon, port in zip(self.chassis, ports, strict=True):
            context = self.certificate.context()
            falcon.certificate_pem = self.certificate.pem
            falcon.replace_certificate = partial(load_pem, context)
            server = ChassisServer(falcon, context, port)
            await server.start()
            self._servers.append(server)
        self._ports = [server.port for server in self._servers]

    async def stop(self) -> None:
        """Stop listening, drop all connections, and release the hosts' folder."""
        for server in self._servers:
            await server.stop()
        for falcon in self.chassis:
            falcon.end()
        self._servers, self.chassis = [], []

    async def reset(self, arguments: list[str] | None = None) -> None:
        """Restart from the initial state, at the same addresses, with the same or other options.

        Raises OptionError or LabError for invalid options, and continues unchanged; HostError or OSError where the
        simulation cannot start with them.
        """
        options = self._options if arguments is None else argument_parser(_ResetParser).parse_args(arguments)
        lab = lab_from_options(options)
        ports = self._ports if arguments is None else []
        await self.stop()
        await self.start(options, lab, ports)

    def _build_chassis(self, options: argparse.Namespace, lab: Lab) -> list[Falcon]:
        name = options.chassis or next(iter(lab.chassis))
        features = ServiceOptions(**{field.name: getattr(options, field.name) for field in fields(ServiceOptions)})
        aliases: list[str | None] = [f"{name}-{number}" for number in range(1, options.chassis_count + 1)]
        chassis = [
            Falcon(
                lab, name, lab.chassis[name], password=self._password, clock=self.clock, options=features, alias=alias
            )
            for alias in aliases or [None]
        ]
        for falcon in chassis:
            register_all(falcon)
        if options.hosts_root is not None:
            for number, falcon in enumerate(chassis):
                index = list(lab.chassis).index(name) + number * len(lab.chassis)
                falcon.hosts = falcon.faults.hosts = HostSimulation(
                    falcon.state, lab, options.hosts_root, self.clock, index=index, hotplug=options.hotplug
                )
        return chassis


class OptionError(ValueError):
    """An invalid option; the text says why."""


class _ResetParser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise OptionError(message or "a reset has no --help")


def argument_parser(kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = kind(
        prog="python -m simulator",
        description="Simulates a Falcon 4016: a Redfish service over HTTPS on 127.0.0.1, with accounts administrator, "
        "operator and viewer. The password is that of SIMULATOR_PASSWORD, or one is made and printed.",
        epilog="The faults and the lab file are described in docs/simulator.md.",
    )
    parser.add_argument("--port", type=int, default=8443, help="port of the service; 0 finds a free one (default 8443)")
    parser.add_argument("--control-port", type=int, help="port of the control address for faults; 0 finds a free one")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same readings (default 1)")
    parser.add_argument("--lab", type=Path, help="lab file (JSON); default: two Falcons, three hosts")
    parser.add_argument(
        "--profile",
        choices=profile_names(),
        metavar="NAME",
        help=f"the model of the chassis: {', '.join(profile_names())} (default: that of the lab)",
    )
    parser.add_argument("--chassis", help="the chassis of the lab to simulate (default: the first)")
    parser.add_argument(
        "--chassis-count",
        type=int,
        default=0,
        metavar="N",
        help="simulate N copies of the chassis, on N ports from --port on, for load tests",
    )
    parser.add_argument(
        "--hosts-root",
        type=Path,
        metavar="DIR",
        help="simulate the hosts, too: the tree of each is in DIR/HOST, for an agent with that root",
    )
    parser.add_argument("--hotplug", action="store_true", help="hosts see a new device without scanning their bus")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per second (default 1)")
    parser.add_argument(
        "--certificate-directory", type=Path, help="folder of the certificate (default: a temporary one)"
    )
    less = parser.add_argument_group("a service with fewer or other features")
    less.add_argument("--no-expand", dest="expand", action="store_false", help="$expand is answered 501")
    less.add_argument(
        "--no-sessions", dest="sessions", action="store_false", help="session creation is answered 401, Basic works"
    )
    less.add_argument("--no-report", dest="report", action="store_false", help="no telemetry service")
    less.add_argument("--legacy", action="store_true", help="the deprecated Thermal and Power beside the sensors")
    less.add_argument(
        "--lock-after",
        type=int,
        default=0,
        metavar="N",
        help="an account is locked after so many refused passwords in a row, for the right one, too (default: never)",
    )
    less.add_argument(
        "--dialect",
        choices=DIALECTS,
        default="both",
        help="how devices are attached (default: both, by PATCH and by actions of zones); see docs/simulator.md",
    )
    less.add_argument(
        "--allow",
        choices=get_args(NamedMethods),
        default="all",
        help="which answers name the methods of a resource: those of GET and OPTIONS (default), of OPTIONS alone, or "
        "none: OPTIONS is answered 405",
    )
    less.add_argument(
        "--slow-bind", type=float, default=0.0, metavar="SECONDS", help="a change of a zone takes this long"
    )
    less.add_argument("--bind-by-task", action="store_true", help="a change of a zone is answered 202 with a task")
    less.add_argument("--no-dump", dest="dump", action="store_false", help="no diagnostic data can be collected")
    less.add_argument(
        "--plain-push", action="store_true", help="images are pushed to HttpPushUri, as older services have it"
    )
    return parser


def lab_from_options(options: argparse.Namespace) -> Lab:
    """Return the lab that options name. Raises OptionError or LabError where they are invalid for it."""
    if not 0 < options.speed <= MAX_SPEED:
        raise OptionError(f"--speed must be between 0 and {MAX_SPEED:g}")
    if options.chassis_count < 0:
        raise OptionError("--chassis-count must not be negative")
    lab = load_lab(options.lab)
    if options.chassis is not None and options.chassis not in lab.chassis:
        raise LabError(f"the lab has no chassis {options.chassis!r}; it has {', '.join(lab.chassis)}")
    if options.profile is not None:
        lab = with_profile(lab, options.chassis or next(iter(lab.chassis)), options.profile)
    return lab
