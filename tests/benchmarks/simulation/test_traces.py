"""Traces of Chakra are read, refused with a sentence, and played on a topology."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.model import ModelError
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.simulation.chakra import MAX_TRACE_BYTES, Trace, TraceError, TraceNode, read_trace
from benchmarks.simulation.trace import TraceSimulation, simulate_trace
from falconweb.config import BASE_DIR
from tests.benchmarks.simulation.traces import COLLECTIVE, COMPUTE, LOAD, SEND, as_json, binary, node, varint

FALCON = PAPER_TOPOLOGIES["falconGPUs"]
LOCAL = PAPER_TOPOLOGIES["localGPUs"]


def step() -> list[Any]:
    """Return a step: forward, two layers backward, each with its all-reduce, and the optimiser behind both."""
    return [
        node(0, COMPUTE, 10_000, is_cpu_op=False),
        node(1, COMPUTE, 20_000, 0, is_cpu_op=False),
        node(2, COLLECTIVE, 0, 1, comm_type=0, comm_size=400_000_000),
        node(3, COMPUTE, 20_000, 1, is_cpu_op=False),
        node(4, COLLECTIVE, 0, 3, comm_type="ALL_REDUCE", comm_size=100_000_000),
        node(5, COMPUTE, 5_000, 2, 4, is_cpu_op=False),
    ]


def played(nodes: list[Any], devices: int = 8, topology: Any = FALCON) -> TraceSimulation:
    return simulate_trace(read_trace(binary(*nodes)), topology, devices)


def refusal(content: bytes) -> str:
    with pytest.raises(TraceError) as error:
        read_trace(content)
    return error.value.sentence


def test_protobuf_and_json_are_the_same_trace() -> None:
    trace = read_trace(binary(*step()))
    assert trace == read_trace(as_json(*step()))
    assert [one.kind for one in trace.nodes] == ["compute", "compute", "collective", "compute", "collective", "compute"]
    assert trace.nodes[5] == TraceNode("compute", 0.005, 0.0, (2, 4))
    assert trace.collective_bytes == {"all_reduce": 5e8}
    # Metadata without a version, a trace without any, and a list in place of objects behind each other.
    assert read_trace(binary(*step(), version="")) == trace
    listed = json.dumps([json.loads(part) for part in as_json(*step()).decode().replace("}{", "}\n\n{").split("\n\n")])
    assert read_trace(listed.encode()) == trace


def test_what_overlaps_is_not_waited_for() -> None:
    alone = played(step(), devices=1)
    assert alone.seconds == pytest.approx(0.055)
    assert (alone.exchanged, alone.sent) == (0.0, 0.0)
    found = played(step())
    assert found.computed == pytest.approx(0.055)
    assert found.sent == pytest.approx(2 * 7 / 8 * 5e8)
    assert found.exposed == pytest.approx(found.seconds - 0.055)
    # The first exchange runs beside 20 ms of computing.
    assert found.exposed == pytest.approx(found.exchanged - 0.020)


def test_the_links_decide_how_long_an_exchange_takes() -> None:
    assert played(step(), topology=LOCAL).seconds < played(step()).seconds
    gathered = [node(0, COLLECTIVE, 0, comm_type=2, comm_size=400_000_000)]
    reduced = [node(0, COLLECTIVE, 0, comm_type=0, comm_size=400_000_000)]
    assert played(reduced).seconds == pytest.approx(2 * played(gathered).seconds, rel=0.02)
    sent = [node(0, SEND, 0, comm_size=400_000_000)]
    assert played(sent).sent == 4e8
    loaded = played([node(0, LOAD, 0, tensor_size=1_000_000_000)])
    assert loaded.seconds == pytest.approx(1e9 / 12e9, rel=0.4)


def test_streams_work_side_by_side_and_each_for_itself() -> None:
    host = [node(number, COMPUTE, 10_000, is_cpu_op=True) for number in range(3)]
    kernels = [node(number, COMPUTE, 10_000, is_cpu_op=False) for number in range(3, 6)]
    assert played(host + kernels).seconds == pytest.approx(0.030)
    chain = [node(0, COMPUTE, 10_000, is_cpu_op=True), node(1, COMPUTE, 10_000, 0, is_cpu_op=False)]
    assert played(chain).seconds == pytest.approx(0.020)
    # A collective without bytes takes its own time.
    assert played([node(0, COLLECTIVE, 7_000)]).seconds == pytest.approx(0.007)


def test_more_devices_than_there_are_are_refused() -> None:
    for devices in (0, 9):
        with pytest.raises(ModelError, match=r"the topology has 8"):
            played(step(), devices=devices)


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (lambda: [node(1, COMPUTE, 1, 2), node(2, COMPUTE, 1, 1)], "in a circle"),
        (lambda: [node(1, COMPUTE, 1, 1)], "in a circle"),
        (lambda: [node(1, COMPUTE, 1, 9)], "node 9, which is not there"),
        (lambda: [node(1, COMPUTE), node(1, COMPUTE)], "Node 1 is there twice"),
        (lambda: [node(1, COLLECTIVE, comm_size=-5)], "impossible number of bytes"),
        (lambda: [node(1, COLLECTIVE, comm_size=float("nan"))], "impossible number of bytes"),
        (lambda: [node(1, COLLECTIVE, comm_size="many")], "impossible number of bytes"),
        (lambda: [node(1, COLLECTIVE, comm_type=77, comm_size=1)], "unknown kind"),
        (lambda: [node(1, COMPUTE, 2**63)], "more than a day"),
        (list, "has no nodes"),
    ],
)
def test_what_is_no_step_is_refused_with_a_sentence(nodes: Any, sentence: str) -> None:
    assert sentence in refusal(binary(*nodes()))


def test_what_is_no_trace_is_refused_with_a_sentence() -> None:
    assert "larger than" in refusal(b" " * (MAX_TRACE_BYTES + 1))
    assert "is no JSON" in refusal(b'{"id": 1')
    assert "nests too deeply" in refusal(b"[" * 100_000)
    assert "another type" in refusal(b'{"id": {}, "type": "COMP_NODE"}')
    assert "another type" in refusal(b'{"id": 1, "type": "COMP_NODE", "attr": 7}')
    assert "is no object" in refusal(b"[1]")
    assert "not UTF-8" in refusal(b'{"id": "\xff"}')
    assert "no trace" in refusal(b"\xff" * 100)
    assert "cut off" in refusal(binary(*step())[:-3])
    assert "no nodes" in refusal(b"")
    # A node with more dependencies than a trace may have, in few bytes each.
    many = b"\x08\x01\x18\x04\x2a" + varint(1_500_000) + b"\x01" * 1_500_000
    assert "1,000,000 dependencies" in refusal(varint(len(many)) + many)
    nodes = [b"\x18\x04\x08" + varint(number) for number in range(100_001)]
    assert "100,000 nodes" in refusal(b"".join(varint(len(one)) + one for one in nodes))


@given(st.binary(max_size=200))
@example(b"\x02\x08\x01")
@settings(max_examples=200)
def test_any_bytes_are_a_trace_or_are_refused(content: bytes) -> None:
    with suppress(TraceError):
        assert isinstance(read_trace(content), Trace)


def test_the_command_plays_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "step.et"
    file.write_bytes(binary(*step()))
    topology = f"--topology={BASE_DIR / 'docs/topologies/falconGPUs.json'}"
    out = io.StringIO()
    call_command("simulate", f"--trace={file}", topology, "--json", stdout=out)
    assert json.loads(out.getvalue())["devices"] == 8
    out = io.StringIO()
    call_command("simulate", f"--trace={file}", topology, "--devices=4", stdout=out)
    assert "A trace of 6 nodes on 4 devices" in out.getvalue()
    assert "all_reduce: 0.500 GB" in out.getvalue()
    file.write_bytes(b"\xff" * 20)
    errors = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("simulate", f"--trace={file}", topology, stdout=out, stderr=errors)
    assert ended.value.code == 3
    assert "step.et: A number at byte" in errors.getvalue()
