"""Claims of operations on hosts.

A host that rescans finds every device that is plugged in, including one that it has just released and that is not
detached yet. So an operation that drains a device claims the host until the device is detached; a rescan waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.utils import timezone

from core.claims import WATCHED, WatchedClaims
from core.database import CompiledQuery
from core.failpoints import failpoint
from core.threads import run_in_thread
from fabric.agents.models import HostAgent
from fabric.execution.claims import OperationClaim
from fabric.inventory.labels import may_name_host
from fabric.inventory.models import HostPort
from fabric.operations.models import Operation

# Longer than a drain and a detach may take. A claim of a dead worker is released after that, or by the worker that
# takes over its operation.
HOST_CLAIM_SECONDS: Final = 180.0
HOST_CLAIM_POLL_SECONDS: Final = 0.2


@asynccontextmanager
async def host_claim(claim: OperationClaim, port: HostPort) -> AsyncIterator[None]:
    """Claim the host behind a host port; the step shows the wait. A host without an agent needs no claim."""
    operation = claim.operation
    agents: list[int] = []
    async with claim.waiting() as show:
        while not await run_in_thread(_try_claim_host, agents, operation, port):
            is_named = operation.device is not None and may_name_host(operation.device, port)
            name = port.host.name if is_named and port.host is not None else "Its host"
            await show(f"{name} is busy with another operation: this one waits for it.")
            await asyncio.sleep(HOST_CLAIM_POLL_SECONDS)
            await claim.check_cancelled()
    failpoint("operation.host.claimed")
    try:
        yield
    finally:
        if agents and not claim.lost:
            await run_in_thread(host_claims_release, operation)
    failpoint("operation.host.released")


PORTS_WITH_AGENTS: Final[CompiledQuery[HostPort]] = CompiledQuery(
    lambda one, other: (
        HostPort.objects.filter(Q(pk=one) | Q(pk=other), host__agent__isnull=False).order_by().values_list("pk")
    )
)


def ports_with_agents(one: HostPort | None, other: HostPort | None) -> set[int]:
    """Return those of two host ports (ids) behind which a host with an agent is, reporting or not."""
    pks = [None if port is None else port.pk for port in (one, other)]
    return {pk for (pk,) in PORTS_WITH_AGENTS.rows(*pks)}


def _agents_behind(port: HostPort) -> list[int]:
    # Of the cable as it is now.
    hosts = HostPort.objects.filter(pk=port.pk).values("host")
    return list(HostAgent.objects.filter(host__in=hosts).values_list("pk", flat=True))


def _try_claim_host(agents: list[int], operation: Operation, port: HostPort) -> bool:
    """Claim the agents behind a port, looked up at first; returns whether there is none that another one has."""
    agents[:] = agents or _agents_behind(port)
    if not agents:
        return True
    free = Q(turn_of=None) | Q(turn_of=operation.pk)
    rows = HostAgent.objects.filter(pk__in=agents)
    until = timezone.now() + timedelta(seconds=HOST_CLAIM_SECONDS)
    taken = rows.filter(free).update(turn_of=operation.pk, turn_until=until)
    return taken > 0 or not rows.exists()


def host_claims_release(operation: Operation) -> None:
    """Release all host claims of an operation, also those of a previous worker that died."""
    HostAgent.objects.filter(turn_of=operation.pk).update(turn_of=None, turn_until=None)


WATCHED.append(WatchedClaims(HostAgent.objects.all, "turn_until", HOST_CLAIM_SECONDS, {"turn_of": None}))
