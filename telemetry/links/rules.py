"""The verdict on a link: thresholds, facts, reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from core.language import _n, english, gettext_noop
from fabric.bmc.values import LANE_GBPS
from fabric.inventory.rules import LINK_SPEED_TOLERANCE

LINK_UP: Final = "LinkUp"
RETRAININGS: Final = "L0ToRecoveryCount"
MINUTE: Final = 60.0
RATE_SECONDS: Final = 600.0
HOUR: Final = 3600.0
# The maximum bit error rate of a lane in the specification: 1 in 10^12 up to 32 GT/s. At 64 GT/s forward error
# correction applies, and the limit is that 5 in 10^6 flits (of 256 bytes) are sent again.
BIT_ERRORS: Final = 1e-12
FLIT_RETRIES: Final = 5e-6
FLIT_BITS: Final = 256 * 8
NO_FLITS: Final = 32.0  # GT/s of a lane; faster links use flits
DEFAULT_GBPS: Final = 128.0  # x16 Gen 3, where a service reports no speed
# Fewer events in a window are not significant for a rate.
MIN_EVENTS: Final = 10
# How long a link may be down or training before it is reported: attaching takes up to 15 s.
SETTLING_SECONDS: Final = 15.0


class LinkLevel(StrEnum):
    """Health of a link, in the order of RANKS."""

    HEALTHY = gettext_noop("healthy")
    UNKNOWN = gettext_noop("unknown")
    WATCH = gettext_noop("watch")
    DEGRADED = gettext_noop("degraded")
    FAILING = gettext_noop("failing")
    DOWN = gettext_noop("down")


RANKS: Final = {level: rank for rank, level in enumerate(LinkLevel)}


@dataclass(frozen=True)
class Threshold:
    """The values from which a link is watched, degraded or failing; None: never."""

    watch: float | None
    degraded: float | None
    failing: float | None

    def level(self, value: float) -> LinkLevel:
        if self.failing is not None and value >= self.failing:
            return LinkLevel.FAILING
        if self.degraded is not None and value >= self.degraded:
            return LinkLevel.DEGRADED
        return LinkLevel.WATCH if self.watch is not None and value >= self.watch else LinkLevel.HEALTHY


THRESHOLDS: Final = {
    # Times the PCIe limit. A lane may have 1 bit error in 10^12 bits, and each costs one replay. A tenth of that is ten
    # times the rate of links in good order; a hundredfold is a damaged cable, connector or chip, and costs bandwidth.
    "sent": Threshold(0.1, 1.0, 100.0),
    # The same for the other direction: each damaged packet causes one NAK, or is dropped.
    "received": Threshold(0.1, 1.0, 100.0),
    # The same for both directions together: the hardware corrects these, and counts them.
    "correctable": Threshold(0.1, 1.0, 100.0),
    # An hour, as those below. Four replays of one packet failed, and the link retrained: none occurs by chance.
    "rollovers": Threshold(1, 3, 30),
    # A working link has no reason to retrain; one attachment explains one or two. Our own choice.
    "recoveries": Threshold(3, 20, 200),
    # A host that restarts explains one. More of them interrupt the use of devices. Our own choice.
    "flaps": Threshold(2, 5, 20),
    # The far end sent no flow control update for longer than any healthy link; the link then retrains.
    "flow": Threshold(1, 3, 30),
    # A request failed permanently: a program may be affected.
    "non_fatal_now": Threshold(None, 1, 10),
    # The link is not reliable.
    "fatal_now": Threshold(None, None, 1),
    # Since the last reset, as that below. A request failed: software that scans for devices can cause that, so that old
    # ones are only watched.
    "non_fatal": Threshold(1, None, None),
    # The link was not reliable, and the cause may still exist.
    "fatal": Threshold(None, 1, None),
}
# Reasons with values: they are stored in English, and worded anew where pages show them.
TRAINS: Final = gettext_noop("The link has been training for {duration} and does not come up.")
LASTS_DOWN: Final = gettext_noop("The link has been down for {duration}, and it should be up.")
NARROW: Final = gettext_noop("The link runs x{width}, although both ends support x{most}.")
NARROWER_THAN_SET: Final = gettext_noop("The link runs x{width}, although its port is configured for x{most}.")
SET_NARROW: Final = gettext_noop("The port is configured for x{width}; approved is x{approved}.")
SLOW_LANES: Final = gettext_noop("The link runs slower than both ends support: {now} of {most} Gb/s a lane.")
SLOW: Final = gettext_noop("The link runs slower than both ends support: {now} of {most}.")
HOST_OFF: Final = gettext_noop("{host} is switched off.")
MISSING: Final = gettext_noop("{device} has been missing from its slot since {time} UTC.")
RATE_WORDS: Final = (
    gettext_noop("{rate} replays/{unit}, {times} times the PCIe limit."),
    gettext_noop("{rate} receive errors/{unit}, {times} times the PCIe limit."),
    gettext_noop("{rate} corrected errors/{unit}, {times} times the PCIe limit."),
)
COUNT_WORDS: Final = {
    "fatal_now": (
        gettext_noop("{count} fatal error in the last hour."),
        gettext_noop("{count} fatal errors in the last hour."),
    ),
    "non_fatal_now": (
        gettext_noop("{count} non-fatal error in the last hour."),
        gettext_noop("{count} non-fatal errors in the last hour."),
    ),
    "flaps": (
        gettext_noop("It went down and up again {count} time in the last hour."),
        gettext_noop("It went down and up again {count} times in the last hour."),
    ),
    "rollovers": (
        gettext_noop("{count} packet needed the link to retrain in the last hour."),
        gettext_noop("{count} packets needed the link to retrain in the last hour."),
    ),
    "flow": (
        gettext_noop("{count} flow control time-out in the last hour."),
        gettext_noop("{count} flow control time-outs in the last hour."),
    ),
    "recoveries": (
        gettext_noop("It retrained {count} time in the last hour."),
        gettext_noop("It retrained {count} times in the last hour."),
    ),
    "fatal": (
        gettext_noop("{count} fatal error since the last reset."),
        gettext_noop("{count} fatal errors since the last reset."),
    ),
    "non_fatal": (
        gettext_noop("{count} non-fatal error since the last reset."),
        gettext_noop("{count} non-fatal errors since the last reset."),
    ),
}
REASON_WORDS: Final = (
    TRAINS, LASTS_DOWN, NARROW, NARROWER_THAN_SET, SET_NARROW, SLOW_LANES, SLOW, HOST_OFF, MISSING,
    *RATE_WORDS, *(words for forms in COUNT_WORDS.values() for words in forms),
)  # fmt: skip
SENT_COUNTERS = ("ReplayCount", "NAKReceivedCount")
RECEIVED_COUNTERS = ("NAKSentCount", "BadTLPCount", "BadDLLPCount")


@dataclass(frozen=True)
class Reason:
    """A reason of a verdict; `code` names the threshold, or the problem of the state."""

    code: str
    level: LinkLevel
    sentence: str


@dataclass(frozen=True)
class HealthVerdict:
    """Level of a link, its reasons worst first, and figures: events a second; flaps and recoveries of the last hour."""

    level: LinkLevel
    reasons: tuple[Reason, ...]
    sent_rate: float = 0.0
    received_rate: float = 0.0
    correctable_rate: float = 0.0
    flaps: int = 0
    recoveries: int = 0

    @property
    def is_time_dependent(self) -> bool:
        """Whether it may change with time alone."""
        return self.level not in {LinkLevel.HEALTHY, LinkLevel.UNKNOWN} or bool(
            self.flaps or self.recoveries or self.sent_rate or self.received_rate or self.correctable_rate
        )


Counts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class LinkFacts:
    """Facts of a link. Times are Unix s; widths lanes; speeds Gb/s one way, whole link; None: not reported.

    `idle` is why the link is not expected to be up, '' where it is; `missing` the missing device at its end. `minute`,
    `ten_minutes` and `hour` have the recent gains of the counters (the first two within the given seconds),
    `since_reset` their values.
    """

    status: str  # as in fabric.bmc.series.LINK_STATUSES, '' where not reported
    state_since: float
    width: int | None = None
    speed_gbps: float | None = None
    max_width: int | None = None  # of the port
    max_speed_gbps: float | None = None
    configured_width: int | None = None
    approved_width: int | None = None
    device_lanes: int | None = None
    device_pcie_type: str = ""
    judges_speed: bool = True  # False: the maximum of the far end is not known, so that a slower link may be correct
    idle: str = ""
    missing: str = ""
    busy: bool = False  # an operation of this site is changing it
    unknown: str = ""  # why no verdict is possible
    flaps: int = 0
    minute: Counts = field(default_factory=dict)
    minute_seconds: float = MINUTE
    ten_minutes: Counts = field(default_factory=dict)
    ten_minutes_seconds: float = RATE_SECONDS
    hour: Counts = field(default_factory=dict)
    since_reset: Counts = field(default_factory=dict)


def judge_link(facts: LinkFacts, *, now: float) -> HealthVerdict:
    """Return the verdict on a link at an instant (Unix s)."""
    if facts.unknown:
        return HealthVerdict(LinkLevel.UNKNOWN, (Reason("unknown", LinkLevel.UNKNOWN, facts.unknown),))
    sent, received, correctable = (
        error_rate(facts, names) for names in (SENT_COUNTERS, RECEIVED_COUNTERS, ("CorrectableErrorCount",))
    )
    reasons = [*_state_reasons(facts, now), *_rate_reasons(facts, sent, received, correctable), *_count_reasons(facts)]
    reasons.sort(key=lambda one: -RANKS[one.level])
    level = reasons[0].level if reasons else LinkLevel.HEALTHY
    if not reasons:
        reasons = [Reason("fine", LinkLevel.HEALTHY, facts.idle or _healthy_sentence(facts))]
    return HealthVerdict(
        level, tuple(reasons), sent, received, correctable, facts.flaps, facts.hour.get(RETRAININGS, 0)
    )


def allowed_rate(speed_gbps: float, lanes: int | None) -> float:
    """Return the maximum errors a second of a link of this speed (Gb/s one way) within the specification."""
    if lanes and speed_gbps / lanes > NO_FLITS / LINK_SPEED_TOLERANCE:
        return speed_gbps * 1e9 / FLIT_BITS * FLIT_RETRIES
    return speed_gbps * 1e9 * BIT_ERRORS


def error_rate(facts: LinkFacts, names: tuple[str, ...]) -> float:
    """Return the recent rate of an error (1/s); 0 where it is not significant.

    Several counters count the same packets: the largest applies. The higher rate of the last minute and the last ten
    applies, so that both a burst and a low constant rate are detected.
    """
    found = 0.0
    windows = ((facts.minute, facts.minute_seconds), (facts.ten_minutes, facts.ten_minutes_seconds))
    for counts, seconds in windows:
        events = max((counts.get(name, 0) for name in names), default=0)
        if events >= MIN_EVENTS:
            found = max(found, events / max(MINUTE, seconds))
    return found


def pcie_generation(gbps_a_lane: float) -> str:
    """Return the generation of a lane's rate, before or after encoding; '' for less than Gen 1."""
    fitting = [name for name, rate in LANE_GBPS.items() if gbps_a_lane >= LINK_SPEED_TOLERANCE * rate]
    return fitting[-1].replace("Gen", "Gen ") if fitting else ""


