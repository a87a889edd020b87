"""`python -m perf.gpu_results`: the five published workloads on one GPU, as records and a table.

Needs PyTorch, transformers, msgspec, NumPy and Pillow, but neither Django nor a site. Each run is one of the trainer,
as a host makes it. What is written: `NAME.jsonl`, which a site imports (docs/records.md), and `NAME.md`, the summary.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.model.topology import Accelerator, PcieLink, Storage, Topology
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import (
    READINGS,
    SCRATCH_VARIABLE,
    PhaseStarted,
    RunEvent,
    RunFailed,
    RunReading,
    RunResult,
    RunStarted,
    Spec,
    StepsCompleted,
    event_decoder,
)
from perf.gpu_load import LoadMonitor

HOME: Final = Path(__file__).resolve().parent.parent
PUBLISHED: Final = ("mobilenet_v2", "resnet50", "yolov5l", "bert_base", "bert_large")
ON_FILES: Final = ("mobilenet_v2", "yolov5l")  # the smallest and the largest pictures
LOADERS: Final = (1, 4, 8)
FILES: Final = {"mobilenet_v2": 1024, "yolov5l": 384}
RECORD_FORMAT: Final = "falconweb.record/1"  # benchmarks.records.schema, which needs Django
VALUES_A_LINE: Final = 1000
LONGEST_RUN: Final = 120  # s


def planned(cpu: bool) -> Iterator[tuple[str, Spec]]:
    """Yield the runs with a title each, what matters most first; on the CPU tiny ones, to try the script."""
    preset = "tiny" if cpu else "paper"
    common: dict[str, Any] = {"devices": 1, "strategy": "single"}
    random = {"data": "random", "samples": 0, "validate_every": 0, "steps": 40, "warmup": 10}

    def in_memory(precision: str) -> Iterator[tuple[str, Spec]]:
        for name in PUBLISHED:
            spec = spec_of(name, preset, common | random | {"precision": precision})
            yield f"{CATALOGUE[name].title}, {precision}", spec

    for precision in ("fp32",) if cpu else ("fp16", "fp32"):
        yield from in_memory(precision)
    for name in ON_FILES:
        for loaders in LOADERS[:2] if cpu else LOADERS:
            files = {"samples": 64 if cpu else FILES[name], "validate_every": 1000, "loader_workers": loaders}
            spec = spec_of(name, preset, common | files | {"steps": 20, "warmup": 5})
            yield f"{CATALOGUE[name].title}, {spec.precision}, files, loaders: {loaders}", spec
    if not cpu:
        yield from in_memory("bf16")


def main() -> int:
    """Make the runs; returns 0 if all that were begun succeeded."""
    reader = argparse.ArgumentParser(prog="perf.gpu_results", description=(__doc__ or "").splitlines()[0])
    reader.add_argument("--output", type=Path, default=HOME / "docs/results", help="the folder of the two files")
    reader.add_argument("--limit", type=float, default=280, help="seconds after which no run is begun")
    parts = ("fp16", "fp32", "files", "bf16")
    reader.add_argument("--only", choices=parts, help="this part of the runs, in two files of its own")
    reader.add_argument("--cpu", action="store_true", help="tiny runs on the CPU, to try this program")
    given = reader.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    gpu = _gpu()
    name = f"{(gpu.get('name') or platform.machine()).lower().replace(' ', '-')}-{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    name += f"-{given.only}" if given.only else ""
    runs = [
        (title, spec)
        for title, spec in planned(given.cpu)
        if given.only in {None, "files" if spec.data == "files" else spec.precision}
    ]
    records = given.output / f"{name}.jsonl"
    records.unlink(missing_ok=True)
    rows, left_out, software = [], [], None
    with tempfile.TemporaryDirectory(dir=os.environ.get(SCRATCH_VARIABLE)) as scratch:
        for number, (title, spec) in enumerate(runs):
            if time.monotonic() - began > given.limit:
                left_out.append(title)
                continue
            events, code, log = _carry_out(spec, Path(scratch), number)
            run = RecordedRun(
                title=title, preset="tiny" if given.cpu else "paper", spec=spec, topology=_topology(gpu, spec),
                events=events, code=code, log=log,
            )  # fmt: skip
            with records.open("ab") as file:
                file.writelines(msgspec.json.encode(line) + b"\n" for line in run.lines())
            rows.append(run.row())
            software = software or run.software
            sys.stdout.write(f"{time.monotonic() - began:5.0f} s  {rows[-1]}\n")
            sys.stdout.flush()
    (given.output / f"{name}.md").write_text(_summary(name, gpu, software or {}, rows, left_out))
    return 0 if all("failed" not in row for row in rows) else 1


@dataclass
class Column:
    """A series of a record."""

    unit: str = ""
    source: str = ""
    interval: float = 0.0
    at: list[float] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)

    @property
    def known(self) -> list[float]:
        """Its values, without those that are missing."""
        return [value for value in self.values if value is not None]


@dataclass(kw_only=True)
class RecordedRun:
    """One run: its specification, its events in order, its exit code and its log."""

    title: str
    preset: str
    spec: Spec
    topology: Topology
    events: list[RunEvent]
    code: int
    log: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    series: dict[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for event in self.events:
            self._add(event)

    def _add(self, event: RunEvent) -> None:
        """Put an event into series, by the keys that a site records it under."""
        match event:
            case PhaseStarted():
                self._append(f"phase/{event.name}", Column("s"), [event.at], [event.at])
            case StepsCompleted():
                ends = (event.at - np.append(np.cumsum(event.seconds[::-1])[::-1][1:], 0.0)).tolist()
                self._append(f"steps/{event.phase}/seconds", Column("s"), ends, event.seconds)
                if event.loss:
                    self._append(f"steps/{event.phase}/loss", Column(), ends[: len(event.loss)], event.loss)
            case RunReading():
                for name, value in event.values.items():
                    unit = READINGS.get(name.rpartition("/")[2], ("", ""))[0]
                    self._append(name, Column(unit, event.source, event.interval), [event.at], [value])
            case _:
                pass

    def _append(self, key: str, new: Column, at: list[float], values: Iterable[float | None]) -> None:
        column = self.series.setdefault(key, new)
        column.at += at
        column.values += [None if value is None or not np.isfinite(value) else value for value in values]

    @property
    def software(self) -> dict[str, Any]:
        """What it ran on."""
        found = next((event.software for event in self.events if isinstance(event, RunStarted)), None)
        return msgspec.to_builtins(found) if found is not None else {}

    @property
    def failure(self) -> RunFailed | None:
        return next((event for event in self.events if isinstance(event, RunFailed)), None)

    def seconds(self) -> list[float]:
        """Return the seconds of the timed steps."""
        return self.series.get("steps/timed/seconds", Column()).known

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of its record, as docs/records.md has them."""
        failure, times = self.failure, [event.at for event in self.events]
        moments = (
            [dt.datetime.fromtimestamp(at, dt.UTC).isoformat() for at in (min(times), max(times))] if times else []
        )
        header = {
            "kind": "run", "format": RECORD_FORMAT, "id": self.id, "title": self.title, "workload": self.spec.workload,
            "preset": self.preset, "provenance": "measured", "executor": "torch",
            "state": "failed" if self.code else "completed", "trouble": failure.what if failure else "",
            "error": failure.sentence if failure else "", "exit_code": self.code, "steps_done": len(self.seconds()),
            "spec": msgspec.to_builtins(self.spec), "spec_hash": self.spec.hash,
            "topology": msgspec.to_builtins(self.topology), "software": self.software, "results": self._results(),
        }  # fmt: skip
        yield header | (dict(zip(("started_at", "ended_at"), moments, strict=True)) if moments else {})
        count = 1
        for key, column in self.series.items():
            for first in range(0, len(column.values), VALUES_A_LINE):
                part = slice(first, first + VALUES_A_LINE)
                count += 1
                yield {
                    "kind": "series", "run": self.id, "key": key, "unit": column.unit, "source": column.source,
                    "interval": column.interval, "first": first, "at": column.at[part], "values": column.values[part],
                }  # fmt: skip
        yield {"kind": "log", "run": self.id, "first": 0, "text": self.log[-32000:]}
        yield {"kind": "end", "run": self.id, "lines": count + 1}

    def _results(self) -> dict[str, Any]:
        """Return its figures as benchmarks.runs.results.Summary has them."""
        tables: dict[str, Any] = {}
        units: dict[str, str] = {}
        for event in self.events:
            if isinstance(event, RunResult):
                tables, units = tables | event.values, units | event.units
        seconds = np.array(self.seconds())
        found: dict[str, Any] = {"tables": tables, "units": units}
        if len(seconds):
            found["step_seconds"] = _statistic(seconds, "s")
            found["samples_per_second"] = _statistic(self.spec.global_batch / seconds, "1/s")
        if loss := self.series.get("steps/timed/loss", Column()).known:
            found |= {"first_loss": loss[0], "last_loss": loss[-1]}
        readings = {name: np.array(values) for name, values in self._timed_readings().items()}
        found["readings"] = {
            name: _statistic(values, READINGS[name][0], value=float(values.mean())) for name, values in readings.items()
        }
        return found

    def _timed_readings(self) -> dict[str, list[float]]:
        """Return the readings of all devices in the timed steps, by the last part of their name."""
        timed = self.series.get("phase/timed", Column()).at[:1] + self.series.get("steps/timed/seconds", Column()).at
        found: dict[str, list[float]] = defaultdict(list)
        for key, column in self.series.items():
            if timed and (name := key.rpartition("/")[2]) in READINGS:
                found[name] += [
                    value
                    for moment, value in zip(column.at, column.values, strict=True)
                    if value is not None and timed[0] <= moment <= timed[-1]
                ]
        return {name: values for name, values in found.items() if values}

    def row(self) -> str:
        """Return its row of the summary."""
        seconds = self.seconds()
        if self.code or not seconds:
            reason = self.failure.sentence if self.failure else f"exit code {self.code}"
            return f"| {self.title} | {self.spec.batch} | failed: {reason} | | | | | |"
        results = self._results()
        shares = {name: figure["value"] for name, figure in results["readings"].items()}
        busy = f"{shares['utilisation']:.0%}" if "utilisation" in shares else ""
        memory = f"{shares['memory_share']:.0%}" if "memory_share" in shares else ""
        low, high = results["step_seconds"]["low"], results["step_seconds"]["high"]
        return (
            f"| {self.title} | {self.spec.batch} | {statistics.median(seconds) * 1000:.2f} | {low * 1000:.2f} to "
            f"{high * 1000:.2f} | {self.spec.global_batch * len(seconds) / sum(seconds):.0f} | "
            f"{results['tables'].get('peak_memory', 0) / 1e9:.1f} | {busy} | {memory} |"
        )


