"""What a specification may ask for besides sizes: precision, sharding, accumulation, loaders, seeds, compilation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.workloads.catalogue import spec_of
from tests.trainer.conftest import LONGEST
from tests.trainer.starting import Running, RunOutcome

pytestmark = pytest.mark.process

Ran = Callable[..., RunOutcome]
Started = Callable[..., Running]


def tiny(ran: Ran, name: str = "mnist_cnn", **given: Any) -> RunOutcome:
    outcome = ran(spec_of(name, "tiny", {"steps": 4} | given))
    assert outcome.code == 0, outcome.log
    assert len(outcome.seconds("timed")) == 4
    losses = outcome.losses()
    assert all(loss is not None and math.isfinite(loss) for loss in losses)
    return outcome


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(started: Started) -> None:
    # At the same time: most of it is waiting. Each interpreter hashes in its own way.
    runs = [
        started(spec_of("mnist_cnn", "tiny", {"steps": 4, "seed": seed, **more}), own_interpreter=own)
        for seed, own, more in ((5, True, {}), (5, False, {}), (6, False, {"strategy": "single", "devices": 1}))
    ]
    assert [run.process.wait(LONGEST) for run in runs] == [0, 0, 0]
    first, again, alone = (run.outcome() for run in runs)
    assert first.losses("warmup") + first.losses() == again.losses("warmup") + again.losses()
    # Before the first exchange, a device by itself has the same weights and samples: only the seed differs.
    assert alone.losses("warmup")[0] != first.losses("warmup")[0]
    assert "no_sync" not in alone.phases


@pytest.mark.nightly
def test_bf16_arithmetic_and_gradients_train_with_accumulation_and_loader_processes(ran: Ran) -> None:
    outcome = tiny(ran, precision="bf16", gradient="bf16", loader_workers=1, accumulation=3, batch=4)
    assert outcome.result.values["gradient_bytes"] == 2 * outcome.result.values["parameters"]
    assert len(outcome.seconds("no_sync")) >= 5
    assert "24 samples a step" in outcome.log


@pytest.mark.nightly
def test_a_sharded_model_trains_and_says_why_nothing_is_compared(ran: Ran) -> None:
    outcome = tiny(ran, strategy="sharded", accumulation=2)
    assert outcome.phases == ["build", "data", "warmup", "timed", "finish"]
    assert "no steps without exchange" in outcome.log


@pytest.mark.nightly
def test_a_compiled_model_trains(ran: Ran) -> None:
    tiny(ran, compile=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bert_base", "resnet50", "yolov5l"])
def test_larger_graphs_are_sharded_in_bf16(ran: Ran, name: str) -> None:
    tiny(ran, name, strategy="sharded", precision="bf16", gradient="bf16")
