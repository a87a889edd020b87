"""Which points need not be run: those that another beats in everything, for certain as far as intervals tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

# Of each, less is better. The words are of people.
OBJECTIVES: Final = {
    "time": "time a sample",
    "device_time": "device-seconds a sample",
    "devices": "devices",
}
Known = Literal["measured", "simulated", "predicted"]


class Early(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Points that are clearly worse in all of `objectives` are skipped; with `predicted` also by prediction alone."""

    objectives: tuple[str, ...] = ("time", "devices")
    predicted: bool = True


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of a point: seconds a sample between `low` and `high`, on how many devices, and how it is known.

    Only points of one `family` (a workload at one size) are held against each other.
    """

    position: int
    name: str
    family: str
    devices: int
    low: float
    high: float
    known: Known


def beaten_by(one: Standing, others: Iterable[Standing], early: Early) -> Standing | None:
    """Return the point that beats this one in all objectives, the quickest of several; None where none does.

    In time the other's interval lies wholly below this one's; of devices it has no more. What is only predicted beats
    nobody.
    """
    if one.known == "predicted" and not early.predicted:
        return None
    better = [
        other
        for other in others
        if other.position != one.position
        and other.family == one.family
        and other.known != "predicted"
        and all(_is_better(other, one, objective) for objective in early.objectives)
    ]
    return min(better, key=lambda other: (other.high, other.position), default=None)


def why_skipped(one: Standing, other: Standing, early: Early) -> str:
    """Return the sentence that tells why a point is skipped."""
    aims = " and ".join(OBJECTIVES[objective] for objective in early.objectives)
    how = "predicted" if one.known == "predicted" else f"{one.known} before"
    return (
        f"Skipped: worse than point {other.position + 1} ({other.name}) in {aims}. {how.capitalize()}: "
        f"{_interval(one)} a sample on {_devices(one.devices)}; that one took {_interval(other)} on "
        f"{_devices(other.devices)}, {other.known}."
    )


def _is_better(other: Standing, one: Standing, objective: str) -> bool:
    if objective == "devices":
        return other.devices <= one.devices
    if objective == "device_time":
        return other.high * other.devices < one.low * one.devices
    return other.high < one.low


def _interval(one: Standing) -> str:
    return f"{one.low * 1000:.4g} to {one.high * 1000:.4g} ms"


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"
