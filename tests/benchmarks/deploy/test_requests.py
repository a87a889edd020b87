"""Each field of a request is used, left aside with a reason, or refused at its place."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from benchmarks.deploy.deployment import DeploymentRequestError
from benchmarks.deploy.request import parse_duration, parse_mail_events, parse_memory
from benchmarks.model import predict
from benchmarks.model.calibration import PAPER_TOPOLOGIES, Observation
from benchmarks.workloads.catalogue import spec_of
from tests.benchmarks.deploy.requests import MODAK, SHORT, changed, made, refused, text_of


def test_a_request_of_modak_needs_no_section_of_tensorflow() -> None:
    found = made(MODAK)
    assert (found.form, found.scheduler, found.name) == ("modak", "torque", "squad")
    told = {one.pointer: one.treatment for one in found.notes}
    assert told["/job/optimisation/autotuning"] == "ignored"
    assert told["/job/optimisation/app_type-ai_training/ai_framework-pytorch/glow"] == "ignored"
    assert told["/job/optimisation/app_type-ai_training/ai_framework-pytorch/version"] == "used"
    assert all(one.why for one in found.notes)
    bare = changed(MODAK, "/job/optimisation/app_type-ai_training", None)
    assert "torchrun" in text_of(made(bare), "torque")
    torque = text_of(found, "torque")
    for line in ("-N squad", "-l walltime=12:00:00", "-o squad.out", "-m abe", "-M carol@lab.example", "-j oe"):
        assert f"#PBS {line}" in torque
    assert "--data \"${DATA}\"/squad --note 'two words'" in torque


def test_one_of_tensorflow_is_taken_with_its_image_alone() -> None:
    other = changed(MODAK, "/job/optimisation/app_type-ai_training/config/ai_framework", "tensorflow")
    other = changed(
        other, "/job/optimisation/app_type-ai_training/ai_framework-tensorflow", {"version": "2.1", "xla": True}
    )
    assert set(refused(other)) == {"/job/application/container_runtime"}
    found = made(changed(other, "/job/application/container_runtime", "tensorflow/tensorflow:2.1.0-gpu-py3"))
    assert "From: tensorflow/tensorflow:2.1.0-gpu-py3" in text_of(found, "apptainer")
    assert "torchrun" not in text_of(found, "torque")


WRONG: list[tuple[dict[str, Any], str, Any, str]] = [
    (MODAK, "/job/surprise", 1, "/job/surprise"),
    (MODAK, "/surprise", 1, "/surprise"),
    (MODAK, "/job/job_options", None, "/job/job_options"),
    (MODAK, "/job/application/executable", "", "/job/application/executable"),
    (MODAK, "/job/application/executable", "python 'x", "/job/application/executable"),
    (MODAK, "/job/application/executable", ["x"], "/job/application/executable"),
    (MODAK, "/job/job_options/node_count", 0, "/job/job_options/node_count"),
    (MODAK, "/job/job_options/node_count", "many", "/job/job_options/node_count"),
    (MODAK, "/job/job_options/request_gpus", True, "/job/job_options/request_gpus"),
    (MODAK, "/job/job_options/request_gpus", 9, "/job/job_options/request_gpus"),
    (MODAK, "/job/job_options/wall_time_limit", "soon", "/job/job_options/wall_time_limit"),
    (MODAK, "/job/job_options/email_address", None, "/job/job_options/email_address"),
    (MODAK, "/job/job_options/combine_stdout_stderr", False, "/job/job_options/standard_error_file"),
    (MODAK, "/job/job_options/a~b/c", 1, "/job/job_options/a~0b"),
    (MODAK, "/job/target/job_scheduler_type", "lsf", "/job/target/job_scheduler_type"),
    (MODAK, "/job/target/host", "elsewhere", "/job/target/host"),
    (MODAK, "/job/optimisation/opt_build/acc_type", "amd", "/job/optimisation/opt_build/acc_type"),
    (MODAK, "/job/optimisation", [], "/job/optimisation"),
    (changed(SHORT, "/workload", None), "/command", None, "/command"),
    (SHORT, "/command", [], "/command"),
    (SHORT, "/gpus", 65, "/gpus"),
    (SHORT, "/gpus", 9, "/gpus"),
    (SHORT, "/workload", "gpt", "/workload"),
    (SHORT, "/workload", "all_reduce", "/workload"),
    (SHORT, "/preset", "huge", "/preset"),
    (SHORT, "/batch", 0, "/batch"),
    (SHORT, "/batch", 8192, "/batch"),  # does not fit
    (SHORT, "/options", {"image": 7}, "/options/image"),
    (SHORT, "/precision", "fp8", "/precision"),
    (SHORT, "/host", "elsewhere", "/host"),
    (SHORT, "/topology", {}, "/topology"),
    (SHORT, "/environment", {"1X": "a"}, "/environment/1X"),
    (SHORT, "/packages", ["a b"], "/packages/0"),
    (SHORT, "/packages", ["--index-url=x"], "/packages/0"),
    (SHORT, "/notify", "END", "/email"),
]


@pytest.mark.parametrize(("request_", "pointer", "value", "where"), WRONG)
def test_what_is_wrong_is_named_by_its_pointer(request_: dict[str, Any], pointer: str, value: Any, where: str) -> None:
    errors = refused(changed(request_, pointer, value))
    assert list(errors) == [where]
    assert errors[where].endswith(".")


@pytest.mark.parametrize(
    ("text", "where"),
    [("", "/"), ("[]", "/"), ("{", "/"), ('{"job": 1, "job": 2}', "/job"), ('{"a": NaN}', "/"), ("[" * 10_000, "/"),
     ('{"command": "' + "x" * 300_000 + '"}', "/"), ('{"command": "\\ud800"}', "/command")],
)  # fmt: skip
def test_what_is_no_request_is_refused(text: str, where: str) -> None:
    assert list(refused(text)) == [where]


def test_all_that_is_wrong_is_told_at_once() -> None:
    request = changed(changed(SHORT, "/gpus", "x"), "/time", "soon") | {"surprise": 1}
    assert set(refused(request)) == {"/gpus", "/time", "/surprise"}


def test_a_host_that_is_none_here_is_left_aside_in_a_request_of_modak() -> None:
    found = made(changed(MODAK, "/job/target/name", "egi"))
    assert {one.pointer: one.treatment for one in found.notes if one.pointer == "/job/target/name"}[
        "/job/target/name"
    ] == "ignored"
    assert found.gains == ()
    assert "Add ‘host’" in found.why_not


def test_gains_are_predictions_of_what_is_taken() -> None:
    found = made(SHORT | {"precision": "fp16"})
    taken = {one.option: one.taken for one in found.gains}
    # The command has {precision}, and torchrun starts a process a GPU; no file sets the others.
    assert taken == {
        "data_parallelism": True, "precision": True, "gradient": False, "compile": False, "loader_workers": False,
    }  # fmt: skip
    assert found.prediction is not None
    spec = found.prediction.spec
    assert (spec.devices, spec.precision, spec.loader_workers, spec.gradient) == (4, "fp16", 0, "fp32")
    expected = predict(spec, PAPER_TOPOLOGIES["falconGPUs"]).step_seconds
    assert found.prediction.step_seconds == pytest.approx(expected, rel=0.3)
    assert "--batch-size 128 --amp fp16" in text_of(found, "slurm")


def test_what_the_prediction_counts_stands_in_a_file() -> None:
    bare = changed(SHORT, "/command", "python train.py")
    counted = made(changed(SHORT, "/command", "python train.py --workers {loader_workers} --gradient {gradient}"))
    assert {one.option for one in made(bare).gains if one.taken} == {"data_parallelism"}
    workers = next(one for one in counted.gains if one.option == "loader_workers")
    assert workers.taken
    assert f"--workers {workers.value}" in text_of(counted, "slurm")
    # A program that nobody starts once a GPU is not counted on more than one of them.
    alone = made(changed(SHORT, "/command", "./train.sh"))
    assert not any(one.taken for one in alone.gains)
    assert alone.prediction is not None
    assert alone.prediction.spec.devices == 1


def test_what_a_precision_or_a_compiler_brings_is_unknown_without_runs_of_the_network() -> None:
    request = changed(SHORT, "/command", "python train.py --amp {precision} --compile {compile}")
    unknown = {one.option: one for one in made(request).gains}
    for name in ("precision", "compile"):
        assert (unknown[name].factor, unknown[name].basis, unknown[name].taken) == (None, "unknown", False)
        assert "No two runs of ResNet-50 on V100" in unknown[name].source
    topology = PAPER_TOPOLOGIES["falconGPUs"]
    runs = [
        Observation(
            spec=spec_of("resnet50", "paper", {"devices": 4, "precision": precision, "seed": seed}),
            topology=topology, step_seconds=seconds, spread=0.01,
        )
        for seed, (precision, seconds) in enumerate([("fp32", 0.40), ("fp16", 0.20), ("fp32", 0.41)])
    ]  # fmt: skip
    known = {one.option: one for one in made(request, runs).gains}
    assert known["precision"].taken
    assert known["precision"].basis == "measured"
    assert known["precision"].factor == pytest.approx(2.02, rel=0.02)
    assert known["precision"].low is not None
    assert known["precision"].low > 1.9
    assert known["compile"].factor is None
    # Runs of another network say nothing of this one.
    other = [replace(one, spec=replace_struct(one.spec, workload="vgg16")) for one in runs]
    assert {one.option: one.factor for one in made(request, other).gains}["precision"] is None


def test_what_is_asked_for_stays() -> None:
    found = made(SHORT | {"precision": "fp32", "compile": False, "loader_workers": 2})
    assert found.prediction is not None
    assert (found.prediction.spec.precision, found.prediction.spec.loader_workers) == ("fp32", 2)
    workers = {one.option: one for one in found.gains}["loader_workers"]
    assert not workers.taken
    assert workers.why.startswith("Not counted: the request says that the program has it")
    assert "precision" not in {one.option for one in found.gains}


def test_a_v100_has_no_bf16() -> None:
    chosen = {one.option: one.value for one in made(SHORT).gains}
    assert chosen["precision"] == "fp16"


def test_all_gpus_of_a_place_are_taken_where_no_number_is_named() -> None:
    found = made(changed(SHORT, "/gpus", None))
    assert "--nproc_per_node=8" in text_of(found, "slurm")
    assert any("All 8 GPUs" in one for one in found.reasons)


def test_parts_are_read_as_people_write_them() -> None:
    assert [parse_duration(one) for one in ("12:00:00 ", "1-00:00:00", "90", "PT1H30M", "12:30")] == [
        43200,
        86400,
        5400,
        5400,
        45000,
    ]
    assert [parse_memory(one) for one in ("64G", "512 MB", "1GiB", "100")] == ["64G", "512M", "1G", "100M"]
    assert [parse_mail_events(one) for one in ("abe", "END,FAIL", "ALL", "n")] == [
        ("begin", "end", "fail"), ("end", "fail"), ("begin", "end", "fail"), (),
    ]  # fmt: skip


JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
POINTERS = st.sampled_from([pointer for _, pointer, _, _ in WRONG])


@given(pointer=POINTERS, value=JSONS.filter(lambda one: one is not None))
def test_nothing_in_a_field_stops_the_reader(pointer: str, value: Any) -> None:
    with suppress(DeploymentRequestError):
        made(changed(MODAK if pointer.startswith("/job") else SHORT, pointer, value))
