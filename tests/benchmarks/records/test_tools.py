"""What MLPerf, nvbandwidth, nccl-tests and p2pBandwidthLatencyTest write becomes runs, or is told of by line."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import User
from benchmarks.records import mlperf, nccl, nvbandwidth, p2p
from benchmarks.records.formats import TOOL_PARSERS, detect_format
from benchmarks.records.import_files import ImportProblems, ProblemLimitReached
from benchmarks.records.schema import RunLine
from benchmarks.records.services import records_import
from benchmarks.runs.models import Run
from benchmarks.runs.recording import series_values
from hostwire.training import Spec
from tests.benchmarks.records.making import content
from tests.benchmarks.records.outputs import MLPERF, NCCL, NCCL_JSON, NVBANDWIDTH, P2P, event

TEXTS = {
    "mlperf": MLPERF, "nccl": NCCL, "nccl_json": json.dumps(NCCL_JSON), "p2p": P2P,
    "nvbandwidth": json.dumps(NVBANDWIDTH, indent=4),
}  # fmt: skip


def parsed(kind: str, text: str) -> tuple[list[RunLine], ImportProblems]:
    """Return the headers of the runs in an output, and what is wrong with it."""
    problems = ImportProblems()
    output = TOOL_PARSERS[kind](text, problems)
    return [one.header for one in output.runs], problems


@pytest.mark.parametrize("kind", TEXTS)
def test_each_is_told_from_the_others(kind: str) -> None:
    assert detect_format(content(TEXTS[kind], "output")) == kind


@pytest.mark.django_db
@pytest.mark.parametrize("kind", TEXTS)
def test_each_becomes_an_imported_run(member: User, kind: str) -> None:
    (run,) = records_import(person=member, content=content(TEXTS[kind], "output")).new
    assert (run.provenance, run.state, run.source["format"]) == ("imported", "completed", kind)
    assert run.source["provenance"] == "measured"
    assert run.results["tables"]
    # The same output once more is that run.
    again = records_import(person=member, content=content(TEXTS[kind], "again"))
    assert again.known == [run]
    assert Run.objects.count() == 1


def test_a_matrix_of_pairs_keeps_its_unit_and_its_gpus() -> None:
    (run,), problems = parsed("p2p", P2P)
    assert not problems.found
    assert run.workload == "gpu_bandwidth"
    assert run.results["tables"]["bidirectional_bandwidth_p2p_enabled"] == [[702.0, 19.1], [19.2, 703.0]]
    assert run.results["tables"]["latency_p2p_enabled"] == [[1.6, 2.6], [2.7, 1.6]]
    assert run.results["units"]["latency_p2p_enabled"] == "µs"
    # By the CPU's clock it is no latency between GPUs.
    assert run.results["tables"]["cpu_clock_p2p_enabled"] == [[2.0, 1.7], [1.8, 2.1]]
    assert run.software["accelerators"] == ["Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB"]
    # Nobody knows where they were, so that none is said to be local.
    assert run.topology == {}


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("     1  19.20 703.00\n", "     1  19.20 fast\n", 17, "'fast' is no number"),
        ("     1  19.20 703.00\n", "     1  19.20\n", 17, "1 values, and there are 2"),
        ("     1  19.20 703.00\n", "     2  19.20 703.00\n", 17, "GPU 1 is next"),
        ("     1  19.20 703.00\n", "", 14, "rows are missing"),
        ("     1   1.80   2.10\n", "", 23, "rows are missing"),
    ],
)
def test_a_broken_matrix_is_named(before: str, after: str, line: int, says: str) -> None:
    _, problems = parsed("p2p", P2P.replace(before, after))
    assert (problems.found[0].line, says in problems.found[0].sentence) == (line, True), problems.found
    assert "Matrix" in problems.found[0].field


def test_a_table_of_collectives_is_read_by_its_head() -> None:
    (run,), problems = parsed("nccl", NCCL)
    assert not problems.found
    tables = run.results["tables"]
    assert (run.workload, tables["bytes"]) == ("all_reduce", [1024, 2048])
    assert tables["busbw_out_of_place"] == [0.09, 0.17]
    assert tables["wrong_in_place"] == [0.0, None]
    assert run.results["units"]["time_in_place"] == "µs"
    assert (tables["average_bus_bandwidth"], run.software["nccl"]) == (0.13, "2.27.3")
    assert "node-1" in run.title
    # Of the oldest versions, whose rows have neither 'redop' nor 'root'.
    (old,), problems = parsed("nccl", NCCL.replace("     sum      -1", "").replace("starting", "begins"))
    assert not problems.found
    assert old.results["tables"]["time_in_place"] == [11.0, 12.1]


def test_a_row_that_is_broken_or_wrong_is_not_taken_for_right() -> None:
    _, problems = parsed("nccl", NCCL.replace("12.40", "12,40"))
    assert (problems.found[0].line, problems.found[0].field) == (14, "out_of_place.time")
    _, problems = parsed("nccl", NCCL.replace("12.10    0.17", "12.10"))
    assert "columns" in problems.found[0].sentence
    (run,), _ = parsed("nccl", NCCL.replace("values : 0 OK", "values : 3 FAILED"))
    assert (run.state, run.error) == ("failed", "3 values were out of bounds.")


def test_the_environment_of_a_test_is_not_kept() -> None:
    (run,), problems = parsed("nccl_json", json.dumps(NCCL_JSON))
    assert not problems.found
    assert "hunter2" not in repr(run)
    assert (run.workload, run.results["tables"]["time_out_of_place"]) == ("all_gather", [11.2])
    assert "time_in_place" not in run.results["tables"]


def test_tests_that_did_not_pass_are_left_out_and_named() -> None:
    problems = ImportProblems()
    output = nvbandwidth.parse(json.dumps(NVBANDWIDTH), problems)
    (found,) = output.runs
    tables = found.header.results["tables"]
    assert tables["device_to_device_memcpy_read_ce"] == [[None, 48.25], [48.25, None]]
    assert found.header.results["units"]["host_to_device_memcpy_ce"] == "GB/s"
    assert found.header.software["cuda"] == "12.4"
    assert found.header.software["accelerators"] == ["Tesla V100-SXM2-16GB"] * 2
    assert found.header.workload == "gpu_bandwidth"
    assert output.notes == ["device_to_device_latency_sm did not pass (Error) and is left out."]


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (("testcases", 1, "bandwidth_matrix", 0, 1), "fast", "nvbandwidth.testcases[1].bandwidth_matrix[0][1]"),
        (("testcases", 1, "bandwidth_matrix", 1), ["1"], "nvbandwidth.testcases[1].bandwidth_matrix[1]"),
        (("testcases", 0, "bandwidth_matrix"), [], "nvbandwidth.testcases[0].bandwidth_matrix"),
        (("testcases", 0, "name"), 3, "nvbandwidth.testcases[0].name"),
        (("testcases",), "none", "nvbandwidth.testcases"),
    ],
)
def test_a_broken_value_is_named_by_its_place(place: tuple[Any, ...], value: Any, field: str) -> None:
    whole = copy.deepcopy(NVBANDWIDTH)
    target: Any = whole["nvbandwidth"]
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = value
    _, problems = parsed("nvbandwidth", json.dumps(whole, indent=1))
    assert problems.found[0].field == field
    assert problems.found[0].line > 1


@pytest.mark.django_db
def test_a_log_of_mlperf_becomes_a_run_with_its_batch_and_durations(member: User) -> None:
    (run,) = records_import(person=member, content=content(MLPERF, "result_0.txt")).new
    assert run.workload == "resnet50"
    spec = Spec(workload="resnet50", devices=8, batch=128, warmup=0, seed=7)
    assert run.spec_hash == spec.hash
    # What the log does not say is told to be assumed.
    assert "precision" in run.source["assumed"]
    assert run.results["tables"]["run_seconds"] == 12.0
    assert run.results["tables"]["eval_accuracy"] == 0.61
    assert run.results["samples_per_second"]["value"] == pytest.approx(5100.0)
    assert run.results["step_seconds"]["value"] == pytest.approx(1024 / 5100.0)
    assert (run.results["first_loss"], run.results["last_loss"]) == (6.9, 5.1)
    assert series_values(run, ["epoch/seconds"])["epoch/seconds"][1].tolist() == [10.0]
    assert run.started_at is not None
    assert run.ended_at is not None
    assert (run.ended_at - run.started_at).total_seconds() == 12.0


def test_a_log_may_have_several_runs_and_one_that_does_not_end() -> None:
    problems = ImportProblems()
    text = f"{MLPERF}\n{MLPERF.rpartition(chr(10))[0]}"
    output = mlperf.parse(text, problems)
    assert [one.header.state for one in output.runs] == ["completed", "failed"]
    assert output.runs[1].header.trouble == "lost"
    assert output.skipped == 2
    assert not problems.found
    aborted = mlperf.parse(MLPERF.replace('"status": "success"', '"status": "aborted"'), problems).runs[0].header
    assert (aborted.state, aborted.error) == ("failed", "Its status is 'aborted'.")


@pytest.mark.parametrize(
    ("before", "after", "line", "field"),
    [
        ('"value": 0.61', '"value": "good"', 16, "value"),
        ('"value": 1024', '"value": 10.5', 4, "value"),
        ('{"throughput": 5200.0}', '{"throughput": null}', 12, "value.throughput"),
        ('"key": "run_start"', '"key": "other"', 18, "key"),
        ('"key": "epoch_start"', '"key": 3', 9, "key"),
        ('"time_ms": 1700000012000', '"time_ms": "noon"', 14, "time_ms"),
        (event("init_stop", 2), "0: :::MLLOG {broken", 7, ""),
    ],
)
def test_a_broken_event_is_named(before: str, after: str, line: int, field: str) -> None:
    assert before in MLPERF
    _, problems = parsed("mlperf", MLPERF.replace(before, after, 1))
    assert (problems.found[0].line, problems.found[0].field) == (line, field), problems.found


def test_without_a_count_of_devices_there_is_no_specification() -> None:
    (run,), _ = parsed("mlperf", MLPERF.replace("8xV100", "a machine"))
    assert (run.spec, run.spec_hash) == ({}, "")
    assert run.results["tables"]["mlperf"]["global_batch_size"] == 1024


@given(st.sampled_from(list(TOOL_PARSERS)), st.text(max_size=200), st.integers(0, 2000))
def test_no_text_stops_a_parser(kind: str, text: str, place: int) -> None:
    whole = TEXTS[kind]
    for one in (text, whole[:place] + text + whole[place + len(text) :]):
        with suppress(ProblemLimitReached):
            TOOL_PARSERS[kind](one, ImportProblems())


def test_versions_of_nccl_are_told_as_people_write_them() -> None:
    assert [nccl._version_text(one) for one in (22005, 2804, 0)] == ["2.20.5", "2.8.4", ""]
    assert p2p.parse("", ImportProblems()).runs == []
