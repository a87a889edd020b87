"""A training run as processes: devices that compute, one stream of exchange, loaders, and the drive."""

from __future__ import annotations

import math
import random
from collections import defaultdict

from benchmarks.model.features import accelerators_used, costs_of
from benchmarks.model.reference_data import (
    UNKNOWN_DEVICE,
    WORKLOAD_FAMILY,
    device_datasheet,
    workload_data_set,
)
from benchmarks.model.topology import Topology
from benchmarks.simulation import constants as c
from benchmarks.simulation.engine import Engine, Gate, Process, SimulatedActivity, Store
from benchmarks.simulation.exchange import Collective, CollectiveKey, CollectiveSchedule
from benchmarks.simulation.links import CORES, HostLinks, of_host
from benchmarks.simulation.result import DeviceMeter
from benchmarks.simulation.work import cpu_work, gpu_work, sample_seconds
from hostwire.training import Spec

WARMUP_STEPS = 1


class TrainingRun:
    """One run on an engine; it goes on until the engine stops."""

    def __init__(self, engine: Engine, spec: Spec, topology: Topology, *, name: str, seed: int, cold: bool) -> None:
        self.spec, self.topology, self._engine, self._name = spec, topology, engine, name
        self.accelerators = accelerators_used(spec, topology)
        self.links = HostLinks(topology, self.accelerators, name)
        self._costs = costs_of(spec)
        self._schedule = CollectiveSchedule(spec)
        self._family = WORKLOAD_FAMILY[spec.workload]
        self._several = spec.devices > 1 and spec.strategy in ("ddp", "sharded")
        self._random = random.Random(f"{spec.hash}/{name}/{seed}")  # noqa: S311 - noise, not a secret
        self.ranks = 1 if spec.strategy == "dp" else spec.devices
        self.meters = [DeviceMeter() for _ in range(spec.devices)]
        if self.accelerators:
            self._facts = [device_datasheet(device.model) for device in self.accelerators]
            self._work = [gpu_work(spec, facts) for facts in self._facts]
        else:
            there = min(topology.cores, spec.cores or topology.cores)
            threads = there if spec.threads == 0 else min(there, spec.threads * spec.devices)
            self._facts = [UNKNOWN_DEVICE] * spec.devices
            self._work = [cpu_work(spec, max(1, threads) / spec.devices)] * spec.devices
        self._pace = [math.exp(self._random.gauss(0, c.DEVICE_SPREAD)) for _ in range(spec.devices)]
        self._ring, self._ring_key = self.links.ring(spec.devices), f"{name}ring"
        self._collectives: dict[CollectiveKey, Collective] = {}
        self._moving = False  # bytes of the exchange are on their way
        self._pending = [0] * spec.devices  # kernels of the exchange on each device
        self._read_bytes = self._bytes_to_read(cold=cold)
        self._prepared = [Store(engine, c.PREFETCHED * spec.loader_workers) for _ in range(self.ranks)]
        self._fetched = [Store(engine, spec.loader_workers) for _ in range(self.ranks)]
        self._ends: defaultdict[int, Gate] = defaultdict(lambda: Gate(self.ranks))
        self.ring_bytes = 0.0  # that each device has sent for the exchange
        for rank in range(self.ranks):
            engine.hold(self._cores_of(rank), 1.0)
        self.ended: list[float] = []  # time of the end of each step
        self.cores_used: list[tuple[float, float]] = [(0.0, 0.0)]  # core-seconds of the loaders until a time
        self._decoded = 0.0

    def begin(self) -> None:
        """Start all processes of the run."""
        if self._loaders_keep_up():
            # Their queues are full, as they are after some time.
            for store in self._prepared:
                store.fill()
        for rank in range(self.ranks):
            if self.spec.loader_workers:
                self._engine.start(self._loader(rank))
                if self._read_bytes:
                    self._engine.start(self._reader(rank))
            spread = self.spec.strategy == "dp" and len(self.accelerators) > 1
            self._engine.start(self._dp() if spread else self._device(rank))
        if self._several:
            self._engine.start(self._stream())

    @property
    def now(self) -> float:
        return self._engine.now

    @property
    def carried(self) -> dict[str, float]:
        return self._engine.carried

    @property
    def cores(self) -> int:
        """Cores of all its hosts."""
        return max(1, self.topology.cores) * (1 + len(self.topology.other_hosts))

    @property
    def sample_bytes(self) -> float:
        """Bytes of one sample on the way to a device."""
        return self._costs.device_bytes

    def arrive(self, gate: Gate) -> None:
        self._engine.arrive(gate)

    def end_of(self, step: int) -> Gate:
        """Return the gate that opens at the end of a step."""
        return self._ends[step]

    # --- Input

    def _bytes_to_read(self, *, cold: bool) -> float:
        """Return the bytes of a batch that come from the drive: all of a cold first pass, else what memory lacks."""
        data = workload_data_set(self.spec.workload)
        missing = 1.0 if cold else data.uncached_share(self.topology.memory_bytes)
        return self.spec.process_batch * self._costs.input_bytes * data.reads * missing

    def _loaders_keep_up(self) -> bool:
        """Whether loaders are likely faster than the devices."""
        spec, engine = self.spec, self._engine
        loaders = engine.held(CORES)  # of all runs: there is one for each process
        workers = min(self._at_most(spec.loader_workers), engine.free(CORES, loaders * spec.loader_workers) / loaders)
        if not workers:
            return False
        exchanged = sum(size for _, size, _ in self._schedule.sequence(0)) / self._ring.slowest(engine.free)
        backward = max(*(work.backward for work in self._work), self._several * exchanged / spec.accumulation)
        device = max(work.forward for work in self._work) + backward
        loading = self.spec.process_batch * sample_seconds(spec) / workers
        reading = loaders * self._read_bytes / self.links.read().slowest(engine.free)
        return max(loading, reading) < device

    def _host_of(self, rank: int) -> str:
        return self.accelerators[rank].host if self.accelerators else ""

    def _cores_of(self, rank: int) -> str:
        return of_host(self._host_of(rank), CORES)

    def _read(self, rank: int) -> SimulatedActivity:
        """Return the reading of one batch from the drive."""
        host = self._host_of(rank)
        return self.links.read(host).transfer(self._read_bytes, of_host(host, f"{self._name}read"))

    def _decode(self, rank: int, workers: int) -> Process:
        """Decode one batch by some processes."""
        spread = c.SAMPLE_SPREAD / math.sqrt(self.spec.process_batch)
        work = self.spec.process_batch * sample_seconds(self.spec) * math.exp(self._random.gauss(0, spread))
        key = of_host(self._host_of(rank), f"{self._name}decode")
        yield SimulatedActivity(work, key=key, path={self._cores_of(rank): 1.0}, limit=self._at_most(workers))
        self._decoded += work
        self.cores_used.append((self._engine.now, self._decoded))

    def _reader(self, rank: int) -> Process:
        """Read batch after batch, one for each loader ahead of what these decode."""
        while True:
            yield from self._fetched[rank].room()
            yield self._read(rank)
            self._fetched[rank].put()

    def _at_most(self, workers: float) -> float:
        """Return the cores that the loaders of a process can use of those that the run may use on its hosts."""
        own = self.spec.cores * self.spec.hosts / self.ranks
        return min(float(workers), own) if own else float(workers)

    def _loader(self, rank: int) -> Process:
        """Prepare batch after batch, while there is room for more."""
        while True:
            yield from self._prepared[rank].room()
            if self._read_bytes:
                yield from self._fetched[rank].take()
            yield from self._decode(rank, self.spec.loader_workers)
            self._prepared[rank].put()

    def _take(self, rank: int) -> Process:
        """Wait for a batch and copy it to the device."""
        meter, began = self.meters[rank], self._engine.now
        if not self.spec.loader_workers:
            if self._read_bytes:
                yield self._read(rank)
            yield from self._decode(rank, 1)
        else:
            # A process that starts kernels or polls for their end keeps a core busy; one that waits for samples none.
            self._engine.hold(self._cores_of(rank), -1.0)
            yield from self._prepared[rank].take()
            self._engine.hold(self._cores_of(rank), 1.0)
        meter.waited += self._engine.now - began
        if self.accelerators:
            began = self._engine.now
            route, size = self.links.copy(self.accelerators[rank]), self.spec.process_batch * self._costs.device_bytes
            yield route.transfer(size, f"{self._name}copy/{rank}")
            meter.copied += self._engine.now - began

    # --- Computation

    def _compute(self, rank: int, seconds: float, memory: float) -> Process:
        """Compute for seconds of an undisturbed device; the exchange takes multiprocessors and memory bandwidth."""
        meter, facts = self.meters[rank], self._facts[rank]
        kind = self._ring.kind

        def speed() -> float:
            if not self._pending[rank]:
                return 1.0
            rate = self._engine.rates.get(self._ring_key, 0.0) if self._ring.path else self._ring.limit * self._moving
            taken = c.RING_TOUCHES * rate / facts.memory_rate
            return max(0.2, 1 - c.CHANNEL_SHARE[kind] - memory * min(0.8, taken))

        began = self._engine.now
        meter.on(began)
        yield SimulatedActivity(seconds * self._pace[rank], speed=speed)
        now = self._engine.now
        meter.off(now)
        meter.computed += now - began
        meter.memory += memory * seconds
        meter.intervals.append((began, now, memory))

    def _device(self, rank: int) -> Process:
        """Do step after step on one device."""
        spec, work, engine, meter = self.spec, self._work[rank], self._engine, self.meters[rank]
        several = self._several
        for step in range(10**9):
            noise = math.exp(self._random.gauss(0, c.STEP_SPREAD))
            for batch in range(spec.accumulation):
                yield from self._take(rank)
                last = batch == spec.accumulation - 1
                if several and spec.strategy == "sharded":
                    yield from self._sharded_batch(rank, step, batch, noise)
                    continue
                memory = sum(group.forward * group.memory for group in work.groups) / work.forward
                yield from self._compute(rank, work.forward * noise, memory)
                for index in reversed(range(len(work.groups))):
                    group = work.groups[index]
                    copies = 0.0
                    if several and last:
                        reached = self._facts[rank].memory_rate * c.MEMORY_REACHED[self._family]
                        copies = c.BUCKET_PASSES * 4 * group.gradients / reached
                    yield from self._compute(rank, group.backward * noise + copies, group.memory)
                    if several and last and index in self._schedule.after:
                        self._send(rank, (step, 0, "reduce", index))
            if several:
                yield from self._wait_for_gradients(rank, step)
            began = engine.now
            yield from self._compute(rank, work.optimiser, 1.0)
            meter.optimised += engine.now - began
            yield from self._end_step(rank, step)

    def _end_step(self, rank: int, step: int) -> Process:
        end = self._ends[step]
        self._engine.arrive(end)
        yield end
        if rank == 0:
            self.ended.append(self._engine.now)

    # --- Exchange

    def _collective(self, key: CollectiveKey) -> Collective:
        if key not in self._collectives:
            self._collectives[key] = Collective(self.spec.devices)
        return self._collectives[key]

    def _send(self, rank: int, key: CollectiveKey) -> None:
        """Start a device's kernel of a collective, which waits for those of the others."""
        self._pending[rank] += 1
        self.meters[rank].on(self._engine.now)
        self._engine.arrive(self._collective(key).ready)

    def _wait(self, rank: int, key: CollectiveKey) -> Process:
        meter, collective, began = self.meters[rank], self._collective(key), self._engine.now
        yield collective.ready
        meter.late += self._engine.now - began
        began = self._engine.now
        yield collective.done
        meter.exposed += self._engine.now - began

    def _wait_for_gradients(self, rank: int, step: int) -> Process:
        last = self.spec.accumulation - 1 if self.spec.strategy == "sharded" else 0
        for index in self._schedule.after:
            yield from self._wait(rank, (step, last, "reduce", index))

    def _stream(self) -> Process:
        """Move the bytes of one collective after the other, in the order in which devices start them."""
        engine = self._engine
        for step in range(10**9):
            self._collectives = {key: one for key, one in self._collectives.items() if key[0] >= step - 1}
            for key, size, count in self._schedule.sequence(step):
                collective = self._collective(key)
                yield collective.ready
                yield SimulatedActivity(count * (c.COLLECTIVE_SECONDS + self._schedule.hops * self._ring.hop))
                self._moving = True
                yield self._ring.transfer(size, self._ring_key)
                self._moving = False
                self.ring_bytes += size
                for rank, meter in enumerate(self.meters):
                    self._pending[rank] -= 1
                    meter.off(engine.now)
                engine.arrive(collective.done)

    def _sharded_batch(self, rank: int, step: int, batch: int, noise: float) -> Process:
        """Compute one batch with sharded weights: each group's are gathered for each pass, one group ahead."""
        work, count = self._work[rank], len(self._work[rank].groups)
        last = batch == self.spec.accumulation - 1
        order = (("gather", range(count)), ("regather", range(count - 1, -1, -1)))
        for what, indices in order:
            self._send(rank, (step, batch, what, indices[0]))
            for place, index in enumerate(indices):
                if place + 1 < count:
                    self._send(rank, (step, batch, what, indices[place + 1]))
                yield from self._wait(rank, (step, batch, what, index))
                group = work.groups[index]
                seconds = group.forward if what == "gather" else group.backward
                yield from self._compute(rank, seconds * noise, group.memory)
                if what == "regather" and last:
                    self._send(rank, (step, batch, "reduce", index))

    # --- DP: one process, all devices

    def _dp(self) -> Process:
        """Do steps of DP: samples, weights and gradients go through the first device, and nothing overlaps."""
        spec, first, count = self.spec, self.accelerators[0], self.spec.devices
        sample_bytes = spec.batch * self._costs.device_bytes
        modules = sum(layer.operations for layer in self._costs.layers) / 2
        launches = sum(layer.operations for layer in self._costs.layers) * c.INTERPRETER_SECONDS
        for step in range(10**9):
            noises = [math.exp(self._random.gauss(0, c.STEP_SPREAD)) for _ in range(count)]
            for _ in range(spec.accumulation):
                yield from self._take(0)
                began = self._engine.now
                for number, other in enumerate(self.accelerators[1:], 1):
                    edge = self.links.edge(first, other, (first, other))
                    yield edge.transfer(sample_bytes, f"{self._name}scatter/{number}")
                self.meters[0].copied += self._engine.now - began
                yield from self._dp_exchange(modules * count * c.REPLICA_SECONDS)
                # Python starts the forward pass of one device after the other; backward, each has a thread of its own.
                yield from self._dp_pass([work.forward for work in self._work], noises, launches * count)
                yield from self._dp_pass([work.backward for work in self._work], noises, 0.0)
                yield from self._dp_exchange(0.0)
            began = self._engine.now
            yield from self._compute(0, self._work[0].optimiser, 1.0)
            self.meters[0].optimised += self._engine.now - began
            yield from self._end_step(0, step)

    def _dp_pass(self, seconds: list[float], noises: list[float], launches: float) -> Process:
        """Compute on all devices at once, and go on when the last has ended and all has been launched."""
        done = Gate(len(seconds))
        for rank, own in enumerate(seconds):
            self._engine.start(self._dp_part(rank, own * noises[rank], done))
        began = self._engine.now
        yield done
        if launches > self._engine.now - began:
            yield SimulatedActivity(launches - (self._engine.now - began))

    def _dp_part(self, rank: int, seconds: float, done: Gate) -> Process:
        own = self._work[rank].groups
        yield from self._compute(rank, seconds, sum(one.memory for one in own) / len(own))
        self._engine.arrive(done)

    def _dp_exchange(self, seconds: float) -> Process:
        """Send all weights from the first device, or gather gradients there: each edge carries them once."""
        began = self._engine.now
        size = 4.0 * self._costs.parameters
        for meter in self.meters:
            meter.on(began)
        yield SimulatedActivity(seconds + c.COLLECTIVE_SECONDS + self.spec.devices * self._ring.hop)
        yield self._ring.transfer(size, self._ring_key)
        self.ring_bytes += size * (self.spec.devices - 1) / self.spec.devices
        for meter in self.meters:
            meter.off(self._engine.now)
            meter.exposed += self._engine.now - began
