"""Counters and gauges of this process, cheap enough for each reading, and the meaning of each problem counted.

Names are those of `increment`. What has no meaning here is counted all the same, and shown by its name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")
MetricKey = tuple[str, int | None]
# Upper bounds, in s, of what is counted as poll_lag_le_<bound>: from the beat to the frame's being published.
LAG_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_lock = Lock()
_counts: Counter[MetricKey] = Counter()
_gauge_values: dict[MetricKey, float] = {}
_gauge_sources: dict[str, Callable[[], float]] = {}
_counter_sources: dict[str, Callable[[], int]] = {}


def increment(name: str, n: int = 1, *, chassis: int | None = None) -> None:
    """Count something, `n` times; `name` is in snake_case and tells what of how many: 'polls_late'."""
    if n:
        with _lock:
            _counts[name, chassis] += n


def set_gauge(name: str, value: float, *, chassis: int | None = None) -> None:
    """Keep the newest value of something that goes up and down; the name ends with its unit: 'poll_lag_seconds'."""
    _gauge_values[name, chassis] = value


def drop_gauges(chassis: int) -> None:
    """Drop what was noted of a chassis that this process follows no longer; what was counted stays counted."""
    for name in [name for name in list(_gauge_values) if name[1] == chassis]:
        _gauge_values.pop(name, None)


def register_gauge(name: str, ask: Callable[[], float]) -> None:
    """Have a value asked for at each publication: in a thread of its own, so `ask` reads a number and no more."""
    _gauge_sources[name] = ask


def register_counter(name: str, ask: Callable[[], int]) -> None:
    """Have something counted elsewhere, such as in a hot path without a lock: `ask` gives how many since the start."""
    _counter_sources[name] = ask


def counter_values() -> dict[MetricKey, int]:
    """Return what was counted since the process began, by name and chassis."""
    with _lock:
        counted = dict(_counts)
    return counted | {
        (name, None): value for name, ask in list(_counter_sources.items()) if (value := _read_source(ask)) is not None
    }


def gauge_values() -> dict[MetricKey, float]:
    """Return what was noted and what is asked for now, by name and chassis."""
    asked = {
        (name, None): value for name, ask in list(_gauge_sources.items()) if (value := _read_source(ask)) is not None
    }
    return dict(_gauge_values) | asked


def _read_source(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except Exception:
        # One that fails must not silence the others.
        logger.exception("a figure of this process cannot be told")
        return None


@dataclass(frozen=True)
class ProblemDescription:
    """What is no good: in a few words, what it means, what to do; `is_loss` where something is gone for ever."""

    words: str
    means: str
    do: str
    is_loss: bool = False


BMC_ADVICE = "Look at the BMC's firmware and its log; tell its vendor what you see here."
BUSY_ADVICE = "Give the workers more CPU, start another worker, or set a longer FALCONWEB_READING_PERIOD."
PROBLEMS: dict[str, ProblemDescription] = {
    "polls_late": ProblemDescription(
        "Polls late",
        "The readings of a second came after more than half of it had passed.",
        "Where all chassis are late, "
        + BUSY_ADVICE[0].lower()
        + BUSY_ADVICE[1:]
        + " Where one is, its BMC answers slowly.",
    ),
    "polls_skipped": ProblemDescription(
        "Polls skipped",
        "A second was over before its readings could be asked for; it is missing in charts.",
        "Where all chassis skip, "
        + BUSY_ADVICE[0].lower()
        + BUSY_ADVICE[1:]
        + " Where one does, its BMC answers slowly.",
        is_loss=True,
    ),
    "polls_failed": ProblemDescription(
        "Polls failed",
        "The BMC did not answer, refused, or answered what cannot be read; the page of the chassis says which.",
        "See that the BMC is reachable and that its account works. It is asked again by itself.",
        is_loss=True,
    ),
    "publish_failures": ProblemDescription(
        "Frames not published",
        "Redis did not take the readings of a second: open pages did not show it. It is stored all the same.",
        "See that Redis or Valkey runs and has memory left.",
    ),
    "tap_failures": ProblemDescription(
        "Hearers failed",
        "The store, the alert rules or the watch over links could not take a reading: an error of the site.",
        "The worker's log has the error; report it.",
        is_loss=True,
    ),
    "frames_skipped": ProblemDescription(
        "Frames skipped by slow browsers",
        "A browser had not taken a frame when the next one came, and got the newer one: it shows fewer seconds.",
        "Nothing, where it is one browser on a slow line. Where it is many, the web process is busy: start another.",
    ),
    "frames_refused": ProblemDescription(
        "Frames of a chassis that another worker has",
        "A worker that had been cut off read a chassis that was another's by then; nobody saw what it read.",
        "Nothing, once or twice. Where it goes on, see why the worker loses Redis.",
    ),
    "readings_not_a_number": ProblemDescription(
        "Readings that are no number",
        "The BMC gave null, a text or nothing for a value: it is a gap in charts.",
        "A sensor that is never there is its BMC's way. "
        f"Where it was there before: {BMC_ADVICE[0].lower()}{BMC_ADVICE[1:]}",
    ),
    "readings_negative_counter": ProblemDescription(
        "Counters below zero",
        "A counter cannot be: the reading was kept out.",
        BMC_ADVICE,
    ),
    "readings_repeated": ProblemDescription(
        "Readings that came once more",
        "The BMC gave the report that it had given before: it makes one more rarely than it is asked.",
        "Where it always does, set a longer FALCONWEB_READING_PERIOD. Where it began to, look at the BMC.",
    ),
    "readings_late": ProblemDescription(
        "Readings older than the ones before",
        "The BMC gave a report that it had made before the last one: it was kept out, and the last one shown on.",
        BMC_ADVICE,
    ),
    "readings_in_doubt": ProblemDescription(
        "Readings in doubt",
        "The BMC said that a sensor was changed; until its unit is known, a second or two, it has a gap.",
        "Nothing, where somebody changed the sensor.",
    ),
    "units_changed": ProblemDescription(
        "Units that changed",
        "A sensor measures in another unit than before. What is known is converted; else it is a series of its own.",
        "Nothing, where somebody set it so. The sensor's thresholds may have to be set anew.",
    ),
    "readings_too_late": ProblemDescription(
        "Readings too late to be stored",
        "They came for a time of which no raw readings are kept any more, and were kept out.",
        BMC_ADVICE,
    ),
    "bmc_clock_jumps": ProblemDescription(
        "Jumps of the BMC's clock",
        "Readings are stored by the site's own clock, so that none is lost.",
        "Set up NTP on the BMC.",
    ),
    "clock_set_back": ProblemDescription(
        "The site's clock was set back",
        "Readings came after ones of a later time; both are kept.",
        "Let NTP slew the clock of the worker's machine instead of setting it.",
    ),
    "readings_dropped_store_full": ProblemDescription(
        "Readings dropped",
        "The database did not take them for so long that memory for them ran out; charts show a gap.",
        "Make room on the disk, or see why the database is slow or away. It goes on by itself.",
        is_loss=True,
    ),
    "store_write_failures": ProblemDescription(
        "Failed writes of readings",
        "The database did not take readings; they are kept in memory and tried again.",
        "Where it goes on, make room on the disk, or see why the database is slow or away.",
    ),
    "chunks_damaged": ProblemDescription(
        "Damaged chunks",
        "Stored readings cannot be unpacked: the disk or somebody changed them. Charts show a gap.",
        "Check the disk; a backup has them, if it is older than the damage.",
        is_loss=True,
    ),
    "chunks_from_the_future": ProblemDescription(
        "Chunks from the future",
        "Readings were stored for a day that had not come, while the site's clock was wrong; they were removed.",
        "Set up NTP on the machines of the workers.",
        is_loss=True,
    ),
    "link_counters_negative": ProblemDescription(
        "Error counters below zero",
        "A counter cannot be: the link's health was judged without it.",
        BMC_ADVICE,
    ),
    "link_states_dropped": ProblemDescription(
        "Changes of links not kept",
        "A link went up and down so often, while the database was away, that not all of it was kept.",
        "See why the database is slow or away, and look at the link.",
        is_loss=True,
    ),
    "alert_turns_dropped": ProblemDescription(
        "Turns of alerts not kept",
        "Alerts began or ended while the database was away, more than memory for them holds.",
        "See why the database is slow or away. Alerts that last are raised again by themselves.",
        is_loss=True,
    ),
    "event_gaps": ProblemDescription(
        "Gaps among the BMC's events",
        "While nobody listened the BMC's log lost entries, so that they could not be fetched; the event log says when.",
        "Give the BMC's log more room, where it can be set.",
        is_loss=True,
    ),
}


# What is counted and is no trouble.
HEALTHY_COUNTERS = frozenset(
    {
        "polls_done", "readings_taken", "readings_stored", "frames_sent", "events_backfilled", "poll_lag_milliseconds",
    }
)  # fmt: skip


def counter_label(name: str) -> str:
    """Return what is counted under a name in words: 'readings_not_a_number' as 'Readings not a number'."""
    known = PROBLEMS.get(name)
    return known.words if known else name.replace("_", " ").capitalize()
