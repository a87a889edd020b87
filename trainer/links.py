"""Measures links in place of training: a step is one round over all sizes of message."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from hostwire.training import Spec
from trainer.peers import gpu_bandwidth
from trainer.place import Place
from trainer.rounds import GIGA, Figures, Link, Times, between_all, iterations, message, sizes_of
from trainer.storage import data_place, storage_rounds
from trainer.telling import EventFile, StepTeller
from trainer.troubles import Refused


def measure(spec: Spec, place: Place, events: EventFile) -> None:
    """Take the rounds of a link workload and tell of its figures; the leading process tells."""
    if not place.grouped and place.world > 1:
        raise Refused(f"{spec.workload} with several processes runs with the strategy 'ddp'.")
    if not place.grouped and spec.workload == "all_reduce":
        raise Refused("all_reduce runs with the strategy 'ddp', also on one device.")
    link = LINKS[spec.workload](spec, place)
    for name, count in (("warmup", spec.warmup), ("timed", spec.steps)):
        if not count:
            continue
        events.phase(name)
        teller = StepTeller(events, name, count)
        link.forget()
        place.wait()
        for _ in range(count):
            began = time.perf_counter()
            link.take()
            place.wait()
            teller.add(time.perf_counter() - began, has_loss=False)
        teller.flush()
    events.phase("finish")
    figures, units = link.figures()
    events.result(figures, units)
    place.wait()


def _all_reduce(spec: Spec, place: Place) -> Link:
    sizes, times, count = sizes_of(spec), Times(), iterations(spec)
    messages = {number: message(number, place.device) for number in sizes}

    def take() -> None:
        for number, data in messages.items():
            place.wait()
            began = time.perf_counter()
            for _ in range(count):
                dist.all_reduce(data)
            place.finish_device()
            times.add(number, (time.perf_counter() - began) / count)

    def figures() -> tuple[Figures, dict[str, str]]:
        seconds = [times.median(number) or 0.0 for number in sizes]
        algorithm = [number / took / GIGA for number, took in zip(sizes, seconds, strict=True)]
        share = 2 * (place.world - 1) / place.world
        return (
            {
                "sizes": sizes,
                "seconds": seconds,
                "algorithm_bandwidth": algorithm,
                "bus_bandwidth": [rate * share for rate in algorithm],
                "backend": dist.get_backend(),
            },
            {"sizes": "B", "seconds": "s", "algorithm_bandwidth": "GB/s", "bus_bandwidth": "GB/s"},
        )

    return Link(take, times.forget, figures)


def _host_copy(spec: Spec, place: Place) -> Link:
    sizes, times, count = sizes_of(spec), Times(), iterations(spec)
    pinned = place.on_gpu
    hosts = {number: torch.zeros(number // 4, pin_memory=pinned) for number in sizes}
    devices = {number: message(number, place.device) for number in sizes}

    def timed(key: tuple[str, int], target: Tensor, source: Tensor) -> None:
        place.finish_device()
        began = time.perf_counter()
        for _ in range(count):
            target.copy_(source, non_blocking=True)
        place.finish_device()
        times.add(key, (time.perf_counter() - began) / count)

    def take() -> None:
        for number in sizes:
            timed(("to", number), devices[number], hosts[number])
            timed(("from", number), hosts[number], devices[number])

    def rates(way: str) -> list[float]:
        return [number / (times.median((way, number)) or 1.0) / GIGA for number in sizes]

    def figures() -> tuple[Figures, dict[str, str]]:
        ways = {way: between_all(place, rates(way)) for way in ("to", "from")}
        note = "" if place.on_gpu else "Copies within the host's memory: the run had no GPU."
        return (
            {"sizes": sizes, "to_device": ways["to"], "from_device": ways["from"], "note": note},
            {"sizes": "B", "to_device": "GB/s", "from_device": "GB/s"},
        )

    return Link(take, times.forget, figures)


def _storage_read(spec: Spec, place: Place) -> Link:
    there = data_place(spec)
    place.wait()  # each looks for room before any takes its own
    rounds = storage_rounds(spec, there, rank=place.rank)

    def figures() -> tuple[Figures, dict[str, str]]:
        found = between_all(place, rounds.rates())
        return (
            {
                "bandwidth": sum(statistics.median(rates) for rates in found if rates),
                "bandwidth_by_process": [statistics.median(rates) if rates else None for rates in found],
                "block_latency": (rounds.block_seconds() or 0.0) * 1e6,
                "file_bytes": rounds.file_bytes,
                "block_bytes": rounds.block_bytes,
                "note": rounds.note,
            },
            {
                "bandwidth": "GB/s",
                "bandwidth_by_process": "GB/s",
                "block_latency": "us",
                "file_bytes": "B",
                "block_bytes": "B",
            },
        )

    return Link(rounds.take, rounds.forget, figures)


LINKS: dict[str, Callable[[Spec, Place], Link]] = {
    "gpu_bandwidth": gpu_bandwidth,
    "all_reduce": _all_reduce,
    "host_copy": _host_copy,
    "storage_read": _storage_read,
}
