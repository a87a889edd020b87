"""Playing the published experiment: its cells as one sweep, on the host that can have the most of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from accounts.models import Role, Tenant, User
from benchmarks.experiment.plays import ExperimentPlay, plan_play
from benchmarks.model.calibration import PAPER_WORKLOADS
from benchmarks.sweeps.grid import GridExpansion, expand_grid, validated_grid
from benchmarks.sweeps.placement import PoolDevice, PoolHost, SweepPool
from tests.benchmarks.sweeps.pools import DRAWERS, anything

HOST = 1


def pool(*, own_drive: str = "P4500", gpus: int = 8, local_gpus: int = 8, model: str = "V100-PCIE-16GB") -> SweepPool:
    """A host like the published one: GPUs of its own, half of the others in each of two drawers, and a drive."""
    devices = [
        PoolDevice(id=10 + one, name=f"GPU {one}", model=model, drawer=1 + one % 2, slot=1 + one, ports={HOST: one % 2})
        for one in range(gpus)
    ]
    drive = PoolDevice(id=90, name="Drive", model="P4500", drawer=1, slot=20, is_storage=True, ports={HOST: 1})
    host = PoolHost(id=HOST, name="node-a", local_gpus=local_gpus, own_drive=own_drive)
    return SweepPool(hosts=(host,), devices=(*devices, drive), drawers=DRAWERS)


def expanded(play: ExperimentPlay) -> GridExpansion:
    assert play.grid is not None
    return expand_grid(validated_grid(play.grid), play.pool, anything)


def test_a_host_like_the_published_one_plays_all_cells_each_variant_and_the_pairs() -> None:
    play = plan_play(pool(), "simulated")
    found = expanded(play)
    assert (play.missing, found.left_out) == ((), ())
    cells = [one for one in found.points if one.spec.workload in PAPER_WORKLOADS]
    assert len(found.points) == 25 + 3 * 3 + 1
    assert len({(one.spec.hash, str(one.composition)) for one in cells}) == 25 + 3 * 3
    assert {one.spec.devices for one in found.points} == {8}
    assert {one.spec.steps for one in found.points} == {20}
    variants = {
        (one.spec.strategy, one.spec.precision, one.spec.batch) for one in cells if "large" in one.spec.workload
    }
    assert variants == {("ddp", "fp16", 6), ("ddp", "fp32", 4), ("dp", "fp16", 6), ("sharded", "fp16", 10)}


def test_what_a_host_cannot_have_is_left_out_with_the_reason() -> None:
    play = plan_play(pool(own_drive="", gpus=6), "simulated")
    assert dict(play.missing) == {
        "hybridGPUs": "node-a reaches no two drawers with four free GPUs of one model each.",
        "falconGPUs": "node-a reaches no two drawers with four free GPUs of one model each.",
        "localNVMe": "node-a shows no NVMe drive of its own.",
    }
    assert len(expanded(play).points) == 2 * 5 + 3 + 1
    few = plan_play(pool(local_gpus=4), "simulated")
    assert [name for name, __ in few.missing] == ["localGPUs", "localNVMe", "falconNVMe"]
    assert len(expanded(few).points) == 2 * 5 + 2 * 3 + 1


def test_without_a_host_that_can_the_reason_says_what_to_do() -> None:
    assert "Install PyTorch with CUDA" in plan_play(pool(), "torch").why_not
    able = replace(pool().hosts[0], executors=("torch", "simulated"), backends=("cpu",))
    assert plan_play(replace(pool(), hosts=(able,)), "torch").grid is None
    measured = plan_play(replace(pool(), hosts=(replace(able, backends=("cpu", "cuda")),)), "torch")
    assert {one.spec.steps for one in expanded(measured).points if one.spec.workload == "resnet50"} == {50}
    assert "An administrator enrols one" in plan_play(SweepPool(), "simulated").why_not
    assert "eight GPUs of its own" in plan_play(pool(local_gpus=2, gpus=2), "simulated").why_not


def test_the_host_with_most_configurations_is_taken_and_no_device_of_another_host() -> None:
    whole = pool()
    poor = replace(whole.hosts[0], id=2, name="node-b", own_drive="")
    devices = [replace(one, ports={HOST: 1, 2: 1}) for one in whole.devices]
    play = plan_play(replace(whole, hosts=(poor, *whole.hosts), devices=tuple(devices)), "simulated")
    assert play.host is not None
    assert play.host.name == "node-a"
    taken = [replace(one, attached=2) if one.id == 10 else one for one in whole.devices]
    assert "falconGPUs" in dict(plan_play(replace(whole, devices=tuple(taken)), "simulated").missing)


@pytest.mark.django_db
def test_a_viewer_sees_no_button_and_cannot_play() -> None:
    tenant = Tenant.objects.create(name="Vision")
    answers = {}
    for role in (Role.VIEWER, Role.USER):
        client = Client()
        client.force_login(User.objects.create_user(str(role), password="x", role=role, tenant=tenant))
        shown = client.get("/benchmarks/experiment/").content.decode()
        posted = client.post("/benchmarks/experiment/play/simulated/")
        answers[role] = ("Play all of it" in shown, "why-not-simulated" in shown, posted.status_code)
    assert answers == {Role.VIEWER: (False, False, 403), Role.USER: (True, True, 400)}
