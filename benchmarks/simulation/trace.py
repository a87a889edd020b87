"""A trace of one device played on a topology: all devices do the same, and their links carry what it moved.

Computation takes the seconds of the trace, as on the device that was traced. Collectives, messages and copies take what
the links of the topology allow; one of which the trace has no bytes takes its seconds. Each device has one stream for
kernels, one for the exchange, one for copies, and one thread of the host.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from benchmarks.model.features import ModelError
from benchmarks.model.topology import Topology
from benchmarks.simulation import constants as c
from benchmarks.simulation.chakra import NodeKind, Trace, TraceNode, dependents
from benchmarks.simulation.engine import Engine, Gate, Process, SimulatedActivity
from benchmarks.simulation.links import HostLinks
from core.language import _

STREAMS: Final[dict[NodeKind, str]] = {
    "none": "host", "host": "host", "compute": "kernels", "collective": "exchange", "point": "exchange",
    "load": "copies", "store": "copies",
}  # fmt: skip
# What each device sends of the bytes of a collective in a ring of n, in shares of (n - 1) / n.
RING_PASSES: Final = {
    "all_reduce": 2.0, "reduce": 1.0, "all_gather": 1.0, "gather": 1.0, "scatter": 1.0, "broadcast": 1.0,
    "all_to_all": 1.0, "reduce_scatter": 1.0, "barrier": 0.0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TraceSimulation:
    """The play of a trace on some devices: seconds of all, and in which kernels ran, bytes moved, or both.

    `exposed` are the seconds of exchange in which no kernel ran; `sent` the bytes that each device sent for it.
    """

    seconds: float
    computed: float
    exchanged: float
    exposed: float
    sent: float
    nodes: int
    devices: int


def simulate_trace(trace: Trace, topology: Topology, devices: int) -> TraceSimulation:
    """Return the play of a trace on the first devices of a topology. Raises ModelError for too few of them."""
    if not 1 <= devices <= len(topology.accelerators):
        raise ModelError(
            _("{count} devices are asked for, and the topology has {has}.", count=devices,
              has=len(topology.accelerators))
        )  # fmt: skip
    play = _TracePlay(trace, topology, devices)
    return play.run()


class _TracePlay:
    """The streams of the first device; the others' are the same at the same time."""

    def __init__(self, trace: Trace, topology: Topology, devices: int) -> None:
        self._nodes, self._devices = trace.nodes, devices
        accelerators = topology.accelerators[:devices]
        links = HostLinks(topology, accelerators)
        self._engine = Engine(links.capacities())
        self._ring, self._copy = links.ring(devices), links.copy(accelerators[0])
        self._left = [len(one.before) for one in trace.nodes]
        self._after = dependents(trace.nodes)
        self._ready: dict[str, list[int]] = {name: [] for name in STREAMS.values()}
        self._wake: dict[str, Gate] = {name: Gate() for name in self._ready}
        self._open = len(trace.nodes)
        self._end = Gate()
        self._busy = dict.fromkeys(self._ready, 0.0)
        self._running: set[str] = set()
        self._since = self._exposed = self._sent = 0.0

    def run(self) -> TraceSimulation:
        for place, count in enumerate(self._left):
            if not count:
                self._put(place)
        for stream in self._ready:
            self._engine.start(self._stream(stream))
        self._engine.run(self._end)
        return TraceSimulation(
            seconds=self._engine.now,
            computed=self._busy["kernels"],
            exchanged=self._busy["exchange"],
            exposed=self._exposed,
            sent=self._sent,
            nodes=len(self._nodes),
            devices=self._devices,
        )

    def _put(self, place: int) -> None:
        """Queue a node in its stream, which does those that began first in the trace first."""
        stream = STREAMS[self._nodes[place].kind]
        heapq.heappush(self._ready[stream], place)
        wake, self._wake[stream] = self._wake[stream], Gate()
        self._engine.arrive(wake)

    def _stream(self, name: str) -> Process:
        while True:
            while not self._ready[name]:
                yield self._wake[name]
            place = heapq.heappop(self._ready[name])
            self._settle()
            self._running.add(name)
            yield from self._work(self._nodes[place])
            self._settle()
            self._running.discard(name)
            self._finish(place)

    def _settle(self) -> None:
        """Count the time since the last change."""
        passed = self._engine.now - self._since
        for name in self._running:
            self._busy[name] += passed
        if "exchange" in self._running and "kernels" not in self._running:
            self._exposed += passed
        self._since = self._engine.now

    def _finish(self, place: int) -> None:
        for other in self._after[place]:
            self._left[other] -= 1
            if not self._left[other]:
                self._put(other)
        self._open -= 1
        if not self._open:
            self._engine.arrive(self._end)

    def _work(self, node: TraceNode) -> Process:
        if node.kind in ("load", "store") and node.size:
            yield self._copy.transfer(node.size, "copy")
        elif node.kind not in ("collective", "point") or not (node.size or node.collective == "barrier"):
            yield SimulatedActivity(node.seconds)
        elif self._devices > 1:
            hops = 1 if node.kind == "point" else max(1.0, RING_PASSES[node.collective]) * (self._devices - 1)
            share = (self._devices - 1) / self._devices
            sent = node.size * (1.0 if node.kind == "point" else RING_PASSES[node.collective] * share)
            yield SimulatedActivity(c.COLLECTIVE_SECONDS + hops * self._ring.hop)
            yield self._ring.transfer(sent, "ring")
            self._sent += sent
