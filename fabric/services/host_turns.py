"""One operation at a time has a host let devices go, or look for some.

A host that looks for a new device finds all that are plugged in: also one that it has just let go, and that is not
detached yet. So whoever drains holds the host's turn until the device is detached, and whoever has the host look waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.utils import timezone

from fabric.models import HostAgent, HostPort, Operation
from fabric.services.turn import Turn
from fabric.services.wording import names_host
from falconweb.threads import in_thread

# Longer than a drain and a detach may take. A worker that died keeps it no longer: who takes its operation up begins by
# giving it up.
HELD_SECONDS: Final = 180.0
LOOK_SECONDS: Final = 0.2


@asynccontextmanager
async def host_turn(turn: Turn, port: HostPort) -> AsyncIterator[None]:
    """Hold the turn of the host behind a host port; the step says that it waits. A host without an agent has none."""
    operation = turn.operation
    agents = await in_thread(_agents, port)
    async with turn.waiting() as waits:
        while not await in_thread(_taken, agents, operation):
            is_named = operation.device is not None and names_host(operation.device, port)
            name = port.host.name if is_named and port.host is not None else "Its host"
            await waits.begin(f"{name} is busy with another operation: this one waits for it.")
            await asyncio.sleep(LOOK_SECONDS)
            await turn.heed()
    try:
        yield
    finally:
        if not turn.lost:
            await in_thread(turns_given_up, operation)


def _agents(port: HostPort) -> list[int]:
    # Of the cable as it is by now.
    hosts = HostPort.objects.filter(pk=port.pk).values("host")
    return list(HostAgent.objects.filter(host__in=hosts).values_list("pk", flat=True))


def _taken(agents: list[int], operation: Operation) -> bool:
    now = timezone.now()
    free = Q(turn_of=None) | Q(turn_of=operation.pk) | Q(turn_until__lt=now)
    rows = HostAgent.objects.filter(pk__in=agents)
    taken = rows.filter(free).update(turn_of=operation.pk, turn_until=now + timedelta(seconds=HELD_SECONDS))
    return taken > 0 or not rows.exists()


def turns_given_up(operation: Operation) -> None:
    """Give up every turn of a host that an operation has, also one that a worker before took and died with."""
    HostAgent.objects.filter(turn_of=operation.pk).update(turn_of=None, turn_until=None)
