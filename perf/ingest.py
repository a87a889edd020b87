"""The cost of storing readings, from the decoded report to the committed chunk and its rollups.

Readings of a simulated chassis are recorded, then replayed into the worker's code: rates from counters, the recorder,
the writer thread, its transactions, and the scheduled rollups, minute by minute. The figure is the CPU time of this
process, over all threads. For comparison, Prometheus and VictoriaMetrics, where installed, import the same readings of
one chassis with their fastest import, in their own processes.
"""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connections

from fabric.bmc.types import Inventory
from perf.chassis import Recording, record
from perf.environment import CannotMeasureError, cpu_seconds
from perf.figures import PerfFigure
from perf.time_series_servers import PROMETHEUS, VICTORIA, Points, create_blocks, import_series, victoria_metrics
from telemetry.live.catalogue import ReadingContext, SeriesCatalogue
from telemetry.store import services
from telemetry.store.chunks import clear_caches
from telemetry.store.models import Catalogue as CatalogueRow
from telemetry.store.models import Chunk, Due, Gap
from telemetry.store.recorder import ReadingRecorder
from telemetry.store.services import store_bytes
from telemetry.store.writer import StoreWriter

RECORDED = 3600  # s
# Numbers of chassis and minutes: each includes a window of the first rollup and its due time.
FLEETS = {1: 540, 30: 60, 1000: 16}
LATE_SECONDS = 420  # by then the last window of each chassis is due
JITTER = (0.005, 0.080)  # s; the largest delay of a response
MIN_PER_CORE = 20e6
MAX_BYTES, MAX_RAW_BYTES = 0.6, 0.45
GATHER_SECONDS = 0.02  # in which the replay puts all chunks of a minute
PEER_SECONDS = 3600


