"""A halted run of PyTorch is continued from its checkpoint, which its host keeps."""

from __future__ import annotations

import pytest

from accounts.models import User
from benchmarks.runs.documents import parse_run_file, run_file
from benchmarks.runs.models import Run, Series
from benchmarks.runs.recording import series_append
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.rules import Composition
from benchmarks.runs.services import has_checkpoint, run_cancel, run_create, run_resume, run_retry
from benchmarks.workloads.catalogue import spec_of
from core.errors import Conflict
from tests.benchmarks.runs.lab import Lab, RunningLab, ended, until
from tests.without import needs_torch

pytestmark = pytest.mark.process
CHECKPOINT = "steps/checkpoint/seconds"


def test_only_a_halted_or_failed_run_of_pytorch_with_a_checkpoint_is_resumed(lab: Lab) -> None:
    run = lab.ask(lab.place(1))
    Run.objects.filter(pk=run.pk).update(state="cancelled", executor="simulated")
    run.refresh_from_db()
    with pytest.raises(Conflict, match="no checkpoint"):
        run_resume(person=lab.person, run=run)
    series_append(run, CHECKPOINT, at=[1.0], values=[0.1], unit="s")
    assert not has_checkpoint(run)  # simulated: there is no file
    Run.objects.filter(pk=run.pk).update(executor="torch")
    run.refresh_from_db()
    assert has_checkpoint(run)
    Run.objects.filter(pk=run.pk).update(state="completed")
    run.refresh_from_db()
    with pytest.raises(Conflict, match="no checkpoint"):
        run_resume(person=lab.person, run=run)


@needs_torch
@pytest.mark.with_agent
def test_a_halted_run_is_continued_from_its_checkpoint(lab: RunningLab, administrator: User) -> None:
    spec = spec_of("mnist_cnn", "tiny", {"devices": 1, "strategy": "single", "steps": 900_000, "checkpoint_every": 10})
    place = Composition(host=lab.host.pk, cpu=True)
    first = run_create(person=lab.person, request=RunRequest(spec=spec, composition=place, executor="torch"))
    until(first, lambda run: Series.objects.filter(run=run, key=CHECKPOINT).exists(), seconds=120.0)
    run_cancel(person=lab.person, run=first)
    first = ended(first, seconds=60.0)
    assert first.state == "cancelled"
    second = run_resume(person=lab.person, run=first)
    assert (second.repeat_of_id, second.spec["resume_from"]) == (first.pk, str(first.pk))
    until(second, lambda run: run.results.get("tables", {}).get("resumed_at"), seconds=120.0)
    second.refresh_from_db()
    assert second.results["tables"]["resumed_at"] % 10 == 0
    assert second.results["tables"]["resumed_at"] >= 10
    # What is asked for anew begins anew, as a file, too; the same again goes on from the same checkpoint.
    assert parse_run_file(run_file(second)).spec == spec
    run_cancel(person=lab.person, run=second)
    second = ended(second, seconds=60.0)
    again = run_retry(person=lab.person, run=second)
    assert again.spec["resume_from"] == str(first.pk)
    run_cancel(person=lab.person, run=again)
