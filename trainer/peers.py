"""Bandwidth and latency between each two devices: copies between GPUs, messages between processes on the CPU."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from hostwire.training import Spec
from trainer.place import Place
from trainer.rounds import GIGA, Figures, Link, Times, between_all, iterations, message, sizes_of
from trainer.telling import log

Table = list[list[float | None]]
# What is timed of a pair: both ways at once by the size of the message, and a small write one way.
WRITE = 0


def gpu_bandwidth(spec: Spec, place: Place) -> Link:
    """Measure each pair: both ways at once by size, and one way for the latency of the smallest message."""
    sizes, times = sizes_of(spec), Times()
    pairs = list(itertools.combinations(range(spec.devices), 2))
    if place.on_gpu:
        take = PeerCopies(spec, times, pairs).take if place.leads else _nothing
    else:
        take = Messages(spec, place, times, pairs).take
    return Link(take, times.forget, lambda: _figures(place, times, sizes, spec.devices))


def _nothing() -> None:
    """The leading process copies between all GPUs, the others wait for it."""


def _figures(place: Place, times: Times, sizes: Sequence[int], devices: int) -> tuple[Figures, dict[str, str]]:
    pairs = list(itertools.combinations(range(devices), 2))

    def table(find: Callable[[int, int], float | None]) -> Table:
        return [[find(one, other) if one != other else None for other in range(devices)] for one in range(devices)]

    def rate(one: int, other: int, number: int) -> float | None:
        seconds = times.median((min(one, other), max(one, other), number))
        return 2 * number / seconds / GIGA if seconds else None

    def latency(one: int, other: int) -> float | None:
        seconds = times.median((one, other, WRITE))
        return seconds * 1e6 if seconds else None

    # Of a pair of processes only one has measured: the tables of all are put together.
    found: list[tuple[Table, Table, Table]] = between_all(
        place,
        (
            table(lambda one, other: rate(one, other, sizes[-1])),
            table(latency),
            [[rate(one, other, number) for one, other in pairs] for number in sizes],
        ),
    )
    bandwidth, latencies, by_size = (_merged(tables) for tables in zip(*found, strict=True))
    return (
        {
            "bandwidth": bandwidth,
            "latency": latencies,
            "sizes": list(sizes),
            "bandwidth_by_size": [statistics.fmean([known for known in row if known] or [0.0]) for row in by_size],
            "note": "Copies between GPUs by one process."
            if place.on_gpu
            else "Messages between processes on the CPU over gloo: the run had no GPU.",
        },
        {"bandwidth": "GB/s", "latency": "us", "sizes": "B", "bandwidth_by_size": "GB/s"},
    )


def _merged(tables: Sequence[Table]) -> Table:
    """Return the mean, cell by cell, of what is there in any of the tables."""
    merged: Table = []
    for rows in zip(*tables, strict=True):
        row: list[float | None] = []
        for cell in zip(*rows, strict=True):
            known = [value for value in cell if value is not None]
            row.append(statistics.fmean(known) if known else None)
        merged.append(row)
    return merged


class Messages:
    """Messages between processes over gloo, a pair at a time."""

    def __init__(self, spec: Spec, place: Place, times: Times, pairs: Sequence[tuple[int, int]]) -> None:
        self._place, self._times, self._pairs = place, times, pairs
        self._count, self._sizes = iterations(spec), sizes_of(spec)
        self._out = {number: message(number, place.device) for number in self._sizes}
        self._back = {number: message(number, place.device) for number in self._sizes}

    def take(self) -> None:
        """Take a round over all pairs."""
        for pair in self._pairs:
            self._place.wait()
            if self._place.rank in pair:
                self._pair(*pair)

    def _pair(self, first: int, second: int) -> None:
        rank = self._place.rank
        other = second if rank == first else first
        for number in self._sizes:
            seconds = self._both_ways(other, number)
            if rank == first:
                self._times.add((first, second, number), seconds)
        for beginning in (first, second):
            seconds = self._one_way(other, begins=rank == beginning)
            if rank == beginning:
                self._times.add((rank, other, WRITE), seconds)

    def _both_ways(self, other: int, number: int) -> float:
        """Return the seconds of a message there and one back at the same time."""
        began = time.perf_counter()
        for _ in range(self._count):
            for work in (dist.isend(self._out[number], other), dist.irecv(self._back[number], other)):
                if work is not None:
                    work.wait()
        return (time.perf_counter() - began) / self._count

    def _one_way(self, other: int, *, begins: bool) -> float:
        """Return the seconds of the smallest message: half of there and back."""
        number = self._sizes[0]
        began = time.perf_counter()
        for _ in range(self._count):
            if begins:
                dist.send(self._out[number], other)
            dist.recv(self._back[number], other)
            if not begins:
                dist.send(self._out[number], other)
        return (time.perf_counter() - began) / self._count / 2


class PeerCopies:
    """Copies between GPUs, all made by the leading process, as the usual tests do."""

    def __init__(self, spec: Spec, times: Times, pairs: Sequence[tuple[int, int]]) -> None:
        self._times, self._pairs = times, pairs
        self._count, self._sizes = iterations(spec), sizes_of(spec)
        self._devices = [torch.device("cuda", index) for index in range(spec.devices)]
        for first, second in pairs:
            if not torch.cuda.can_device_access_peer(first, second):
                log.info("GPU %d and GPU %d do not reach each other: copies go through the host.", first, second)
        # Buffers and streams of both directions, made once: making them would be measured.
        self._out = [message(self._sizes[-1], device) for device in self._devices]
        self._back = [message(self._sizes[-1], device) for device in self._devices]
        self._streams = [(_stream(device), _stream(device)) for device in self._devices]

    def take(self) -> None:
        """Take a round over all pairs."""
        for first, second in self._pairs:
            for number in self._sizes:
                self._settle(first, second)
                began = time.perf_counter()
                for _ in range(self._count):
                    self._copy(first, second, number, 0)
                    self._copy(second, first, number, 1)
                self._settle(first, second)
                self._times.add((first, second, number), (time.perf_counter() - began) / self._count)
            for one, other in ((first, second), (second, first)):
                self._times.add((one, other, WRITE), self._one_way(one, other))

    def _copy(self, one: int, other: int, number: int, way: int) -> None:
        """Copy from one GPU to the other, on streams of their own for each way."""
        with torch.cuda.stream(self._streams[other][way]), torch.cuda.stream(self._streams[one][way]):
            self._back[other][: number // 4].copy_(self._out[one][: number // 4], non_blocking=True)

    def _one_way(self, one: int, other: int) -> float:
        """Return the seconds of one small write, of many in a row."""
        self._settle(one, other)
        with torch.cuda.stream(self._streams[other][0]), torch.cuda.stream(self._streams[one][0]):
            begin, end = _event(), _event()
            source, target = self._out[one][: self._sizes[0] // 4], self._back[other][: self._sizes[0] // 4]
            begin.record()
            for _ in range(self._count):
                target.copy_(source, non_blocking=True)
            end.record()
        self._settle(one, other)
        milliseconds: float = begin.elapsed_time(end)
        return milliseconds / 1e3 / self._count

    def _settle(self, one: int, other: int) -> None:
        torch.cuda.synchronize(self._devices[one])
        torch.cuda.synchronize(self._devices[other])


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
