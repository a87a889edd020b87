"""The phases of a run in one process: build, warm-up, timed steps, steps without exchange, finish."""

from __future__ import annotations

import contextlib
import gc
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hostwire.training import RunStarted, Spec
from trainer.parallelism import DTYPES, ParallelModel, RankContext, join_group
from trainer.reporting import EventWriter, RunRefused, StepReporter, logger
from trainer.software import host_software
from trainer.workloads import Sample, batch_iterator

if TYPE_CHECKING:
    from trainer.workloads import Loss

# Steps without gradient exchange: half of the timed ones, within these limits.
MIN_UNSYNCHRONISED_STEPS, MAX_UNSYNCHRONISED_STEPS = 5, 20
GC_INTERVAL_STEPS = 500  # steps


def preload(spec: Spec) -> None:
    """Import the libraries of a run before its ranks are forked: some take seconds each."""
    from trainer.links import LINK_MEASUREMENTS

    # Building the model, here without memory, imports its libraries; a rank reports errors.
    with contextlib.suppress(Exception), torch.device("meta"):
        if spec.workload not in LINK_MEASUREMENTS:
            from trainer.workloads import training_task

            task = training_task(spec)
            task.optimiser(task.model())


def run_rank(spec: Spec, events: EventWriter) -> None:
    """Run this process's part of a run. Raises RunRefused, and any other error."""
    place = join_group(spec)
    events.report(RunStarted(at=time.time(), software=host_software()))
    events.phase("build")
    from trainer.links import LINK_MEASUREMENTS, measure_link

    if spec.workload in LINK_MEASUREMENTS:
        measure_link(spec, place, events)
    else:
        _train(spec, place, events)
    if place.grouped:
        torch.distributed.destroy_process_group()


def _train(spec: Spec, place: RankContext, events: EventWriter) -> None:
    from trainer.workloads import training_task

    if spec.precision == "fp16" and not place.on_gpu:
        raise RunRefused("fp16 needs a GPU. On the CPU, use bf16 or fp32.")
    task = training_task(spec)
    torch.manual_seed(spec.seed)
    spread = ParallelModel(task.model(), spec, place)
    torch.manual_seed(spec.seed * 65537 + place.rank)  # for dropout: a seed per process
    training = TrainingLoop(spec, place, spread, task.loss, task.optimiser(spread.inner))
    half = min(max(MIN_UNSYNCHRONISED_STEPS, spec.steps // 2), MAX_UNSYNCHRONISED_STEPS)
    alone = half if spread.can_skip else 0
    settling = (2 if spec.compile else 1) if alone else 0
    together = spec.devices if spec.strategy == "dp" else 1  # devices that this process feeds
    batch = spec.batch * together
    length = (spec.warmup + spec.steps + alone + settling) * spec.accumulation * batch
    samples = task.samples(length, place.rank)
    feed = batch_iterator(samples, batch=batch, workers=spec.loader_workers, seed=spec.seed, pinned=place.on_gpu)
    logger.info("%s: %d parameters, %d samples a step.", spec.workload, spread.parameters, spec.global_batch)
    place.wait()
    training.phase("warmup", spec.warmup, feed, events)
    if place.on_gpu:
        torch.cuda.reset_peak_memory_stats(place.device)
    training.phase("timed", spec.steps, feed, events)
    peak = _peak_memory(place)
    if alone:
        events.phase("no_sync")
        # The first step still exchanges buffers, and a compiled model is recompiled.
        for _ in range(settling):
            training.step(feed, exchange=False)
        training.phase("no_sync", alone, feed, events, exchange=False)
    elif spec.strategy == "sharded":
        logger.info("Weights are sharded: there are no steps without exchange to compare with.")
    events.phase("finish")
    events.result(
        {
            "parameters": spread.parameters,
            "gradient_bytes": spread.parameters * DTYPES[spec.gradient].itemsize,
            "peak_memory": peak,
        },
        {"parameters": "", "gradient_bytes": "B", "peak_memory": "B"},
    )
    place.wait()


class TrainingLoop:
    def __init__(
        self, spec: Spec, place: RankContext, spread: ParallelModel, loss: Loss, optimiser: torch.optim.Optimizer
    ) -> None:
        self._spec = spec
        self._place = place
        self._spread = spread
        self._loss = loss
        self._optimiser = optimiser
        self._scaler = torch.amp.GradScaler(place.device.type, enabled=spec.precision == "fp16")

    def phase(
        self, name: str, count: int, feed: Iterator[Sample], events: EventWriter, *, exchange: bool = True
    ) -> None:
        """Do `count` steps and report the duration of each, including the waits for input and for all processes."""
        if not count:
            return
        if exchange:
            events.phase(name)
        reporter = StepReporter(events, name, count)
        # Garbage collection would interrupt steps: it runs between them.
        gc.collect()
        gc.disable()
        try:
            self._place.wait()
            for number in range(count):
                if number % GC_INTERVAL_STEPS == GC_INTERVAL_STEPS - 1:
                    gc.collect()
                began = time.perf_counter()
                loss = self.step(feed, exchange=exchange)
                took = time.perf_counter() - began
                # After the step: the loss is being copied from the device.
                reporter.add(took, float(loss), has_loss=exchange)
        finally:
            gc.enable()
        reporter.flush()

    def step(self, feed: Iterator[Sample], *, exchange: bool = True) -> Tensor:
        """Do one step and wait for all processes; returns the mean loss of this process's batches."""
        spec, device = self._spec, self._place.device
        self._optimiser.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        for number in range(spec.accumulation):
            inputs, targets = next(feed)
            inputs = tuple(tensor.to(device, non_blocking=True) for tensor in inputs)
            targets = tuple(tensor.to(device, non_blocking=True) for tensor in targets)
            with self._spread.gradient_sync(exchange and number == spec.accumulation - 1):
                loss = self._loss(self._spread.model(*inputs), targets) / spec.accumulation
                self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        self._place.wait()
        return total


def _peak_memory(place: RankContext) -> int:
    """Return the peak memory: of the GPU in the timed steps, on the CPU of the whole process."""
    if place.on_gpu:
        return torch.cuda.max_memory_allocated(place.device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
