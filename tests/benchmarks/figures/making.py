"""Runs with results, as rows and series: what a measurement would leave behind, of sizes that a test chooses."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
from django.utils import timezone

from accounts.models import User
from benchmarks.figures.rows import Floats, RunData
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology
from benchmarks.runs.models import Run
from benchmarks.runs.recording import series_append
from benchmarks.runs.results import Statistic, Summary, summarise
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import Spec

EPOCH = 1_760_000_000.0
DRAWERS = ("falcon-1/drawer 1/H1", "falcon-1/drawer 2/H2")


def topology(
    *, local: int = 0, falcon: int = 0, drawers: int = 1, lanes: int = 16, model: str = "V100-SXM2-16GB",
    storage: Storage | None = None,
) -> Topology:  # fmt: skip
    """Return a host with so many GPUs of its own and so many in drawers of a Falcon."""
    accelerators = [Accelerator(name=f"local {one}", model=model) for one in range(local)]
    accelerators += [
        Accelerator(
            name=f"falcon {one}", model="V100-PCIE-16GB", place=DRAWERS[one % drawers], link=PcieLink(lanes=lanes)
        )
        for one in range(falcon)
    ]
    places = {one.place for one in accelerators} - {LOCAL}
    return Topology(
        host="node-a",
        accelerators=tuple(accelerators),
        storage=storage or Storage(model="local storage"),
        uplinks={place: PcieLink() for place in sorted(places)},
    )


def row(
    name: str = "1",
    *,
    workload: str = "resnet50",
    place: Topology | str | None = "localGPUs",
    provenance: str = "measured",
    steps: list[float] | Floats | None = None,
    series: dict[str, tuple[Any, Any]] | None = None,
    summary: Summary | None = None,
    spec: Spec | None = None,
    **given: Any,
) -> RunData:
    """Return a run as figures read it, with these seconds of timed steps and these series."""
    columns = {key: (np.asarray(at, float), np.asarray(values, float)) for key, (at, values) in (series or {}).items()}
    if steps is not None:
        columns["steps/timed/seconds"] = (EPOCH + np.cumsum(steps), np.asarray(steps, float))
    nothing = (np.zeros(0), np.zeros(0))
    return RunData(
        id=name,
        title=f"Run {name}",
        workload=workload,
        workload_title=CATALOGUE[workload].title if workload in CATALOGUE else workload,
        is_training=CATALOGUE[workload].is_training if workload in CATALOGUE else True,
        provenance=provenance,  # type: ignore[arg-type]  # one of its values
        spec=spec or (spec_of(workload, "paper", given) if workload in CATALOGUE else None),
        topology=PAPER_TOPOLOGIES[place] if isinstance(place, str) else place,
        summary=summary or Summary(),
        keys=frozenset(columns),
        read=lambda key: columns.get(key, nothing),
    )


def figure(
    value: float, low: float | None = None, high: float | None = None, *, unit: str = "s", count: int = 50
) -> Statistic:
    """Return a value of a summary with its percentiles."""
    return Statistic(
        value=value, low=value if low is None else low, high=value if high is None else high, unit=unit, count=count
    )


def run_made(
    person: User | None,
    *,
    title: str = "",
    workload: str = "resnet50",
    place: Topology | str = "localGPUs",
    provenance: str = "measured",
    seconds: float = 0.2,
    spread: float = 0.02,
    steps: int = 60,
    use: float = 0.9,
    traffic: float = 0.0,
    state: str = "completed",
    ago: float = 0.0,
    tables: dict[str, Any] | None = None,
    units: dict[str, str] | None = None,
    has_series: bool = True,
    **given: Any,
) -> Run:
    """Keep a run in the database with its series and what they come to. `traffic` is bytes a second to each device."""
    where = PAPER_TOPOLOGIES[place] if isinstance(place, str) else place
    spec = spec_of(workload, "paper", {"devices": max(1, len(where.accelerators)), **given})
    run = Run.objects.create(
        title=title or f"{CATALOGUE[workload].title} on {where.name or 'node-a'}", workload=workload, preset="paper",
        state=state, spec=msgspec.to_builtins(spec), spec_hash=spec.hash, provenance=provenance,
        topology=msgspec.to_builtins(where), software={"framework": "torch 2.13.0", "python": "3.11"},
        requested_by=person, requested_by_name=person.username if person else "",
        tenant=person.tenant if person else None,
        queued_at=timezone.now() - timedelta(seconds=ago), steps_done=steps,
        results=msgspec.to_builtins(Summary(tables=tables or {}, units=units or {})),
    )  # fmt: skip
    random = np.random.default_rng(zlib.crc32(f"{title} {where.name} {workload}".encode()))
    times = seconds * np.exp(spread * random.standard_normal(steps))
    at = EPOCH + np.cumsum(times)
    if has_series and CATALOGUE[workload].is_training:
        series_append(run, "steps/timed/seconds", at=at, values=times, unit="s")
        series_append(run, "steps/timed/loss", at=at, values=6.9 * np.exp(-np.arange(steps) / 40) + 0.5)
        moments = np.arange(EPOCH, at[-1], 0.25)
        for number in range(min(2, len(where.accelerators))):
            wave = use + 0.05 * np.sin(np.arange(len(moments)) / 5 + number)
            readings = {"utilisation": np.clip(wave, 0, 1), "memory_used": np.full(len(moments), 11e9)}
            for name, values in readings.items():
                unit = "share" if name == "utilisation" else "B"
                series_append(
                    run, f"gpu/0000:{number:02}:00.0/{name}", at=moments, values=values, unit=unit, interval=0.25
                )
        series_append(run, "cpu", at=moments, values=np.full(len(moments), 0.35), unit="share", interval=0.25)
        series_append(run, "memory", at=moments, values=np.full(len(moments), 90e9), unit="B", interval=0.25)
        if traffic:
            for name, factor in (("pcie_to", 1.0), ("pcie_from", 0.6)):
                for device in range(len([one for one in where.accelerators if one.place != LOCAL])):
                    values = traffic * factor * (1 + 0.05 * random.standard_normal(len(moments)))
                    series_append(
                        run, f"link/device-{device}/{name}", at=moments, values=values, unit="B/s", interval=0.25
                    )
    if has_series:
        Run.objects.filter(pk=run.pk).update(results=msgspec.to_builtins(summarise(run)))
    run.refresh_from_db()
    return run


def pairs(where: Topology, *, both: bool = True) -> list[list[float | None]]:
    """Return a matrix of bandwidths such as the published table's, of each two accelerators."""
    values = {0: 24.0, 1: 19.5, 2: 72.0}
    places = [one.place == LOCAL for one in where.accelerators]
    return [
        [
            None if one == other else values[places[one] + places[other]] * (1.0 if both else 0.5)
            for other in range(len(places))
        ]
        for one in range(len(places))
    ]