def _healthy_sentence(facts: LinkFacts) -> str:
    if facts.status == LINK_UP:
        return gettext_noop("The link runs at the maximum of both ends, with almost no errors.")
    return (
        gettext_noop("The link is training now.")
        if facts.status in {"Training", "Starting"}
        else gettext_noop("No problem was found.")
    )


def _state_reasons(facts: LinkFacts, now: float) -> Iterator[Reason]:
    if facts.missing:
        yield Reason("down", LinkLevel.DOWN, facts.missing)
        return
    if facts.status == LINK_UP:
        yield from _width_reasons(facts)
        yield from _speed_reasons(facts)
        return
    if facts.busy:
        return
    if facts.status == "":
        yield Reason("unknown", LinkLevel.UNKNOWN, gettext_noop("The chassis does not report whether the link is up."))
        return
    if facts.idle:
        return
    lasts = now - facts.state_since
    if lasts >= SETTLING_SECONDS and facts.status in {"Training", "Starting"}:
        yield Reason(
            "training",
            LinkLevel.DOWN,
            TRAINS.format(duration=english(duration_label(lasts))),
        )
    elif lasts >= SETTLING_SECONDS:
        yield Reason("down", LinkLevel.DOWN, LASTS_DOWN.format(duration=english(duration_label(lasts))))


