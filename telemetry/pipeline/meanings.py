"""What each thing that the pipeline counts means, and what somebody may do about it.

Names are those of `tally.add`. What has no meaning here is counted all the same, and shown by its name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """What is no good: in a few words, what it means, what to do; `is_loss` where something is gone for ever."""

    words: str
    means: str
    do: str
    is_loss: bool = False


BMC = "Look at the BMC's firmware and its log; tell its vendor what you see here."
BUSY = "Give the workers more CPU, start another worker, or set a longer FALCONWEB_READING_PERIOD."
MEANINGS: dict[str, Meaning] = {
    "polls_late": Meaning(
        "Polls late",
        "The readings of a second came after more than half of it had passed.",
        "Where all chassis are late, " + BUSY[0].lower() + BUSY[1:] + " Where one is, its BMC answers slowly.",
    ),
    "polls_skipped": Meaning(
        "Polls skipped",
        "A second was over before its readings could be asked for; it is missing in charts.",
        "Where all chassis skip, " + BUSY[0].lower() + BUSY[1:] + " Where one does, its BMC answers slowly.",
        is_loss=True,
    ),
    "polls_failed": Meaning(
        "Polls failed",
        "The BMC did not answer, refused, or answered what cannot be read; the page of the chassis says which.",
        "See that the BMC is reachable and that its account works. It is asked again by itself.",
        is_loss=True,
    ),
    "publish_failures": Meaning(
        "Frames not published",
        "Redis did not take the readings of a second: open pages did not show it. It is stored all the same.",
        "See that Redis or Valkey runs and has memory left.",
    ),
    "tap_failures": Meaning(
        "Hearers failed",
        "The store, the alert rules or the watch over links could not take a reading: an error of the site.",
        "The worker's log has the error; report it.",
        is_loss=True,
    ),
    "frames_skipped": Meaning(
        "Frames skipped by slow browsers",
        "A browser had not taken a frame when the next one came, and got the newer one: it shows fewer seconds.",
        "Nothing, where it is one browser on a slow line. Where it is many, the web process is busy: start another.",
    ),
    "frames_refused": Meaning(
        "Frames of a chassis that another worker has",
        "A worker that had been cut off read a chassis that was another's by then; nobody saw what it read.",
        "Nothing, once or twice. Where it goes on, see why the worker loses Redis.",
    ),
    "readings_not_a_number": Meaning(
        "Readings that are no number",
        "The BMC gave null, a text or nothing for a value: it is a gap in charts.",
        f"A sensor that is never there is its BMC's way. Where it was there before: {BMC[0].lower()}{BMC[1:]}",
    ),
    "readings_negative_counter": Meaning(
        "Counters below zero",
        "A counter cannot be: the reading was kept out.",
        BMC,
    ),
    "readings_repeated": Meaning(
        "Readings that came once more",
        "The BMC gave the report that it had given before: it makes one more rarely than it is asked.",
        "Where it always does, set a longer FALCONWEB_READING_PERIOD. Where it began to, look at the BMC.",
    ),
    "readings_late": Meaning(
        "Readings older than the ones before",
        "The BMC gave a report that it had made before the last one: it was kept out, and the last one shown on.",
        BMC,
    ),
    "readings_in_doubt": Meaning(
        "Readings in doubt",
        "The BMC said that a sensor was changed; until its unit is known, a second or two, it has a gap.",
        "Nothing, where somebody changed the sensor.",
    ),
    "units_changed": Meaning(
        "Units that changed",
        "A sensor measures in another unit than before. What is known is converted; else it is a series of its own.",
        "Nothing, where somebody set it so. The sensor's thresholds may have to be set anew.",
    ),
    "readings_too_late": Meaning(
        "Readings too late to be stored",
        "They came for a time of which no raw readings are kept any more, and were kept out.",
        BMC,
    ),
    "bmc_clock_jumps": Meaning(
        "Jumps of the BMC's clock",
        "Readings are stored by the site's own clock, so that none is lost.",
        "Set up NTP on the BMC.",
    ),
    "clock_set_back": Meaning(
        "The site's clock was set back",
        "Readings came after ones of a later time; both are kept.",
        "Let NTP slew the clock of the worker's machine instead of setting it.",
    ),
    "readings_dropped_store_full": Meaning(
        "Readings dropped",
        "The database did not take them for so long that memory for them ran out; charts show a gap.",
        "Make room on the disk, or see why the database is slow or away. It goes on by itself.",
        is_loss=True,
    ),
    "store_write_failures": Meaning(
        "Failed writes of readings",
        "The database did not take readings; they are kept in memory and tried again.",
        "Where it goes on, make room on the disk, or see why the database is slow or away.",
    ),
    "chunks_damaged": Meaning(
        "Damaged chunks",
        "Stored readings cannot be unpacked: the disk or somebody changed them. Charts show a gap.",
        "Check the disk; a backup has them, if it is older than the damage.",
        is_loss=True,
    ),
    "chunks_from_the_future": Meaning(
        "Chunks from the future",
        "Readings were stored for a day that had not come, while the site's clock was wrong; they were removed.",
        "Set up NTP on the machines of the workers.",
        is_loss=True,
    ),
    "link_counters_negative": Meaning(
        "Error counters below zero",
        "A counter cannot be: the link's health was judged without it.",
        BMC,
    ),
    "link_states_dropped": Meaning(
        "Changes of links not kept",
        "A link went up and down so often, while the database was away, that not all of it was kept.",
        "See why the database is slow or away, and look at the link.",
        is_loss=True,
    ),
    "alert_turns_dropped": Meaning(
        "Turns of alerts not kept",
        "Alerts began or ended while the database was away, more than memory for them holds.",
        "See why the database is slow or away. Alerts that last are raised again by themselves.",
        is_loss=True,
    ),
    "event_gaps": Meaning(
        "Gaps among the BMC's events",
        "While nobody listened the BMC's log lost entries, so that they could not be fetched; the event log says when.",
        "Give the BMC's log more room, where it can be set.",
        is_loss=True,
    ),
}


# What is counted and is no trouble.
GOOD = frozenset(
    {
        "polls_done", "readings_taken", "readings_stored", "frames_sent", "events_backfilled", "poll_lag_milliseconds",
    }
)  # fmt: skip


def words_of(name: str) -> str:
    """Return what is counted under a name in words: 'readings_not_a_number' as 'Readings not a number'."""
    known = MEANINGS.get(name)
    return known.words if known else name.replace("_", " ").capitalize()
