"""The belief before any run, against the published figures that it begins with."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np
import pytest

from benchmarks.model import paper_cells, predict, prior, published_belief
from benchmarks.model.calibration import PAPER_TOPOLOGIES, paper_spec, published_data
from benchmarks.model.features import feature_columns, features_of
from benchmarks.model.left_out import leave_one_out, median_error, scaling_errors
from benchmarks.model.measured_steps import MEASURED_STEPS
from benchmarks.model.published_rates import PUBLISHED_RATES
from benchmarks.model.reference_data import (
    PARAMETER_NAMES,
    PRIOR_CENTRES,
    PRIOR_SPREADS,
)
from benchmarks.model.step_time import step_times
from falconweb.config import BASE_DIR

DOCUMENT = BASE_DIR / "docs" / "model.md"
RESULTS = BASE_DIR / "docs" / "results" / "nvidia-h100-80gb-hbm3-2026-11-26.md"


def test_each_published_figure_is_left_out_once() -> None:
    assert [one.name for one in leave_one_out()] == [datum.name for datum in published_data()]
    assert len({one.name for one in leave_one_out()}) == len(leave_one_out())


def test_published_steps_are_predicted_from_the_others_within_8_percent_as_a_rule() -> None:
    assert median_error(leave_one_out()) <= 0.08
    assert max(abs(one.error) for one in leave_one_out() if not one.bound and not one.is_measured) < 0.3


def test_measured_steps_are_predicted_from_the_others_within_15_percent_as_a_rule() -> None:
    measured = [one for one in leave_one_out() if one.is_measured and one.is_step]
    assert len(measured) == len(MEASURED_STEPS) == 12
    assert median_error(leave_one_out(), measured=True) <= 0.15
    assert sum(one.inside for one in measured) >= 0.85 * len(measured)


def test_measured_steps_are_those_of_the_stored_records() -> None:
    rows = re.findall(
        r"^\| (\w.+?) \| \d+ \| ([\d.]+) \|.+?\| (\d+) \|[^|]+\| (\d+)% \|", RESULTS.read_text(), re.MULTILINE
    )
    assert len(rows) == len(MEASURED_STEPS)
    for step, (_run, milliseconds, rate, busy) in zip(MEASURED_STEPS, rows, strict=True):
        seconds = 64 / float(rate) if step.files else float(milliseconds) / 1e3
        assert [step.seconds, step.busy] == pytest.approx([seconds, float(busy) / 100]), step.name


def test_samples_made_in_memory_are_neither_read_nor_decoded() -> None:
    decoded = msgspec.structs.replace(paper_spec("mobilenet_v2"), devices=1, strategy="single", loader_workers=1)
    made = msgspec.structs.replace(decoded, data="random")
    local = PAPER_TOPOLOGIES["localGPUs"]
    assert predict(made, local).step_seconds < predict(decoded, local).step_seconds / 1.5
    assert features_of(made, local).read_seconds == 0
    # On a chosen drive, they are raw bytes that no cache keeps.
    assert features_of(made, PAPER_TOPOLOGIES["localNVMe"]).read_seconds > 0


def test_mixed_precision_starts_more_operations_and_an_update_of_many_tensors_has_a_floor() -> None:
    mixed = msgspec.structs.replace(paper_spec("bert_large"), devices=1, strategy="single", batch=1)
    plain, local = msgspec.structs.replace(mixed, precision="fp32"), PAPER_TOPOLOGIES["localGPUs"]
    assert features_of(mixed, local).operations > 1.3 * features_of(plain, local).operations
    assert features_of(mixed, local).update_tensors == 2 * features_of(plain, local).update_tensors > 700
    times = step_times(prior().mean[None], feature_columns([features_of(mixed, local)]))
    assert times.compute > times.kernels
    assert times.optimiser > times.updating


def test_scaling_from_one_to_eight_devices_is_within_a_tenth_nine_times_in_ten() -> None:
    errors = scaling_errors(leave_one_out())
    assert len(errors) == 9
    assert sum(abs(error) <= 0.1 for error in errors.values()) >= 0.9 * len(errors)


def test_intervals_of_left_out_figures_hold_most_of_them() -> None:
    inside = sum(one.inside for one in leave_one_out())
    assert inside >= 0.85 * len(leave_one_out())


def test_the_document_states_the_errors_that_are_found() -> None:
    stated = dict(re.findall(r"^\| ([^|]+?) +\|[^|]+\|[^|]+\| *([+-]\d+) % \|", DOCUMENT.read_text(), re.MULTILINE))
    found = {one.name: 100 * one.error for one in leave_one_out() if not one.bound}
    assert stated.keys() == found.keys()
    for name, error in found.items():
        assert float(stated[name]) == pytest.approx(error, abs=1.01), name


def test_published_figures_narrow_what_is_believed_of_what_they_tell() -> None:
    belief = published_belief()
    spreads = np.sqrt(np.diag(belief.covariance))
    assert np.all(spreads <= PRIOR_SPREADS * 1.0001)
    for name in ("half", "single", "ring", "images", "workload:resnet50", "count"):
        index = PARAMETER_NAMES.index(name)
        assert spreads[index] < 0.9 * PRIOR_SPREADS[index], name
    # Nothing published tells of these.
    for name in ("sharded", "compile", "device:H200"):
        index = PARAMETER_NAMES.index(name)
        assert spreads[index] == pytest.approx(PRIOR_SPREADS[index], rel=0.01)
        assert belief.mean[index] == pytest.approx(PRIOR_CENTRES[index], abs=0.05)


def test_the_one_published_traffic_is_within_the_interval_of_its_own_prediction() -> None:
    prediction = predict(paper_spec("resnet50"), PAPER_TOPOLOGIES["falconGPUs"], published_belief())
    assert abs(math.log(prediction.pcie_bytes_per_second / 11.31e9)) < 0.3


def test_the_published_experiment_has_25_cells_of_eight_gpus() -> None:
    cells = paper_cells()
    assert len({(workload, configuration) for workload, configuration, _spec, _topology in cells}) == 25
    assert {spec.devices for _workload, _configuration, spec, _topology in cells} == {8}
    batches = {workload: spec.global_batch for workload, _configuration, spec, _topology in cells}
    assert batches == {
        "mobilenet_v2": 8 * 64,
        "resnet50": 8 * 128,
        "yolov5l": 88,
        "bert_base": 96,
        "bert_large": 48,
    }


def test_only_the_design_notes_figures_and_data_sheets_are_published_inputs() -> None:
    sources = {rate.source for rate in PUBLISHED_RATES}
    assert sources == {
        "NVIDIA DeepLearningExamples",
        "lambdal/deeplearning-benchmark",
        "ultralytics README, Feb 2021",
        "pytorch/vision PR 818",
    }
