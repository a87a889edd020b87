"""The options of the command line, which a reset takes, too."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from simulator.clock import MAX_SPEED
from simulator.lab import Lab, LabError, load_lab
from simulator.service import DIALECTS


class OptionError(ValueError):
    """An option cannot be; the text says why."""


class _ResetParser(argparse.ArgumentParser):
    """Raises instead of ending the process, which goes on as it is."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise OptionError(message or "a reset begins a lab; it explains nothing")


def parser(kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = kind(
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


def options_of_reset(arguments: list[str]) -> argparse.Namespace:
    """Return the options of a reset. Raises OptionError where they cannot be."""
    return parser(_ResetParser).parse_args(arguments)


def lab_of(options: argparse.Namespace) -> Lab:
    """Return the lab that options name. Raises OptionError or LabError where it cannot be played with them."""
    if not 0 < options.speed <= MAX_SPEED:
        raise OptionError(f"--speed must lie between 0 and {MAX_SPEED:g}")
    if options.chassis_count < 0:
        raise OptionError("--chassis-count must not be negative")
    lab = load_lab(options.lab)
    if options.chassis is not None and options.chassis not in lab.chassis:
        raise LabError(f"the lab has no chassis {options.chassis!r}; it has {', '.join(lab.chassis)}")
    return lab
