"""How runs on one simulated host slow each other: by their demands on its links, drives and cores, in their loads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from hostwire.training import SharedResource

FRESH_SECONDS = 5.0  # as long as the host takes a load for one that runs
MAX_LOAD_FILE_BYTES = 2**20


class RunDemand(msgspec.Struct, frozen=True):
    """The part of a load that other runs feel: what it takes of shared resources if nothing slows it, by name."""

    demands: dict[str, float] = {}


def other_demands(loads: Path, own: Path) -> list[Mapping[str, float]]:
    """Return the demands of all other runs of a host that run now."""
    found: list[Mapping[str, float]] = []
    for file in loads.glob("*.json"):
        if file.name == own.name:
            continue
        # Another process replaces its file, or removes it at its end.
        with suppress(OSError, msgspec.MsgspecError):
            facts = file.stat()
            if time.time() - facts.st_mtime < FRESH_SECONDS and facts.st_size <= MAX_LOAD_FILE_BYTES:
                found.append(msgspec.json.decode(file.read_bytes(), type=RunDemand).demands)
    return found


def available(capacity: float, others: Iterable[float]) -> float:
    """Return what max-min fairness leaves to one that takes all it gets, beside others with these demands."""
    left, waiting = capacity, sorted(others)
    while waiting and waiting[0] <= left / (len(waiting) + 1):
        left -= waiting.pop(0)
    return left / (len(waiting) + 1)


def slowdown(resource: SharedResource, others: Iterable[Mapping[str, float]]) -> float:
    """Return how many times longer a step takes with what others leave of a resource: at least once."""
    there = available(resource.capacity, [demands[resource.name] for demands in others if resource.name in demands])
    curve = sorted(resource.curve)
    if not curve or there >= curve[-1][0]:
        return 1.0
    usual = curve[-1][1]
    if there <= curve[0][0]:
        # Below what was simulated, a step is as long as its bytes or samples take.
        return max(1.0, curve[0][1] / usual * curve[0][0] / max(there, 1e-9 * resource.capacity))
    for (less, longer), (more, shorter) in pairwise(curve):
        if less <= there <= more:
            # A step is longer by the inverse of what there is.
            place = (1 / there - 1 / more) / (1 / less - 1 / more)
            return max(1.0, (shorter + place * (longer - shorter)) / usual)
    return 1.0
