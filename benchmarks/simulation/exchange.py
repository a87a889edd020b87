"""The collectives of a step: what is sent when, and how much."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.model.features import VALUE_BYTES
from benchmarks.simulation.engine import Gate
from benchmarks.simulation.work import layers_of
from hostwire.training import Spec

CollectiveKey = tuple[int, int, str, int]  # step, batch, what it does, group of layers


class Collective:
    """One operation of the exchange: `ready` once all devices have started it, then `done`."""

    __slots__ = ("done", "ready")

    def __init__(self, devices: int) -> None:
        self.ready, self.done = Gate(devices), Gate()


class CollectiveSchedule:
    """The collectives of a step: `after` are the groups of layers after whose backward pass gradients are sent."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        n = spec.devices
        self.hops = (n - 1) * (1 if spec.strategy == "sharded" else 2)  # of a ring, that each message makes
        layers = layers_of(spec)
        self._way = (n - 1) / n  # of a tensor, the part that each device sends in one way round
        gradient, weight = VALUE_BYTES[spec.gradient], VALUE_BYTES[spec.precision]
        self._weights = [self._way * weight * layer.parameters for layer in layers]
        self._sizes: dict[int, tuple[float, float]] = {}  # bytes that each device sends, messages; by group
        waiting = 0.0
        for index in reversed(range(len(layers))):
            waiting += gradient * layers[index].parameters
            if spec.strategy == "sharded":
                self._sizes[index] = (self._way * waiting, 1.0)
                waiting = 0.0
                continue
            count = waiting // spec.bucket_bytes if index else math.ceil(waiting / spec.bucket_bytes)
            if count:
                sent = min(waiting, count * spec.bucket_bytes)
                self._sizes[index] = (2 * self._way * sent, float(count))
                waiting -= sent
        self.after = tuple(self._sizes)

    def sequence(self, step: int) -> Iterator[tuple[CollectiveKey, float, float]]:
        """Yield the collectives of a step as devices start them: key, bytes that each sends, messages."""
        if self._spec.strategy != "sharded":
            for index in self.after:
                yield (step, 0, "reduce", index), *self._sizes[index]
            return
        groups, batches = len(self._weights), self._spec.accumulation
        for batch in range(batches):
            for index in range(groups):
                yield (step, batch, "gather", index), self._weights[index], 1.0
            yield (step, batch, "regather", groups - 1), self._weights[-1], 1.0
            for index in reversed(range(groups)):
                if index:
                    yield (step, batch, "regather", index - 1), self._weights[index - 1], 1.0
                if batch == batches - 1:
                    yield (step, batch, "reduce", index), *self._sizes[index]
