"""Counters from reading to reading: resets, wraps and late reports, and any order of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telemetry.links.counters import CounterStep, RawCounts, counter_step, valid_counts


class Played:
    """A port's counters as they are followed."""

    def __init__(self, first: RawCounts) -> None:
        self.step = CounterStep(last=first)
        self.total = 0
        self.resets: list[RawCounts] = []

    def take(self, **values: int) -> Played:
        self.step = counter_step(self.step.last, values, self.step.doubt)
        self.total += self.step.gained.get("ReplayCount", 0)
        if self.step.before is not None:
            self.resets.append(self.step.before)
        return self


def test_what_is_gained_is_the_difference() -> None:
    played = Played({"ReplayCount": 3, "RXBytes": 100}).take(ReplayCount=5, RXBytes=900)
    assert played.step.gained == {"ReplayCount": 2}


def test_a_reset_is_told_at_the_second_reading_and_nothing_is_lost() -> None:
    played = Played({"ReplayCount": 90, "RXBytes": 10**12})
    played.take(ReplayCount=2, RXBytes=10)
    assert played.resets == []
    played.take(ReplayCount=4, RXBytes=20)
    assert played.resets == [{"ReplayCount": 90}]
    assert played.take(ReplayCount=5, RXBytes=30).total == 5


def test_a_report_that_comes_late_is_no_reset() -> None:
    played = Played({"ReplayCount": 90}).take(ReplayCount=88).take(ReplayCount=91)
    assert (played.total, played.resets) == (1, [])


def test_a_burst_after_a_reset_is_found_by_the_bytes() -> None:
    played = Played({"ReplayCount": 3, "RXBytes": 10**9})
    played.take(ReplayCount=40, RXBytes=5).take(ReplayCount=50, RXBytes=9)
    assert played.resets == [{"ReplayCount": 3}]
    assert played.total == 47  # at least so many: whether it began at zero, nothing tells


def test_a_wrap_is_no_reset() -> None:
    played = Played({"ReplayCount": 65_530, "BadTLPCount": 7})
    played.take(ReplayCount=4, BadTLPCount=7).take(ReplayCount=5, BadTLPCount=7)
    assert (played.resets, played.total) == ([], 11)


def test_a_counter_alone_near_its_end_is_taken_for_reset() -> None:
    played = Played({"ReplayCount": 65_530}).take(ReplayCount=4).take(ReplayCount=5)
    assert (len(played.resets), played.total) == (1, 5)


def test_a_counter_that_comes_later_begins_where_it_stands() -> None:
    played = Played({"ReplayCount": 3}).take(ReplayCount=3, BadTLPCount=900)
    assert played.step.gained == {}
    assert played.take(ReplayCount=3, BadTLPCount=901).step.gained == {"BadTLPCount": 1}


def test_what_cannot_be_a_count_is_left_out() -> None:
    values = {"a": 3.0, "b": float("nan"), "c": -1.0, "d": float("inf"), "e": 0.0}
    assert valid_counts(values) == {"a": 3, "e": 0}


@given(st.lists(st.one_of(st.integers(0, 50), st.just("reset"), st.just("late")), max_size=60))
def test_totals_go_on_over_any_resets_and_late_reports(happenings: list[int | str]) -> None:
    """Against a plain count: each reading twice, so that a reset is seen before the counter is as high again."""
    count, rx, happened, resets = 7, 1000, 0, 0
    played = Played({"ReplayCount": count, "RXBytes": rx})
    for one in happenings:
        if one == "reset":
            resets += 1
            count = rx = 0
            played.take(ReplayCount=0, RXBytes=0).take(ReplayCount=0, RXBytes=0)
            rx = 5
        elif one == "late":
            played.take(ReplayCount=max(0, count - 3), RXBytes=max(0, rx - 100))
        else:
            count, rx, happened = count + int(one), rx + 1000, happened + int(one)
        played.take(ReplayCount=count, RXBytes=rx)
    assert played.total == happened
    assert len(played.resets) == resets


def test_what_nothing_ever_counts_is_no_count() -> None:
    ones = float(2**64 - 1)
    read = {"ReplayCount": ones, "BadTLPCount": 2.0**53, "NAKSentCount": 1e19, "RXBytes": ones, "TXBytes": 2.0**54}
    assert valid_counts(read | {"FatalErrorCount": 2.0**53 - 1}) == {"TXBytes": 2**54, "FatalErrorCount": 2**53 - 1}
