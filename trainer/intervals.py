"""What comes between the steps of a training: the data set before them, validations, checkpoints, and going on."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

from hostwire.training import RUN_VARIABLE, PhaseStarted, RunReading, Spec, StepsCompleted
from trainer.checkpoints import Checkpoint
from trainer.parallelism import ParallelModel, RankContext
from trainer.reporting import EventWriter, RunRefused, logger
from trainer.storage import data_folder
from trainer.workloads import Sample, TrainingTask

if TYPE_CHECKING:
    from trainer.data_sets import StoredDataSet

USUAL_SAMPLES: Final = {"images": 4096, "scenes": 2048, "digits": 8192, "texts": 16384}
_PROGRESS_SECONDS: Final = 5.0


class Intervals:
    """The data set of a run, and what a process does between its steps."""

    def __init__(self, spec: Spec, place: RankContext, events: EventWriter, task: TrainingTask) -> None:
        self._spec, self._place, self._events, self._task = spec, place, events, task
        # By the agent's name of the run; started by hand, runs of one specification share theirs.
        self.run_name = os.environ.get(RUN_VARIABLE) or f"{spec.workload}-{spec.hash[:12]}"
        self._folder = data_folder() if spec.data == "files" or spec.checkpoint_every or spec.resume_from else None
        self._checkpoint = Checkpoint(self._folder, self.run_name) if self._folder else None
        self.data = self._data_set(self._folder) if self._folder and spec.data == "files" else None
        self.step_seconds: list[float] = []  # of counted steps
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._values: dict[str, tuple[Any, str]] = {}

    def _data_set(self, folder: Path) -> StoredDataSet:
        try:
            from trainer.data_sets import data_set
            from trainer.file_samples import FileSamples  # noqa: F401 - needs Pillow
        except ImportError as missing:
            raise RunRefused(f"Runs on files need Pillow and NumPy on this host: {missing}.") from missing
        spec, last = self._spec, time.monotonic()

        def report(sentence: str) -> None:
            nonlocal last
            if time.monotonic() - last >= _PROGRESS_SECONDS:
                last = time.monotonic()
                logger.info("Data: %s", sentence)
                self._events.report(PhaseStarted(at=time.time(), name="data"))  # it is no run that hangs

        self._events.phase("data")
        count = spec.samples or USUAL_SAMPLES[self._task.files]
        return data_set(folder, self._task.files, count, self._task.sizes, report)

    def epochs(self, data: StoredDataSet, consumed: int) -> Iterator[Sample]:
        """Return endless batches from the files, after `consumed` samples of all processes."""
        from trainer.file_samples import EpochOrder, FileSamples, file_loader

        spec, place = self._spec, self._place
        order = EpochOrder(
            count=data.manifest.samples, batch=spec.process_batch, rank=place.rank, world=place.world, seed=spec.seed,
            consumed=consumed,
        )  # fmt: skip
        samples = FileSamples(data=data, seed=spec.seed)
        return iter(file_loader(samples, order, workers=spec.loader_workers, pinned=place.on_gpu))

    def due(self, done: int) -> bool:
        """Return whether something comes after this step."""
        return self._validates(done) or self._checkpoints(done)

    def _validates(self, done: int) -> bool:
        every = self._spec.validate_every
        return bool(every) and (done % every == 0 or done == self._spec.steps)

    def _checkpoints(self, done: int) -> bool:
        every = self._spec.checkpoint_every
        return bool(every) and done % every == 0

    def run(self, done: int, spread: ParallelModel, state: Callable[[], dict[str, Any]]) -> None:
        """Validate and save, as is due after this step; all processes call it."""
        if self._validates(done) and (data := self.data) is not None:
            self._timed("validation", lambda: self._validate(spread, data))
        if self._checkpoints(done):
            self._timed("checkpoint", lambda: self._save(state))

    def _timed(self, phase: str, work: Callable[[], float | None]) -> None:
        """Do and report a piece of work as a step of its phase, with the loss that it returns."""
        self._events.phase(phase)
        began = time.perf_counter()
        loss = work()
        self._place.wait()
        took = time.perf_counter() - began
        first = len(self._seconds[phase])
        self._seconds[phase].append(took)
        losses = () if loss is None else (loss,)
        self._events.report(StepsCompleted(at=time.time(), phase=phase, first=first, seconds=(took,), loss=losses))
        if self._place.leads:
            logger.info("%s: %.4g s%s.", phase, took, f", loss {loss:.4g}" if loss is not None else "")

    @torch.no_grad()
    def _validate(self, spread: ParallelModel, data: StoredDataSet) -> float:
        """Return the mean loss of the samples for validation over all processes."""
        from trainer.file_samples import FileSamples, file_loader, validation_batches

        spec, place, task = self._spec, self._place, self._task
        batches = validation_batches(data, batch=spec.process_batch, rank=place.rank, world=place.world)
        samples = FileSamples(data=data, seed=spec.seed)
        sums = torch.zeros(2, dtype=torch.float64, device=place.device)
        spread.inner.eval()
        try:
            for inputs, targets in file_loader(samples, batches, workers=spec.loader_workers, pinned=place.on_gpu):
                outputs = spread.inner(*(one.to(place.device, non_blocking=True) for one in inputs))
                wanted = tuple(one.to(place.device, non_blocking=True) for one in targets)
                sums[0] += task.loss(outputs, wanted)
                if task.score is not None:
                    sums[1] += task.score(outputs, wanted)
        finally:
            spread.inner.train()
        if place.grouped and place.world > 1:
            dist.all_reduce(sums)
        loss, score = (sums / (len(batches) * place.world)).tolist()
        self._values["validation_loss"] = (loss, "")
        if task.score is not None:
            self._values[task.measure] = (score, "share")
            self._events.report(
                RunReading(at=time.time(), interval=0.0, source="trainer", values={f"validation/{task.measure}": score})
            )
        return float(loss)

    def _save(self, state: Callable[[], dict[str, Any]]) -> None:
        whole = state()
        if self._place.leads and self._checkpoint is not None:
            self._values["checkpoint_bytes"] = (self._checkpoint.save(whole), "B")

    def saved_state(self, restart: str) -> dict[str, Any] | None:
        """Return the checkpoint to go on from, None to begin anew."""
        spec, own = self._spec, self._checkpoint
        if own is None or self._folder is None:
            return None
        if restart and own.exists:
            return own.load(spec)
        state = Checkpoint(self._folder, spec.resume_from).load(spec) if spec.resume_from else None
        self._place.wait()
        if self._place.leads and spec.resume_from != self.run_name:
            own.delete()  # of an earlier run of this specification
        return state

    def announce(self, restart: str, done: int, step_samples: int, *, is_resumed: bool) -> None:
        """Say in the events from where the run goes on, and with what."""
        spec, place = self._spec, self._place
        if restart:
            sentence = (
                f"{restart} Restarted with {place.world} of {spec.processes} devices at step {done}. "
                f"A step has {step_samples} samples; the learning rate is as before."
            )
            # A name of its own: a later restart does not replace it.
            self._events.result({f"restart_at_{done}": sentence}, {})
        elif is_resumed:
            sentence = f"It goes on from the checkpoint of {spec.resume_from} at step {done} of {spec.steps}."
            self._events.result({"resumed_at": done, "note": sentence}, {})
        else:
            return
        if place.leads:
            logger.info("%s", sentence)

    def figures(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the figures of validations and checkpoints with their units: seconds are medians, others the last."""
        figures = self._values | {
            f"{name}_seconds": (statistics.median(seconds), "s") for name, seconds in self._seconds.items()
        }
        if self.data is not None and self.step_seconds:
            # Not by the median: loaders bring batches in bursts where they are the limit.
            figures["steps_per_second"] = (len(self.step_seconds) / sum(self.step_seconds), "1/s")
            figures["data_samples"] = (self.data.manifest.samples, "")
            figures["data_bytes"] = (self.data.manifest.bytes, "B")
        values = {name: value for name, (value, _unit) in figures.items()}
        return values, {name: unit for name, (_value, unit) in figures.items()}

    def finish(self) -> None:
        """Delete the checkpoint: nothing is left to go on with."""
        if self._place.leads and self._checkpoint is not None:
            self._checkpoint.delete()
