"""What a pool can be composed to, against every subset of its devices with the rules asked for each."""

from __future__ import annotations

import pytest

from benchmarks.recommend.layouts import Layout
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.request import Constraints
from benchmarks.recommend.search import search_layouts
from fabric.plans.rules import plan_steps
from tests.benchmarks.recommend.pools import A100, V100, Signature, any_pool, drawer, every_signature, pool_of


def signature(layout: Layout, host: int) -> Signature:
    places = tuple(
        sorted(
            ((one.uplink, tuple(sorted((kind.model, count) for kind, count in one.held))) for one in layout.places),
            key=str,
        )
    )
    return (host, layout.local, places)


def told_apart(pool: RecommendationPool) -> set[Signature]:
    """What the search finds, each host by itself: hosts that are alike stand for each other otherwise."""
    return {
        signature(layout, host)
        for host in pool.hosts
        for layout in search_layouts(pool, Constraints(hosts=frozenset({host}))).layouts
    }


@pytest.mark.parametrize("seed", range(16))
def test_the_search_finds_exactly_what_all_subsets_come_to(seed: int) -> None:
    pool = any_pool(seed)
    assert told_apart(pool) == every_signature(pool)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 200))
def test_the_search_finds_exactly_what_all_subsets_come_to_on_larger_pools(seed: int) -> None:
    pool = any_pool(seed, devices=7)
    assert told_apart(pool) == every_signature(pool)


@pytest.mark.parametrize("seed", range(16))
def test_every_layout_can_be_planned_and_takes_only_what_is_free(seed: int) -> None:
    pool = any_pool(seed, devices=9)
    found = search_layouts(pool, Constraints())
    assert found.exact
    for layout in found.layouts:
        wanted = layout.desired_state(pool)
        planned = plan_steps(pool.drawers, wanted)
        assert not planned.objections
        assert set(wanted.attachments) <= set(pool.devices)
        assert set(wanted.modes) <= pool.modes
        assert len(planned.steps) == layout.changes[1]
        ports = {port.id: port.host for one in pool.drawers for port in one.ports}
        attachments = layout.attachments(pool)
        assert {ports[port] for port in attachments.values()} <= {layout.host.id}
        assert len(attachments) + layout.local == layout.count == len(layout.topology().accelerators)
        assert [one.model for one in layout.named_topology(pool).accelerators[layout.local :]] == [
            pool.devices[device].kind.model for device in attachments
        ]


def test_devices_that_are_there_already_are_taken_first() -> None:
    pool = pool_of([{"name": "a"}], [drawer(1, ports=["a", "a"], devices="VV2VVVVVV")])
    best = next(one for one in search_layouts(pool, Constraints(most_devices=1)).layouts if one.changes == (0, 0))
    assert best.desired_state(pool).attachments == {}
    assert best.attachments(pool) == {1002: 102}


def test_limits_are_kept_by_every_layout() -> None:
    pool = pool_of(
        [{"name": "a", "local_gpus": 4}, {"name": "b", "local_gpus": 1}],
        [drawer(1, ports=["a", "b"], devices="VVAAV2V2..", mode="StandardTwoHosts")],
    )
    every = search_layouts(pool, Constraints()).layouts
    assert {one.host.name for one in every} == {"a", "b"}
    assert any(one.changes[0] for one in every)

    def left(**limits: object) -> tuple[Layout, ...]:
        found = search_layouts(pool, Constraints(**limits)).layouts  # type: ignore[arg-type]
        assert found
        return found

    assert all(3 <= one.count <= 4 for one in left(least_devices=3, most_devices=4))
    assert {one.host.id for one in left(hosts=frozenset({2}))} == {2}
    assert all(
        set(one.kinds) <= {kind for kind in one.kinds if kind.model == A100} for one in left(models=frozenset({A100}))
    )
    assert not any(one.changes[0] for one in left(same_mode=True))
    assert all(len({kind.model for kind in one.kinds}) == 1 for one in left(one_model=True))
    assert all(one.places == () for one in left(gpus="local"))
    assert all(one.local == 0 for one in left(gpus="chassis"))
    assert all((one.local > 0) + len(one.places) == 1 for one in left(one_place=True))
    kept = frozenset({1005, 1006})
    for one in left(keep=kept):
        assert not kept & set(one.desired_state(pool).attachments)
    assert V100 in {kind.model for one in every for kind in one.kinds}


def test_a_drive_is_taken_once_and_only_where_storage_is_asked_for() -> None:
    pool = pool_of(
        [{"name": "a", "local_gpus": 1}], [drawer(1, ports=["a"], devices="VN"), drawer(2, ports=["a"], devices="N")]
    )
    assert all(one.storage(pool) is None for one in search_layouts(pool, Constraints()).layouts)
    with_drive = search_layouts(pool, Constraints(storage="chassis")).layouts
    assert with_drive
    assert all(one.storage(pool) is not None for one in with_drive)
    both = search_layouts(pool, Constraints(storage="any")).layouts
    assert len(both) == len(with_drive) + len(search_layouts(pool, Constraints()).layouts)
    for one in with_drive:
        topology = one.named_topology(pool)
        assert topology.storage.place in topology.uplinks


def test_a_large_pool_is_cut_down_and_says_so() -> None:
    pool = pool_of(
        [{"name": "a", "local_gpus": 8}],
        [drawer(nth, ports=["a", "a"], devices="VVVVAAAA", chassis=f"falcon-{nth}") for nth in range(1, 9)],
    )
    found = search_layouts(pool, Constraints())
    assert not found.exact
    assert {one.count for one in found.layouts} >= {1, 8, 16, 72}
    assert not any(plan_steps(pool.drawers, one.desired_state(pool)).objections for one in found.layouts[::50])
