"""A world that is not the model's: how long steps take in it, for studies of how honest the model's intervals are.

It shares the architectures' arithmetic and the data sheets with the model, and nothing of its formula: kernels reach
their rate only with large batches, layers and buckets are played one after the other with traffic and arithmetic that
slow each other, small messages are slow, the input is a queue that runs dry at times, every cell is a little off for no
reason at all, and what is measured has heavy tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from benchmarks.model.belief import cell_key
from benchmarks.model.calibration import Observation
from benchmarks.model.features import costs_of, link_rate
from benchmarks.model.reference_data import CORE_RATE, WORKLOAD_FAMILY, device_datasheet
from benchmarks.model.topology import LOCAL, Topology
from hostwire.training import Spec

LAYERS = 24


@dataclass(frozen=True)
class World:
    """One truth, drawn from a seed."""

    seed: int

    def _draw(self, name: str, centre: float, spread: float) -> float:
        random = np.random.default_rng([self.seed, crc32(name.encode())])
        return centre * math.exp(spread * random.standard_normal())

    def step(self, spec: Spec, topology: Topology) -> float:
        """Return the seconds of a step that a cell takes in this world, s."""
        return self._regular(spec, topology) * self._draw(cell_key(spec, topology), 1.0, 0.05)

    def observe(self, spec: Spec, topology: Topology, number: int = 0) -> Observation:
        """Return what a run of a cell would record: noise with heavy tails, of three degrees of freedom."""
        random = np.random.default_rng([self.seed, number, crc32(cell_key(spec, topology).encode()), 7])
        seconds = self.step(spec, topology) * math.exp(0.015 * random.standard_t(3))
        return Observation(spec=spec, topology=topology, step_seconds=seconds, spread=0.02)

    def _regular(self, spec: Spec, topology: Topology) -> float:
        costs, devices = costs_of(spec), topology.accelerators[: spec.devices]
        passes = [self._pass(spec, device.model) for device in devices]
        backward = max(passes) * 0.65
        forward = max(passes) - backward
        exchange = self._exchange(spec, topology, costs.parameters, costs.late_share, backward)
        device = device_datasheet(devices[0].model)
        update = costs.parameters * self._draw("update", 45, 0.3) / device.memory_rate
        if spec.strategy == "sharded":
            update /= spec.devices
        busy = (forward + backward) * (spec.accumulation - 1) + forward + exchange + update
        return self._fed(spec, topology, busy)

    def _pass(self, spec: Spec, model: str) -> float:
        """Return forward and backward of a batch on a device: efficiency that saturates with the batch."""
        costs, device, family = costs_of(spec), device_datasheet(model), WORKLOAD_FAMILY[spec.workload]
        rate = {"fp32": device.single, "fp16": device.half, "bf16": device.bf16}[spec.precision]
        reached = {"fp32": 0.52, "fp16": 0.36, "bf16": 0.36}[spec.precision]
        reached *= self._draw(f"reached {family}", 1.0, 0.15) * self._draw(f"reached {spec.workload}", 1.0, 0.15)
        if family == "depthwise":
            # Depthwise convolutions gain little from units of matrices.
            reached *= 0.12 if spec.precision == "fp32" else 0.05
        elif family == "convolution":
            reached *= 0.67 if spec.precision != "fp32" else 1.25
        # Samples at which half of the rate is lost: small networks need more of them.
        half_full = self._draw("half full", 1.0, 0.5) * math.sqrt(0.3e12 / costs.flops)
        products = costs.flops
        if spec.precision == "fp32":
            products *= 1 - costs.winograd_share * (1 - 1 / self._draw("winograd", 1.7, 0.2))
        seconds = spec.batch * products / (rate * reached) * (1 + half_full / spec.batch)
        kept = spec.batch * costs.activation_bytes * (0.6 if spec.precision == "fp16" else 1.0)
        seconds += kept * self._draw("touches", 4.0, 0.2) / device.memory_rate
        if spec.compile:
            seconds *= self._draw("compiled", 0.85, 0.08)
        return seconds + costs.operations * self._draw("start", 15e-6, 0.3)

    def _edge(self, spec: Spec, topology: Topology) -> float:
        """Return the rate of the slowest edge of the ring, bytes a second: over PCIe about the published one."""
        devices = topology.accelerators[: spec.devices]
        places = {device.place for device in devices}
        if len(places) > 1:
            links = [topology.uplinks[place] for place in places if place != LOCAL]
            return self._draw("across", 9.8e9, 0.15) * min(link_rate(link) for link in links) / 15.76e9
        if LOCAL in places:
            return self._draw("nvlink", 120e9, 0.1) * (0.25 + 0.75 * spec.devices / 8)
        return self._draw("switch", 12.2e9, 0.15) * min(link_rate(device.link) for device in devices) / 15.76e9

    def _exchange(self, spec: Spec, topology: Topology, parameters: float, late: float, backward: float) -> float:
        """Return the seconds from the first layer backwards until all gradients are there."""
        n = spec.devices
        if n == 1:
            return backward
        edge = self._edge(spec, topology)
        size = parameters * {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0}[spec.gradient]
        wait = self._draw("wait", 25e-6, 0.3) * (n - 1)

        def sending(sent: float) -> float:
            # Small messages do not fill a link.
            return wait + 2 * (n - 1) / n * sent / edge * (1 + 2e6 / max(sent, 1.0))

        if spec.strategy == "dp":
            # One interpreter starts the work of all devices, and copies the network to them each time.
            started = n * 3 * costs_of(spec).operations * self._draw("interpreter", 16e-6, 0.4)
            return max(backward * 1.1, started) + 2 * size / edge * 1.3
        if spec.strategy == "sharded":
            total = 1.5 * sending(size)
            return max(backward, total) + 0.25 * min(backward, total)
        clock, wire, waiting = 0.0, 0.0, 0.0
        slowed = self._draw("slowed", 0.15, 0.3)
        sizes = np.linspace(1.6, 0.4, LAYERS)  # later layers are larger and come first
        for share in sizes / sizes.sum():
            busy = wire > clock
            clock += backward / LAYERS * (1 + slowed * busy)
            waiting += size * (1 - late) * share
            if waiting >= spec.bucket_bytes:
                wire = max(wire, clock) + sending(waiting) * 1.05
                waiting = 0.0
        waiting += size * late
        while waiting > 0:
            sent = min(waiting, float(spec.bucket_bytes))
            wire = max(wire, clock) + sending(sent)
            waiting -= sent
        return max(clock, wire)

    def _fed(self, spec: Spec, topology: Topology, busy: float) -> float:
        """Return the step of a queue between the loader and the devices: batches of varying cost, devices that wait."""
        costs = costs_of(spec)
        cores = min(topology.cores * 0.9, (1 if spec.strategy == "dp" else spec.devices) * max(1, spec.loader_workers))
        name = (
            "scenes"
            if spec.workload == "yolov5l"
            else WORKLOAD_FAMILY[spec.workload].replace("depthwise", "convolution")
        )
        a_byte = {"convolution": 1.25e-8, "scenes": 0.8e-8, "transformer": 3e-8}[name]
        loading = spec.global_batch * costs.device_bytes * self._draw(f"loading {name}", a_byte, 0.3) / cores
        loading *= CORE_RATE / 80e9
        if spec.loader_workers == 0:
            return busy + loading
        random = np.random.default_rng([self.seed, 3])
        varying = np.exp(0.1 * random.standard_normal(64))
        return float(np.mean(np.maximum(busy, loading * varying)))
