"""How far an attachment has come: requested, switched, link trained, seen by the host, in use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fabric.hostside import HostSide, doubt_in_words, holders_in_words, host_side_of
from fabric.models import Device, Operation
from fabric.selectors import downgraded

Standing = Literal["done", "waiting", "wrong", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A rung of the ladder: reached (done), not yet (waiting), not as it should be (wrong), or told by nobody."""

    name: str
    standing: Standing
    sentence: str = ""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The ladder of a device, with the moment its newest change was asked for; no rungs: attached to no host.

    `doubt` says why its host does not tell which card it is, and who uses those that it may be; '' where it does.
    """

    rungs: tuple[Rung, ...] = ()
    requested_at: datetime | None = None
    told: bool = False  # whether the host's agent tells who uses it
    used_by: str = ""
    doubt: str = ""

    @property
    def reached(self) -> str:
        """The highest rung that is reached, with all below it."""
        name = ""
        for rung in self.rungs:
            if rung.standing != "done":
                break
            name = rung.name
        return name


def readiness_of(device: Device, *, operation: Operation | None = None) -> Readiness:
    """Return the ladder of a device: of what is there, or of the open `operation` that is on its way.

    `device` is best read with `host_port__host` and `slot__port`.
    """
    coming = operation is not None and operation.is_open and operation.target_id is not None
    if device.host_port is None and not coming:
        return Readiness()
    switched = device.host_port is not None and not (
        coming and operation is not None and device.host_port_id != operation.target_id
    )
    link = _link(device) if switched else Rung(name="Link trained", standing="waiting")
    side = host_side_of(device) if switched else HostSide(told=False, why_untold="")
    return Readiness(
        rungs=(
            Rung(name="Requested", standing="done"),
            Rung(name="Switched", standing="done" if switched else "waiting"),
            link,
            _seen(side, reached=link.standing == "done"),
            _used(side),
        ),
        requested_at=operation.requested_at if operation is not None else None,
        told=side.told,
        used_by="" if side.unsure else holders_in_words(side.holders),
        doubt=doubt_in_words(side),
    )


def _link(device: Device) -> Rung:
    port = device.slot.port if device.slot is not None else None
    if port is None or not port.link_status:
        return Rung(name="Link trained", standing="unknown", sentence="The chassis does not tell of its link.")
    if port.link_status in {"Training", "Starting"}:
        return Rung(name="Link trained", standing="waiting", sentence="It trains.")
    if port.link_status != "LinkUp":
        return Rung(name="Link trained", standing="wrong", sentence=f"The link is '{port.link_status}'.")
    if below := downgraded(device):
        return Rung(name="Link trained", standing="wrong", sentence=f"Below its capability: {below}.")
    speed = f" at {port.speed_gbps:g} Gb/s" if port.speed_gbps else ""
    return Rung(name="Link trained", standing="done", sentence=f"x{port.active_width or '?'}{speed}, as it should be.")


def _seen(side: HostSide, *, reached: bool) -> Rung:
    name = "Seen by the host"
    if not side.told:
        return Rung(name=name, standing="unknown", sentence=side.why_untold)
    if side.unsure:
        return Rung(name=name, standing="unknown", sentence=f"{_begun(side.unsure)}.")
    if side.seen is None:
        standing: Standing = "wrong" if reached else "waiting"
        todo = "Detach and attach it again: then the host looks for it."
        return Rung(name=name, standing=standing, sentence=f"The host does not see it. {todo}")
    found = side.seen
    width = f", x{found.width}" if found.width else ""
    return Rung(name=name, standing="done", sentence=f"At {found.address}{width}.")


def _used(side: HostSide) -> Rung:
    if not side.told:
        return Rung(name="In use", standing="unknown")
    if side.unsure:
        return Rung(name="In use", standing="unknown", sentence=f"{_begun(doubt_in_words(side))}.")
    if not side.holders:
        return Rung(name="In use", standing="waiting", sentence="Nobody uses it now.")
    return Rung(name="In use", standing="done", sentence=f"By {holders_in_words(side.holders)}.")


def _begun(words: str) -> str:
    """Return words as a sentence begins."""
    return words[:1].upper() + words[1:]