def lab_made(person: User | None) -> list[Run]:
    """Keep a small study: two workloads on five configurations, measured and simulated, software, threads, pairs."""
    slower = {"localGPUs": 1.0, "hybridGPUs": 1.3, "falconGPUs": 1.5, "localNVMe": 0.97, "falconNVMe": 1.02}
    runs: list[Run] = []
    for workload, seconds, feels in (("resnet50", 0.16, 0.2), ("bert_large", 0.19, 1.0)):
        for place, factor in slower.items():
            spent = seconds * (1 + (factor - 1) * feels)
            traffic = {"falconGPUs": 0.5e9, "hybridGPUs": 0.4e9}.get(place, 0.0)
            for provenance in ("measured", "simulated"):
                runs.append(
                    run_made(
                        person, workload=workload, place=place, provenance=provenance, traffic=traffic,
                        use=0.95 / factor,
                        seconds=spent * (1.06 if provenance == "simulated" else 1.0),
                        title=f"{CATALOGUE[workload].title} on {place}" + (", simulated" * (provenance == "simulated")),
                        ago=60.0 * len(runs),
                    )
                )  # fmt: skip
    for strategy, precision, batch, seconds in (
        ("dp", "fp32", 6, 0.9), ("ddp", "fp32", 6, 0.6), ("ddp", "fp16", 6, 0.19), ("sharded", "fp16", 10, 0.28),
    ):  # fmt: skip
        runs.append(
            run_made(
                person, workload="bert_large", place="falconGPUs", strategy=strategy, precision=precision, batch=batch,
                seconds=seconds, title=f"BERT-large, {strategy} {precision}", ago=3000.0 + len(runs),
            )
        )  # fmt: skip
    for threads, seconds in ((2, 0.9), (4, 0.47), (8, 0.27), (16, 0.2)):
        runs.append(
            run_made(
                person, workload="mobilenet_v2", place=topology(local=1), threads=threads, seconds=seconds,
                title=f"MobileNetV2, {threads} threads", ago=4000.0 + len(runs),
            )
        )  # fmt: skip
    hybrid = PAPER_TOPOLOGIES["hybridGPUs"]
    runs.append(
        run_made(
            person, workload="gpu_bandwidth", place=hybrid, title="GPU to GPU", ago=5000.0,
            tables={"bandwidth": pairs(hybrid), "latency": pairs(hybrid)}, units={"bandwidth": "GB/s", "latency": "µs"},
        )
    )  # fmt: skip
    return runs
