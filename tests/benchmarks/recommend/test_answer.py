"""Recommendations of pools that are known: against brute force, with constraints, with runs, and how far they err."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import combinations, product

import msgspec
import numpy as np
import pytest

from benchmarks.model import prior
from benchmarks.model.belief import formula_seconds
from benchmarks.model.calibration import Observation
from benchmarks.model.topology import Accelerator, Topology
from benchmarks.recommend.answer import Recommendation, recommend
from benchmarks.recommend.candidates import JobSeconds, StepSeconds, enumerate_candidates, objective_values
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.power import CHASSIS_SLOTS, CHASSIS_WATTS, HOST_IDLE_WATTS, RESTING_SHARE
from benchmarks.recommend.reports import recommendation_json, recommendation_rows
from benchmarks.recommend.request import (
    Constraints,
    RecommendationRequest,
    SoftwareChoices,
    parse_recommendation_request,
)
from benchmarks.recommend.study import RUNS_A_TRIAL, TRUTHS, run_study, run_trial
from benchmarks.recommend.times import ASSUMED_START
from benchmarks.workloads.catalogue import spec_of
from core.errors import Invalid
from fabric.plans.rules import DesiredState, plan_steps
from hostwire.training import Spec
from tests.benchmarks.recommend.pools import any_pool, drawer, pool_of

RESNET = spec_of("resnet50", "paper", {})
BERT = spec_of("bert_large", "paper", {})
SMALL_TRIALS = (10_004, 10_015, 10_018)  # of few candidates
SPEC_WITH_OPTIONS = msgspec.structs.replace(
    BERT, precision="fp32", batch=2, accumulation=3, compile=True, loader_workers=5
)


def request_of(spec: Spec = BERT, **given: object) -> RecommendationRequest:
    return RecommendationRequest(spec=spec, samples=177_000, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pool() -> RecommendationPool:
    return pool_of(
        [{"name": "a", "local_gpus": 4}, {"name": "b", "local_gpus": 1}],
        [
            drawer(1, ports=["a", "b"], devices="VVVVV2V2"),
            drawer(2, ports=["a", "b"], devices="AA......", mode="StandardTwoHosts"),
        ],
    )


def reason_of(answer: Recommendation) -> str:
    assert answer.impossible is not None
    assert not answer.lines
    return answer.sentence


def of_all_subsets(pool: RecommendationPool, spec: Spec) -> float:
    """The least seconds of training, by the middle of the belief, over every subset of devices at every port."""
    least = np.inf
    for host in pool.hosts.values():
        for local, size in product(range(host.local_gpus + 1), range(len(pool.devices) + 1)):
            for chosen, at in product(combinations(pool.devices, size), product(pool.uplinks, repeat=size)):
                attachments = dict(zip(chosen, at, strict=True))
                if local + size and can_be(pool, host.id, attachments):
                    one = msgspec.structs.replace(
                        spec, devices=local + size, strategy="ddp" if local + size > 1 else "single"
                    )
                    seconds = formula_seconds(
                        prior().centre(), [(one, topology_of(pool, host.id, local, attachments))]
                    )[0, 0]
                    least = min(least, float(seconds) * math.ceil(177_000 / one.global_batch))
    return least


def can_be(pool: RecommendationPool, host: int, attachments: dict[int, int]) -> bool:
    """Whether a plan brings it about, as everything is or with all idle devices of the drawers concerned detached."""
    ports = {port.id: port.host for one in pool.drawers for port in one.ports}
    if any(ports[port] != host for port in attachments.values()):
        return False
    concerned = [one for one in pool.drawers if any(device.id in attachments for device in one.devices)]
    ways: list[list[dict[int, int | None]]] = []
    for one in concerned:
        idle = [device.id for device in one.devices if device.id in pool.devices and device.attached is not None]
        ways.append([{}, dict.fromkeys(idle)])
    return any(
        not plan_steps(
            pool.drawers,
            DesiredState(attachments={**{pk: to for part in parts for pk, to in part.items()}, **attachments}),
        ).objections
        for parts in product(*ways)
    )


def topology_of(pool: RecommendationPool, host: int, local: int, attachments: dict[int, int]) -> Topology:
    own = pool.hosts[host]
    return Topology(
        cores=own.cores, memory_bytes=own.memory_bytes,
        accelerators=(
            *(Accelerator(name=f"l{nth}", model=own.local.model) for nth in range(local)),
            *(
                Accelerator(name=str(one), model=pool.devices[one].kind.model, place=str(port),
                            link=pool.devices[one].kind.link)
                for one, port in attachments.items()
            ),
        ),
        uplinks={str(port): pool.uplinks[port] for port in attachments.values()},
    )  # fmt: skip


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_on_a_small_pool_the_best_is_that_of_all_subsets(seed: int) -> None:
    pool = any_pool(seed, devices=4)
    found = enumerate_candidates(pool, request_of(RESNET, limits=Constraints(same_mode=True)), prior().centre())
    assert found.exact
    seconds = StepSeconds.of(found.every, prior().centre())
    ours = JobSeconds.of(found.every, request_of(RESNET), seconds).train.min()
    assert ours == pytest.approx(of_all_subsets(pool, RESNET), rel=1e-9)


def test_every_line_can_be_composed_and_says_what_it_rests_on(pool: RecommendationPool) -> None:
    answer = recommend(
        pool, request_of(freedom=SoftwareChoices(precisions=("fp32", "fp16"), strategies=("ddp", "sharded")))
    )
    assert answer.exact
    assert answer.lines
    assert "All" in answer.search_words
    for line in answer.lines:
        assert not plan_steps(pool.drawers, line.candidate.layout.desired_state(pool)).objections
        assert line.basis == "prior"
        assert line.objective.low < line.objective.value < line.objective.high
        assert len(line.reasons) >= 3
        assert line.candidate.spec.devices == line.devices
    regrets = [line.regret for line in answer.lines[1:]]
    assert regrets == sorted(regrets)
    plain = recommendation_json(pool, answer)
    assert len(plain["candidates"]) == len(list(recommendation_rows(answer))) == len(answer.lines)


def test_the_same_question_has_the_same_answer(pool: RecommendationPool) -> None:
    assert recommendation_json(pool, recommend(pool, request_of())) == recommendation_json(
        pool, recommend(pool, request_of())
    )


def test_objectives_are_counted_as_they_say(pool: RecommendationPool) -> None:
    draws = prior().centre()
    request = request_of()
    every = enumerate_candidates(pool, request, draws).every
    seconds = StepSeconds.of(every, draws)
    spent = JobSeconds.of(every, request, seconds)
    time, hours, joules = (objective_values(every, request, seconds, one)[0] for one in ("time", "gpu_hours", "energy"))
    for place, one in enumerate(every):
        steps = math.ceil(request.samples / one.spec.global_batch)  # no part of a step
        around = spent.around[0, place]
        assert around >= ASSUMED_START.seconds + 15 * bool(one.layout.changes[1])
        assert time[place] == pytest.approx(steps * seconds.step[0, place] + around)
        assert hours[place] == pytest.approx(time[place] * one.layout.count / 3600)
        other = (
            HOST_IDLE_WATTS
            + one.power.host_load
            + CHASSIS_WATTS / CHASSIS_SLOTS * sum(place.count for place in one.layout.places)
        )
        assert one.watts * RESTING_SHARE + HOST_IDLE_WATTS <= joules[place] / time[place]
        assert joules[place] / time[place] <= one.watts + other + 1e-6
    few = recommend(pool, request_of(objective="devices"))
    assert few.best is not None
    assert few.best.devices == 1


def test_a_short_job_stays_on_what_is_attached() -> None:
    """A million digits train in seconds: to attach the other 18 GPUs takes longer than they save."""
    pool = pool_of(
        [{"name": "a", "local_gpus": 4}],
        [
            drawer(1, ports=["a", "a"], devices="V1V1VVVVVV"),
            drawer(2, ports=["a", "a"], devices="VVVVVVVV"),
            drawer(1, chassis="falcon-2", ports=["a"], devices="VVVV"),
        ],
    )
    request = RecommendationRequest(spec=spec_of("mnist_cnn", "paper", {}), samples=1e6)
    short = recommend(pool, request)
    assert short.best is not None
    assert not short.abstains
    assert short.best.devices <= 6
    assert short.best.candidate.layout.changes == (0, 0)
    assert short.best.spent["compose"] == short.best.spent["give_back"] == 0.0
    assert re.fullmatch(
        r"With \d\d GPUs it would train [\d.]+ s faster, but \d\d more operations take [\d.]+ (s|min)\.",
        short.best.reasons[0],
    )
    long = recommend(pool, replace(request, epochs=10_000))
    assert long.best is not None
    assert long.best.devices > short.best.devices
    assert long.best.spent["compose"] > 20.0
    assert any("drawers are composed at the same time" in one for one in long.best.reasons)
    assert long.best.steps == 10_000 * math.ceil(1e6 / long.best.candidate.spec.global_batch)


def test_the_parts_of_time_and_energy_are_all_of_it(pool: RecommendationPool) -> None:
    answer = recommend(pool, request_of(SPEC_WITH_OPTIONS))
    for line, plain in zip(answer.lines, recommendation_json(pool, answer)["candidates"], strict=True):
        assert sum(line.spent.values()) == pytest.approx(line.seconds.value, rel=0.05)
        assert sum(line.energy.values()) == pytest.approx(line.joules.value, rel=0.05)
        assert line.energy["host"] > 0
        assert (line.energy["chassis"] > 0) == (line.candidate.power.slots > 0)
        assert plain["time_parts"]["train_seconds"] == line.spent["train"]
        strategy = "DDP, " if line.devices > 1 else ""
        assert line.variant == f"FP32, {strategy}batch 2 a GPU, 3 batches a step, compiled, 5 loaders"
        assert plain["variant"] == line.variant
        assert line.variant in plain["title"]
        assert (plain["spec"]["loader_workers"], plain["spec"]["accumulation"], plain["spec"]["compile"]) == (
            5,
            3,
            True,
        )
    assert answer.lines[0].variant in answer.sentence


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("NVIDIA A100 80GB PCIe", {"A100 80GB PCIe"}),
        ("a100-pcie-80gb", {"A100 80GB PCIe"}),
        ("A100", {"A100 80GB PCIe", "A100-SXM4-40GB"}),
        ("A100 SXM", {"A100-SXM4-40GB"}),
        ("Tesla V100-PCIE-16GB", {"V100-PCIE-16GB"}),
        ("Tesla V100 PCIe 16 GB", {"V100-PCIE-16GB"}),
        ("NVIDIA H100 PCIe", {"NVIDIA H100 PCIe"}),  # there is none here, and the constraint says so
    ],
)
def test_a_model_may_be_written_as_the_site_the_agent_or_the_vendor_does(name: str, models: set[str]) -> None:
    pool = pool_of(
        [{"name": "a", "local_gpus": 1, "model": "NVIDIA A100-SXM4-40GB", "memory_gb": 40}],
        [{
            **drawer(1, ports=["a"], devices="V"),
            "devices": [{"slot": 1, "model": "Tesla V100-PCIE-16GB"}, {"slot": 2, "model": "NVIDIA A100 80GB PCIe"}],
        }],
    )  # fmt: skip
    request = parse_recommendation_request({"workload": "resnet50", "limits": {"models": [name]}}, pool)
    assert set(request.limits.models or ()) == models


def test_an_unknown_model_has_a_sentence_with_near_ones() -> None:
    pool = pool_of([{"name": "a", "local_gpus": 1, "model": "GeForce 4711"}], [drawer(1, ports=["a"], devices="V")])
    with pytest.raises(Invalid) as refused:
        parse_recommendation_request({"workload": "resnet50", "limits": {"models": ["V10O-PCIE"]}}, pool)
    (sentence,) = refused.value.details["errors"].values()
    assert "There is no GPU model ‘V10O-PCIE’ here." in sentence
    assert "V100-PCIE" in sentence
    for name in ("", "!", "NVIDIA"):
        with pytest.raises(Invalid):
            parse_recommendation_request({"workload": "resnet50", "limits": {"models": [name]}}, pool)
    (note,) = recommend(pool, request_of()).notes
    assert "There is no data sheet of ‘GeForce 4711’" in note
    assert "Near it are: " in note


def test_a_limit_on_time_asks_for_more_devices(pool: RecommendationPool) -> None:
    alone = recommend(pool, request_of(objective="devices", limits=Constraints(most_devices=1)))
    assert alone.best is not None
    wanted = alone.best.seconds.value / 2.5
    answer = recommend(pool, request_of(objective="devices", limits=Constraints(most_seconds=wanted)))
    assert answer.best is not None
    assert answer.best.devices > 1
    assert all(line.seconds.high < wanted * 1.2 for line in answer.lines)


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        (Constraints(most_seconds=1.0, most_devices=8), {"most_seconds"}),
        (Constraints(least_devices=40), {"least_devices"}),
        (Constraints(models=frozenset({"H100"})), {"models"}),
        (Constraints(most_watts=100.0, same_mode=True), {"most_watts"}),
        (Constraints(storage="chassis"), {"storage"}),
        (Constraints(most_joules=10.0), {"most_joules"}),
        (Constraints(gpus="local", least_devices=5), {"gpus", "least_devices"}),
        (
            Constraints(hosts=frozenset({2}), gpus="local", least_devices=2, one_model=True),
            {"hosts", "gpus", "least_devices"},
        ),
        (Constraints(one_place=True, least_devices=7, most_watts=10_000.0), {"one_place", "least_devices"}),
    ],
)
def test_the_constraint_that_cannot_hold_is_named(
    pool: RecommendationPool, limits: Constraints, names: set[str]
) -> None:
    answer = recommend(pool, request_of(limits=limits))
    sentence = reason_of(answer)
    assert answer.impossible is not None
    assert set(answer.impossible.constraints) == names
    assert ("constraints conflict" if len(names) > 1 else "not possible") in sentence
    assert {name for name, _ in answer.impossible.relaxed} == names
    for name in names:
        assert recommend(pool, request_of(limits=limits.without(name))).lines


def test_a_batch_that_fits_nowhere_is_refused_with_the_number(pool: RecommendationPool) -> None:
    answer = recommend(pool, request_of(freedom=SoftwareChoices(batches=(5000,))))
    assert "memory" in reason_of(answer)
    assert any("16.0 GB" in one and "5000" in one for one in answer.unfit)
    some = recommend(pool, request_of(freedom=SoftwareChoices(batches=(6, 40))))
    assert some.lines
    assert some.unfit


def test_a_global_batch_is_divided_or_said_to_be_indivisible(pool: RecommendationPool) -> None:
    answer = recommend(pool, request_of(global_batch=12))
    assert {line.devices * line.candidate.spec.batch for line in answer.lines} == {12}
    assert 5 in answer.undivided
    refused = recommend(pool, request_of(global_batch=7, limits=Constraints(least_devices=2, most_devices=4)))
    assert "constraints conflict" in reason_of(refused)
    assert refused.undivided == (2, 3, 4)
    alone = pool_of([{"name": "a", "local_gpus": 1}], [])
    assert recommend(alone, request_of(global_batch=7)).lines


def test_without_hosts_or_devices_there_is_a_sentence() -> None:
    assert "host" in reason_of(recommend(RecommendationPool(), request_of()))
    assert "available" in reason_of(
        recommend(pool_of([{"name": "a"}], [drawer(1, ports=["a"], devices="vv")]), request_of())
    )
    assert "attached" in reason_of(
        recommend(pool_of([{"name": "a"}], [drawer(1, ports=[None], devices="VV")]), request_of())
    )


def test_a_run_makes_the_answer_surer_and_is_called_measured(pool: RecommendationPool) -> None:
    before = recommend(pool, request_of())
    assert before.best is not None
    one = before.best
    measured = one.step.value * 1.2
    run = Observation(
        spec=one.candidate.spec, topology=one.candidate.layout.named_topology(pool), step_seconds=measured, spread=0.01
    )
    after = recommend(pool, request_of(), [run])
    line = next(
        other for other in after.lines if other.words == one.words and other.candidate.spec == one.candidate.spec
    )
    assert line.basis == "measured"
    assert line.step.value == pytest.approx(measured, rel=0.02)
    assert line.step.high / line.step.low < 1.1 < one.step.high / one.step.low
    assert {other.basis for other in after.lines if other is not line} == {"calibrated"}
    if after.deciding is not None:
        assert after.deciding.line.words != one.words


def test_five_runs_leave_hardly_any_regret() -> None:
    """Of some random pools, by the event simulation and composing time included; the nightly study has many more."""
    trials = [run_trial(seed) for seed in SMALL_TRIALS]
    last = np.array([one.regrets[-1] for one in trials])
    assert all(len(one.regrets) == RUNS_A_TRIAL + 1 for one in trials)
    assert np.median(last) < 0.005
    assert max(last) < 0.1


def test_a_trial_can_be_repeated() -> None:
    for truth in TRUTHS:
        assert run_trial(SMALL_TRIALS[0], truth=truth) == run_trial(SMALL_TRIALS[0], truth=truth)


@pytest.mark.nightly
@pytest.mark.parametrize(("truth", "median"), [("events", 0.0), ("drawn", 0.005)])
def test_five_runs_leave_hardly_any_regret_in_many_trials(truth: str, median: float) -> None:
    trials = run_study(120, seed=3, truth=truth)  # as docs/recommend.md reports
    first, last = (np.array([one.regrets[place] for one in trials]) for place in (0, -1))
    assert np.median(last) <= median
    assert np.quantile(last, 0.95) < 0.05
    assert last.mean() < first.mean()
