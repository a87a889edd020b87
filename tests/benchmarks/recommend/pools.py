"""Pools in few words, and every composition of a small one by brute force, with the rules asked for each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from benchmarks.model.topology import PcieLink
from benchmarks.recommend.pool import RecommendationPool, read_pool
from fabric.bmc.chassis_profiles import ALL_MODES
from fabric.bmc.types import DrawerMode
from fabric.plans.rules import DesiredState, plan_steps

V100, A100 = "V100-PCIE-16GB", "A100-PCIE-40GB"


def pool_of(hosts: list[dict[str, Any]], drawers: list[dict[str, Any]]) -> RecommendationPool:
    """Read a pool as a file has it."""
    return read_pool(json.dumps({"format": "falconweb-pool", "version": 1, "hosts": hosts, "drawers": drawers}))


def drawer(
    number: int,
    *,
    ports: list[str | None],
    devices: str,
    mode: str = "Advanced",
    change: bool = True,
    chassis: str = "falcon-1",
) -> dict[str, Any]:
    """A drawer: hosts behind its ports, and a letter a slot: V, A (free), v (somebody's), N (a drive), '.' (none).

    A digit after the letter is the number of the port that it is attached to.
    """
    listed = []
    slot = 0
    for position, letter in enumerate(devices):
        if letter.isdigit():
            continue
        slot += 1
        after = devices[position + 1 : position + 2]
        if letter == ".":
            continue
        listed.append(
            {
                "slot": slot,
                "model": {"V": V100, "v": V100, "A": A100, "N": "SSDPEDKX040T7"}[letter],
                "kind": "nvme" if letter == "N" else "gpu",
                "memory_gb": 40 if letter == "A" else 16,
                "attached": f"H{after}" if after.isdigit() else None,
                "free": letter.isupper(),
            }
        )
    return {
        "chassis": chassis,
        "drawer": number,
        "mode": mode,
        "may_change_mode": change,
        "ports": [{"label": f"H{nth}", "host": name} for nth, name in enumerate(ports, 1)],
        "devices": listed,
    }


def any_pool(seed: int, *, devices: int = 5) -> RecommendationPool:
    """A small pool of any kind, with what others hold in between."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    hosts = [{"name": name, "local_gpus": chance.choice((0, 0, 1, 2))} for name in ("a", "b")]
    left, drawers = devices, []
    for number in (1, 2):
        count = chance.randint(1, left - 1) if number == 1 else left
        left -= count
        slots = ["."] * 8
        for slot in chance.sample(range(8), count):
            at = chance.choice(("", "", "1", "2"))
            slots[slot] = chance.choice("VVVAv") + at
        ports: list[str | None] = [chance.choice(("a", "a", "b", None)) for _ in range(2)]
        mode = chance.choice([one.value for one in ALL_MODES])
        drawers.append(drawer(number, ports=ports, devices="".join(slots), mode=mode, change=chance.random() < 0.6))
    return pool_of(hosts, drawers)


Signature = tuple[int, int, tuple[tuple[PcieLink, tuple[tuple[str, int], ...]], ...]]


def every_signature(pool: RecommendationPool) -> set[Signature]:
    """All that can be told apart of what any subset of free devices, at any ports, in any modes comes to."""
    found: set[Signature] = set()
    for host in pool.hosts.values():
        of_drawers = [set(_of_a_drawer(pool, nth, host.id)) for nth in range(len(pool.drawers))]
        for parts in product(*of_drawers):
            places = tuple(sorted((place for part in parts for place in part), key=str))
            for local in range(host.local_gpus + 1):
                if local or places:
                    found.add((host.id, local, places))
    return found


def _of_a_drawer(pool: RecommendationPool, nth: int, host: int) -> Iterator[tuple[Any, ...]]:
    yield ()
    seen = pool.drawers[nth]
    ports = [port.id for port in seen.ports if port.host == host]
    free = [one for one in seen.devices if one.id in pool.devices]
    modes = [seen.mode, *(ALL_MODES if seen.id in pool.modes else ())]
    for size in range(1, len(free) + 1):
        for chosen in combinations(free, size):
            idle = [one for one in free if one not in chosen and one.attached is not None]
            for at in product(ports, repeat=size):
                for mode in modes:
                    for out in (gone for count in range(len(idle) + 1) for gone in combinations(idle, count)):
                        wanted = DesiredState(
                            attachments={
                                **{one.id: port for one, port in zip(chosen, at, strict=True)},
                                **{one.id: None for one in out},
                            },
                            modes={seen.id or 0: DrawerMode(mode)} if mode is not seen.mode else {},
                        )
                        if not plan_steps([seen], wanted).objections:
                            yield _places(pool, chosen, at)


def _places(pool: RecommendationPool, chosen: Any, at: tuple[int, ...]) -> tuple[Any, ...]:
    ports: dict[int, dict[str, int]] = {}
    for one, port in zip(chosen, at, strict=True):
        held = ports.setdefault(port, {})
        model = pool.devices[one.id].kind.model
        held[model] = held.get(model, 0) + 1
    return tuple(sorted(((pool.uplinks[port], tuple(sorted(held.items()))) for port, held in ports.items()), key=str))
