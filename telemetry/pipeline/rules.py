"""Findings on the pipeline's health, worst first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from core.language import _, _n
from telemetry.instrumentation.metrics import BUSY_ADVICE, PROBLEMS, MetricKey
from telemetry.store.services import TierSize

SILENT_SECONDS = 10.0  # processes publish every three
SILENT_AGENT_SECONDS = 35.0  # agents report every ten, and their site may be restarting
LAG_SECONDS, LONG_LAG_SECONDS = 0.25, 1.0  # of an event loop
LONG_QUEUE = 100  # tasks; a worker normally starts them immediately
FULL_SHARE = 0.9
SMALL_SHARE, SMALL_BYTES = 0.05, 2 * 2**30  # of the disk
# Readings that waited longer are late; two writes of a minute's readings were missed.
STORE_LAG_SECONDS = 120.0
ON_TIME_SHARE = 0.99
LONG_WAIT_SECONDS = 300.0
POLLS = ("done", "late", "skipped", "failed")


class HealthLevel(IntEnum):
    GOOD = 0
    NOTE = 1
    WARNING = 2
    BAD = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    level: HealthLevel
    words: str
    means: str = ""
    do: str = ""


@dataclass(frozen=True)
class PolledChassis:
    """A chassis that is to be polled: its id, its name, and its last error ('' for none)."""

    id: int
    name: str
    last_error: str = ""


@dataclass(frozen=True)
class ChassisHealth:
    """Health of a chassis' polling: recent counts; `on_time` is a share of its beats, None before the first."""

    id: int
    name: str
    level: HealthLevel
    worker: str  # '' where no worker polls it
    period: float | None  # s
    lag: float | None  # s, of the newest poll
    on_time: float | None  # 0 to 1
    done: int
    late: int
    skipped: int
    failed: int
    sentence: str

    @property
    def on_time_label(self) -> str:
        return percent_label(self.on_time, 1)


def percent_label(share: float | None, places: int) -> str:
    """Return a share (0 to 1) as a percentage, never rounded up to 100: '99.99 %'; '' for None."""
    if share is None:
        return ""
    percent = f"{100 * share:.{places}f}"
    if share < 1.0 and float(percent) >= 100.0:
        percent = f"{100 - 10**-places:.{places}f}"
    return f"{percent} %"


@dataclass(frozen=True)
class Undelivered:
    """Undelivered items of another app: what, how many, since when (None: none), and the address of their page."""

    what: str
    count: int
    oldest_at: datetime | None
    link: str = ""


def chassis_health(pipeline: PipelineSnapshot, chassis: Sequence[PolledChassis]) -> list[ChassisHealth]:
    """Return the health of each chassis' polling, worst first, then by name."""
    rows = [_chassis_health(pipeline, one) for one in chassis]
    # Within a level, the lowest share on time comes first; None counts as on time.
    return sorted(rows, key=lambda row: (-row.level, row.on_time if row.on_time is not None else 1.0, row.name))


def _chassis_health(pipeline: PipelineSnapshot, chassis: PolledChassis) -> ChassisHealth:
    done, late, skipped, failed = (pipeline.count(f"polls_{what}", chassis.id).recent for what in POLLS)
    gauges = pipeline.gauges.get(chassis.id, {})
    beats = done + skipped + failed
    on_time = (done - late) / beats if beats else None
    worker = pipeline.polled_by.get(chassis.id, "")
    level, sentence = HealthLevel.GOOD, ""
    if chassis.last_error:
        level, sentence = HealthLevel.BAD, _(chassis.last_error)
    elif not worker:
        level, sentence = HealthLevel.BAD, _("No worker polls it.")
    elif on_time is not None and on_time < ON_TIME_SHARE:
        counts = [
            _("{count} late", count=late) if late else "",
            _("{count} skipped", count=skipped) if skipped else "",
            _("{count} failed", count=failed) if failed else "",
        ]
        level = HealthLevel.WARNING
        sentence = _("Of its polls, {counts}.", counts=", ".join(filter(None, counts)))
    return ChassisHealth(
        id=chassis.id, name=chassis.name, level=level, worker=worker, period=gauges.get("poll_period_seconds"),
        lag=gauges.get("poll_lag_seconds"), on_time=on_time, done=done, late=late, skipped=skipped, failed=failed,
        sentence=sentence,
    )  # fmt: skip


def findings(
    pipeline: PipelineSnapshot, sizes: StorageSizes, chassis: Sequence[ChassisHealth], waiting: Sequence[Undelivered]
) -> list[Finding]:
    """Return the problems, worst first."""
    found = [
        *_worker_findings(pipeline, chassis),
        *_scheduler_findings(pipeline),
        *(finding for process in pipeline.processes for finding in _process_findings(process, pipeline.at)),
        *_chassis_findings(chassis),
        *_storage_findings(pipeline, sizes),
        *_undelivered_findings(waiting, pipeline.at),
        *_counter_findings(pipeline),
    ]
    return sorted(found, key=lambda one: -one.level)


