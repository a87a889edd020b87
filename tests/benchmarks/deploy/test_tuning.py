"""A deployment is tuned by a small sweep, whose best setting goes into its files; what it gained is said as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from benchmarks.deploy.services import deployment_create, tuning_create, tuning_of
from benchmarks.deploy.tuning import TunedSetting, Tuning, tuning_grid
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.runs.rules import Composition
from benchmarks.sweeps.models import Sweep
from benchmarks.workloads.catalogue import spec_of
from core.errors import Invalid
from fabric.agents.models import HostAgent
from tests.benchmarks.deploy.requests import text_of
from tests.benchmarks.runs.lab import Lab, RunningLab
from tests.benchmarks.sweeps.world import settled

PAGE = "/benchmarks/deploy/"
JOB = {
    "name": "digits", "command": "python train.py --batch {batch} --amp {precision}", "workload": "mnist_cnn",
    "batch": 16, "gpus": 1, "host": "node-a",
}  # fmt: skip


def setting(rate: float, provenance: Any = "measured", **values: Any) -> TunedSetting:
    """Return a setting with its rate, known to one in a hundred."""
    return TunedSetting(values=values, rate=rate, low=0.99 * rate, high=1.01 * rate, provenance=provenance)


def tuning(*settings: TunedSetting, total: int = 2, left: int = 0) -> Tuning:
    """Return a tuning that begins with batch 16."""
    return Tuning(
        sweep="x", title="Tuning", workload="mnist_cnn", devices=1, total=total, left=left, start={"batch": 16},
        settings=settings,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.with_agent
def test_a_deployment_is_tuned_on_its_host(lab: RunningLab) -> None:
    open_batch = {name: value for name, value in JOB.items() if name != "batch"}
    made = deployment_create(lab.person, json.dumps(open_batch))
    sweep, request = tuning_create(lab.person, made, idempotency_key="once")
    assert tuning_create(lab.person, made, idempotency_key="once")[0].pk == sweep.pk
    # Only what the command has is varied, and only there.
    assert {name for name in ("batch", "precision", "compile", "loader_workers") if len(sweep.grid[name]) > 1} == {
        "batch", "precision",
    }  # fmt: skip
    assert sweep.points.count() <= 4
    waiting = deployment_create(lab.person, request)
    assert waiting.tuning is not None
    assert waiting.tuning.best is None
    assert "The tuning goes on: 0 of" in waiting.tuning.sentence
    sweep = settled(sweep)
    tuned = deployment_create(lab.person, request)
    assert tuned.tuning is not None
    best = tuned.tuning.best
    assert best is not None
    rates = {tuple(sorted(one.values.items())): one.rate for one in tuned.tuning.settings}
    assert best.rate == max(rates.values())
    assert f"--batch {best.values['batch']} --amp {best.values['precision']}" in text_of(tuned, "bash")
    assert "The runs were simulated" in tuned.tuning.sentence
    precision = next((one for one in tuned.gains if one.option == "precision" and one.taken), None)
    assert precision is None or precision.why == "Chosen by the tuning."


def test_a_tuning_says_what_it_gained_and_how_it_is_known() -> None:
    measured = tuning(setting(100.0, batch=16), setting(150.0, batch=32))
    assert measured.best is not None
    assert measured.best.values == {"batch": 32}
    assert "It is 1.50 times as fast as the setting to begin with." in measured.sentence
    assert "The runs were measured" in measured.sentence
    close = tuning(setting(100.0, batch=16), setting(101.0, batch=32))
    assert "the spreads of their steps overlap" in close.sentence
    assert "nothing to gain" in tuning(setting(100.0, batch=16), setting(90.0, batch=32)).sentence
    skipped = tuning(setting(150.0, "simulated", batch=32), total=4)
    assert "What it gained is unknown" in skipped.sentence
    assert "3 settings were skipped early or failed." in skipped.sentence
    assert "The runs were simulated" in skipped.sentence
    assert "no result" in tuning().sentence
    best = setting(100.0, precision="fp16", compile=True, loader_workers=4)
    assert "(Arithmetic: FP16, Compiled: yes, Loader processes: 4)" in tuning(best).sentence
    assert tuning(setting(1.0, batch=16), left=1).best is None


def test_a_tuning_is_small_and_keeps_what_is_asked_for() -> None:
    spec = spec_of("bert_large", "paper", {"precision": "fp32", "gradient": "fp32"})
    place = Composition(host=3, local_gpus=4, devices={7: 1, 8: 1, 9: 1, 10: 1, 11: 2}, storage=11)
    everything = frozenset({"batch", "precision", "compile", "loader_workers"})
    topology = PAPER_TOPOLOGIES["hybridGPUs"]
    grid = tuning_grid(spec, place, topology, variable=everything, executors=("simulated", "torch"))
    assert (grid.batch, grid.precision, grid.compile) == ((6, 12), ("fp32", "fp16"), (False, True))
    assert (grid.placement, grid.storage, grid.count) == (("devices:7,8,9,10",), ("nvme:11",), (8,))
    assert grid.executor == "torch"
    assert grid.early is not None
    few = tuning_grid(spec, place, topology, variable=frozenset({"compile"}), executors=("simulated",))
    assert (few.batch, few.precision, few.compile, few.executor) == ((6,), ("fp32",), (False, True), "simulated")
    with pytest.raises(Invalid, match="nothing to tune"):
        tuning_grid(spec, place, topology, variable=frozenset({"devices"}), executors=("torch",))
    with pytest.raises(Invalid, match="No agent with a trainer"):
        tuning_grid(spec, place, topology, variable=everything, executors=())


@pytest.mark.process
def test_what_cannot_be_tuned_says_why(lab: Lab) -> None:
    client = Client()
    client.force_login(lab.person)

    def page(**changes: Any) -> str:
        request = {name: value for name, value in {**JOB, **changes}.items() if value is not None}
        return client.post(PAGE, {"request": json.dumps(request), "tune": "key"}).content.decode()

    assert "Name a host and a workload" in page(host=None)
    HostAgent.objects.all().delete()
    assert "No agent with a trainer runs on the host" in page()
    topology = {"format": "falconweb.topology/1", "accelerators": [{"name": "0", "model": "V100-SXM2-16GB"}]}
    assert "A topology file is no host of this site" in page(host=None, topology=topology)
    assert not Sweep.objects.exists()


@pytest.mark.django_db
def test_a_tuning_of_another_job_or_of_somebody_else_is_refused(lab: Lab, member: User) -> None:
    sweep = Sweep.objects.create(
        title="S", requested_by=lab.person, requested_by_name="ada",
        grid={"workload": ["vgg16"], "host": [lab.host.pk], "count": [1]},
    )  # fmt: skip
    client = Client()
    client.force_login(lab.person)

    def refusal(tuning_id: str) -> Any:
        answer = client.post(
            "/api/v1/benchmarks/deployments/", json.dumps({**JOB, "tuning": tuning_id}), content_type="application/json"
        )
        assert answer.status_code == 400
        return answer.json()["errors"]["/tuning"]

    assert "tuned another workload" in refusal(str(sweep.pk))
    assert "the id of a sweep" in refusal("../../x")
    for grid in ({"workload": ["a", "b"]}, {"workload": ["mnist_cnn"], "batch": [8, 16], "batch_of": "all"}):
        other = Sweep.objects.create(title="T", requested_by_name="ada", grid=grid)
        assert "it tunes no job" in refusal(str(other.pk))
    client.force_login(member)
    assert "no such sweep" in refusal(str(sweep.pk)).lower()
    assert tuning_of(sweep).total == 0
