"""Counters and gauges of this process, cheap enough for each reading, and the meaning of each problem counted.

Names are those of `increment`.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TypeVar

from core.language import gettext_noop

logger = logging.getLogger(__name__)
T = TypeVar("T")
MetricKey = tuple[str, int | None]
# Upper bounds, s, of the counters poll_lag_le_<bound>: the time from the beat to the publication of the frame.
LAG_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_lock = Lock()
_counts: Counter[MetricKey] = Counter()
_gauge_values: dict[MetricKey, float] = {}
_gauge_sources: dict[str, Callable[[], float]] = {}
_counter_sources: dict[str, Callable[[], int]] = {}
# A process that the launcher forks counts its own.
os.register_at_fork(after_in_child=_counts.clear)


def increment(name: str, n: int = 1, *, chassis: int | None = None) -> None:
    """Increment a counter by `n`; `name` is in snake_case, what first: 'polls_late'."""
    if n:
        with _lock:
            _counts[name, chassis] += n


def set_gauge(name: str, value: float, *, chassis: int | None = None) -> None:
    """Set a gauge; the name ends with its unit: 'poll_lag_seconds'."""
    _gauge_values[name, chassis] = value


def drop_gauges(chassis: int) -> None:
    """Drop the gauges of a chassis that this process no longer polls; its counters stay."""
    for name in [name for name in list(_gauge_values) if name[1] == chassis]:
        _gauge_values.pop(name, None)


def register_gauge(name: str, read: Callable[[], float]) -> None:
    """Register the source of a gauge, read at each publication in another thread: `read` only returns a number."""
    _gauge_sources[name] = read


def register_counter(name: str, read: Callable[[], int]) -> None:
    """Register a counter kept elsewhere, such as in a hot path without a lock: `read` returns its value."""
    _counter_sources[name] = read


def counter_values() -> dict[MetricKey, int]:
    """Return the counters since the start of the process, by name and chassis."""
    with _lock:
        counted = dict(_counts)
    return counted | _read_sources(_counter_sources)


def gauge_values() -> dict[MetricKey, float]:
    """Return the gauges, by name and chassis."""
    return dict(_gauge_values) | _read_sources(_gauge_sources)


def _read_sources(sources: Mapping[str, Callable[[], T]]) -> dict[MetricKey, T]:
    values: dict[MetricKey, T] = {}
    for name, read in list(sources.items()):
        try:
            values[name, None] = read()
        except Exception:
            # A failing source must not stop the others.
            logger.exception("a metric of this process cannot be read")
    return values


@dataclass(frozen=True)
class ProblemDescription:
    """Description of a problem: label, meaning and advice; `is_loss` where data is lost permanently."""

    words: str
    means: str
    do: str
    is_loss: bool = False


LossDescription = partial(ProblemDescription, is_loss=True)

BMC_ADVICE = gettext_noop("Check the BMC's firmware and its log; report the problem to its vendor.")
BUSY_ADVICE = gettext_noop("Give the workers more CPU, start another worker, or set a longer FALCONWEB_READING_PERIOD.")
PROBLEMS: dict[str, ProblemDescription] = {
    "processes_hung": ProblemDescription(
        gettext_noop("Processes that hung and were restarted"),
        gettext_noop("A process of the site did not react any more. What it had accepted continues in the new one."),
        gettext_noop("Once may be an overloaded machine. If it continues, report it with the log of the process."),
    ),
    "polls_late": ProblemDescription(
        gettext_noop("Polls late"),
        gettext_noop("The readings of a second arrived after more than half of it."),
        gettext_noop(
            "Where all chassis are late, give the workers more CPU, start another worker, or set a longer "
            "FALCONWEB_READING_PERIOD. Where one is, its BMC answers slowly."
        ),
    ),
    "polls_skipped": LossDescription(
        gettext_noop("Polls skipped"),
        gettext_noop("A second passed before its readings could be requested; it is missing in charts."),
        gettext_noop(
            "Where all chassis skip, give the workers more CPU, start another worker, or set a longer "
            "FALCONWEB_READING_PERIOD. Where one does, its BMC answers slowly."
        ),
    ),
    "polls_failed": LossDescription(
        gettext_noop("Polls failed"),
        gettext_noop(
            "The BMC did not answer, refused, or sent an invalid response; the page of the chassis has the error."
        ),
        gettext_noop("Check that the BMC is reachable and that its account works. It is retried automatically."),
    ),
    "publish_failures": ProblemDescription(
        gettext_noop("Frames not published"),
        gettext_noop(
            "Redis did not accept the readings of a second: open pages did not show it. It is stored nevertheless."
        ),
        gettext_noop("Check that Redis or Valkey runs and has memory left."),
    ),
    "tap_failures": LossDescription(
        gettext_noop("Reading subscribers failed"),
        gettext_noop("The store, the alert rules or the link watch could not process a reading: an error of the site."),
        gettext_noop("The worker's log has the error; report it."),
    ),
    "frames_skipped": ProblemDescription(
        gettext_noop("Frames skipped by slow browsers"),
        gettext_noop(
            "A browser had not accepted a frame when the next one arrived, and got the newer one: it shows fewer "
            "seconds."
        ),
        gettext_noop(
            "Nothing, for one browser on a slow line. For many, the web process is overloaded: start another."
        ),
    ),
    "frames_refused": ProblemDescription(
        gettext_noop("Frames of a chassis claimed elsewhere"),
        gettext_noop(
            "A disconnected worker read a chassis that another worker had claimed meanwhile; its readings were "
            "rejected."
        ),
        gettext_noop("Nothing, once or twice. If it continues, check why the worker loses Redis."),
    ),
    "readings_not_a_number": ProblemDescription(
        gettext_noop("Readings that are not a number"),
        gettext_noop("The BMC sent null, a text or nothing for a value: it is a gap in charts."),
        gettext_noop(
            "Some BMCs never have a value for some sensors. If there was one before: check the BMC's firmware and its "
            "log; report the problem to its vendor."
        ),
    ),
    "readings_negative_counter": ProblemDescription(
        gettext_noop("Counters below zero"),
        gettext_noop("A counter cannot be negative: the reading was rejected."),
        BMC_ADVICE,
    ),
    "readings_repeated": ProblemDescription(
        gettext_noop("Repeated readings"),
        gettext_noop("The BMC sent the previous report again: it updates reports less often than it is polled."),
        gettext_noop("If it always does, set a longer FALCONWEB_READING_PERIOD. If it started to, check the BMC."),
    ),
    "readings_late": ProblemDescription(
        gettext_noop("Readings older than the previous ones"),
        gettext_noop(
            "The BMC sent a report that is older than the last one: it was rejected, and the last one is still shown."
        ),
        BMC_ADVICE,
    ),
    "readings_in_doubt": ProblemDescription(
        gettext_noop("Readings in doubt"),
        gettext_noop("The BMC reported a change of a sensor; until its unit is known, a second or two, it has a gap."),
        gettext_noop("Nothing, if the sensor was changed intentionally."),
    ),
    "units_changed": ProblemDescription(
        gettext_noop("Changed units"),
        gettext_noop("A sensor has another unit than before. Known units are converted; others are a new series."),
        gettext_noop("Nothing, if it was changed intentionally. The sensor's thresholds may have to be adjusted."),
    ),
    "readings_too_late": ProblemDescription(
        gettext_noop("Readings too late to be stored"),
        gettext_noop("They were for a time past the retention of raw readings, and were rejected."),
        BMC_ADVICE,
    ),
    "bmc_clock_jumps": ProblemDescription(
        gettext_noop("Jumps of the BMC's clock"),
        gettext_noop("Readings are stored with the site's own clock, so that none is lost."),
        gettext_noop("Set up NTP on the BMC."),
    ),
    "clock_set_back": ProblemDescription(
        gettext_noop("The site's clock was set back"),
        gettext_noop("Readings arrived after ones of a later time; both are stored."),
        gettext_noop("Let NTP slew the clock of the worker's machine instead of setting it."),
    ),
    "readings_dropped_store_full": LossDescription(
        gettext_noop("Readings dropped"),
        gettext_noop("The database was unavailable until the memory for readings was full; charts show a gap."),
        gettext_noop(
            "Free space on the disk, or check why the database is slow or unreachable. Storing resumes automatically."
        ),
    ),
    "store_write_failures": ProblemDescription(
        gettext_noop("Failed writes of readings"),
        gettext_noop("The database did not accept readings; they are kept in memory and retried."),
        gettext_noop("If it continues, free space on the disk, or check why the database is slow or unreachable."),
    ),
    "chunks_damaged": LossDescription(
        gettext_noop("Damaged chunks"),
        gettext_noop(
            "Stored readings cannot be decoded: they were changed since they were written. Charts show a gap."
        ),
        gettext_noop("Check the disk; a backup from before the damage has them."),
    ),
    "chunks_from_the_future": LossDescription(
        gettext_noop("Chunks from the future"),
        gettext_noop("Readings were stored with a future date, while the site's clock was wrong; they were removed."),
        gettext_noop("Set up NTP on the machines of the workers."),
    ),
    "link_counters_negative": ProblemDescription(
        gettext_noop("Error counters below zero"),
        gettext_noop("A counter cannot be negative: the link's health was judged without it."),
        BMC_ADVICE,
    ),
    "link_states_dropped": LossDescription(
        gettext_noop("Changes of links not stored"),
        gettext_noop(
            "A link went up and down so often, while the database was unreachable, that not all changes were stored."
        ),
        gettext_noop("Check why the database is slow or unreachable, and check the link."),
    ),
    "alert_turns_dropped": LossDescription(
        gettext_noop("Transitions of alerts not stored"),
        gettext_noop("More alerts started or ended while the database was unreachable than are kept in memory."),
        gettext_noop(
            "Check why the database is slow or unreachable. Alerts that still apply are raised again automatically."
        ),
    ),
    "event_gaps": LossDescription(
        gettext_noop("Gaps among the BMC's events"),
        gettext_noop(
            "The BMC's log lost entries before they were read, while the site was not connected; see the event log."
        ),
        gettext_noop("Increase the size of the BMC's log, where possible."),
    ),
}
