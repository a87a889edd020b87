"""What runs are told apart by."""

from __future__ import annotations

import pytest

from benchmarks.figures.rows import (
    configuration_label,
    configuration_labels,
    ordered_configurations,
    software_label,
    work_labels,
)
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.model.topology import Storage
from benchmarks.workloads.catalogue import spec_of
from tests.benchmarks.figures.making import DRAWERS, row, topology

FALCON_DRIVE = Storage(model="SSDPEDKX040T7", place=DRAWERS[1])


@pytest.mark.parametrize("name", PAPER_TOPOLOGIES)
def test_the_published_configurations_have_their_names(name: str) -> None:
    assert configuration_label(PAPER_TOPOLOGIES[name]) == name


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (topology(local=4), "4 local GPUs"),
        (topology(local=1), "1 local GPU"),
        (topology(falcon=8), "8 Falcon GPUs"),
        (topology(falcon=8, drawers=2), "falconGPUs"),
        (topology(local=2, falcon=6, drawers=2), "2 local GPUs, 6 Falcon GPUs in 2 drawers"),
        (topology(local=2, storage=FALCON_DRIVE), "2 local GPUs, Falcon NVMe"),
        (topology(), "CPU"),
        (None, "not recorded"),
    ],
)
def test_what_is_none_of_these_is_told_in_words(place: object, words: str) -> None:
    assert configuration_label(place) == words  # type: ignore[arg-type]


def test_eight_gpus_of_one_drawer_and_seven_and_one_are_not_the_published_four_a_drawer() -> None:
    uneven = topology(falcon=8, drawers=2)
    moved = [uneven.accelerators[0].place] * 7 + [DRAWERS[1]]
    import dataclasses

    accelerators = tuple(
        dataclasses.replace(one, place=place) for one, place in zip(uneven.accelerators, moved, strict=True)
    )
    assert configuration_label(dataclasses.replace(uneven, accelerators=accelerators)) == "8 Falcon GPUs in 2 drawers"


def test_a_link_at_x8_is_no_repetition_of_one_at_x16() -> None:
    rows = [row("1", place=topology(falcon=4)), row("2", place=topology(falcon=4, lanes=8))]
    assert set(configuration_labels(rows).values()) == {"4 Falcon GPUs, x16 Gen 3", "4 Falcon GPUs, x8 Gen 3"}
    assert set(configuration_labels(rows[:1]).values()) == {"4 Falcon GPUs"}


def test_other_devices_and_other_storage_under_one_name_are_told_apart() -> None:
    rows = [row("1", place=topology(local=2)), row("2", place=topology(local=2, model="P100-SXM2-16GB"))]
    assert len(set(configuration_labels(rows).values())) == 2
    drive = Storage(model="SSDPEDKX040T7")
    rows = [row("1", place=topology(falcon=8, drawers=2)), row("2", place=topology(falcon=8, drawers=2, storage=drive))]
    assert list(configuration_labels(rows).values()) == ["falconGPUs, local storage", "falconGPUs, local NVMe"]


def test_runs_of_a_workload_are_named_by_what_differs_between_them_alone() -> None:
    rows = [row("1", batch=64, seed=1), row("2", batch=32, seed=2), row("3", workload="vgg16")]
    assert work_labels(rows) == {"1": "ResNet-50, batch 64", "2": "ResNet-50, batch 32", "3": "VGG-16"}
    assert work_labels(rows, but=("batch",))["1"] == "ResNet-50"


def test_options_of_a_workload_differ_too() -> None:
    rows = [row("1", workload="bert_base", sequence=128), row("2", workload="bert_base", sequence=384)]
    assert work_labels(rows)["1"] == "BERT-base, sequence 128"


def test_software_is_told_from_strategy_to_compilation() -> None:
    given = {"strategy": "sharded", "precision": "bf16", "gradient": "fp16", "compile": True}
    assert software_label(spec_of("resnet50", "paper", given)) == "sharded, BF16, FP16 gradients, compiled"
    assert software_label(spec_of("resnet50", "paper", {"strategy": "dp", "precision": "fp32"})) == "DP, FP32"


def test_published_configurations_come_first_and_in_their_order() -> None:
    assert ordered_configurations(["CPU", "falconNVMe", "localGPUs, x8 Gen 3", "localGPUs"]) == [
        "localGPUs", "localGPUs, x8 Gen 3", "falconNVMe", "CPU",
    ]  # fmt: skip
    assert ordered_configurations(["2 GPUs, batch 12", "2 GPUs, batch 4"]) == ["2 GPUs, batch 4", "2 GPUs, batch 12"]
