"""The power of a composition: its GPUs, its host, and its share of the chassis. Pure.

A GPU draws its data sheet's maximum while it computes, and a share of that while it waits or rests. A run has its host
to itself, and bears the host's whole idle power. A chassis also serves others: a run bears the GPUs that it uses, and
for each slot that it uses an equal share of what the chassis draws without its devices, over all slots. So a share
does not depend on what others do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Shares of its maximum power that a GPU draws while it waits within a step, clocks up, and while it rests: assumed.
WAITING_SHARE: Final = 0.25
RESTING_SHARE: Final = 0.12
# Assumed: two processors at rest, memory, fans and drives of a server.
HOST_IDLE_WATTS: Final = 200.0
CORE_WATTS: Final = 7.5  # that a busy core adds: 150 W over 20 cores, by Intel's data sheet of the Xeon Gold 6148
# Assumed: fans, switches and controllers of a chassis without its devices.
CHASSIS_WATTS: Final = 300.0
CHASSIS_SLOTS: Final = 16  # of a Falcon 4016


@dataclass(frozen=True, kw_only=True)
class ChassisPower:
    """What a chassis draws without its devices, W, and the slots that share it."""

    watts: float = CHASSIS_WATTS
    slots: int = CHASSIS_SLOTS
    is_measured: bool = False

    @property
    def slot_watts(self) -> float:
        return self.watts / max(1, self.slots)


@dataclass(frozen=True, kw_only=True)
class PowerDraw:
    """The power of a composition, W: of its GPUs at most, of the host at rest and more under load, of the chassis."""

    gpus: float
    host_idle: float
    host_load: float
    chassis: float = 0.0
    slots: int = 0  # that it uses
    is_measured: bool = False  # the chassis
