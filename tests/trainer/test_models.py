"""The models, samples and losses of the trainer, without a run."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from trainer.models.yolo import Yolo, detection_loss, generalised_iou
from trainer.parallelism import AutocastModule
from trainer.reporting import error_summary, is_peer_loss, out_of_memory_bytes
from trainer.workloads import DigitDataset, ImageDataset, QuestionDataset, SceneDataset, batch_iterator, training_task

TRAINED = [name for name, workload in CATALOGUE.items() if workload.is_training]
# Millions, as the publications of the networks and the published experiment have them; of BERT without its pooler.
PUBLISHED = {
    "mobilenet_v2": 3.5,
    "resnet50": 25.6,
    "yolov5l": 47,
    "bert_base": 110,
    "bert_large": 340,
    "alexnet": 61.1,
    "vgg16": 138.4,
    "inception_v3": 27.2,
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_a_model_has_the_parameters_that_its_costs_count(name: str, preset: str) -> None:
    spec = spec_of(name, preset, {})
    with torch.device("meta"):
        model = training_task(spec).model()
    count = sum(parameter.numel() for parameter in model.parameters())
    costs = CATALOGUE[name].costs
    assert costs is not None
    # The costs of YOLOv5 describe a later release than the layer graph: a hundredth less.
    assert count == pytest.approx(costs(spec).parameters, rel=0.015 if name == "yolov5l" else 1e-9)
    if preset == "paper" and name in PUBLISHED:
        assert count / 1e6 == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.parametrize("name", TRAINED)
def test_a_tiny_model_learns_from_a_batch(name: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    spec = spec_of(name, "tiny", {})
    task = training_task(spec)
    model = task.model()
    optimiser = task.optimiser(model)
    (inputs, targets), *_ = batch_iterator(
        task.samples(spec.batch, 0), batch=spec.batch, workers=0, seed=0, pinned=False
    )
    before = [one.detach().clone() for one in model.parameters()]
    loss = task.loss(model(*inputs), targets)
    assert math.isfinite(loss.item())
    assert loss.item() > 0
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    assert all(one.grad is not None for one in model.parameters())
    changed = [not torch.equal(one, was) for one, was in zip(model.parameters(), before, strict=True)]
    assert sum(changed) > len(changed) / 2


def test_the_same_seed_process_and_number_draw_the_same_sample() -> None:
    sizes = {"length": 8, "image": 32, "classes": 10}
    words = {"length": 8, "sequence": 16, "vocabulary": 100}
    for kind, given in ((ImageDataset, sizes), (SceneDataset, sizes), (DigitDataset, sizes), (QuestionDataset, words)):
        one, same = (kind(seed=1, rank=0, **given) for _ in range(2))
        other = kind(seed=1, rank=1, **given)
        for samples in (one, same, other):
            assert len(samples) == 8
        assert all(torch.equal(a, b) for a, b in zip(one[3][0] + one[3][1], same[3][0] + same[3][1], strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(one[3][0], other[3][0], strict=True))


@pytest.mark.process
def test_loader_processes_bring_the_same_batches_as_none() -> None:
    samples = DigitDataset(length=8, image=28, classes=10, seed=3, rank=0)
    alone, helped = (
        list(batch_iterator(samples, batch=4, workers=workers, seed=3, pinned=False)) for workers in (0, 1)
    )
    assert len(alone) == len(helped) == 2
    for one, other in zip(alone, helped, strict=True):
        assert torch.equal(one[0][0], other[0][0])
        assert torch.equal(one[1][0], other[1][0])


def test_boxes_overlap_wholly_half_or_less_than_not_at_all() -> None:
    place, side = torch.zeros(3, 2), torch.ones(3, 2)
    other = torch.tensor([[0.0, 0.0], [0.5, 0.0], [3.0, 0.0]])
    same, half, apart = generalised_iou(place, side, other, side).tolist()
    assert same == pytest.approx(1, abs=1e-6)
    assert half == pytest.approx(1 / 3, abs=1e-6)  # 0.5 shared of 1.5
    assert apart == pytest.approx(-0.5, abs=1e-6)  # 2 of the 4 around both hold neither


def test_the_detection_network_learns_a_scene_that_it_sees_again_and_again() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Yolo(classes=3, width=0.125, depth=0.33)
    samples = SceneDataset(length=2, image=64, classes=3, seed=0, rank=0)
    images = torch.stack([samples[number][0][0] for number in range(2)])
    boxes = torch.stack([samples[number][1][0] for number in range(2)])
    outputs = model(images)
    assert [tuple(scale.shape) for scale in outputs] == [(2, 3, 8, 8, 8), (2, 3, 4, 4, 8), (2, 3, 2, 2, 8)]
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        optimiser.zero_grad()
        loss = detection_loss(model(images), boxes)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("given", [{}, {"least_bytes": 8, "most_bytes": 100}, {"least_bytes": 64, "most_bytes": 64}])
def test_messages_grow_from_the_smallest_to_the_largest(given: dict[str, int]) -> None:
    spec = spec_of("all_reduce", "tiny", given)
    sizes = spec.message_sizes
    assert sizes[0] == spec.options["least_bytes"]
    assert sizes[-1] == spec.options["most_bytes"]


def test_a_model_computes_in_the_precision_of_the_run_in_whatever_thread() -> None:
    # As DataParallel calls it, and with what it hands on: that there is autocast, but not to what.
    model = AutocastModule(torch.nn.Linear(4, 4), torch.bfloat16)
    found = []

    def call() -> None:
        with torch.autocast("cpu", dtype=torch.float16):
            found.append(model(torch.ones(2, 4)).dtype)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert found == [torch.bfloat16]


def test_errors_are_told_apart_by_their_words() -> None:
    class OutOfMemoryError(RuntimeError):
        """As PyTorch's own is called."""

    gpu = OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.77 GiB")
    cpu = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")
    assert out_of_memory_bytes(gpu) == 2.5 * 2**30
    assert out_of_memory_bytes(cpu) == 4096
    assert out_of_memory_bytes(MemoryError()) == 0
    assert out_of_memory_bytes(RuntimeError("shape mismatch")) is None
    assert is_peer_loss(RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:4242"))
    assert not is_peer_loss(RuntimeError("shape mismatch"))
    assert error_summary(ValueError("\n first\nsecond")) == "ValueError: first"
