"""Runs as they are after they ended, with samples and a log; and their records as bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from accounts.models import Tenant, User
from benchmarks.records.import_files import ImportFile
from benchmarks.records.services import ExportFilter, records_download
from benchmarks.runs.models import LogPart, Run
from benchmarks.runs.recording import series_append
from benchmarks.runs.results import Statistic, Summary
from hostwire.training import Software, Spec

SPEC = Spec(workload="resnet50", devices=2, batch=4, steps=3, warmup=1, backend="cpu", options={"image": 32})
TOPOLOGY = {
    "name": "two of a drawer", "host": "node-1", "cores": 40,
    "accelerators": [{"name": "GPU 1", "model": "V100-SXM2-16GB", "place": "falcon-1/drawer 1/H1"}],
    "uplinks": {"falcon-1/drawer 1/H1": {"lanes": 16, "generation": 3}},
}  # fmt: skip
MOMENT = datetime(2026, 11, 20, 8, 30, 0, 123456, tzinfo=UTC)


def ended_run(tenant: Tenant | None, **given: Any) -> Run:
    """Make a run that was measured, without samples."""
    values: dict[str, Any] = {
        "title": "ResNet-50 on two GPUs", "state": "completed", "workload": SPEC.workload, "preset": "tiny",
        "spec": msgspec.to_builtins(SPEC), "spec_hash": SPEC.hash, "executor": "torch", "provenance": "measured",
        "topology": TOPOLOGY, "software": msgspec.to_builtins(Software(python="3.11", framework="torch 2.13.0")),
        "results": msgspec.to_builtins(
            Summary(step_seconds=Statistic(value=0.25, low=0.2, high=0.3, unit="s", count=3), first_loss=6.9)
        ),
        "exit_code": 0, "steps_done": 3, "started_at": MOMENT, "ended_at": MOMENT, "finished_at": MOMENT,
        "requested_by_name": "bob", "tenant": tenant,
    }  # fmt: skip
    return Run.objects.create(**(values | given))


def sampled_run(tenant: Tenant | None, **given: Any) -> Run:
    """Make a run with steps, telemetry of PCIe in both directions, and a log."""
    run = ended_run(tenant, **given)
    steps = [1000.0, 1000.25, 1000.5]
    series_append(run, "steps/timed/seconds", at=steps, values=[0.25, 0.1 + 0.2, float("nan")], unit="s")
    for way in ("pcie_to", "pcie_from"):
        series_append(
            run, f"gpu/0000:41:00.0/{way}", at=steps, values=[1e9, 2e9, 3e9], unit="B/s", source="nvml", interval=0.02
        )
    LogPart.objects.create(run=run, first=0, text="step 1\nstep 2 ✓\n")
    return run


def exported(person: User, *runs: Run, kind: str = "jsonl") -> bytes:
    """Return the export of runs as it is sent."""
    wanted = ExportFilter(runs=tuple(str(run.pk) for run in runs))
    return b"".join(records_download(person=person, wanted=wanted, kind=kind))


def content(data: bytes | str, name: str = "runs.jsonl") -> ImportFile:
    """Return bytes as a file."""
    return ImportFile(data=data.encode() if isinstance(data, str) else data, name=name)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """Return the lines of JSON Lines."""
    return [json.loads(line) for line in data.splitlines()]


def written(lines: list[dict[str, Any]]) -> bytes:
    """Return JSON Lines of them."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def without_path(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a record without its id, and without what tells where it has been."""
    gone = {"id", "run", "provenance", "executor", "source"}
    return [{k: v for k, v in line.items() if k not in gone or (k == "source" and "key" in line)} for line in lines]
