"""What a sample costs, against the networks that the trainer builds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import Spec
from trainer.workloads import training_task

TRAINED = [name for name, workload in CATALOGUE.items() if workload.is_training]
OTHERWISE: dict[str, dict[str, Any]] = {
    "mobilenet_v2": {"image": 160, "width": 1.4, "classes": 20},
    "resnet50": {"image": 160, "width": 0.5},
    "yolov5l": {"image": 320, "width": 0.5, "depth": 0.33},
    "bert_base": {"sequence": 64, "layers": 3, "hidden": 96, "heads": 4, "vocabulary": 2000},
    "bert_large": {"sequence": 128, "layers": 2, "hidden": 64, "heads": 2, "vocabulary": 1000},
    "inception_v3": {"image": 331, "width": 0.5},
    "alexnet": {"image": 192, "width": 0.5},
    "vgg16": {"image": 96, "width": 0.25},
    "mnist_cnn": {"image": 48, "classes": 26},
}


def counted(spec: Spec) -> tuple[int, float]:
    """Return parameters and operations of a forward pass of one sample, as PyTorch counts them."""
    task = training_task(spec)
    # A BERT looks at its mask and wants numbers there; the others are counted without any.
    device = "cpu" if "sequence" in spec.options else "meta"
    with torch.device(device):
        model = task.model()
    inputs = [tensor[None].to(device) for tensor in task.samples(2, 0)[0][0]]
    # Fused attention of the CPU is not counted.
    with FlopCounterMode(display=False) as operations, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.eval()(*inputs)
    return sum(weights.numel() for weights in model.parameters()), operations.get_total_flops()


@pytest.mark.parametrize("name", TRAINED)
def test_parameters_and_operations_are_those_of_the_trainers_network_at_other_sizes(name: str) -> None:
    spec = spec_of(name, "custom", OTHERWISE[name])
    parameters, operations = counted(spec)
    costs = CATALOGUE[name].costs(spec)  # type: ignore[misc]
    assert costs.parameters == parameters
    assert costs.flops / 3 == pytest.approx(operations, rel=0.002)


@pytest.mark.parametrize(
    ("name", "millions", "billion_products"),
    [
        ("mobilenet_v2", 3.5, 0.30),
        ("resnet50", 25.6, 4.1),
        ("yolov5l", 47, 57.6),
        ("bert_base", 108.9, 35.3),
        ("bert_large", 334, 123),
        ("inception_v3", 27.2, 5.72),
        ("alexnet", 61.1, 0.71),
        ("vgg16", 138.4, 15.5),
    ],
)
def test_full_sizes_have_the_parameters_and_products_that_publications_name(
    name: str, millions: float, billion_products: float
) -> None:
    costs = CATALOGUE[name].costs(spec_of(name, "paper", {}))  # type: ignore[misc]
    assert costs.parameters / 1e6 == pytest.approx(millions, rel=0.01)
    assert costs.flops / 6e9 == pytest.approx(billion_products, rel=0.02)


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_kept_for_the_backward_pass_is_what_autograd_keeps(name: str) -> None:
    spec = spec_of(name, "custom", OTHERWISE[name])
    task = training_task(spec)
    device = "cpu" if "sequence" in spec.options else "meta"
    with torch.device(device):
        model = task.model().train()
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    batch = 4
    inputs = [tensor[None].repeat(batch, *[1] * tensor.dim()).to(device) for tensor in task.samples(2, 0)[0][0]]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), sdpa_kernel(SDPBackend.MATH):
        outputs = model(*inputs)
    weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
    measured = sum(storage.nbytes() for place, storage in kept.items() if place not in weights) / batch
    del outputs
    costs = CATALOGUE[name].costs(spec)  # type: ignore[misc]
    assert 0.66 < costs.activation_bytes / measured < 1.5


def test_messages_grow_fourfold_up_to_the_largest() -> None:
    assert spec_of("all_reduce", "custom", {"least_bytes": 4, "most_bytes": 100}).message_sizes == [4, 16, 64, 100]
    assert spec_of("all_reduce", "custom", {"least_bytes": 8, "most_bytes": 8}).message_sizes == [8]