def _width_reasons(facts: LinkFacts) -> Iterator[Reason]:
    capable = min((one for one in (facts.max_width, facts.device_lanes) if one), default=None)
    expected = min((one for one in (capable, facts.configured_width) if one), default=None)
    if facts.width and expected and facts.width < expected:
        words = NARROW if expected == capable else NARROWER_THAN_SET
        yield Reason("width", LinkLevel.DEGRADED, words.format(width=facts.width, most=expected))
    if facts.configured_width and facts.approved_width and facts.configured_width < facts.approved_width:
        yield Reason(
            "configured", LinkLevel.WATCH,
            SET_NARROW.format(width=facts.configured_width, approved=facts.approved_width),
        )  # fmt: skip


def _speed_reasons(facts: LinkFacts) -> Iterator[Reason]:
    if not (facts.judges_speed and facts.speed_gbps and facts.width):
        return
    maxima = []
    if facts.max_speed_gbps and facts.max_width:
        maxima.append(facts.max_speed_gbps / facts.max_width)
    if facts.device_pcie_type in LANE_GBPS:
        maxima.append(LANE_GBPS[facts.device_pcie_type])
    lane = facts.speed_gbps / facts.width
    if maxima and lane < LINK_SPEED_TOLERANCE * min(maxima):
        now, can = pcie_generation(lane), pcie_generation(min(maxima))
        sentence = SLOW_LANES.format(now=f"{lane:.3g}", most=f"{min(maxima):.3g}")
        if now and now != can:
            sentence = SLOW.format(now=now, most=can)
        yield Reason("speed", LinkLevel.DEGRADED, sentence)


