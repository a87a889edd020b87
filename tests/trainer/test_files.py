"""Runs on files: data sets, loaders, validation, checkpoints, and going on after a halt or the loss of a process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.workloads.catalogue import spec_of
from hostwire.training import PhaseStarted, RunResult, Spec, StepsCompleted, event_decoder
from tests.trainer.conftest import LONGEST
from tests.trainer.starting import Running, RunOutcome
from tests.waiting import wait_for

torch = pytest.importorskip("torch")

from trainer.checkpoints import Checkpoint, training_fields  # noqa: E402
from trainer.data_sets import Kind, StoredDataSet, data_set  # noqa: E402
from trainer.drawing import draw_image, draw_scene  # noqa: E402
from trainer.file_samples import VALIDATION, EpochOrder, FileSamples, file_loader, validation_batches  # noqa: E402
from trainer.reporting import EventWriter, RunRefused  # noqa: E402
from trainer.restarts import limit_cores  # noqa: E402
from trainer.training import run_rank  # noqa: E402

Ran = Callable[..., RunOutcome]
Started = Callable[..., Running]
SIZES: dict[Kind, dict[str, int]] = {
    "images": {"image": 64, "classes": 10},
    "scenes": {"image": 64, "classes": 4},
    "digits": {"image": 28, "classes": 10},
    "texts": {"sequence": 32, "vocabulary": 1000},
}


def written(folder: Path, kind: Kind = "images", samples: int = 16) -> StoredDataSet:
    return data_set(folder, kind, samples, SIZES[kind], lambda _sentence: None)


@pytest.mark.parametrize(("draw", "sizes", "size"), [
    (draw_image, {"image": 224, "classes": 1000}, 110e3), (draw_scene, {"image": 640, "classes": 80}, 165e3),
])  # fmt: skip
def test_pictures_have_the_size_of_the_files_that_they_stand_for(draw: Any, sizes: dict[str, int], size: float) -> None:
    files = [draw(np.random.default_rng(number), sizes)[0] for number in range(40)]
    assert np.mean([len(file) for file in files]) == pytest.approx(size, rel=0.1)
    assert all(file.startswith(b"\xff\xd8\xff") for file in files)


@pytest.mark.parametrize("kind", SIZES)
def test_a_data_set_is_written_once_and_found_again(tmp_path: Path, kind: Kind) -> None:
    first = written(tmp_path, kind)
    before = {file: file.stat().st_ino for file in first.folder.rglob("*")}
    again = written(tmp_path, kind)
    assert again.manifest == first.manifest
    assert {file: file.stat().st_ino for file in again.folder.rglob("*")} == before
    manifest = json.loads((first.folder / "manifest.json").read_text())
    assert (manifest["version"], manifest["samples"], manifest["validation"]) == (1, 16, 2)
    assert len(manifest["sha256"]) == 64
    samples = FileSamples(data=first, seed=1)
    inputs, targets = samples[3, 0]
    same_inputs, same_targets = samples[3, 0]
    for one, other in zip(inputs + targets, same_inputs + same_targets, strict=True):
        assert torch.equal(one, other)
    assert all(torch.isfinite(one.float()).all() for one in inputs)


def test_another_folder_has_the_same_content_and_other_sizes_another_data_set(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = written(tmp_path), written(tmp_path / "other")
    assert one.manifest.sha256 == other.manifest.sha256
    larger = written(tmp_path, samples=17)
    assert larger.folder != one.folder


def test_a_data_set_that_lost_a_file_is_written_anew(tmp_path: Path) -> None:
    one = written(tmp_path)
    next(one.folder.glob("*/*.jpg")).unlink()
    (tmp_path / f".{one.folder.name}.new").mkdir()  # of a process that was killed
    again = written(tmp_path)
    assert again.manifest == one.manifest
    assert len(list(again.folder.glob("*/*.jpg"))) == 18
    assert not list(tmp_path.glob(".*.new"))


def test_two_that_write_at_once_find_one_whole_data_set(tmp_path: Path) -> None:
    found: list[StoredDataSet] = []
    threads = [threading.Thread(target=lambda: found.append(written(tmp_path, "digits", 40))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.manifest.sha256 for one in found}) == 1
    assert len(found) == 3
    assert len(list(found[0].folder.glob("*/*.jpg"))) == 45


def test_a_data_set_that_does_not_fit_is_refused_with_the_number(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match=r"free; the data set takes about [\d.]+ GiB"):
        data_set(tmp_path, "images", 10**9, SIZES["images"], lambda _sentence: None)
    assert not [entry for entry in tmp_path.iterdir() if entry.is_dir()]


def test_only_data_sets_that_nobody_used_for_a_month_make_room(tmp_path: Path) -> None:
    unused, used = written(tmp_path, "digits"), written(tmp_path, "texts")
    os.utime(unused.folder / "manifest.json", (1e9, 1e9))
    with pytest.raises(RunRefused, match="free; the data set takes"):
        data_set(tmp_path, "images", 10**9, SIZES["images"], lambda _sentence: None)
    assert not unused.folder.exists()
    assert used.folder.exists()
    os.utime(used.folder / "manifest.json", (1e9, 1e9))
    written(tmp_path, "texts")
    with pytest.raises(RunRefused, match="free; the data set takes"):
        data_set(tmp_path, "images", 10**9, SIZES["images"], lambda _sentence: None)
    assert used.folder.exists(), "a run has just used it"


@pytest.mark.parametrize("world", [1, 3])
def test_processes_share_epochs_in_which_each_sample_comes_once(world: int) -> None:
    orders = [iter(EpochOrder(count=12, batch=2, rank=rank, world=world, seed=4)) for rank in range(world)]
    steps = 12 // (2 * world)
    for epoch in range(2):
        places = [place for _ in range(steps) for order in orders for place in next(order)]
        assert {place[1] for place in places} == {epoch}
        assert sorted(place[0] for place in places) == list(range(12))


def test_a_training_goes_on_in_the_same_order_with_another_number_of_processes() -> None:
    alone = iter(EpochOrder(count=10, batch=2, rank=0, world=1, seed=4))
    whole = [place for _ in range(10) for place in next(alone)]
    pair = [iter(EpochOrder(count=10, batch=2, rank=rank, world=2, seed=4)) for rank in range(2)]
    before = [place for _ in range(2) for order in pair for place in next(order)]
    left = iter(EpochOrder(count=10, batch=2, rank=0, world=1, seed=4, consumed=8))
    assert before + [place for _ in range(6) for place in next(left)] == whole


def test_a_validation_meets_all_its_samples_and_changes_none(tmp_path: Path) -> None:
    data = written(tmp_path, samples=40)
    batches = [validation_batches(data, batch=2, rank=rank, world=2) for rank in range(2)]
    assert len(batches[0]) == len(batches[1])
    places = [place for one in batches for batch in one for place in batch]
    assert {number for number, _epoch in places} == set(range(40, 45))
    assert {epoch for _number, epoch in places} == {VALIDATION}


@pytest.mark.process
def test_loader_processes_decode_the_same_as_none(tmp_path: Path) -> None:
    samples = FileSamples(data=written(tmp_path, "scenes"), seed=1)
    places = [[(0, 0), (1, 0)], [(2, 1), (3, 1)]]
    alone, helped = (list(file_loader(samples, places, workers=workers, pinned=False)) for workers in (0, 2))
    for one, other in zip(alone, helped, strict=True):
        assert torch.equal(one[0][0], other[0][0])
        assert torch.equal(one[1][0], other[1][0])


def test_more_cores_than_there_are_are_refused_with_the_number() -> None:
    there = len(os.sched_getaffinity(0))
    with pytest.raises(RunRefused, match=f"use {there + 1} cores; this host lets it use {there}"):
        limit_cores(Spec(workload="mnist_cnn", cores=there + 1))


def test_a_checkpoint_of_another_training_is_refused_and_none_leaves_the_folder(tmp_path: Path) -> None:
    spec = spec_of("mnist_cnn", "tiny", {})
    checkpoint = Checkpoint(tmp_path, "one")
    with pytest.raises(RunRefused, match="no checkpoint of one"):
        checkpoint.load(spec)
    checkpoint.save({"done": 3, "training": training_fields(spec)})
    assert checkpoint.load(msgspec.structs.replace(spec, devices=1, steps=99))["done"] == 3
    with pytest.raises(RunRefused, match="another training: seed differ"):
        checkpoint.load(msgspec.structs.replace(spec, seed=4))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"workload": "mnist_cnn", "resume_from": "../../etc"}, Spec)


@pytest.mark.process
def test_checkpoints_of_ended_runs_make_room_and_never_those_of_a_run_under_way(tmp_path: Path) -> None:
    folder, second = tmp_path / "falcon-checkpoints", itertools.count()

    def save(*runs: str) -> set[str]:
        for run, at in zip(runs, second, strict=False):
            Checkpoint(tmp_path, run).save({})
            os.utime(folder / run / "checkpoint.pt", (at, at))
        return {entry.name for entry in folder.iterdir()}

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"FALCONWEB_RUN": "long", "PATH": os.defpath}) as long:
        wait_for(lambda: b"FALCONWEB_RUN=long" in Path(f"/proc/{long.pid}/environ").read_bytes())
        assert save("ended", "long", *"abcde") == {"long", *"bcde"}
    assert save("f") == set("cdef")


def test_a_link_that_somebody_put_into_a_shared_folder_is_not_followed(tmp_path: Path) -> None:
    own, shared, elsewhere = (tmp_path / one for one in ("own", "shared", "elsewhere"))
    for folder in (own, shared, elsewhere):
        folder.mkdir()
    data = written(own).folder
    lock = shared / f".{data.name}.lock"
    lock.symlink_to(elsewhere / "new")
    with pytest.raises(RunRefused, match="cannot be written"):
        written(shared)
    lock.unlink()
    (shared / data.name).symlink_to(data)
    with pytest.raises(RunRefused, match="is a link"):
        written(shared)
    (shared / "falcon-checkpoints").symlink_to(elsewhere)
    with pytest.raises(RunRefused, match="is a link"):
        Checkpoint(shared, "one").save({"training": {}})
    assert not list(elsewhere.iterdir())


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "one")
    checkpoint.save({"done": 3})
    with pytest.raises(RunRefused, match="cannot be read"):
        checkpoint.load(spec_of("mnist_cnn", "tiny", {}))


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "steps"), [("mnist_cnn", 300), ("resnet50", 150)])
def test_networks_learn_from_the_files(ran: Ran, name: str, steps: int) -> None:
    given = {"samples": 2048, "steps": steps, "validate_every": steps, "batch": 16}
    outcome = ran(spec_of(name, "tiny", given))
    assert outcome.code == 0, outcome.log
    assert outcome.result.values["accuracy"] > 0.3  # of ten classes


# Real runs.
def with_files(**given: Any) -> Spec:
    return spec_of("mnist_cnn", "tiny", {"samples": 128, "steps": 6, **given})


@pytest.mark.process
def test_a_halted_run_goes_on_with_the_losses_that_it_would_have_had(started: Started, tmp_path: Path) -> None:
    place = {"FALCONWEB_SCRATCH": str(tmp_path)}
    endless = with_files(steps=1_000_000, checkpoint_every=5)
    halted = started(endless, **place, FALCONWEB_RUN="halted")
    wait_for((tmp_path / "falcon-checkpoints/halted/checkpoint.pt").exists, seconds=LONGEST)
    os.kill(halted.process.pid, signal.SIGTERM)
    halted.process.wait(60)
    done = Checkpoint(tmp_path, "halted").load(endless)["done"]
    assert done % 5 == 0
    assert done >= 5
    one = msgspec.structs.replace(endless, steps=done + 6, checkpoint_every=done + 1, validate_every=done + 2)
    whole = started(one, **place, FALCONWEB_RUN="whole")
    resumed = started(msgspec.structs.replace(one, resume_from="halted"), **place, FALCONWEB_RUN="resumed")
    assert whole.process.wait(LONGEST) == 0, whole.outcome().log
    assert resumed.process.wait(LONGEST) == 0, resumed.outcome().log
    outcome, again = whole.outcome(), resumed.outcome()
    results = [event for event in again.events if isinstance(event, RunResult)]
    assert results[0].values["resumed_at"] == done
    assert again.losses("warmup") + again.losses() == outcome.losses()[done:]
    between = [phase for phase in outcome.phases if phase in {"validation", "checkpoint"}]
    assert between == ["checkpoint", "validation", "validation"]
    assert len(outcome.seconds("validation")) == 2
    assert len(outcome.seconds("checkpoint")) == 1
    assert 0 <= outcome.result.values["accuracy"] <= 1
    assert outcome.result.values["checkpoint_bytes"] > 4 * outcome.result.values["parameters"]
    assert [entry.name for entry in (tmp_path / "falcon-checkpoints").iterdir()] == ["halted"]


@pytest.mark.process
def test_a_killed_process_leaves_a_run_that_goes_on_with_the_other(started: Started, tmp_path: Path) -> None:
    running = started(
        with_files(steps=40_000, checkpoint_every=3, restarts=1), FALCONWEB_SCRATCH=str(tmp_path), FALCONWEB_RUN="lost"
    )
    wait_for((tmp_path / "falcon-checkpoints/lost/checkpoint.pt").exists, seconds=LONGEST)
    before = running.outcome().seconds("timed")
    victim = max(set(running.members()) - {running.process.pid})
    os.kill(victim, signal.SIGKILL)

    def resumed() -> list[StepsCompleted]:
        return [
            event
            for event in running.outcome().events
            if isinstance(event, StepsCompleted) and event.phase == "resumed" and event.seconds
        ]

    wait_for(lambda: resumed() or running.process.poll() is not None, seconds=LONGEST)
    outcome = running.outcome()
    assert running.process.poll() is None, outcome.log
    assert outcome.trouble is None
    (told,) = (value for event in outcome.events if isinstance(event, RunResult) for value in event.values.items())
    step = int(told[0].rpartition("_")[2])
    assert step % 3 == 0
    assert step >= 3
    assert "SIGKILL. Restarted with 1 of 2 devices at step" in told[1]
    assert "A step has 8 samples" in told[1]
    assert resumed()[0].first == step
    # No step after the loss is among those that are timed.
    place = outcome.events.index(next(e for e in outcome.events if isinstance(e, PhaseStarted) and e.name == "resumed"))
    assert all(event.phase != "timed" for event in outcome.events[place:] if isinstance(event, StepsCompleted))
    assert len(outcome.seconds("timed")) >= len(before)
    # A second loss is one too many.
    (left,) = set(running.members()) - {running.process.pid}
    os.kill(left, signal.SIGKILL)
    assert running.process.wait(60) == -signal.SIGKILL


class LostAtTheEnd(EventWriter):
    """Ends a run after its last step."""

    def phase(self, name: str) -> None:
        if name == "finish":
            raise ConnectionError(name)
        super().phase(name)


@pytest.mark.process
def test_a_run_that_lost_a_process_after_its_last_step_has_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FALCONWEB_SCRATCH": str(tmp_path), "FALCONWEB_RUN": "last"}.items():
        monkeypatch.setenv(name, value)
    spec = spec_of("mnist_cnn", "tiny", {"devices": 1, "strategy": "single", "steps": 2, "checkpoint_every": 2})
    with pytest.raises(ConnectionError):
        run_rank(spec, LostAtTheEnd(tmp_path / "events.jsonl", leads=True))
    with pytest.raises(RunRefused, match="none is left"):
        run_rank(msgspec.structs.replace(spec, resume_from="last"), EventWriter(tmp_path / "refused", leads=True))
    run_rank(spec, EventWriter(tmp_path / "events.jsonl", leads=True), "Process 1 ended with exit code 1.")
    events = [event_decoder.decode(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    (result,) = (event for event in events if isinstance(event, RunResult) and "parameters" in event.values)
    assert result.values["parameters"] > 0
    timed = [event.seconds for event in events if isinstance(event, StepsCompleted) and event.phase == "timed"]
    assert sum(map(len, timed)) == spec.steps
