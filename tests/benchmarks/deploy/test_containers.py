"""A generated container is built, and the generated script runs its training in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hostwire.training import RunEvent, RunStarted, Spec, StepsCompleted
from tests.benchmarks.deploy.building import BASE_IMAGE, Builder, why_no_builder
from tests.benchmarks.deploy.requests import made, text_of
from tests.without import NO_TORCH

WHY_NOT = why_no_builder()
pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "It is there.")]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Something that builds containers, with its base; skipped where the machine lets nobody mount anything."""
    found = Builder(tmp_path_factory.mktemp("containers"))
    found.make_base()
    container = found.ask("from", "--pull-never", BASE_IMAGE).stdout.strip()
    probe = found.ask("run", "--volume", "/usr:/usr:ro", container, "--", "python3", "-c", "print(1)", check=False)
    if probe.returncode:
        pytest.skip(f"This machine runs no container: {probe.stderr.strip().splitlines()[-1:]}")
    return found


def tiny_training(**more: Any) -> dict[str, Any]:
    """Return a request of a tiny training, with the PyTorch of these tests."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    pytest.importorskip("PIL", reason="Pillow is not installed: the trainer has no images to decode.")
    version = torch.__version__.partition("+")[0]
    return {"name": "digits", "workload": "mnist_cnn", "preset": "tiny", "framework_version": version, **more}


def test_the_container_of_a_training_is_built_and_its_script_runs_in_it(builder: Builder, tmp_path: Path) -> None:
    deployment = made(tiny_training())
    builder.build(text_of(deployment, "docker"), "digits")
    script = tmp_path / "job.sh"
    script.write_text(text_of(deployment, "bash"))
    path = f"{builder.runtime('digits')}:{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", str(script)], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    spec = msgspec.json.decode((tmp_path / "digits.spec.json").read_bytes(), type=Spec)
    assert (spec.workload, spec.backend, spec.devices) == ("mnist_cnn", "cpu", 2)
    lines = (tmp_path / "digits.events.jsonl").read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=RunEvent) for line in lines]
    timed = [one for one in events if isinstance(one, StepsCompleted) and one.phase == "timed"]
    assert sum(len(one.seconds) for one in timed) == spec.steps
    assert [one.software.framework.partition("+")[0] for one in events if isinstance(one, RunStarted)] == [
        f"torch {deployment_version(deployment.reasons[0])}"
    ]


def deployment_version(reason: str) -> str:
    """Return the version of PyTorch that the reason for a container names."""
    return reason.rpartition(" ")[2].rstrip(".")


def test_a_container_fails_to_build_where_a_package_is_not_to_be_had(builder: Builder) -> None:
    text = text_of(made(tiny_training(packages=["no-such-package-anywhere==1"])), "docker")
    with pytest.raises(AssertionError, match="No matching distribution found for no-such-package-anywhere"):
        builder.build(text, "missing")
