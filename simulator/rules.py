"""The three modes of a drawer as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Mode = Literal["StandardOneHost", "StandardTwoHosts", "Advanced"]
STANDARD_ONE_HOST: Mode = "StandardOneHost"
STANDARD_TWO_HOSTS: Mode = "StandardTwoHosts"
ADVANCED: Mode = "Advanced"
MODES: tuple[Mode, ...] = (STANDARD_ONE_HOST, STANDARD_TWO_HOSTS, ADVANCED)
HALF = 4
MAX_HOSTS = 3


@dataclass(frozen=True)
class Allocation:
    """The allocation of one drawer: the host at each host port ('' without a cable), the port of each attached slot."""

    host_of_port: Mapping[str, str]
    port_of_slot: Mapping[int, str]


def refusal(mode: Mode, allocation: Allocation) -> str | None:
    """Return the violated rule as a sentence, or None where the mode allows the allocation."""
    ports = sorted(allocation.host_of_port, key=port_number)
    used = sorted(set(allocation.port_of_slot.values()), key=port_number)
    if mode == STANDARD_ONE_HOST:
        if len(used) > 1:
            return f"StandardOneHost: one host port reaches the whole drawer, and {' and '.join(used)} have devices."
        return None
    if mode == STANDARD_TWO_HOSTS:
        return _refusal_of_two_hosts(ports, allocation)
    hosts = {host for port in used if (host := allocation.host_of_port[port])}
    if len(hosts) > MAX_HOSTS:
        return f"Advanced: at most {MAX_HOSTS} hosts share a drawer, and {len(hosts)} have devices."
    return None


def _refusal_of_two_hosts(ports: list[str], allocation: Allocation) -> str | None:
    if len(ports) < 2:
        return "StandardTwoHosts: the drawer needs two cabled host ports."
    first, second = ports[:2]
    for slot, port in sorted(allocation.port_of_slot.items()):
        owner = first if slot <= HALF else second
        if port != owner:
            half = "slots 1 to 4" if slot <= HALF else "slots 5 to 8"
            return f"StandardTwoHosts: {half} belong to {owner}, so slot {slot} cannot be attached to {port}."
    return None


def port_number(port: str) -> int:
    """Return the number in the name of a host port (`H3` is 3)."""
    return int("".join(character for character in port if character.isdigit()) or 0)
