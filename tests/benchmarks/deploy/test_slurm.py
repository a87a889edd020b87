"""Scripts for Slurm, judged by Slurm: it takes their options, and runs one to its end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.deploy.requests import SHORT, changed, made, text_of
from tests.benchmarks.deploy.slurm import Slurm, why_no_slurm
from tests.benchmarks.deploy.test_scripts import every_request
from tests.waiting import wait_for
from tests.without import NO_TORCH

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "Slurm is there.")]
# What torchrun gives each process, and what they come to together.
PROGRAM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item():g}", flush=True)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm with two nodes."""
    with Slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.mark.parametrize("request_", every_request())
def test_slurm_takes_each_option(slurm: Slurm, request_: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(text_of(made(request_), "slurm"))
    found = slurm.ask("sbatch", "--test-only", str(script))
    assert found.returncode == 0, (found.stderr, script.read_text())
    assert " to start at " in found.stderr
    wrong = script.read_text().replace("#SBATCH --nodes=", "#SBATCH --knots=")
    script.write_text(wrong)
    assert "unrecognized option" in slurm.ask("sbatch", "--test-only", str(script)).stderr


def output_of(slurm: Slurm, script: Path) -> str:
    """Run a job to its end without a container, with the PyTorch of these tests; return what it wrote."""
    output = slurm.folder / "output"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    taken = slurm.ask("sbatch", "--output", str(output), str(script), CONTAINER="", PATH=path)
    assert taken.returncode == 0, taken.stderr

    def is_over() -> bool:
        jobs = slurm.ask("squeue", "--noheader")
        return jobs.returncode == 0 and not jobs.stdout.strip()

    wait_for(is_over, seconds=200)
    return output.read_text()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_runs_with_as_many_processes_as_gpus(slurm: Slurm, nodes: int) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    (slurm.folder / "train.py").write_text(PROGRAM)
    script = slurm.folder / "job.sh"
    asked = changed(SHORT | {"command": "python train.py", "gpus": 2 // nodes, "nodes": nodes}, "/data", None)
    # Both nodes are this machine, and their names have no addresses.
    text = text_of(made(asked), "slurm").replace('"$head"', "127.0.0.1")
    script.write_text(text)
    told = output_of(slurm, script)
    if "EADDRINUSE" in told:
        told = output_of(slurm, script)  # others on this machine had the port: the next job has the next one
    # Two processes write to one file: the end of a line may come after what the other one wrote.
    assert sorted(re.findall(r"rank \d of \d: \d", told)) == ["rank 0 of 2: 1", "rank 1 of 2: 1"], told
