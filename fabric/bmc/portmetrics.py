"""The error counters of one port, read and set to zero where the BMC offers it (#PortMetrics.ResetMetrics)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import CompositionRefused, RequestRefused
from fabric.bmc.values import Body, integer, mapping, text

# How long a BMC may take until its counters tell what it accepted, s.
SETTLES_WITHIN = 5.0
LOOKS_EVERY = 0.2


@dataclass(frozen=True)
class PortCounters:
    """What a port counts now: `errors` are PCIeErrors, whole numbers only; `reset_target` '' where none is offered."""

    errors: dict[str, int]
    rx_bytes: int | None
    tx_bytes: int | None
    reset_target: str

    @property
    def counts(self) -> dict[str, int]:
        """All of them by name."""
        bytes_ = {"RXBytes": self.rx_bytes, "TXBytes": self.tx_bytes}
        return self.errors | {name: count for name, count in bytes_.items() if count is not None}


async def read_port_counters(bmc: BmcClient, metrics_uri: str) -> PortCounters:
    """Return what a port counts; raises BmcError."""
    return _counters((await bmc.get(metrics_uri)).body)


async def reset_port_counters(bmc: BmcClient, metrics_uri: str) -> tuple[PortCounters, PortCounters]:
    """Set the counters of a port to zero; return them as they were before, and read back after.

    After means that they count anew: errors may have come since. Raises CompositionRefused where the BMC offers no
    reset, refuses it, or does not do it; TaskFailed or another BmcError.
    """
    before = await read_port_counters(bmc, metrics_uri)
    if not before.reset_target:
        raise CompositionRefused("Its BMC offers no way to set the counters of a port to zero.")
    try:
        written = await bmc.post(before.reset_target, {})
    except RequestRefused as error:
        raise CompositionRefused(error.reason or "Its BMC refused the reset.", answered=error.answered) from error
    await bmc.finish(written)
    deadline = time.monotonic() + SETTLES_WITHIN
    while True:
        after = await read_port_counters(bmc, metrics_uri)
        if _began_anew(before, after):
            return before, after
        if time.monotonic() > deadline:
            raise CompositionRefused("Its BMC accepted the reset, but the counters go on as before.")
        await asyncio.sleep(LOOKS_EVERY)


def _began_anew(before: PortCounters, after: PortCounters) -> bool:
    """Tell whether counters were set back: one stands lower, or there was nothing to set back."""
    counted = {name: count for name, count in before.counts.items() if count > 0}
    return not counted or any(after.counts.get(name, 0) < count for name, count in counted.items())


def _counters(body: Body) -> PortCounters:
    errors = mapping(body, "PCIeErrors")
    counts = {name: integer(errors, name) for name in errors}
    return PortCounters(
        errors={name: count for name, count in counts.items() if count is not None and count >= 0},
        rx_bytes=integer(body, "RXBytes"),
        tx_bytes=integer(body, "TXBytes"),
        reset_target=text(body, "Actions", "#PortMetrics.ResetMetrics", "target"),
    )
