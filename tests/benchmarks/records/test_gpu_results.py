"""Records of runs without a site are read by a site."""

from __future__ import annotations

import msgspec

from benchmarks.model.topology import Accelerator, Topology
from benchmarks.records.import_files import ImportFile, ImportProblems
from benchmarks.records.jsonl import read_record_lines
from benchmarks.records.schema import RunLine, SeriesLine
from benchmarks.runs.results import Summary
from hostwire.training import PhaseStarted, RunEvent, RunReading, RunResult, RunStarted, Software, StepsCompleted
from perf.gpu_results import RecordedRun, planned


def test_every_published_workload_is_planned_on_one_gpu_in_each_precision_and_two_on_files() -> None:
    runs = list(planned(cpu=False))
    assert {spec.devices for _title, spec in runs} == {1}
    assert len({(spec.workload, spec.precision) for _title, spec in runs if spec.data == "random"}) == 15
    assert {(spec.workload, spec.loader_workers) for _title, spec in runs if spec.data == "files"} == {
        (name, loaders) for name in ("mobilenet_v2", "yolov5l") for loaders in (1, 4, 8)
    }
    assert len({spec.hash for _title, spec in runs}) == len(runs) == 21


def test_a_record_of_a_run_without_a_site_is_read_whole() -> None:
    title, spec = next(planned(cpu=False))
    events: list[RunEvent] = [
        RunStarted(at=1e9, software=Software(python="3.12", framework="torch 2.11.0")),
        PhaseStarted(at=1e9 + 1, name="timed"),
        RunReading(at=1e9 + 1.4, interval=0.0, source="nvidia-smi", values={"gpu/0000:41:00.0/utilisation": 0.9}),
        StepsCompleted(at=1e9 + 2, phase="timed", first=0, seconds=(0.5, 0.25, 0.25), loss=(6.9, None, 6.8)),
        RunResult(at=1e9 + 3, values={"peak_memory": 2e9}, units={"peak_memory": "B"}),
    ]
    run = RecordedRun(
        title=title, preset="paper", spec=spec, topology=Topology(accelerators=(Accelerator(name="1", model="H100"),)),
        events=events, code=0, log="done\n",
    )  # fmt: skip
    problems = ImportProblems()
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in run.lines())
    lines = [line for _number, line in read_record_lines(ImportFile(data=content), problems)]
    assert problems.found == []
    header = lines[0]
    assert isinstance(header, RunLine)
    summary = msgspec.convert(header.results, Summary)
    assert summary.step_seconds is not None
    assert (summary.step_seconds.value, summary.step_seconds.count) == (0.25, 3)
    assert summary.readings["utilisation"].value == 0.9
    series = {line.key: line.values for line in lines if isinstance(line, SeriesLine)}
    assert series["steps/timed/loss"] == (6.9, None, 6.8)
    assert "| 64 | 250.00 | 250.00 to 475.00 | 192 | 2.0 | 90% |  |" in run.row()
