"""What belongs to one host while it is played: its files, the devices that it shows, and who uses them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TextIO

import msgspec

from simulator.hostmeters import Meters
from simulator.hosttree import Card, HostTree, Tail
from simulator.loads import Loads


class HostError(ValueError):
    """What a test asks of a host cannot be; the text says why."""


class ProcessRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A process that holds a device: it ends after `seconds`, when it is told to, or when the device goes.

    One that `hangs` does not end when the device goes, and the device cannot go while it is there.
    """

    device: str
    command: str = "python train.py"
    owner: str = "maria"
    seconds: float | None = None
    hangs: bool = False


class MountRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A drive whose first partition is to be mounted."""

    device: str
    path: str = "/data"


@dataclass
class Shown:
    """A device of ours that a host has an entry for."""

    card: Card
    endpoint: str
    answers: bool = True
    link: tuple[int, str] = (0, "")


@dataclass
class Process:
    """A process of ours on a host."""

    pid: int
    address: str
    request: ProcessRequest
    ends: float | None


@dataclass
class Site:
    """One host: its files, and what of them is ours."""

    tree: HostTree
    rescan: Tail
    probe: Tail
    unbind: dict[str, Tail]
    loads: Loads
    meters: Meters
    shown: dict[str, Shown] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    unbinding: set[str] = field(default_factory=set)
    lock: TextIO | None = None
    local: list[Card] = field(default_factory=list)