def _worker_findings(pipeline: PipelineSnapshot, chassis: Sequence[ChassisHealth]) -> Iterator[Finding]:
    if not pipeline.is_heard("worker"):
        yield Finding(
            HealthLevel.BAD, _("No worker is running"), _("Chassis are not polled, and operations do not continue."),
            _("Start a worker; its log, logs/worker.log, has the reason of its end."),
        )  # fmt: skip
        return
    if pipeline.queue > LONG_QUEUE:
        yield Finding(
            HealthLevel.WARNING, _("{count} tasks wait", count=pipeline.queue),
            _("Tasks arrive faster than workers complete them: operations start late."), _("Start another worker."),
        )  # fmt: skip
    alone = sum(not one.worker for one in chassis)
    if alone:
        yield Finding(
            HealthLevel.BAD,
            _n("One chassis is polled by no worker", "{count} chassis are polled by no worker", alone),
            _n("Its readings are missing from now on.", "Their readings are missing from now on.", alone),
            _("A worker claims a chassis within seconds; where it does not, its log has the reason."),
        )


def _scheduler_findings(pipeline: PipelineSnapshot) -> Iterator[Finding]:
    if not pipeline.is_heard("scheduler"):
        yield Finding(
            HealthLevel.BAD, _("No scheduler is running"),
            _("What is due by time is not done: leases do not end, rollups and exports are not made."),
            _("Start one; its log, logs/beat.log, has the reason of its end."),
        )  # fmt: skip


def _process_findings(process: PublishingProcess, now: datetime) -> Iterator[Finding]:
    name = process.label
    if process.is_silent(now):
        yield Finding(
            HealthLevel.WARNING,
            _("{name} has sent no heartbeat for {seconds:.0f} s", name=name, seconds=process.silence(now)),
            _("It ended, hangs, or is overloaded."),
            _("If it was stopped intentionally, this disappears by itself."),
        )
    waits = process.gauges.get("store_lag_seconds", 0.0)
    if waits > STORE_LAG_SECONDS:
        yield Finding(
            HealthLevel.WARNING, _("{name} stores readings {seconds:.0f} s late", name=name, seconds=waits),
            _("The database does not accept them; they are kept in memory, which is limited."),
            _("Free space on the disk, or check why the database is slow or unreachable."),
        )  # fmt: skip
    if period := process.gauges.get("stretched_period_seconds", 0.0):
        yield Finding(
            HealthLevel.WARNING, _("{name} reads each chassis every {seconds:.0f} s", name=name, seconds=period),
            _("It does not bear the period that is set: it reads all of its chassis more rarely, evenly."),
            _(BUSY_ADVICE),
        )  # fmt: skip
    lag = process.gauges.get("loop_lag_seconds", 0.0)
    if lag > LAG_SECONDS:
        yield Finding(
            HealthLevel.BAD if lag > LONG_LAG_SECONDS else HealthLevel.WARNING,
            _("{name} is {seconds:.2f} s behind", name=name, seconds=lag),
            _("Its event loop is delayed: frames and polls are late."), _(BUSY_ADVICE),
        )  # fmt: skip


def _chassis_findings(chassis: Sequence[ChassisHealth]) -> Iterator[Finding]:
    for level in (HealthLevel.BAD, HealthLevel.WARNING):
        affected = [one for one in chassis if one.level == level and (one.worker or level != HealthLevel.BAD)]
        if affected:
            count = len(affected)
            names = ", ".join(one.name for one in affected[:3])
            if count > 3:
                names = _("{names} and {count} more", names=names, count=count - 3)
            words = (
                _n("{names} cannot be read", "{names} cannot be read", count, names=names)
                if level == HealthLevel.BAD
                else _n("{names} is read late or with gaps", "{names} are read late or with gaps", count, names=names)
            )
            sentence = affected[0].sentence if count == 1 else ""
            yield Finding(level, words, sentence, _("See the table of chassis below."))


def _storage_findings(pipeline: PipelineSnapshot, sizes: StorageSizes) -> Iterator[Finding]:
    if sizes.damage:
        yield Finding(
            HealthLevel.BAD, _("The database is damaged"), _("SQLite found in it: {damage}.", damage=sizes.damage),
            _("End the site and restore a backup: 'Back up' in docs/operate.md says how."),
        )  # fmt: skip
    if sizes.set_aside:
        yield Finding(
            HealthLevel.WARNING, _("Damaged readings were set aside"),
            _("Their file is {file} now, in the data folder; stored readings begin anew.", file=sizes.set_aside),
            _("Check the disk. This is shown for a day, or until the file is moved away."),
        )  # fmt: skip
    if pipeline.redis_max_bytes and pipeline.redis_bytes > FULL_SHARE * pipeline.redis_max_bytes:
        yield Finding(
            HealthLevel.BAD, _("Redis is nearly full"),
            _("When it is full, live frames stop and tasks cannot be queued."), _("Raise its maxmemory."),
        )  # fmt: skip
    free, whole = sizes.disk_free, sizes.disk
    if free is not None and whole is not None and free < least_space(whole):
        yield Finding(
            HealthLevel.WARNING, _("The disk has {size:.1f} GB left", size=free / 2**30),
            _("When it is full, readings are dropped and changes fail."),
            _("Free space, or shorten the retention of readings."),
        )  # fmt: skip


