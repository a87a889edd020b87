"""The verdict on a link, case by case, and the table of its thresholds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from core.language import values_in
from telemetry.links.rules import (
    MIN_EVENTS,
    RANKS,
    REASON_WORDS,
    THRESHOLDS,
    LinkFacts,
    LinkLevel,
    allowed_rate,
    duration_label,
    judge_link,
    pcie_generation,
    rate_label,
)

NOW = 1_000_000.0
# x16 Gen 4: 256 errors in 1000 s is the most that the specification allows.
ALLOWED_IN_TEN_MINUTES = 0.256 * 600
GOOD: dict[str, Any] = {
    "status": "LinkUp", "state_since": NOW - 5000, "width": 16, "speed_gbps": 256.0, "max_width": 16,
    "max_speed_gbps": 256.0, "configured_width": 16, "approved_width": 16, "device_lanes": 16,
    "device_pcie_type": "Gen4",
}  # fmt: skip
DOWN: dict[str, Any] = {"status": "LinkDown", "width": 0, "speed_gbps": 0.0}
HEALTHY, UNKNOWN, WATCH, DEGRADED, FAILING, IS_DOWN = LinkLevel

CASES: list[tuple[str, dict[str, Any], LinkLevel, set[str]]] = [
    ("a link at its best", {}, HEALTHY, {"fine"}),
    ("what the chassis does not report", {"unknown": "Gone."}, UNKNOWN, {"unknown"}),
    ("no status told", {"status": ""}, UNKNOWN, {"unknown"}),
    ("no status told of a link that is not in use", {"status": "", "idle": "No host is cabled to it."}, UNKNOWN,
     {"unknown"}),
    # Width
    ("half the lanes", {"width": 8, "speed_gbps": 128.0}, DEGRADED, {"width"}),
    ("as narrow as the device", {"width": 8, "speed_gbps": 128.0, "device_lanes": 8}, HEALTHY, {"fine"}),
    ("as narrow as the port", {"width": 8, "speed_gbps": 128.0, "max_width": 8, "max_speed_gbps": 128.0}, HEALTHY,
     {"fine"}),
    ("as narrow as configured and approved",
     {"width": 8, "speed_gbps": 128.0, "configured_width": 8, "approved_width": 8}, HEALTHY, {"fine"}),
    ("narrower than approved, by its setting", {"width": 8, "speed_gbps": 128.0, "configured_width": 8}, WATCH,
     {"configured"}),
    ("narrower than configured", {"width": 4, "speed_gbps": 64.0, "configured_width": 8, "approved_width": 8},
     DEGRADED, {"width"}),
    ("nothing known of the far end's width", {"device_lanes": None, "width": 8, "speed_gbps": 128.0}, DEGRADED,
     {"width"}),
    # Speed
    ("a generation less", {"speed_gbps": 128.0}, DEGRADED, {"speed"}),
    ("a generation less, as the device is", {"speed_gbps": 128.0, "device_pcie_type": "Gen3"}, HEALTHY, {"fine"}),
    ("told without encoding", {"speed_gbps": 252.0}, HEALTHY, {"fine"}),
    ("narrower and slower", {"width": 8, "speed_gbps": 64.0}, DEGRADED, {"width", "speed"}),
    ("narrower at full speed a lane", {"width": 8, "speed_gbps": 128.0}, DEGRADED, {"width"}),
    ("the far end's speed not known", {"speed_gbps": 128.0, "device_pcie_type": "", "judges_speed": False}, HEALTHY,
     {"fine"}),
    ("no speed told", {"speed_gbps": None}, HEALTHY, {"fine"}),
    # Down
    ("down with a device attached", DOWN, IS_DOWN, {"down"}),
    ("down since a moment", DOWN | {"state_since": NOW - 5}, HEALTHY, {"fine"}),
    ("training for long", {"status": "Training", "width": 0, "state_since": NOW - 60}, IS_DOWN, {"training"}),
    ("training just now", {"status": "Training", "width": 0, "state_since": NOW - 3}, HEALTHY, {"fine"}),
    ("down with nothing attached", DOWN | {"idle": "Its device is attached to no host."}, HEALTHY, {"fine"}),
    ("down while an operation is at work", DOWN | {"busy": True}, HEALTHY, {"fine"}),
    ("its device is gone", DOWN | {"missing": "GPU 1 is gone.", "idle": "Nothing is in its slot."}, IS_DOWN, {"down"}),
    ("down and flapping", DOWN | {"flaps": 6, "state_since": NOW - 3}, DEGRADED, {"flaps"}),
    ("idle, with errors of before", DOWN | {"idle": "No host.", "hour": {"FatalErrorCount": 1}}, FAILING,
     {"fatal_now"}),
    # Rates
    ("a tenth of what is allowed", {"ten_minutes": {"ReplayCount": 16}}, WATCH, {"sent"}),
    ("just below that", {"ten_minutes": {"ReplayCount": 15}}, HEALTHY, {"fine"}),
    ("what is allowed", {"ten_minutes": {"ReplayCount": 154}}, DEGRADED, {"sent"}),
    ("a hundredfold", {"ten_minutes": {"ReplayCount": 15_400}}, FAILING, {"sent"}),
    ("refused by the far end", {"ten_minutes": {"NAKReceivedCount": 154}}, DEGRADED, {"sent"}),
    ("several counters of the same packets", {"ten_minutes": {"ReplayCount": 100, "NAKReceivedCount": 100}}, WATCH,
     {"sent"}),
    ("damaged on its way here", {"ten_minutes": {"BadTLPCount": 200}}, DEGRADED, {"received"}),
    ("damaged acknowledgements", {"ten_minutes": {"BadDLLPCount": 200}}, DEGRADED, {"received"}),
    ("mended by the hardware", {"ten_minutes": {"CorrectableErrorCount": 200}}, DEGRADED, {"correctable"}),
    ("a burst within the minute", {"minute": {"ReplayCount": 20}, "ten_minutes": {"ReplayCount": 20}}, DEGRADED,
     {"sent"}),
    ("too few to tell", {"minute": {"ReplayCount": 9}, "ten_minutes": {"ReplayCount": 9}}, HEALTHY, {"fine"}),
    ("watched for two minutes only", {"ten_minutes": {"ReplayCount": 40}, "ten_minutes_seconds": 120.0}, DEGRADED,
     {"sent"}),
    # Counts
    ("a rollover", {"hour": {"ReplayRolloverCount": 1}}, WATCH, {"rollovers"}),
    ("three rollovers", {"hour": {"ReplayRolloverCount": 3}}, DEGRADED, {"rollovers"}),
    ("thirty rollovers", {"hour": {"ReplayRolloverCount": 30}}, FAILING, {"rollovers"}),
    ("one attachment's retraining", {"hour": {"L0ToRecoveryCount": 2}}, HEALTHY, {"fine"}),
    ("three retrainings", {"hour": {"L0ToRecoveryCount": 3}}, WATCH, {"recoveries"}),
    ("twenty retrainings", {"hour": {"L0ToRecoveryCount": 20}}, DEGRADED, {"recoveries"}),
    ("two hundred retrainings", {"hour": {"L0ToRecoveryCount": 200}}, FAILING, {"recoveries"}),
    ("a restart of the host", {"flaps": 1}, HEALTHY, {"fine"}),
    ("two flaps", {"flaps": 2}, WATCH, {"flaps"}),
    ("five flaps", {"flaps": 5}, DEGRADED, {"flaps"}),
    ("twenty flaps", {"flaps": 20}, FAILING, {"flaps"}),
    ("a flow control time-out", {"hour": {"FlowControlTimeoutErrors": 1}}, WATCH, {"flow"}),
    ("a non-fatal error of long ago", {"since_reset": {"NonFatalErrorCount": 4}}, WATCH, {"non_fatal"}),
    ("a non-fatal error now", {"hour": {"NonFatalErrorCount": 1}, "since_reset": {"NonFatalErrorCount": 4}}, DEGRADED,
     {"non_fatal_now"}),
    ("a fatal error of long ago", {"since_reset": {"FatalErrorCount": 1}}, DEGRADED, {"fatal"}),
    ("a fatal error now", {"hour": {"FatalErrorCount": 1}, "since_reset": {"FatalErrorCount": 1}}, FAILING,
     {"fatal_now"}),
    ("requests that nobody knows", {"hour": {"UnsupportedRequestCount": 5000}}, HEALTHY, {"fine"}),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "level", "codes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_link_is_judged(facts: dict[str, Any], level: LinkLevel, codes: set[str]) -> None:
    verdict = judge_link(LinkFacts(**{**GOOD, **facts}), now=NOW)
    assert (verdict.level, {one.code for one in verdict.reasons}) == (level, codes)
    ranks = [RANKS[one.level] for one in verdict.reasons]
    assert ranks == sorted(ranks, reverse=True)
    assert all(one.sentence.endswith(".") for one in verdict.reasons)


def test_the_sentences_say_what_is_wrong() -> None:
    facts = {
        **GOOD, "width": 8, "speed_gbps": 64.0, "flaps": 5,
        "minute": {"ReplayCount": 1200}, "hour": {"NonFatalErrorCount": 1},
    }  # fmt: skip
    sentences = {one.code: one.sentence for one in judge_link(LinkFacts(**facts), now=NOW).reasons}
    assert sentences == {
        "width": "The link runs x8, although both ends support x16.",
        "speed": "The link runs slower than both ends support: Gen 3 of Gen 4.",
        "flaps": "It went down and up again 5 times in the last hour.",
        "sent": "20 replays/s, 312 times the PCIe limit.",
        "non_fatal_now": "1 non-fatal error in the last hour.",
    }
    lying = judge_link(LinkFacts(**{**GOOD, **DOWN, "state_since": NOW - 7300}), now=NOW)
    assert lying.reasons[0].sentence == "The link has been down for 2 h, and it should be up."


def test_every_reason_with_values_is_known_to_translators() -> None:
    judged = (judge_link(LinkFacts(**{**GOOD, **facts}), now=NOW) for _, facts, _, _ in CASES)
    sentences = {one.sentence for verdict in judged for one in verdict.reasons} - {"GPU 1 is gone."}
    with_values = [one for one in sentences if re.search(r"\d", one)]
    assert len(with_values) > 10
    assert [one for one in with_values if not any(values_in(one, words) for words in REASON_WORDS)] == []


def test_a_healthy_idle_link_says_why_it_is_down() -> None:
    verdict = judge_link(LinkFacts(**{**GOOD, **DOWN, "idle": "No host is cabled to it."}), now=NOW)
    assert verdict.reasons[0].sentence == "No host is cabled to it."
    assert not verdict.is_time_dependent


def test_every_threshold_rises_and_gives_a_reason() -> None:
    for code, threshold in THRESHOLDS.items():
        set_ones = [one for one in (threshold.watch, threshold.degraded, threshold.failing) if one is not None]
        assert set_ones, code
        assert set_ones == sorted(set_ones), code
        for value, level in ((threshold.watch, WATCH), (threshold.degraded, DEGRADED), (threshold.failing, FAILING)):
            if value is not None:
                assert threshold.level(value) is level
    # Each is some case's reason above.
    assert {code for case in CASES for code in case[3]} >= THRESHOLDS.keys()


def test_what_the_specification_allows_follows_the_speed() -> None:
    assert allowed_rate(256.0, 16) == pytest.approx(0.256)
    assert allowed_rate(8.0, 1) == pytest.approx(0.008)
    assert allowed_rate(1024.0, 16) == pytest.approx(
        2500.0
    )  # Gen 6 x16: half a billion flits a second, 5 in 10^6 again
    # A slower link with the same errors is worse.
    slow = {**GOOD, "speed_gbps": 8.0, "width": 1, "max_width": 1, "max_speed_gbps": 8.0, "device_lanes": 1,
            "device_pcie_type": "Gen3", "ten_minutes": {"ReplayCount": MIN_EVENTS}}  # fmt: skip
    assert judge_link(LinkFacts(**slow), now=NOW).level is DEGRADED


@pytest.mark.parametrize(
    ("gbps", "generation"),
    [(2.5, "Gen 1"), (2.0, "Gen 1"), (4.0, "Gen 2"), (7.88, "Gen 3"), (16.0, "Gen 4"), (31.5, "Gen 5"), (0.1, "")],
)
def test_a_rate_names_its_generation(gbps: float, generation: str) -> None:
    assert pcie_generation(gbps) == generation


def test_rates_and_times_are_told_in_words() -> None:
    assert [rate_label(rate, "replays") for rate in (12.3, 0.05, 0.001)] == [
        "12 replays/s", "3 replays/min", "3.6 replays/h",
    ]  # fmt: skip
    assert [duration_label(seconds) for seconds in (40, 720, 18000, 260000)] == ["40 s", "12 min", "5 h", "3 days"]
