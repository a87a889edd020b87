"""The modes of a drawer as pure functions, with the limits of a model of chassis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

Mode = Literal["StandardOneHost", "StandardTwoHosts", "Advanced"]
STANDARD_ONE_HOST: Mode = "StandardOneHost"
STANDARD_TWO_HOSTS: Mode = "StandardTwoHosts"
ADVANCED: Mode = "Advanced"
PROFILE_FOLDER = Path(__file__).parents[1] / "fabric" / "bmc" / "chassis_profiles"
DEFAULT_PROFILE = "h3-falcon-4016"
DEFAULT_SLOTS, DEFAULT_LANES = 8, 16  # where a profile has none


@dataclass(frozen=True)
class ModelRules:
    """What is published of a model; `modes` are the limits of each, `hosts` is that of any mode, 0: none."""

    manufacturer: str
    model: str
    slots: int = DEFAULT_SLOTS  # of a drawer
    lanes: int = DEFAULT_LANES  # of a slot
    hosts: int = 0
    modes: Mapping[Mode, Mapping[str, int]] = field(default_factory=dict)


def profile_names() -> list[str]:
    """Return the names of all profiles."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.toml"))


@cache
def load_rules(profile: str) -> ModelRules:
    """Return the rules of a profile by the name of its file."""
    file: dict[str, Any] = msgspec.toml.decode((PROFILE_FOLDER / f"{profile}.toml").read_bytes())
    facts = {name: fact["value"] for name, fact in file.get("facts", {}).items()}
    return ModelRules(
        manufacturer=file["manufacturers"][0],
        model=file["models"][0],
        slots=facts.get("slots", DEFAULT_SLOTS),
        lanes=facts.get("lanes", DEFAULT_LANES),
        hosts=facts.get("hosts", 0),
        modes={
            mode: {name: fact["value"] for name, fact in one.items()} for mode, one in file.get("modes", {}).items()
        },
    )


@dataclass(frozen=True)
class Allocation:
    """The allocation of one drawer: the host at each host port ('' without a cable), the port of each attached slot."""

    host_of_port: Mapping[str, str]
    port_of_slot: Mapping[int, str]


def refusal(mode: Mode, allocation: Allocation, rules: ModelRules | None = None) -> str | None:
    """Return the violated rule as a sentence, or None where the mode of the model allows the allocation."""
    rules = rules or load_rules(DEFAULT_PROFILE)
    limits = rules.modes.get(mode, {})
    ports = sorted(allocation.host_of_port, key=port_number)
    used = sorted(set(allocation.port_of_slot.values()), key=port_number)
    if len(used) > limits.get("host_ports", len(used)):
        return f"{mode}: one host port reaches the whole drawer, and {' and '.join(used)} have devices."
    if "halves" in limits and (reason := _refusal_of_two_hosts(ports, allocation, rules.slots // 2)):
        return reason
    hosts = {host for port in used if (host := allocation.host_of_port[port])}
    most = limits.get("hosts", rules.hosts)
    if most and len(hosts) > most:
        subject = mode if rules.modes else rules.model
        return f"{subject}: at most {most} hosts share a drawer, and {len(hosts)} have devices."
    return None


def _refusal_of_two_hosts(ports: list[str], allocation: Allocation, middle: int) -> str | None:
    if len(ports) < 2:
        return "StandardTwoHosts: the drawer needs two cabled host ports."
    first, second = ports[:2]
    for slot, port in sorted(allocation.port_of_slot.items()):
        owner = first if slot <= middle else second
        if port != owner:
            half = f"slots 1 to {middle}" if slot <= middle else f"slots {middle + 1} to {2 * middle}"
            return f"StandardTwoHosts: {half} belong to {owner}, so slot {slot} cannot be attached to {port}."
    return None


def port_number(port: str) -> int:
    """Return the number in the name of a host port (`H3` is 3)."""
    return int("".join(character for character in port if character.isdigit()) or 0)
