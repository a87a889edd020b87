"""PCIe transfer by workload, and how GPUs reach each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.figures.bandwidth import (
    BOTH,
    FALCON_LOCAL,
    FALCONS,
    FROM,
    LOCALS,
    PLACES_NOT_RECORDED,
    TO,
    gpu_pair_charts,
    traffic_by_workload,
)
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.runs.results import Summary
from tests.benchmarks.figures.making import EPOCH, figure, pairs, row, topology

AT = EPOCH + np.arange(20.0)


def links(to: float, back: float) -> dict[str, Any]:
    return {
        f"link/{name}/{way}": (AT, np.full(20, value))
        for name in ("device-1", "device-2", "uplink-4")
        for way, value in (("pcie_to", to), ("pcie_from", back))
    }


def test_both_directions_are_told_apart_and_together_in_gigabytes_a_second_over_all_devices() -> None:
    drawn = traffic_by_workload([row(place="falconGPUs", series=links(2e9, 1e9))])
    assert {one.group: one.value for one in drawn.marks} == pytest.approx({TO: 4.0, FROM: 2.0, BOTH: 6.0})
    assert drawn.y.words == "PCIe transfer (GB/s)"


def test_only_the_timed_steps_count() -> None:
    values = np.where(AT < EPOCH + 10, 9e9, 1e9)
    series = {f"link/device-1/{way}": (AT, values) for way in ("pcie_to", "pcie_from")}
    series["phase/timed"] = (np.array([EPOCH + 10]), np.ones(1))
    drawn = traffic_by_workload([row(place="falconGPUs", series=series)])
    assert next(one.value for one in drawn.marks if one.group == TO) == pytest.approx(1.0)


def test_a_moment_of_which_a_link_is_missing_tells_too_little_and_is_left_out() -> None:
    series = links(2e9, 1e9)
    series["link/device-2/pcie_to"] = (AT[:5], np.full(5, 2e9))
    drawn = traffic_by_workload([row(place="falconGPUs", series=series)])
    assert next(one for one in drawn.marks if one.group == TO).count == 5


def test_what_gpus_count_themselves_is_no_mark_of_what_the_chassis_counted() -> None:
    own = Summary(readings={name: figure(1e9, unit="B/s") for name in ("pcie_to", "pcie_from")})
    drawn = traffic_by_workload(
        [row("1", place="falconGPUs", series=links(2e9, 1e9)), row("2", place="falconGPUs", summary=own)]
    )
    assert {one.group for one in drawn.marks if one.runs == ("2",)} == {
        f"{way}, as GPUs count it" for way in (TO, FROM, BOTH)
    }
    local = traffic_by_workload([row("3", summary=own)])
    assert all("local GPUs by their own count" in one.group for one in local.marks)


def test_a_sum_alone_is_drawn_as_a_sum_and_said_to_be() -> None:
    drawn = traffic_by_workload([row(place="falconGPUs", summary=Summary(pcie=figure(11e9, 10e9, 12e9, unit="B/s")))])
    assert [one.group for one in drawn.marks] == [BOTH]
    assert "only the sum" in drawn.notes[-1]


def tables(matrix: Any, latency: Any = None, unit: str = "GB/s", **more: Any) -> Summary:
    found = {"bandwidth": matrix, **({"latency": latency} if latency else {}), **more}
    return Summary(tables=found, units={"bandwidth": unit, "latency": "µs"})


def test_pairs_are_told_by_where_their_two_gpus_are() -> None:
    hybrid = PAPER_TOPOLOGIES["hybridGPUs"]
    bandwidth, latency = gpu_pair_charts(
        [row(workload="gpu_bandwidth", place=hybrid, summary=tables(pairs(hybrid), pairs(hybrid)))]
    )
    assert {one.x: (one.value, one.count) for one in bandwidth.marks} == {
        LOCALS: (72.0, 12), FALCON_LOCAL: (19.5, 32), FALCONS: (24.0, 12),
    }  # fmt: skip
    assert {one.group for one in bandwidth.marks} == {"both ways together"}
    assert "bidirectional" in bandwidth.caption
    assert latency.y.unit == "µs"


def test_published_figures_are_marks_of_their_own_on_request_alone() -> None:
    assert all(one.is_empty for one in gpu_pair_charts([]))
    bandwidth, latency = gpu_pair_charts([], published=True)
    assert [one.value for one in bandwidth.marks] == [72.37, 19.64, 24.47]
    assert [one.value for one in latency.marks] == [1.85, 2.66, 2.08]
    assert {one.provenance for one in (*bandwidth.marks, *latency.marks)} == {"published"}


def test_units_are_turned_into_those_of_the_axis() -> None:
    two = topology(local=2)
    drawn, _ = gpu_pair_charts(
        [row(workload="gpu_bandwidth", place=two, summary=tables([[None, 7e4], [7e4, None]], unit="MB/s"))]
    )
    assert drawn.marks[0].value == pytest.approx(70.0)


def test_a_table_under_two_names_counts_once_and_other_tables_are_groups_of_their_own() -> None:
    two = topology(local=2)
    matrix = [[900.0, 70.0], [71.0, 900.0]]
    one_way = [[900.0, 35.0], [35.0, 900.0]]
    summary = tables(matrix, bidirectional_p2p_enabled=matrix, unidirectional_p2p_enabled=one_way)
    drawn, _ = gpu_pair_charts([row(workload="gpu_bandwidth", place=two, summary=summary)])
    assert {one.group: (one.value, one.count) for one in drawn.marks} == {
        "both ways together": (70.5, 2), "unidirectional p2p enabled": (35.0, 2),
    }  # fmt: skip


def test_messages_between_processes_are_no_gpus_bandwidth() -> None:
    drawn, _ = gpu_pair_charts(
        [row(workload="gpu_bandwidth", place=topology(), summary=tables([[None, 7.0], [7.0, None]]))]
    )
    assert [one.x for one in drawn.marks] == ["processes on the CPU"]


def test_an_imported_table_whose_gpus_nobody_knows_says_so() -> None:
    drawn, _ = gpu_pair_charts(
        [row(provenance="imported", workload="gpu_bandwidth", place=None, summary=tables([[None, 7.0], [7.0, None]]))]
    )
    assert [(one.x, one.provenance) for one in drawn.marks] == [(PLACES_NOT_RECORDED, "imported")]


@pytest.mark.parametrize(
    "table", [[[1.0]], [[1.0, 2.0]], "words", {"a": 1}, [[1, "x"], [2, 3]], [1.0, 2.0], None, [[], []]]
)
def test_what_is_no_table_of_pairs_is_left_alone(table: Any) -> None:
    drawn, _ = gpu_pair_charts([row(workload="gpu_bandwidth", place=topology(local=2), summary=tables(table))])
    assert drawn.is_empty
    assert "without a table of pairs" in drawn.notes[0]