def least_space(whole: int) -> float:
    """Return the bytes that should be free on a disk of so many."""
    return max(SMALL_BYTES, SMALL_SHARE * whole)


def _undelivered_findings(waiting: Sequence[Undelivered], now: datetime) -> Iterator[Finding]:
    for one in waiting:
        seconds = (now - one.oldest_at).total_seconds() if one.oldest_at is not None else 0.0
        if seconds > LONG_WAIT_SECONDS:
            yield Finding(
                HealthLevel.WARNING,
                _(
                    "{count} {what} wait, the oldest for {minutes:.0f} min",
                    count=one.count,
                    what=_(one.what),
                    minutes=seconds / 60,
                ),
                _("They are not delivered: their receiver does not accept them. They are retried."),
                _("Check whether the receiver is up; the log of deliveries has its responses."),
            )


def _counter_findings(pipeline: PipelineSnapshot) -> Iterator[Finding]:
    """Yield the recent problems that are counted, except those that are reported for each chassis."""
    of_chassis = {"polls_late", "polls_skipped", "polls_failed"}
    recent: Counter[str] = Counter()
    for (name, _chassis), counted in pipeline.counts.items():
        if name in PROBLEMS and name not in of_chassis:
            recent[name] += counted.recent
    for name, n in recent.items():
        meaning = PROBLEMS[name]
        if n:
            level = HealthLevel.WARNING if meaning.is_loss else HealthLevel.NOTE
            words = _("{problem}: {count}", problem=_(meaning.words), count=n)
            yield Finding(level, words, _(meaning.means), _(meaning.do))


@dataclass(frozen=True)
class PublishingProcess:
    """A process with heartbeats; names of `gauges` end with their units.

    `kind` is worker, web, scheduler, launcher, broker or agent (of a host, which is its name).
    """

    name: str
    kind: str
    started_at: datetime
    published_at: datetime
    gauges: Mapping[str, float]
    chassis: int = 0  # number of polled ones

    @property
    def beat_at(self) -> datetime:
        """When its slowest loop turned last."""
        return self.published_at - timedelta(seconds=self.gauges.get("silent_seconds", 0.0))

    def silence(self, now: datetime) -> float:
        """Return the seconds since its last heartbeat."""
        return max(0.0, (now - self.beat_at).total_seconds())

    def is_silent(self, now: datetime) -> bool:
        return self.silence(now) > (SILENT_AGENT_SECONDS if self.kind == "agent" else SILENT_SECONDS)

    @property
    def label(self) -> str:
        return f"{self.kind.capitalize()} {self.host}" + (f":{self.pid}" if self.pid else "")

    @property
    def host(self) -> str:
        return self.name.partition("@")[2].rpartition(":")[0]

    @property
    def pid(self) -> int:
        return int(self.name.rpartition(":")[2] or 0)


@dataclass(frozen=True)
class CounterValue:
    """A counter: since `PipelineSnapshot.since`, recently, and the time of its last increment (None: unknown)."""

    total: int
    recent: int = 0
    seen_at: datetime | None = None


@dataclass(frozen=True)
class PipelineSnapshot:
    """The published state of all processes at `at`; `recent` counts cover the last `seconds`.

    `gauges` are the newest values of each chassis, `polled_by` the process that polls it.
    """

    at: datetime
    since: datetime
    seconds: float
    processes: tuple[PublishingProcess, ...]
    counts: Mapping[MetricKey, CounterValue]
    gauges: Mapping[int, Mapping[str, float]]
    polled_by: Mapping[int, str]
    queue: int
    redis_bytes: int
    redis_max_bytes: int  # 0: without a limit

    def of(self, kind: str) -> tuple[PublishingProcess, ...]:
        return tuple(one for one in self.processes if one.kind == kind)

    def is_heard(self, kind: str) -> bool:
        """Return whether a process of the kind has a heartbeat."""
        return any(not one.is_silent(self.at) for one in self.of(kind))

    def count(self, name: str, chassis: int | None = None) -> CounterValue:
        return self.counts.get((name, chassis), CounterValue(0))


@dataclass(frozen=True)
class StorageSizes:
    """Sizes of the databases and the disk, bytes; None where not available."""

    database: int | None
    readings: int | None
    disk_free: int | None
    disk: int | None
    tiers: tuple[TierSize, ...] = ()  # of the readings
    damage: str = ""  # of the site's own database
    set_aside: str = ""  # name of the file of damaged readings, for a day
