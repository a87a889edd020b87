"""Containers are chosen for their target: architecture, GPUs and driver; what is not covered is said."""

from __future__ import annotations

import pytest

from benchmarks.deploy.bases import (
    BUILDS,
    DEBIAN_IMAGE,
    WHEEL_IMAGE,
    TargetFacts,
    architecture_of,
    choose_base,
    compute_capability,
)
from tests.benchmarks.deploy.requests import MODAK, SHORT, changed, made, refused, text_of


@pytest.mark.parametrize(
    ("facts", "version"),
    [
        (TargetFacts(models=("H100-SXM5-80GB",), driver="580.95.05"), "2.14.1"),
        (TargetFacts(models=("H100-SXM5-80GB",), driver="550.54.14"), "2.8.0"),
        (TargetFacts(models=("V100-SXM2-16GB",), driver="580.95.05"), "2.6.0"),
        (TargetFacts(models=("V100-SXM2-16GB", "A100-PCIE-40GB"), driver="535.161.08"), "2.6.0"),
        (TargetFacts(models=("K80",), driver="470.82.01"), "1.13.1"),
        (TargetFacts(models=("GH200",), architecture="aarch64"), "2.14.1"),
        (TargetFacts(models=("a GPU of tomorrow",)), "2.14.1"),
    ],
)
def test_the_newest_build_that_runs_on_the_target_is_taken(facts: TargetFacts, version: str) -> None:
    chosen = choose_base(facts, gpus=True)
    assert chosen.build is not None
    assert (chosen.version, chosen.build.image) == (version, WHEEL_IMAGE)
    assert any(f"PyTorch {version} brings CUDA" in one for one in chosen.reasons)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (TargetFacts(models=("MI250X",)), "AMD GPUs are not covered"),
        (TargetFacts(models=("Radeon Instinct MI50",)), "AMD GPUs are not covered"),
        (TargetFacts(models=("V100-SXM2-16GB",), architecture="ppc64le"), "NVIDIA GPUs on ppc64le are not covered"),
        (TargetFacts(models=("V100-SXM2-16GB",), architecture="aarch64"), "has no code for V100"),
        (TargetFacts(models=("V100-SXM2-16GB",), driver="390.157"), "needs driver 450.80.02 or newer"),
    ],
)
def test_what_no_image_covers_is_said(facts: TargetFacts, sentence: str) -> None:
    chosen = choose_base(facts, gpus=True)
    assert chosen.build is None
    assert sentence in " ".join(chosen.reasons)


def test_a_cpu_needs_no_driver() -> None:
    power = choose_base(TargetFacts(architecture="ppc64le", driver="1"))
    assert power.build is not None
    assert power.build.image == DEBIAN_IMAGE
    assert "driver" not in " ".join(power.reasons)


def test_a_version_that_is_asked_for_stays_and_what_speaks_against_it_is_said() -> None:
    asked = choose_base(TargetFacts(models=("V100-SXM2-16GB",), driver="535.161.08"), "2.14", gpus=True)
    assert asked.version == "2.14"
    assert "needs driver 580.65.06 or newer, and the host has 535.161.08" in " ".join(asked.reasons)
    assert "no code for V100-SXM2-16GB (compute capability 7.0)" in " ".join(asked.reasons)
    assert "nothing is known" in " ".join(choose_base(TargetFacts(), "2.99", gpus=True).reasons)


def test_names_of_kernels_and_gpus_are_read() -> None:
    assert architecture_of("6.1.0-13-amd64") == "x86_64"
    assert architecture_of("5.14.0-503.el9.aarch64") == "aarch64"
    assert architecture_of("Linux 6.8 ppc64le") == "ppc64le"
    assert architecture_of("6.8.0-45-generic") == ""
    assert compute_capability("Tesla V100-SXM2-16GB") == 7.0
    assert compute_capability("NVIDIA GeForce RTX 2080 Ti") == 7.5
    assert compute_capability("unknown") is None


def test_no_build_names_a_registry_and_each_its_source() -> None:
    for one in BUILDS:
        assert "/" not in one.image
        assert one.source
        assert bool(one.cuda) == bool(one.driver) == bool(one.capabilities)


def test_files_follow_the_target() -> None:
    one_gpu = SHORT | {"gpus": 1, "framework_version": None}
    # The host's GPUs are V100s.
    assert "torch==2.6.0" in text_of(made(one_gpu), "docker")
    assert any("no code for V100" in one for one in made(one_gpu).reasons)
    old = made(one_gpu | {"driver": "470.82.01"})
    assert "torch==1.13.1" in text_of(old, "apptainer")
    power = made({"command": "python train.py", "architecture": "ppc64le"})
    assert f"FROM {DEBIAN_IMAGE}" in text_of(power, "docker")
    assert '"install", "python3-torch"' in text_of(power, "docker")
    assert "torch==" not in text_of(power, "docker")
    uncovered = made({"command": "python train.py", "architecture": "ppc64le", "gpus": 2})
    assert {one.kind for one in uncovered.files} == {"slurm", "torque", "bash"}
    assert any("ppc64le are not covered" in one for one in uncovered.reasons)
    arm = changed(MODAK, "/job/optimisation/opt_build/cpu_type", "power")
    assert "docker" not in {one.kind for one in made(arm).files}
    assert "/job/optimisation/opt_build/acc_type" in refused(
        changed(MODAK, "/job/optimisation/opt_build/acc_type", "amd")
    )


def test_a_container_has_what_its_job_relies_on() -> None:
    compiled = made(SHORT | {"command": "python train.py --compile {compile}", "compile": True})
    assert '"install", "g++"' in text_of(compiled, "docker")
    assert "'g++'" in text_of(compiled, "apptainer") or " g++" in text_of(compiled, "apptainer")
    assert "g++" not in text_of(made(SHORT), "docker")
    fetched = changed(MODAK, "/job/application/build", {"src": "https://a.example/x.git"})
    docker = text_of(made(fetched), "docker")
    assert docker.index('"git"]') < docker.index('"clone"')
