"""Grids: what they come to, what is left out and why, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.runs.rules import Composition
from benchmarks.sweeps.grid import MAX_POINTS, SweepGrid, expand_grid, validated_grid, varied_axes
from benchmarks.sweeps.placement import PlacementError, PlacementRequest, compose_placement
from core.errors import Invalid
from hostwire.training import Spec
from tests.benchmarks.sweeps.pools import GPU, NODE_A, NODE_B, anything, expanded, pool


def whys(**members: Any) -> list[str]:
    """Return why points were left out."""
    return [one.why for one in expanded(**members).left_out]


def test_every_combination_becomes_a_point_with_its_specification() -> None:
    found = expanded(batch=[32, 64], count=[1, 2, 4], precision=["fp32", "fp16"])
    assert len(found.points) == 12
    assert {(one.spec.batch, one.spec.devices, one.spec.precision) for one in found.points} == {
        (batch, count, precision) for batch in (32, 64) for count in (1, 2, 4) for precision in ("fp32", "fp16")
    }
    assert not found.left_out


def test_an_axis_without_values_is_as_the_preset_has_it() -> None:
    (point,) = expanded(preset="paper", count=[4]).points
    assert (point.spec.batch, point.spec.precision, point.spec.devices) == (128, "fp16", 4)


def test_one_device_runs_single_and_more_run_ddp_where_nothing_is_said() -> None:
    assert [one.spec.strategy for one in expanded(count=[1, 2]).points] == ["single", "ddp"]


def test_a_batch_over_all_devices_is_shared_evenly_or_left_out() -> None:
    found = expanded(batch=[96], batch_of="all", count=[1, 4], accumulation=[1, 5])
    assert sorted(one.spec.batch for one in found.points) == [24, 96]
    assert [one.why for one in found.left_out] == [
        "A batch of 96 over all devices cannot be shared by 5 evenly.",
        "A batch of 96 over all devices cannot be shared by 20 evenly.",
    ]


def test_repeats_stand_beside_each_other_and_are_numbered() -> None:
    points = expanded(batch=[32, 64], repeats=3).points
    assert [(one.values["batch"], one.values["repeat"]) for one in points] == [
        (32, 1), (32, 2), (32, 3), (64, 1), (64, 2), (64, 3),
    ]  # fmt: skip


def test_what_needs_more_devices_than_there_are_is_left_out_with_the_numbers() -> None:
    assert whys(count=[8], placement=["local"]) == ["node-a has 4 GPUs of its own; 8 would be needed."]
    assert whys(count=[8], placement=["drawer:1"]) == [
        "falcon-1 Drawer 1 has 4 free accelerators for node-a; 8 would be needed."
    ]
    assert whys(count=[16], placement=["spread"]) == [
        "All drawers have 8 free accelerators for node-a; 16 would be needed."
    ]
    assert whys(count=[1], placement=["drawer:1"], accelerator=["K80"]) == [
        "falcon-1 Drawer 1 has no free K80 for node-a; 1 would be needed."
    ]


def test_a_framework_that_no_host_has_is_left_out() -> None:
    found = expanded(framework=["pytorch", "tensorflow"])
    assert len(found.points) == 1
    assert [one.why for one in found.left_out] == ["tensorflow is not available on node-a: pytorch is."]


def test_what_the_host_cannot_run_is_left_out() -> None:
    assert [one.why for one in expanded(pool(executors=("simulated",)), executor="torch").left_out] == [
        "node-a cannot run 'torch' now; it can run simulated."
    ]


def test_what_the_workload_does_not_take_is_left_out_in_its_own_words() -> None:
    assert whys(strategy=["dp"], count=[1]) == ["DP needs at least 2 devices."]
    assert whys(precision=["fp16"], placement=["cpu"]) == ["fp16 needs a GPU. On the CPU, use bf16 or fp32."]


def test_what_stands_against_a_point_leaves_it_out_with_its_number() -> None:
    def refuse(spec: Spec, composition: Composition) -> str:
        return f"{spec.batch} samples need {spec.batch / 8:.0f} GB." if spec.batch > 64 else ""

    grid = validated_grid(SweepGrid.from_json({"workload": ["resnet50"], "host": [NODE_A], "batch": [64, 512]}))
    found = expand_grid(grid, pool(), refuse)
    assert [one.spec.batch for one in found.points] == [64]
    assert [(one.values["batch"], one.why) for one in found.left_out] == [(512, "512 samples need 64 GB.")]
    assert found.reasons == [("512 samples need 64 GB.", 1)]


def test_the_same_run_is_not_taken_twice() -> None:
    found = expanded(count=[1], placement=["drawer:1", "spread"])
    assert len(found.points) == 1
    assert [one.why for one in found.left_out] == ["It is the same run as another point of this grid."]


def test_a_run_with_fewer_devices_uses_some_of_those_of_one_with_more() -> None:
    points = expanded(count=[1, 2, 4], placement=["drawer:1"]).points
    one, two, four = (set(point.composition.devices) for point in points)
    assert one < two < four


def test_devices_are_spread_evenly_over_drawers_neighbours_in_rank() -> None:
    (point,) = expanded(count=[4], placement=["spread"]).points
    assert list(point.composition.devices.values()) == [101, 101, 102, 102]


def test_half_own_half_drawers_gives_the_odd_one_to_the_host() -> None:
    (point,) = expanded(count=[5], placement=["hybrid"]).points
    assert (point.composition.local_gpus, len(point.composition.devices)) == (3, 2)


def test_devices_that_are_named_are_taken_with_own_gpus_for_the_rest() -> None:
    (point,) = expanded(count=[3], placement=["devices:12,10"]).points
    assert (point.composition.local_gpus, point.composition.devices) == (1, {12: 101, 10: 101})
    for named, why in {"999": "with device 999", "90": "with device 90", "x": "with device x"}.items():
        (found,) = whys(count=[1], placement=[f"devices:{named}"])
        assert why in found
    assert whys(count=[1], placement=["devices:10,12"]) == ["2 devices are named."]


def test_a_device_at_another_host_is_left_there() -> None:
    taken = pool(gpus=2)
    taken = type(taken)(
        hosts=taken.hosts,
        devices=tuple(
            type(one)(
                id=one.id, name=one.name, model=one.model, drawer=1, slot=one.slot, ports=one.ports, attached=NODE_B
            )
            for one in taken.devices
        ),
        drawers=taken.drawers,
    )
    with pytest.raises(PlacementError, match="no free accelerators for node-a"):
        compose_placement(taken, PlacementRequest(host=NODE_A, count=1, placement="drawer:1"))
    assert len(compose_placement(taken, PlacementRequest(host=NODE_B, count=1, placement="drawer:1")).devices) == 1


def test_data_may_lie_on_a_drive_of_a_chassis_that_the_host_reaches() -> None:
    found = expanded(storage=["host", "nvme:90", "nvme:7"], host=[NODE_A, NODE_B])
    assert [one.composition.storage for one in found.points] == [None, 90, None]
    assert found.points[1].composition.devices == {90: 101}
    assert {one.why for one in found.left_out} == {
        "You cannot compose with NVMe drive 7, or it does not exist.", "node-b does not reach Drive."
    }  # fmt: skip


def test_data_may_lie_on_the_hosts_own_nvme_drive_where_it_has_one() -> None:
    found = expanded(pool(own_drive="P4500"), storage=["host", "own"], count=[1, 2])
    assert [(one.composition.own_drive, one.composition.storage) for one in found.points] == [
        (False, None), (False, None), (True, None), (True, None),
    ]  # fmt: skip
    assert not any(one.composition.devices for one in found.points)
    (alone,) = expanded(pool(own_drive="P4500"), storage=["own"], placement=["cpu"], preset="tiny").points
    assert alone.composition == Composition(host=NODE_A, cpu=True, own_drive=True)
    without = expanded(storage=["host", "own"])
    assert len(without.points) == 1
    assert [one.why for one in without.left_out] == ["node-a shows no NVMe drive of its own."]


def test_a_run_on_the_cpu_takes_no_device() -> None:
    (point,) = expanded(placement=["cpu"], count=[2], preset="tiny").points
    assert point.composition == Composition(host=NODE_A, cpu=True)
    assert (point.spec.backend, point.spec.strategy, point.spec.devices) == ("cpu", "ddp", 2)


def test_a_host_that_the_person_may_not_compose_with_is_none() -> None:
    assert whys(host=[77]) == ["You cannot compose with host 77, or it does not exist."]


def test_options_apply_to_the_workloads_that_have_them() -> None:
    points = expanded(workload=["resnet50", "bert_base"], same={"image": 128, "sequence": 64, "steps": 20}).points
    assert [one.spec.steps for one in points] == [20, 20]
    assert points[0].spec.options["image"] == 128
    assert points[1].spec.options["sequence"] == 64


@pytest.mark.parametrize(
    ("members", "field", "sentence"),
    [
        ({"workload": ["resnet51"]}, "workload", "There is no workload 'resnet51'."),
        ({"workload": []}, "workload", "Choose at least one."),
        ({"count": [65]}, "count", "1 to 64 devices"),
        ({"placement": ["attic"]}, "placement", "'attic' is none of cpu, local, spread, hybrid and drawer:ID."),
        ({"storage": ["tape"]}, "storage", "'tape' is none of host, own and nvme:ID."),
        ({"repeats": 0}, "repeats", "1 to 50 times"),
        ({"limit_seconds": 1e9}, "limit_seconds", "1 to 604,800 seconds"),
        ({"same": {"colour": 3}}, "same", "None of these workloads has 'colour'."),
        ({"early": {"objectives": ["beauty"]}}, "early", "'beauty' is none of time, device_time, devices."),
        ({"early": {"objectives": ["devices"]}}, "early", "Besides devices"),
        ({"command": ["ls"]}, "command", "Only the workload 'command' takes a command."),
        ({"batch": list(range(1, 66))}, "batch", "at most 64 values"),
    ],
)  # fmt: skip
def test_a_wrong_grid_names_the_field(members: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        expanded(**members)
    assert sentence in caught.value.details["errors"][field]


@pytest.mark.parametrize(
    ("plain", "field"),
    [({"batch": ["many"]}, "batch"), ({"colour": [1]}, "grid"), ({"precision": ["fp8"]}, "precision"), ([1], "grid")],
)
def test_what_is_no_grid_is_told_by_its_member(plain: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        SweepGrid.from_json(plain)
    assert field in caught.value.details["errors"]


def test_more_runs_than_a_sweep_has_are_refused_and_so_are_more_combinations_than_are_looked_at() -> None:
    with pytest.raises(Invalid, match=f"at most {MAX_POINTS:,} runs"):
        expanded(batch=list(range(1, 60)), threads=list(range(1, 20)))
    with pytest.raises(Invalid, match="combinations; at most 20,000"):
        expanded(batch=list(range(1, 60)), threads=list(range(1, 60)), loader_workers=list(range(1, 60)))


def test_a_grid_is_the_same_after_a_way_through_json() -> None:
    grid = SweepGrid.from_json({"workload": ["resnet50"], "host": [1], "batch": [8, 16], "early": {"predicted": False}})
    assert SweepGrid.from_json(grid.as_json()) == grid
    assert varied_axes(grid) == ["batch"]


def test_values_that_come_twice_count_once() -> None:
    assert validated_grid(SweepGrid.from_json({"workload": ["resnet50"], "host": [1], "batch": [8, 8]})).batch == (8,)


def test_models_of_accelerators_are_told() -> None:
    assert pool().models == [GPU]
    assert len(expanded(accelerator=[GPU], count=[2], placement=["spread"]).points) == 1
    assert anything(expanded().points[0].spec, Composition(host=1)) == ""


def test_parts_are_one_grid_with_the_points_of_each() -> None:
    parts = [
        {"placement": ["local"], "storage": ["host"], "count": [4]},
        {"placement": ["spread"], "count": [4, 8], "precision": ["fp32"]},
    ]
    each = [{"workload": ["resnet50"], "host": [NODE_A], **one} for one in parts]
    grid = validated_grid(SweepGrid.from_json({"preset": "paper", "parts": each}))
    found = expand_grid(grid, pool(executors=("simulated",)), anything).points
    assert [(one.values["placement"], one.spec.devices, one.spec.precision) for one in found] == [
        ("local", 4, "fp16"), ("spread", 4, "fp32"), ("spread", 8, "fp32"),
    ]  # fmt: skip
    assert varied_axes(grid) == ["placement", "count"]
    assert SweepGrid.from_json(grid.as_json()) == grid


def test_all_parts_together_have_no_more_combinations_than_one_grid() -> None:
    part = {"workload": ["resnet50"], "host": [NODE_A], "batch": list(range(1, 61)), "threads": list(range(60))}
    grid = SweepGrid.from_json({"parts": [part | {"accumulation": [1, 2, 3]}] * 2})
    with pytest.raises(Invalid, match="21,600 combinations"):
        validated_grid(grid)


def test_wrong_parts_and_parts_of_parts_are_refused() -> None:
    for parts, member in (([{}] * 17, "parts"), ([{"batch": [0]}], "batch"), ([{"parts": []}], "parts")):
        with pytest.raises(Invalid) as refused:
            validated_grid(SweepGrid.from_json({"parts": parts}))
        assert member in refused.value.details["errors"]
