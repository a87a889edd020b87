"""What somebody wants to be deployed, whatever form it was written in; and how parts of it are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from benchmarks.deploy.quoting import UnsafeError, refuse_control
from hostwire.training import Spec

Scheduler = Literal["slurm", "torque", "bash"]
SCHEDULERS: Final[tuple[Scheduler, ...]] = ("slurm", "torque", "bash")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
PATH = re.compile(r"[A-Za-z0-9._/%+=@:,~-]{1,400}")
FOLDER = re.compile(r"/[A-Za-z0-9._/+=@-]{0,399}")
NODES = re.compile(r"[A-Za-z0-9][A-Za-z0-9.,_\[\]-]{0,399}")
EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9][A-Za-z0-9.-]{0,250}")
IMAGE = re.compile(
    r"(?:docker://|library://)?[a-z0-9][A-Za-z0-9._:/-]{0,250}(?:@sha256:[0-9a-f]{64})?|[A-Za-z0-9._/-]{1,250}\.sif"
)
VERSION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4}){0,3}(?:[a-z0-9+.-]{0,20})")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MEMORY = re.compile(r"([0-9]{1,9})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
PACKAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:\[[A-Za-z0-9,._-]{1,100}\])?(?:(?:==|>=|<=|~=)[A-Za-z0-9.*+!_-]{1,50})?"
)
# Fields of a specification that a request may ask for by name.
SPEC_FIELDS: Final = (
    "batch", "accumulation", "precision", "gradient", "strategy", "compile", "loader_workers", "options",
)  # fmt: skip
LONGEST: Final = 366 * 86400


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where it shall run, as somebody names it: a host of the site by id or name, a composition, or a topology."""

    pointer: str
    host: str = ""
    composition: Mapping[str, Any] | None = None
    topology: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the queue is asked for. Times in seconds; counts are a node, None where nothing was asked."""

    name: str = "job"
    scheduler: Scheduler = "bash"
    seconds: int | None = None
    nodes: int = 1
    gpus: int | None = None
    processes: int | None = None
    cores: int | None = None
    memory: str = ""
    queue: str = ""
    account: str = ""
    nodes_named: str = ""
    exclusive: bool = False
    output: str = ""
    error: str = ""
    notify: tuple[str, ...] = ()  # of begin, end, fail
    email: str = ""
    copy_environment: bool = False


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A job with what it runs. `fixed` are the fields of the specification that somebody asked for by name."""

    job: Job = Job()
    command: tuple[str, ...] = ()
    command_pointer: str = ""
    is_mpi: bool = False
    ranks: int = 1
    threads: int | None = None
    image: str = ""
    framework: str = "pytorch"
    framework_version: str = ""
    build_source: str = ""
    build_command: str = ""
    packages: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    spec: Spec | None = None
    fixed: frozenset[str] = frozenset()
    place: Place | None = None


def duration(text: str) -> int:
    """Return '12:00:00', '1-00:00:00', '90' (minutes, as Slurm has it) or 'PT1H30M' as seconds; raises UnsafeError."""
    plain = text.strip()
    if found := re.fullmatch(r"(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-9]{1,2})(?::([0-9]{1,2}))?", plain):
        days, first, second, third = (int(one or 0) for one in found.groups())
        # Without days two parts are hours and minutes to people who write 12:00; Slurm would take minutes and seconds.
        seconds = days * 86400 + first * 3600 + second * 60 + third
    elif found := re.fullmatch(
        r"P(?:([0-9]{1,3})D)?(?:T(?:([0-9]{1,4})H)?(?:([0-9]{1,5})M)?(?:([0-9]{1,7})S)?)?", plain
    ):
        days, hours, minutes, rest = (int(one or 0) for one in found.groups())
        seconds = days * 86400 + hours * 3600 + minutes * 60 + rest
    elif re.fullmatch(r"[0-9]{1,6}", plain):
        seconds = int(plain) * 60
    else:
        raise UnsafeError("It is a time such as 12:00:00, 1-00:00:00 or PT12H.")
    if not 0 < seconds <= LONGEST:
        raise UnsafeError("It is more than nothing and at most a year.")
    return seconds


def told_seconds(seconds: int) -> str:
    """Return seconds as queues read them: '36:00:00'."""
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def memory(text: str) -> str:
    """Return an amount of memory as queues read it: '64G'; raises UnsafeError."""
    found = MEMORY.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise UnsafeError("It is an amount such as 64G or 512 MB.")
    return f"{int(found[1])}{(found[2] or 'M').upper()}"


def events(text: str) -> tuple[str, ...]:
    """Return of what somebody wants to hear: of Torque's letters or Slurm's words; raises UnsafeError."""
    words = {one.strip().lower() for one in re.split(r"[,\s]+", text) if one.strip()}
    if words & {"none", "n"}:
        return ()
    if "all" in words:
        return ("begin", "end", "fail")
    known = {"begin": "begin", "end": "end", "fail": "fail", "time_limit": "fail"}
    if words <= set(known):
        return tuple(one for one in ("begin", "end", "fail") if one in {known[word] for word in words})
    letters = {"b": "begin", "e": "end", "a": "fail", "f": "fail"}
    if len(words) == 1 and set(next(iter(words))) <= set(letters):
        found = {letters[one] for one in next(iter(words))}
        return tuple(one for one in ("begin", "end", "fail") if one in found)
    raise UnsafeError("It is letters of a, b and e, or words of BEGIN, END and FAIL.")


def job_name(text: str) -> str:
    """Return a name that every queue takes; raises UnsafeError where nothing of it is left."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", refuse_control(text.strip())).strip("-.+")[:64]
    if not name:
        raise UnsafeError("It has no letter or digit.")
    return name
