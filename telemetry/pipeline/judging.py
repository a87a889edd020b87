"""What is wrong with the pipeline, worst first: pure rules over what was read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

from telemetry.pipeline.meanings import BUSY, MEANINGS
from telemetry.pipeline.selectors import Pipeline, Process, Sizes

SILENT_SECONDS = 10.0  # processes publish every three
LAG_SECONDS, LONG_LAG_SECONDS = 0.25, 1.0  # of an event loop
LONG_QUEUE = 100  # tasks; a worker takes them within a moment
FULL_SHARE = 0.9
SMALL_SHARE, SMALL_BYTES = 0.05, 2 * 2**30  # of the disk
ON_TIME_SHARE = 0.99
LONG_WAIT_SECONDS = 300.0
POLLS = ("done", "late", "skipped", "failed")


class Level(IntEnum):
    """How bad it is."""

    GOOD = 0
    NOTE = 1
    WARNING = 2
    BAD = 3


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, what it means, and what to do about it."""

    level: Level
    words: str
    means: str = ""
    do: str = ""


@dataclass(frozen=True)
class Followed:
    """A chassis that shall be read: its row id and name, and what its row says is wrong with it ('' nothing)."""

    id: int
    name: str
    last_error: str = ""


@dataclass(frozen=True)
class ChassisHealth:
    """How a chassis is read: counts are of the last minutes, `on_time` is the share of its beats, None before any."""

    id: int
    name: str
    level: Level
    worker: str  # '' where nobody follows it
    period: float | None  # s
    lag: float | None  # s, of the newest poll
    on_time: float | None  # 0 to 1
    done: int
    late: int
    skipped: int
    failed: int
    sentence: str


@dataclass(frozen=True)
class Waiting:
    """What another room has not delivered: what it is, how many, since when (Unix s), and where to look."""

    what: str
    count: int
    oldest_at: float
    link: str = ""

    @property
    def oldest(self) -> datetime:
        """Since when the oldest waits, where one does."""
        return datetime.fromtimestamp(self.oldest_at, UTC)


def chassis_health(pipeline: Pipeline, chassis: Sequence[Followed]) -> list[ChassisHealth]:
    """Return how each chassis is read, worst first, then by name."""
    rows = [_of_chassis(pipeline, one) for one in chassis]
    # Of two that are as bad, the one that misses more comes first; None is neither.
    return sorted(rows, key=lambda row: (-row.level, row.on_time if row.on_time is not None else 1.0, row.name))


def _of_chassis(pipeline: Pipeline, chassis: Followed) -> ChassisHealth:
    done, late, skipped, failed = (pipeline.count(f"polls_{what}", chassis.id).recent for what in POLLS)
    notes = pipeline.notes.get(chassis.id, {})
    beats = done + skipped + failed
    on_time = (done - late) / beats if beats else None
    worker = pipeline.followed_by.get(chassis.id, "")
    level, sentence = Level.GOOD, ""
    if chassis.last_error:
        level, sentence = Level.BAD, chassis.last_error
    elif not worker:
        level, sentence = Level.BAD, "No worker reads it."
    elif on_time is not None and on_time < ON_TIME_SHARE:
        level = Level.WARNING
        sentence = _sentence(late, skipped, failed)
    return ChassisHealth(
        id=chassis.id, name=chassis.name, level=level, worker=worker, period=notes.get("poll_period_seconds"),
        lag=notes.get("poll_lag_seconds"), on_time=on_time, done=done, late=late, skipped=skipped, failed=failed,
        sentence=sentence,
    )  # fmt: skip


def _sentence(late: int, skipped: int, failed: int) -> str:
    told = [f"{n} {word}" for n, word in ((late, "late"), (skipped, "skipped"), (failed, "failed")) if n]
    return f"Of its polls, {', '.join(told)}."


def findings(
    pipeline: Pipeline, sizes: Sizes, chassis: Sequence[ChassisHealth], waiting: Sequence[Waiting]
) -> list[Finding]:
    """Return what is wrong, worst first."""
    found = [
        *_of_workers(pipeline, chassis),
        *(finding for process in pipeline.processes for finding in _of_process(process, pipeline.at)),
        *_of_chassis_together(chassis),
        *_of_stores(pipeline, sizes),
        *_of_waiting(waiting, pipeline.at),
        *_of_counts(pipeline),
    ]
    return sorted(found, key=lambda one: -one.level)


