"""Training time against a baseline."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.figures.charts import Chart, ChartMark
from benchmarks.figures.training import time_by_configuration, time_by_software, time_by_storage
from benchmarks.runs.results import Summary
from core.errors import Invalid
from tests.benchmarks.figures.making import figure, row, topology


def steps(median: float, seed: int = 0, count: int = 40) -> np.ndarray:
    return median * np.exp(0.02 * np.random.default_rng(seed).standard_normal(count))


def mark(drawn: Chart, group: str, provenance: str = "measured", x: str | None = None) -> ChartMark:
    (found,) = [
        one for one in drawn.marks if one.group == group and one.provenance == provenance and x in {None, one.x}
    ]
    return found


def test_falcon_gpus_take_one_and_a_half_of_the_time_of_local_ones_with_its_interval() -> None:
    drawn = time_by_configuration([row("1", steps=steps(0.2, 1)), row("2", place="falconGPUs", steps=steps(0.3, 2))])
    found = mark(drawn, "falconGPUs")
    assert drawn.baseline == "localGPUs"
    assert found.value == pytest.approx(1.5, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert 1.45 < found.low < found.value < found.high < 1.55
    assert mark(drawn, "localGPUs").value == 1.0
    assert mark(drawn, "localGPUs").low is None


def test_it_is_the_time_of_a_sample_that_is_compared_whatever_the_number_of_devices() -> None:
    rows = [
        row("1", place=topology(local=4), devices=4, steps=steps(0.2)),
        row("2", place=topology(local=8), devices=8, steps=steps(0.2)),
    ]
    drawn = time_by_configuration(rows, "4 local GPUs")
    assert mark(drawn, "localGPUs").value == pytest.approx(0.5, rel=0.02)


def test_measured_and_simulated_runs_are_never_one_mark_nor_a_ratio() -> None:
    rows = [
        row("1", steps=steps(0.2)),
        row("2", place="falconGPUs", steps=steps(0.3)),
        row("3", provenance="simulated", steps=steps(0.1)),
        row("4", provenance="simulated", place="falconGPUs", steps=steps(0.2)),
        row("5", provenance="imported", place="falconGPUs", steps=steps(9.0)),
    ]
    drawn = time_by_configuration(rows)
    assert mark(drawn, "falconGPUs").value == pytest.approx(1.5, rel=0.02)
    assert mark(drawn, "falconGPUs", "simulated").value == pytest.approx(2.0, rel=0.02)
    assert not [one for one in drawn.marks if one.provenance == "imported"]
    assert any("ResNet-50 (imported)" in note for note in drawn.notes)
    assert all(len(set(one.runs)) == 1 for one in drawn.marks)


def test_repetitions_are_one_mark_of_both_runs() -> None:
    rows = [row("1", steps=steps(0.2)), row("2", steps=steps(0.22)), row("3", place="falconGPUs", steps=steps(0.42))]
    drawn = time_by_configuration(rows)
    assert mark(drawn, "localGPUs").runs == ("1", "2")
    assert mark(drawn, "falconGPUs").value == pytest.approx(2.0, rel=0.02)


def test_other_batches_are_no_repetitions() -> None:
    rows = [row("1", batch=64, steps=steps(0.2)), row("2", batch=32, steps=steps(0.1))]
    rows.append(row("3", batch=64, place="falconGPUs", steps=steps(0.3)))
    drawn = time_by_configuration(rows)
    assert mark(drawn, "falconGPUs").x == "ResNet-50, batch 64"
    assert {one.x for one in drawn.marks} == {"ResNet-50, batch 64"}
    assert drawn.notes[-1] == "Only localGPUs: ResNet-50, batch 32."


def test_runs_without_times_and_those_that_are_no_training_are_told_of_or_left_alone() -> None:
    drawn = time_by_configuration(
        [row("1"), row("2", steps=steps(0.2)), row("3", workload="gpu_bandwidth", place=None)]
    )
    assert [one for one in drawn.notes if "1 run without times of steps" in one]
    assert not [one for one in drawn.notes if "Run 3" in one]


def test_one_configuration_alone_is_compared_with_nothing() -> None:
    drawn = time_by_configuration([row("1", steps=steps(0.2))])
    assert drawn.is_empty
    assert "there is nothing to compare with" in drawn.notes[-1]


def test_nothing_at_all_is_an_empty_figure() -> None:
    assert time_by_configuration([]).is_empty
    assert time_by_storage([]).is_empty
    assert time_by_software([]).is_empty


def test_a_baseline_that_no_run_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Invalid) as refused:
        time_by_configuration([row("1", steps=steps(0.2))], "moonGPUs")
    assert "localGPUs" in refused.value.details["errors"]["baseline"]


def test_imported_runs_with_medians_alone_are_compared_without_an_interval() -> None:
    rows = [
        row(name, provenance="imported", place=place, summary=Summary(step_seconds=figure(seconds, count=1)))
        for name, place, seconds in (("1", "localGPUs", 0.2), ("2", "falconGPUs", 0.3))
    ]
    found = mark(time_by_configuration(rows), "falconGPUs", "imported")
    assert found.value == pytest.approx(1.5)
    assert found.low is None


def test_storage_is_compared_on_the_same_devices() -> None:
    rows = [
        row("1", steps=steps(0.2)),
        row("2", place="localNVMe", steps=steps(0.19)),
        row("3", place="falconNVMe", steps=steps(0.21)),
        row("4", place="falconGPUs", steps=steps(0.4)),
    ]
    drawn = time_by_storage(rows)
    assert drawn.baseline == "local storage"
    assert mark(drawn, "Falcon NVMe").value == pytest.approx(1.05, rel=0.02)
    assert mark(drawn, "Falcon NVMe").x == "ResNet-50, 8 local GPUs"
    # Where there is nothing but the baseline, there is nothing to compare.
    assert {one.x for one in drawn.marks} == {"ResNet-50, 8 local GPUs"}
    assert "Only local storage: ResNet-50, 8 Falcon GPUs in 2 drawers." in drawn.notes[-1]


def test_sharding_with_its_larger_batch_is_a_variant_of_the_same_work() -> None:
    variants = (("dp", "fp32", 6, 0.9), ("ddp", "fp32", 6, 0.6), ("ddp", "fp16", 6, 0.2), ("sharded", "fp16", 10, 0.3))
    rows = [
        row(f"{at}", workload="bert_large", strategy=strategy, precision=precision, batch=batch, steps=steps(seconds))
        for at, (strategy, precision, batch, seconds) in enumerate(variants)
    ]
    drawn = time_by_software(rows, "DP, FP32, batch 6")
    assert mark(drawn, "DDP, FP32, batch 6").value == pytest.approx(2 / 3, rel=0.02)
    assert mark(drawn, "sharded, FP16, batch 10").value == pytest.approx(0.3 / 10 / (0.9 / 6), rel=0.02)
    assert drawn.baselines[0] == "DP, FP32, batch 6"