@dataclass(frozen=True)
class StorageCost:
    """The cost of a number of samples: CPU time in s, and bytes on disk of the raw chunks and in total."""

    samples: int
    cpu: float
    raw: float
    all_tiers: float


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of storing."""
    log(f"recording {RECORDED} s of a simulated chassis")
    recording = record(RECORDED)
    peers = _other_servers(log, recording)
    figures = []
    for count, minutes in FLEETS.items():
        log(f"{count:,} chassis for {minutes} min")
        spent = _replay(recording, count, minutes)
        what = f"{count:,} chassis, {len(recording.series)} series"
        figures += _figures(what, spent, peers if count == 1 else {})
    return figures


def _figures(what: str, spent: StorageCost, peers: Mapping[str, StorageCost | None]) -> list[PerfFigure]:
    rate, size = spent.samples / spent.cpu, spent.all_tiers / spent.samples
    rates, sizes = [], []
    for name, other in (peers or {"": None}).items():
        beside = None if not name else name if other else f"{name}: not run"
        its_rate, its_size = (other.samples / other.cpu, other.all_tiers / other.samples) if other else (None, None)
        figure = f"samples a second and core, {what}"
        rates.append(PerfFigure(figure, rate, "1/s", beside=beside, beside_value=its_rate, least=MIN_PER_CORE))
        figure = f"on disk, all tiers, {what}"
        sizes.append(PerfFigure(figure, size, "B a sample", beside=beside, beside_value=its_size, most=MAX_BYTES))
    raw = spent.raw / spent.samples
    return [*rates, *sizes, PerfFigure(f"on disk, raw readings alone, {what}", raw, "B a sample", most=MAX_RAW_BYTES)]


def _replay(recording: Recording, count: int, minutes: int) -> StorageCost:
    """Store the readings of some chassis for some minutes, as the worker and the schedule do."""
    _delete_readings()
    random.seed(4016)
    # The range ends now: readings beyond the retention are not stored.
    since = time.time() // 60 * 60 - 60 * minutes - LATE_SECONDS
    writer = StoreWriter(gather=GATHER_SECONDS)
    fleet = [_ReplayedChassis(number, writer, recording) for number in range(1, count + 1)]
    begun = time.process_time()
    for second in range(60 * minutes):
        for one in fleet:
            one.second(second, since)
        if second % 60 == 59:
            # As in real time, all but the newest seconds are stored: otherwise windows are made in pieces.
            while writer.queue:
                time.sleep(0.001)
            _roll(since + second)
    asyncio.run(_closed(fleet))
    writer.stop(120.0)
    for second in range(60 * minutes, 60 * minutes + LATE_SECONDS, 60):
        _roll(since + second)
    cpu = time.process_time() - begun
    samples = count * 60 * minutes * len(recording.series)
    stored = sum(Chunk.objects.filter(tier=0).values_list("rows", flat=True)) * len(recording.series)
    if stored < samples * 0.999 or Gap.objects.filter(until__isnull=False).exists():
        raise CannotMeasureError(f"{stored:,} of {samples:,} samples were stored.")
    on_disk = _on_disk()
    payload = dict.fromkeys((0, 1, 2, 3), 0)
    for tier, size in Chunk.objects.values_list("tier", "size"):
        payload[tier] += size
    raw = on_disk * payload[0] / sum(payload.values())
    return StorageCost(samples, cpu, raw, on_disk)


class _ReplayedChassis:
    """One chassis with replayed readings, each chassis starting at a different second."""

    def __init__(self, number: int, writer: StoreWriter, recording: Recording) -> None:
        self._shift = number * 97
        self._recording = recording
        self._catalogue = SeriesCatalogue(recording.series, {})
        self.recorder = ReadingRecorder(number, writer)
        self.recorder.begin(ReadingContext(number, self._catalogue, Inventory(), {}))

    def second(self, second: int, since: float) -> None:
        """Process the reading of a second, as the poller does after decoding a response."""
        at = since + second + random.uniform(*JITTER)  # noqa: S311 - not a secret
        reading = self._recording.reading(self._shift + second, at)
        self.recorder.take(self._catalogue.sample(reading))


async def _closed(fleet: list[_ReplayedChassis]) -> None:
    await asyncio.gather(*(one.recorder.close() for one in fleet))


def _roll(now: float) -> None:
    for tier, chassis in services.due_rollups(now=now):
        services.chassis_roll_up(chassis, tier, now=now)


def _delete_readings() -> None:
    for model in (Chunk, Due, Gap, CatalogueRow):
        model.objects.all().delete()
    clear_caches()
    with connections[settings.READINGS_DATABASE].cursor() as cursor:
        cursor.execute("VACUUM")


def _on_disk() -> int:
    """Return the size of the database in bytes after a checkpoint of its write-ahead log."""
    with connections[settings.READINGS_DATABASE].cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store_bytes()


def _other_servers(log: Callable[[str], None], recording: Recording) -> dict[str, StorageCost | None]:
    """Return the costs of other servers for the readings of one chassis; None for one that is not installed."""
    found: dict[str, StorageCost | None] = {PROMETHEUS: None, VICTORIA: None}
    with tempfile.TemporaryDirectory(prefix="falconweb-perf-peer-") as folder:
        if shutil.which("promtool"):
            log(PROMETHEUS)
            found[PROMETHEUS] = _prometheus(recording, Path(folder))
        if program := shutil.which(VICTORIA):
            log(VICTORIA)
            found[VICTORIA] = _victoria(program, recording, Path(folder))
    return found


def _prometheus(recording: Recording, folder: Path) -> StorageCost:
    """Make blocks of the readings with promtool."""
    data = folder / PROMETHEUS
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    create_blocks(data, _points(recording))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = _size(data)
    return StorageCost(len(recording.series) * PEER_SECONDS, cpu, size, size)


def _victoria(program: str, recording: Recording, folder: Path) -> StorageCost:
    """Import the readings into VictoriaMetrics."""
    data = folder / VICTORIA
    with victoria_metrics(program, data) as (process, port):
        before = cpu_seconds(process.pid)
        import_series(port, _points(recording))
        cpu = cpu_seconds(process.pid) - before
    # After its exit, all data is in its files.
    size = _size(data)
    return StorageCost(len(recording.series) * PEER_SECONDS, cpu, size, size)


def _points(recording: Recording) -> Iterator[Points]:
    """Yield the readings of the last hour of one chassis, by series."""
    since = int(time.time()) - PEER_SECONDS
    for values in zip(*recording.rows, strict=True):
        yield ((since + second, values[second % len(values)]) for second in range(PEER_SECONDS))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