def _of_workers(pipeline: Pipeline, chassis: Sequence[ChassisHealth]) -> Iterator[Finding]:
    heard = [one for one in pipeline.of("worker") if pipeline.at - one.heard_at <= SILENT_SECONDS]
    if not heard:
        yield Finding(
            Level.BAD, "No worker is heard", "Nothing is read, and no operation goes on.",
            "Start a worker; its log, logs/worker.log, says why it ended.",
        )  # fmt: skip
        return
    if pipeline.queue > LONG_QUEUE:
        yield Finding(
            Level.WARNING, f"{pipeline.queue} tasks wait",
            "Tasks come in faster than workers take them: operations begin late.", "Start another worker.",
        )  # fmt: skip
    alone = sum(not one.worker for one in chassis)
    if alone:
        one_of = "One chassis is" if alone == 1 else f"{alone} chassis are"
        yield Finding(
            Level.BAD, f"{one_of} read by no worker", "Its readings are missing from now on." if alone == 1
            else "Their readings are missing from now on.",
            "A worker takes one over within seconds; where it stays so, its log says why.",
        )  # fmt: skip


def _of_process(process: Process, now: float) -> Iterator[Finding]:
    name = f"{process.kind.capitalize()} {process.host}:{process.pid}"
    if (silent := now - process.heard_at) > SILENT_SECONDS:
        yield Finding(
            Level.WARNING, f"{name} was not heard for {silent:.0f} s", "It ended, or it is too busy to say anything.",
            "Where it was ended on purpose, this goes away by itself.",
        )  # fmt: skip
    lag = process.gauges.get("loop_lag_seconds", 0.0)
    if lag > LAG_SECONDS:
        yield Finding(
            Level.BAD if lag > LONG_LAG_SECONDS else Level.WARNING, f"{name} is {lag:.2f} s behind",
            "Its event loop takes up what comes so much too late: frames and polls are late.", BUSY,
        )  # fmt: skip


def _of_chassis_together(chassis: Sequence[ChassisHealth]) -> Iterator[Finding]:
    for level, words in ((Level.BAD, "cannot be read"), (Level.WARNING, "read late or with gaps")):
        ill = [one for one in chassis if one.level == level and (one.worker or level != Level.BAD)]
        if ill:
            names = ", ".join(one.name for one in ill[:3]) + (f" and {len(ill) - 3} more" if len(ill) > 3 else "")
            verb = words if level == Level.BAD else f"{'is' if len(ill) == 1 else 'are'} {words}"
            yield Finding(
                level, f"{names} {verb}", ill[0].sentence if len(ill) == 1 else "", "See the table of chassis below.",
            )  # fmt: skip


def _of_stores(pipeline: Pipeline, sizes: Sizes) -> Iterator[Finding]:
    if pipeline.redis_most_bytes and pipeline.redis_bytes > FULL_SHARE * pipeline.redis_most_bytes:
        yield Finding(
            Level.BAD, "Redis is nearly full", "Once it is, live frames stop and tasks cannot be handed over.",
            "Raise its maxmemory.",
        )  # fmt: skip
    if sizes.disk_free is not None and sizes.disk is not None:
        small = sizes.disk_free < SMALL_BYTES or sizes.disk_free < SMALL_SHARE * sizes.disk
        if small:
            yield Finding(
                Level.WARNING, f"The disk has {sizes.disk_free / 2**30:.1f} GB left",
                "Once it is full, readings are dropped and nothing can be changed.",
                "Make room, or keep readings for a shorter time.",
            )  # fmt: skip


def _of_waiting(waiting: Sequence[Waiting], now: float) -> Iterator[Finding]:
    for one in waiting:
        if one.count and now - one.oldest_at > LONG_WAIT_SECONDS:
            yield Finding(
                Level.WARNING, f"{one.count} {one.what} wait, the oldest for {(now - one.oldest_at) / 60:.0f} min",
                "They are not delivered: what they go to does not take them. They are tried again.",
                "See whether the target is up; the log of deliveries says what it answered.",
            )  # fmt: skip


def _of_counts(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield what was lost in the last minutes and is not told of each chassis already."""
    of_chassis = {"polls_late", "polls_skipped", "polls_failed"}
    recent: dict[str, int] = {}
    for (name, _), counted in pipeline.counts.items():
        if name in MEANINGS and name not in of_chassis:
            recent[name] = recent.get(name, 0) + counted.recent
    for name, n in recent.items():
        meaning = MEANINGS[name]
        if n:
            level = Level.WARNING if meaning.is_loss else Level.NOTE
            yield Finding(level, f"{meaning.words}: {n}", meaning.means, meaning.do)
