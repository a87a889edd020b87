"""The states of a link drawn as a line of time: pure geometry, the template draws it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from telemetry.links.flaps import FLAPPING, UP

WIDTH, HEIGHT = 960, 28
NARROWEST = 1.5  # so that an instant is still seen
TICKS = 6


class Shown(Protocol):
    """A time in one state."""

    since: datetime
    until: datetime | None
    status: str
    width: int | None
    speed_gbps: float | None


@dataclass(frozen=True)
class Piece:
    """A state on the line; `look` is up, below (up, but less than at its best), flapping, coming or down."""

    x: float
    width: float
    look: str
    title: str


@dataclass(frozen=True)
class Tick:
    """A mark of the time, with its words and how they are set."""

    x: float
    words: str
    anchor: str


@dataclass(frozen=True)
class Line:
    """A line of time with its states and marks; where there is no state, nobody looked."""

    pieces: tuple[Piece, ...]
    ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT


def drawn(spans: Iterable[Shown], *, since: datetime, until: datetime) -> Line:
    """Return the line of the states between two instants."""
    spans = list(spans)
    whole = (until - since).total_seconds()
    best = max((one.speed_gbps or 0.0 for one in spans if one.status == UP), default=0.0)
    pieces = []
    for one in sorted(spans, key=lambda span: span.since):
        begin, end = max(one.since, since), min(one.until or until, until)
        if end <= begin:
            continue
        x = WIDTH * (begin - since).total_seconds() / whole
        wide = max(NARROWEST, WIDTH * (end - begin).total_seconds() / whole)
        pieces.append(Piece(round(min(x, WIDTH - wide), 2), round(wide, 2), _look(one, best), title_of(one)))
    return Line(tuple(pieces), _ticks(since, until))


def title_of(span: Shown) -> str:
    """Return a state in words: 'up, x16, 256 Gb/s from … until …'."""
    words = ", ".join(state_words(span))
    end = f"until {span.until:%Y-%m-%d %H:%M:%S}" if span.until is not None else "until now"
    return f"{words}: {span.since:%Y-%m-%d %H:%M:%S} {end} UTC"


def state_words(span: Shown) -> Sequence[str]:
    """Return status, width and speed of a state in words, those that are known."""
    names = {"LinkDown": "down", "NoLink": "no link", UP: "up", FLAPPING: "going down and up", "": "not told"}
    words = [names.get(span.status, span.status.lower())]
    if span.status == UP:
        words += [f"x{span.width}"] if span.width else []
        words += [f"{span.speed_gbps:g} Gb/s"] if span.speed_gbps else []
    return words


def _look(span: Shown, best: float) -> str:
    if span.status == UP:
        return "below" if span.speed_gbps and span.speed_gbps < best else "up"
    if span.status == FLAPPING:
        return "flapping"
    return "coming" if span.status in {"Training", "Starting"} else "down"


def _ticks(since: datetime, until: datetime) -> tuple[Tick, ...]:
    whole = until - since
    form = "%H:%M" if whole <= timedelta(days=1) else "%m-%d %H:%M" if whole <= timedelta(days=3) else "%m-%d"
    ticks = []
    for place in range(TICKS + 1):
        anchor = "start" if place == 0 else "end" if place == TICKS else "middle"
        at = since + whole * place / TICKS
        ticks.append(Tick(round(WIDTH * place / TICKS, 2), f"{at:{form}}", anchor))
    return tuple(ticks)


def bars(counts: Sequence[float], *, width: int = 192, height: int = 24) -> str:
    """Return counts as the path of a bar each, the largest as high as there is room; '' where all are 0."""
    most = max(counts, default=0.0)
    if most <= 0:
        return ""
    wide = width / len(counts)
    parts = []
    for place, count in enumerate(counts):
        if count > 0:
            high = max(2.0, height * count / most)
            parts.append(f"M{place * wide:.1f} {height}v{-high:.1f}h{wide * 0.8:.1f}v{high:.1f}z")
    return "".join(parts)