def _rate_reasons(facts: LinkFacts, sent: float, received: float, correctable: float) -> Iterator[Reason]:
    speed = facts.speed_gbps or facts.max_speed_gbps or DEFAULT_GBPS
    allowed = allowed_rate(speed, facts.width or facts.max_width)
    for code, rate, errors in (
        ("sent", sent, "replays"),
        ("received", received, "receive errors"),
        ("correctable", correctable, "corrected errors"),
    ):
        level = THRESHOLDS[code].level(rate / allowed)
        if level is not LinkLevel.HEALTHY:
            times = figure_label(rate / allowed)
            yield Reason(code, level, f"{rate_label(rate, errors)}, {times} times the PCIe limit.")


def _count_reasons(facts: LinkFacts) -> Iterator[Reason]:
    hour, reset = facts.hour, facts.since_reset
    found = (
        ("fatal_now", hour.get("FatalErrorCount", 0)),
        ("non_fatal_now", hour.get("NonFatalErrorCount", 0)),
        ("flaps", facts.flaps),
        ("rollovers", hour.get("ReplayRolloverCount", 0)),
        ("flow", hour.get("FlowControlTimeoutErrors", 0)),
        ("recoveries", hour.get(RETRAININGS, 0)),
    )
    codes = set()
    for code, count in found:
        level = THRESHOLDS[code].level(count)
        if level is not LinkLevel.HEALTHY:
            codes.add(code)
            yield Reason(code, level, COUNT_WORDS[code][count != 1].format(count=f"{count:,}"))
    for code, name in (("fatal", "FatalErrorCount"), ("non_fatal", "NonFatalErrorCount")):
        count = reset.get(name, 0)
        level = THRESHOLDS[code].level(count)
        # Those of the last hour are reported already.
        if level is not LinkLevel.HEALTHY and f"{code}_now" not in codes:
            yield Reason(code, level, COUNT_WORDS[code][count != 1].format(count=f"{count:,}"))


def rate_label(rate: float, events: str) -> str:
    """Return a rate (1/s) of events for display: '12 replays/s', '3 replays/min', '1.5 replays/h'."""
    for unit, seconds in (("s", 1.0), ("min", MINUTE), ("h", HOUR)):
        if rate * seconds >= 1.0 or unit == "h":
            return f"{figure_label(rate * seconds)} {events}/{unit}"
    return ""


def figure_label(value: float) -> str:
    """Return a figure with two significant digits, from 10 on as an integer."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def duration_label(seconds: float) -> str:
    """Return a duration for display: '40 s', '12 min', '5 h', '3 days'."""
    for unit, size, most in (("s", 1.0, 120.0), ("min", MINUTE, 7200.0), ("h", HOUR, 172800.0)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return _n("{count} day", "{count} days", round(seconds / 86400))
