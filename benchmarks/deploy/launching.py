"""How a command is begun on its nodes: by torchrun, by MPI, or as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from benchmarks.deploy.wanted import Wanted
from hostwire.training import Spec

PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
PLACE = re.compile(r"\{(devices|batch|precision|gradient|strategy|compile|loader_workers|threads|data)\}")
PORT: Final = 29500


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a job is begun. `words` are what runs on a node; `tasks` are begun on each node by the queue or by MPI."""

    kind: str  # torchrun, mpi, plain
    words: tuple[str, ...]
    tasks: int
    processes: int
    threads: int | None
    cores: int | None
    unfilled: tuple[str, ...] = ()  # options that the command has no place for


def launch_of(wanted: Wanted, spec: Spec | None, cores: int | None) -> Launch:
    """Return how what somebody wants is begun; `cores` are those of a node, None where nobody knows."""
    job = wanted.job
    cores = job.cores or cores
    gpus = job.gpus or (spec.devices if spec is not None and spec.backend == "cuda" else 0)
    strategy = spec.strategy if spec is not None else "ddp"
    command = filled(wanted, spec)
    is_python = bool(command) and PYTHON.fullmatch(PurePosixPath(command[0]).name) is not None
    spread = gpus * job.nodes > 1 and strategy not in {"single", "dp"}
    if wanted.is_mpi:
        tasks = job.processes or -(-wanted.ranks // job.nodes)
        return _launch("mpi", command, tasks, tasks, wanted, spec, cores)
    if wanted.framework == "pytorch" and is_python and spread:
        return _launch("torchrun", command, 1, max(1, gpus), wanted, spec, cores)
    return _launch("plain", command, 1, 1, wanted, spec, cores)


def _launch(  # noqa: PLR0917 - read in order, in one place
    kind: str,
    command: tuple[str, ...],
    tasks: int,
    processes: int,
    wanted: Wanted,
    spec: Spec | None,
    cores: int | None,
) -> Launch:
    threads = wanted.threads or (spec.threads if spec is not None and spec.threads else None)
    if threads is None and cores:
        threads = max(1, cores // max(1, processes))
    named = set(PLACE.findall(" ".join(wanted.command)))
    missing: tuple[str, ...] = ()
    if spec is not None:
        options = {
            "precision": spec.precision != "fp32", "compile": spec.compile, "loader_workers": spec.loader_workers > 0,
            "batch": True, "gradient": spec.gradient != "fp32",
        }  # fmt: skip
        missing = tuple(name for name, is_set in options.items() if is_set and name not in named)
    return Launch(
        kind=kind, words=command, tasks=tasks, processes=processes, threads=threads, cores=cores, unfilled=missing
    )


def torchrun(launch: Launch, nodes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of torchrun before and after what says where its processes meet."""
    command = launch.words[1:]
    before = (f"--nnodes={nodes}", f"--nproc-per-node={launch.processes}")
    if command[:1] == ("-m",) and len(command) > 1:
        return ("torchrun", *before), ("-m", *command[1:])
    if command and not command[0].startswith("-"):
        return ("torchrun", *before), command
    # Options of the interpreter, or nothing to run: torchrun begins the interpreter as it was asked for.
    return ("torchrun", *before), ("--no-python", *launch.words)


def filled(wanted: Wanted, spec: Spec | None) -> tuple[str, ...]:
    """Return the command with values in the places that it has for options, such as {batch}."""
    known: dict[str, str] = {"data": wanted.data}
    if spec is not None:
        known |= {
            "devices": str(spec.devices), "batch": str(spec.batch), "precision": spec.precision,
            "gradient": spec.gradient, "strategy": spec.strategy, "compile": str(spec.compile).lower(),
            "loader_workers": str(spec.loader_workers), "threads": str(spec.threads),
        }  # fmt: skip
    return tuple(PLACE.sub(lambda found: known.get(found[1]) or found[0], one) for one in wanted.command)


def places_of(command: tuple[str, ...]) -> set[str]:
    """Return the options that a command has places for."""
    return set(PLACE.findall(" ".join(command)))