def _statistic(values: np.ndarray[Any, Any], unit: str, *, value: float | None = None) -> dict[str, Any]:
    low, middle, high = (float(one) for one in np.percentile(values, [5, 50, 95]))
    middle = middle if value is None else value
    return {
        "value": middle, "low": min(low, middle), "high": max(high, middle), "unit": unit, "count": len(values),
    }  # fmt: skip


def _carry_out(spec: Spec, scratch: Path, number: int) -> tuple[list[RunEvent], int, str]:
    """Carry out one run; returns its events with the load of GPU and CPU, in order, its exit code and its log."""
    place, told, log = (scratch / f"{number}.{ending}" for ending in ("json", "events", "log"))
    place.write_bytes(msgspec.json.encode(spec))
    command = [sys.executable, "-m", "trainer", str(place), "--events", str(told)]
    environment = {**os.environ, SCRATCH_VARIABLE: str(scratch), "PYTHONPATH": str(HOME)}
    with log.open("wb") as output, LoadMonitor() as monitor:
        process = subprocess.Popen(command, cwd=HOME, env=environment, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            code = process.wait(LONGEST_RUN)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    lines = told.read_bytes().splitlines() if told.exists() else []
    events = [event_decoder.decode(line) for line in lines] + monitor.readings
    return sorted(events, key=lambda event: event.at), code, log.read_text(errors="replace")


def _gpu() -> dict[str, str]:
    """Return name, memory (MiB) and PCIe link of the first GPU; {} without one."""
    program = shutil.which("nvidia-smi")
    names = ("name", "memory.total", "pcie.link.gen.max", "pcie.link.width.max", "driver_version")
    if program is None:
        return {}
    answer = subprocess.run(  # noqa: S603
        [program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    line = next(iter(answer.splitlines()), "")
    return dict(zip(names, (part.strip() for part in line.split(",")), strict=False)) if line else {}


def _topology(gpu: dict[str, str], spec: Spec) -> Topology:
    """Return this machine: one GPU in a host of its own, data on its own disk."""

    def number(name: str, usual: int) -> int:
        text = gpu.get(name, "")
        return int(text) if text.isdecimal() else usual

    link = PcieLink(lanes=number("pcie.link.width.max", 16), generation=number("pcie.link.gen.max", 4))
    accelerator = Accelerator(
        name="local 1", model=gpu.get("name", ""), link=link, memory_bytes=float(number("memory.total", 16000) * 2**20)
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Topology(
        name="one GPU", cores=len(os.sched_getaffinity(0)), memory_bytes=float(pages), storage=Storage(),
        accelerators=(accelerator,) if spec.backend == "cuda" else (), local_fabric="pcie",
    )  # fmt: skip


def _summary(name: str, gpu: dict[str, str], software: dict[str, Any], rows: list[str], left_out: list[str]) -> str:
    libraries = software.get("libraries", {})
    facts = [
        gpu.get("name", "no GPU"), f"driver {gpu.get('driver_version', '')}", software.get("framework", ""),
        f"CUDA {software.get('cuda', '')}", f"transformers {libraries.get('transformers', '')}",
        f"Python {software.get('python', '')}", f"{software.get('cores', '')} cores of {software.get('processor', '')}",
    ]  # fmt: skip
    lines = [
        f"# One GPU: {gpu.get('name', 'none')}", "",
        f"{'; '.join(facts)}. Made by `make gpu-results`; the records are in `{name}.jsonl`, which a site imports.", "",
        "Sizes and batches a GPU are those of the preset `paper`. Without files, samples are random and in memory. A",
        "step is its median with the 5th and 95th percentile; the rate is over all timed steps, as loaders bring",
        "batches in bursts where they are the limit. GPU and memory are the shares of time in which a kernel ran, or",
        "the memory was accessed, as NVML counts them. At fp32 convolutions use TF32, as PyTorch has it.", "",
        "| Run | Batch | Step, ms | 5 to 95 % | Samples/s | Memory, GB | GPU | GPU memory |",
        "|---|---|---|---|---|---|---|---|", *rows,
    ]  # fmt: skip
    if left_out:
        lines += ["", f"Left out, as the time was up: {'; '.join(left_out)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
