"""Workloads that measure links instead of training: a step is one round over all message sizes."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from hostwire.training import Spec
from trainer.parallelism import RankContext
from trainer.reporting import EventWriter, RunRefused, StepReporter, logger
from trainer.storage import data_path, open_storage_reader

GIGA = 1e9
Figures = dict[str, tuple[Any, str]]  # values with their units


class LinkMeasurement(NamedTuple):
    """A measurement: `run_round` is repeated, `figures` returns the results of the rounds since `reset`."""

    run_round: Callable[[], None]
    reset: Callable[[], None]
    figures: Callable[[], Figures]


def transfer_count(spec: Spec) -> int:
    return int(spec.options.get("iterations", 20))


def message_tensor(number: int, device: torch.device) -> Tensor:
    return torch.zeros(number // 4, dtype=torch.float32, device=device)


def gather_all(place: RankContext, values: Any) -> list[Any]:
    """Return the results of all processes, by rank: numbers and lists of them."""
    if not place.grouped or place.world == 1:
        return [values]
    # As JSON: PyTorch's own function for objects unpickles them, which can run arbitrary code.
    mine = torch.frombuffer(bytearray(msgspec.json.encode(values)), dtype=torch.uint8).to(place.device)
    lengths = [torch.zeros(1, dtype=torch.int64, device=place.device) for _ in range(place.world)]
    dist.all_gather(lengths, torch.tensor([len(mine)], device=place.device))
    most = max(int(length) for length in lengths)
    texts = [torch.zeros(most, dtype=torch.uint8, device=place.device) for _ in range(place.world)]
    dist.all_gather(texts, torch.nn.functional.pad(mine, (0, most - len(mine))))
    return [
        msgspec.json.decode(bytes(text[: int(length)].tolist())) for text, length in zip(texts, lengths, strict=True)
    ]


TransferTimes = defaultdict[Any, list[float]]  # seconds by what was transferred, over rounds


def median_seconds(times: TransferTimes, key: Any) -> float | None:
    """Return the median duration of a transfer, None without durations."""
    return max(statistics.median(times[key]), 1e-9) if key in times else None


Table = list[list[float | None]]
# The timings of a pair: both directions simultaneously, by message size, and a small write in one direction.
WRITE = 0


def gpu_bandwidth(spec: Spec, place: RankContext) -> LinkMeasurement:
    """Measure each pair: both directions simultaneously by size, and the one-way latency of the smallest message."""
    sizes, times = spec.message_sizes, TransferTimes(list)
    pairs = list(itertools.combinations(range(spec.devices), 2))
    if place.on_gpu:
        run_round = PeerCopies(spec, times, pairs).run_round if place.leads else _wait_for_leader
    else:
        run_round = MessageExchange(spec, place, times, pairs).run_round
    return LinkMeasurement(run_round, times.clear, lambda: _pair_figures(place, times, sizes, spec.devices))


def _wait_for_leader() -> None:
    """The leading process copies between all GPUs, while the others wait."""


def _pair_figures(place: RankContext, times: TransferTimes, sizes: Sequence[int], devices: int) -> Figures:
    pairs = list(itertools.combinations(range(devices), 2))

    def table(find: Callable[[int, int], float | None]) -> Table:
        return [[find(one, other) if one != other else None for other in range(devices)] for one in range(devices)]

    def rate(one: int, other: int, number: int) -> float | None:
        seconds = median_seconds(times, (min(one, other), max(one, other), number))
        return 2 * number / seconds / GIGA if seconds else None

    def latency(one: int, other: int) -> float | None:
        seconds = median_seconds(times, (one, other, WRITE))
        return seconds * 1e6 if seconds else None

    # Only one process of a pair has measured it: the tables of all are merged.
    found: list[tuple[Table, Table, Table]] = gather_all(
        place,
        (
            table(lambda one, other: rate(one, other, sizes[-1])),
            table(latency),
            [[rate(one, other, number) for one, other in pairs] for number in sizes],
        ),
    )
    bandwidth, latencies, by_size = (_merged_tables(tables) for tables in zip(*found, strict=True))
    means = [statistics.fmean([known for known in row if known] or [0.0]) for row in by_size]
    on_cpu = "Messages between processes on the CPU over gloo: the run had no GPU."
    return {
        "bandwidth": (bandwidth, "GB/s"),
        "latency": (latencies, "us"),
        "sizes": (list(sizes), "B"),
        "bandwidth_by_size": (means, "GB/s"),
        "note": ("Copies between GPUs by one process." if place.on_gpu else on_cpu, ""),
    }


def _merged_tables(tables: Sequence[Table]) -> Table:
    """Return the mean of each cell over the tables that have it."""
    merged: Table = []
    for rows in zip(*tables, strict=True):
        row: list[float | None] = []
        for cell in zip(*rows, strict=True):
            known = [value for value in cell if value is not None]
            row.append(statistics.fmean(known) if known else None)
        merged.append(row)
    return merged


class MessageExchange:
    """Messages between processes over gloo, one pair at a time."""

    def __init__(self, spec: Spec, place: RankContext, times: TransferTimes, pairs: Sequence[tuple[int, int]]) -> None:
        self._place, self._times, self._pairs = place, times, pairs
        self._count, self._sizes = transfer_count(spec), spec.message_sizes
        self._out = {number: message_tensor(number, place.device) for number in self._sizes}
        self._back = {number: message_tensor(number, place.device) for number in self._sizes}

    def run_round(self) -> None:
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
                self._times[(first, second, number)].append(seconds)
        for beginning in (first, second):
            seconds = self._one_way(other, begins=rank == beginning)
            if rank == beginning:
                self._times[(rank, other, WRITE)].append(seconds)

    def _both_ways(self, other: int, number: int) -> float:
        """Return the seconds for simultaneous messages in both directions."""
        began = time.perf_counter()
        for _ in range(self._count):
            for work in (dist.isend(self._out[number], other), dist.irecv(self._back[number], other)):
                if work is not None:
                    work.wait()
        return (time.perf_counter() - began) / self._count

    def _one_way(self, other: int, *, begins: bool) -> float:
        """Return the seconds for the smallest message: half of the round trip."""
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
    """Copies between GPUs, all by the leading process, as in the usual tests."""

    def __init__(self, spec: Spec, times: TransferTimes, pairs: Sequence[tuple[int, int]]) -> None:
        self._times, self._pairs = times, pairs
        self._count, self._sizes = transfer_count(spec), spec.message_sizes
        self._devices = [torch.device("cuda", index) for index in range(spec.devices)]
        for first, second in pairs:
            if not torch.cuda.can_device_access_peer(first, second):
                logger.info("GPU %d and GPU %d have no peer access: copies go through the host.", first, second)
        # Buffers and streams of both directions are created once, outside the measurement.
        self._out = [message_tensor(self._sizes[-1], device) for device in self._devices]
        self._back = [message_tensor(self._sizes[-1], device) for device in self._devices]
        self._streams = [(_stream(device), _stream(device)) for device in self._devices]

    def run_round(self) -> None:
        for first, second in self._pairs:
            for number in self._sizes:
                self._settle(first, second)
                began = time.perf_counter()
                for _ in range(self._count):
                    self._copy(first, second, number, 0)
                    self._copy(second, first, number, 1)
                self._settle(first, second)
                self._times[(first, second, number)].append((time.perf_counter() - began) / self._count)
            for one, other in ((first, second), (second, first)):
                self._times[(one, other, WRITE)].append(self._one_way(one, other))

    def _copy(self, one: int, other: int, number: int, way: int) -> None:
        """Copy between two GPUs in both directions, each on its own stream."""
        with torch.cuda.stream(self._streams[other][way]), torch.cuda.stream(self._streams[one][way]):
            self._back[other][: number // 4].copy_(self._out[one][: number // 4], non_blocking=True)

    def _one_way(self, one: int, other: int) -> float:
        """Return the seconds per small write, over many in a row."""
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


def measure_link(spec: Spec, place: RankContext, events: EventWriter) -> None:
    """Do the rounds of a link workload; the leading process reports the figures."""
    if not place.grouped and place.world > 1:
        raise RunRefused(f"{spec.workload} with several processes runs with the strategy 'ddp'.")
    if not place.grouped and spec.workload == "all_reduce":
        raise RunRefused("all_reduce runs with the strategy 'ddp', also on one device.")
    link = LINK_MEASUREMENTS[spec.workload](spec, place)
    for name, count in (("warmup", spec.warmup), ("timed", spec.steps)):
        if not count:
            continue
        events.phase(name)
        reporter = StepReporter(events, name, count)
        link.reset()
        place.wait()
        for _ in range(count):
            began = time.perf_counter()
            link.run_round()
            place.wait()
            reporter.add(time.perf_counter() - began, has_loss=False)
        reporter.flush()
    events.phase("finish")
    figures = link.figures()
    values = {name: value for name, (value, _) in figures.items()}
    events.result(values, {name: unit for name, (_, unit) in figures.items() if unit})
    place.wait()


def _all_reduce(spec: Spec, place: RankContext) -> LinkMeasurement:
    sizes, times, count = spec.message_sizes, TransferTimes(list), transfer_count(spec)
    messages = {number: message_tensor(number, place.device) for number in sizes}

    def run_round() -> None:
        for number, data in messages.items():
            place.wait()
            began = time.perf_counter()
            for _ in range(count):
                dist.all_reduce(data)
            place.synchronise_device()
            times[number].append((time.perf_counter() - began) / count)

    def figures() -> Figures:
        seconds = [median_seconds(times, number) or 0.0 for number in sizes]
        algorithm = [number / took / GIGA for number, took in zip(sizes, seconds, strict=True)]
        share = 2 * (place.world - 1) / place.world
        return {
            "sizes": (sizes, "B"),
            "seconds": (seconds, "s"),
            "algorithm_bandwidth": (algorithm, "GB/s"),
            "bus_bandwidth": ([rate * share for rate in algorithm], "GB/s"),
            "backend": (dist.get_backend(), ""),
        }

    return LinkMeasurement(run_round, times.clear, figures)


def _host_copy(spec: Spec, place: RankContext) -> LinkMeasurement:
    sizes, times, count = spec.message_sizes, TransferTimes(list), transfer_count(spec)
    pinned = place.on_gpu
    hosts = {number: torch.zeros(number // 4, pin_memory=pinned) for number in sizes}
    devices = {number: message_tensor(number, place.device) for number in sizes}

    def timed(key: tuple[str, int], target: Tensor, source: Tensor) -> None:
        place.synchronise_device()
        began = time.perf_counter()
        for _ in range(count):
            target.copy_(source, non_blocking=True)
        place.synchronise_device()
        times[key].append((time.perf_counter() - began) / count)

    def run_round() -> None:
        for number in sizes:
            timed(("to", number), devices[number], hosts[number])
            timed(("from", number), hosts[number], devices[number])

    def rates(way: str) -> list[float]:
        return [number / (median_seconds(times, (way, number)) or 1.0) / GIGA for number in sizes]

    def figures() -> Figures:
        return {
            "sizes": (sizes, "B"),
            "to_device": (gather_all(place, rates("to")), "GB/s"),
            "from_device": (gather_all(place, rates("from")), "GB/s"),
            "note": ("" if place.on_gpu else "Copies within the host's memory: the run had no GPU.", ""),
        }

    return LinkMeasurement(run_round, times.clear, figures)


def _storage_read(spec: Spec, place: RankContext) -> LinkMeasurement:
    there = data_path(spec)
    place.wait()  # all check the free space before any allocates its own
    rounds = open_storage_reader(spec, there, rank=place.rank)

    def figures() -> Figures:
        found = [statistics.median(rates) if rates else None for rates in gather_all(place, rounds.rates)]
        return {
            "bandwidth": (sum(rate for rate in found if rate is not None), "GB/s"),
            "bandwidth_by_process": (found, "GB/s"),
            "block_latency": (statistics.median(rounds.blocks or [0.0]) * 1e6, "us"),
            "file_bytes": (rounds.file_bytes, "B"),
            "block_bytes": (rounds.block_bytes, "B"),
            "note": (rounds.note, ""),
        }

    return LinkMeasurement(rounds.run_round, rounds.reset, figures)


LINK_MEASUREMENTS: dict[str, Callable[[Spec, RankContext], LinkMeasurement]] = {
    "gpu_bandwidth": gpu_bandwidth,
    "all_reduce": _all_reduce,
    "host_copy": _host_copy,
    "storage_read": _storage_read,
}
