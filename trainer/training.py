"""The phases of a run in one process: build, warm-up, timed steps, steps without exchange, finish."""

from __future__ import annotations

import contextlib
import gc
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hostwire.training import RunStarted, Spec
from trainer.checkpoints import full_state, restore_state, training_fields
from trainer.intervals import Intervals
from trainer.parallelism import DTYPES, ParallelModel, RankContext, join_group
from trainer.reporting import EventWriter, RunRefused, StepReporter, logger
from trainer.software import host_software
from trainer.workloads import Sample, batch_iterator

if TYPE_CHECKING:
    from trainer.workloads import TrainingTask

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


def run_rank(spec: Spec, events: EventWriter, restart: str = "") -> None:
    """Run this process's part of a run; `restart` is why it goes on from its checkpoint, '' at its start.

    Raises RunRefused, and any other error.
    """
    place = join_group(spec)
    if not restart:
        events.report(RunStarted(at=time.time(), software=host_software()))
    events.phase("build")
    from trainer.links import LINK_MEASUREMENTS, measure_link

    if spec.workload in LINK_MEASUREMENTS:
        measure_link(spec, place, events)
    else:
        _train(spec, place, events, restart)
    if place.grouped:
        torch.distributed.destroy_process_group()


def _train(spec: Spec, place: RankContext, events: EventWriter, restart: str) -> None:
    from trainer.workloads import training_task

    if spec.precision == "fp16" and not place.on_gpu:
        raise RunRefused("fp16 needs a GPU. On the CPU, use bf16 or fp32.")
    if spec.validate_every and spec.data != "files":
        raise RunRefused("Random samples have nothing to validate: use files.")
    task = training_task(spec)
    intervals = Intervals(spec, place, events, task)
    torch.manual_seed(spec.seed)
    spread = ParallelModel(task.model(), spec, place)
    training = TrainingLoop(spec, place, spread, task, intervals)
    training.resume(restart)
    torch.manual_seed((spec.seed * 65537 + place.rank) * 8191 + training.done)  # for dropout: a seed per process
    half = min(max(MIN_UNSYNCHRONISED_STEPS, spec.steps // 2), MAX_UNSYNCHRONISED_STEPS)
    # After a restart fewer processes may be left: their steps do not compare with the timed ones.
    alone = half if spread.can_skip and not restart else 0
    settling = (2 if spec.compile else 1) if alone else 0
    left = spec.steps - training.done
    feed = training.feed(spec.warmup + left + alone + settling)
    logger.info("%s: %d parameters, %d samples a step.", spec.workload, spread.parameters, training.step_samples)
    place.wait()
    if restart:
        training.phase("resumed", left, feed, events)
    else:
        # Of a run that goes on, the steps that are not timed are steps of the training, too.
        warmup = min(spec.warmup, left - 1) if training.done else spec.warmup
        training.phase("warmup", warmup, feed, events, counted=training.done > 0)
        if place.on_gpu:
            torch.cuda.reset_peak_memory_stats(place.device)
        training.phase("timed", spec.steps - training.done, feed, events)
    peak = _peak_memory(place)
    if alone:
        events.phase("no_sync")
        # The first step still exchanges buffers, and a compiled model is recompiled.
        for _ in range(settling):
            training.step(feed, exchange=False)
        training.phase("no_sync", alone, feed, events, exchange=False)
    elif spec.strategy == "sharded" and not restart:
        logger.info("Weights are sharded: there are no steps without exchange to compare with.")
    events.phase("finish")
    values, units = intervals.figures()
    events.result(
        {
            "parameters": spread.parameters,
            "gradient_bytes": spread.parameters * DTYPES[spec.gradient].itemsize,
            "peak_memory": peak,
            **values,
        },
        {"parameters": "", "gradient_bytes": "B", "peak_memory": "B", **units},
    )
    place.wait()
    intervals.finish()


class TrainingLoop:
    """The steps of one process; `done` counts those of the training, of `spec.steps`, `consumed` their samples."""

    def __init__(
        self, spec: Spec, place: RankContext, spread: ParallelModel, task: TrainingTask, intervals: Intervals
    ) -> None:
        self._spec = spec
        self._place = place
        self._spread = spread
        self._task = task
        self._intervals = intervals
        self._optimiser = task.optimiser(spread.inner)
        self._scaler = torch.amp.GradScaler(place.device.type, enabled=spec.precision == "fp16")
        self.step_samples = spec.process_batch * place.world * spec.accumulation
        self.done = self.consumed = 0

    def resume(self, restart: str) -> None:
        """Go on from a checkpoint where there is one to go on from: of a restart, or of the run that the spec names."""
        state = self._intervals.saved_state(restart)
        if state is not None:
            restore_state(self._spread.inner, self._optimiser, state)
            self._scaler.load_state_dict(state["scaler"])
            self.done, self.consumed = state["done"], state["consumed"]
            # A process may be lost after the last step: nothing is left to train, and the results are.
            if self.done >= self._spec.steps and not restart:
                raise RunRefused(f"The checkpoint has {self.done} steps: of {self._spec.steps}, none is left.")
        self._intervals.announce(restart, self.done, self.step_samples, is_resumed=state is not None)

    def feed(self, steps: int) -> Iterator[Sample]:
        """Return batches for so many steps, from the files or of random samples."""
        spec, place = self._spec, self._place
        if (data := self._intervals.data) is not None:
            return self._intervals.epochs(data, self.consumed)
        samples = self._task.samples(steps * spec.accumulation * spec.process_batch, place.rank)
        return batch_iterator(
            samples, batch=spec.process_batch, workers=spec.loader_workers, seed=spec.seed, pinned=place.on_gpu
        )

    def phase(
        self,
        name: str,
        count: int,
        feed: Iterator[Sample],
        events: EventWriter,
        *,
        exchange: bool = True,
        counted: bool | None = None,
    ) -> None:
        """Do `count` steps and report the duration of each, including the waits for input and for all processes.

        Steps that are `counted`, by default timed and resumed ones, have their validations and checkpoints between.
        """
        if count <= 0:
            return
        if exchange:
            events.phase(name)
        counted = name in ("timed", "resumed") if counted is None else counted
        reporter = StepReporter(events, name, count, first=self.done if name == "resumed" else 0)
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
                if counted:
                    self.done += 1
                    self._intervals.step_seconds.append(took)
                    if self._intervals.due(self.done):
                        reporter.flush()
                        self._intervals.run(self.done, self._spread, self._state)
                        if number < count - 1:
                            events.phase(name)
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
                loss = self._task.loss(self._spread.model(*inputs), targets) / spec.accumulation
                self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        self._place.wait()
        self.consumed += self.step_samples
        return total

    def _state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; all processes call it."""
        return {
            **full_state(self._spread.inner, self._optimiser),
            "scaler": self._scaler.state_dict(),
            "done": self.done,
            "consumed": self.consumed,
            "training": training_fields(self._spec),
        }


def _peak_memory(place: RankContext) -> int:
    """Return the peak memory: of the GPU in the timed steps, on the CPU of the whole process."""
    if place.on_gpu:
        return torch.cuda.max_memory_allocated(place.device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
