"""What notifications say: one message for all that a route is told at a time. Pure, but for the site's address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict
from urllib.parse import urlencode

from telemetry.alerts.terms import value_words
from telemetry.delivery.syslog import one_line

MOST_LISTED = 50  # alerts of a message; of the rest there is the number
AROUND = 900  # s of a chart before an alert began, and after it ended


class Line(TypedDict):
    """One alert of a message; `state` is 'firing' or 'resolved', times are ISO 8601 in UTC."""

    id: int
    state: str
    severity: str
    title: str
    subject: str
    chassis: str
    chassis_id: int
    series_key: str
    quantity: str
    value: float | None
    worst_value: float | None
    unit: str
    threshold: str
    since: str
    fired_at: str | None
    resolved_at: str | None
    resolved_because: str
    note: str
    url: str


class Message(TypedDict):
    """What is delivered, the same at each try; `kind` is 'alerts' or 'test'."""

    kind: str
    site: str
    made_at: str
    summary: str
    firing: int
    resolved: int
    critical: int
    warning: int
    alerts: list[Line]
    more: int


def summary_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a message in one line."""
    firing = [one for one in lines if one["state"] == "firing"]
    resolved = [one for one in lines if one["state"] == "resolved"]
    if len(lines) == 1:
        one = lines[0]
        word = one["severity"] if firing else "Resolved"
        return f"{word}: {one['title']}, {_place(one)}"[:250]
    counts = [(sum(one["severity"] == word for one in firing), word.lower()) for word in ("Critical", "Warning")]
    parts = [f"{count} {word}" for count, word in (*counts, (len(resolved), "resolved")) if count]
    chassis = sorted({one["chassis"] for one in lines})
    where = chassis[0] if len(chassis) == 1 else f"{len(chassis)} chassis"
    return f"{', '.join(parts)} on {where}"[:250]


def message_of(lines: Sequence[Line], *, site: str, at: datetime) -> Message:
    """Return the message that tells of alerts, the worst first; of more than MOST_LISTED only their number."""
    ranked = sorted(lines, key=lambda one: (one["state"] != "firing", one["severity"] != "Critical", one["since"]))
    firing = [one for one in ranked if one["state"] == "firing"]
    return Message(
        kind="alerts",
        site=site,
        made_at=instant(at),
        summary=summary_of(ranked),
        firing=len(firing),
        resolved=len(ranked) - len(firing),
        critical=sum(one["severity"] == "Critical" for one in firing),
        warning=sum(one["severity"] == "Warning" for one in firing),
        alerts=ranked[:MOST_LISTED],
        more=max(0, len(ranked) - MOST_LISTED),
    )


def test_message(*, site: str, at: datetime, route: str, person: str) -> Message:
    """Return what 'Send a test' sends."""
    return Message(
        kind="test", site=site, made_at=instant(at), summary=f"Test of the route '{route}', sent by {person}",
        firing=0, resolved=0, critical=0, warning=0, alerts=[], more=0,
    )  # fmt: skip


def body_of(message: Message) -> str:
    """Return a message as the text of a letter."""
    if message["kind"] == "test":
        return f"{message['summary']}.\n\nNothing is wrong: somebody looks whether alerts arrive.\n"
    parts = [_said(one) for one in message["alerts"]]
    if message["more"]:
        parts.append(f"And {message['more']} more: see {message['site']}/alerts/" if message["site"] else
                     f"And {message['more']} more.")  # fmt: skip
    return "\n\n".join(parts) + "\n"


def line_words(one: Mapping[str, Any]) -> str:
    """Return one alert in a line."""
    word = one["severity"] if one["state"] == "firing" else "Resolved"
    measured = "" if one["value"] is None or not one["series_key"] else f" {value_words(one['value'], one['unit'])},"
    # Names are a BMC's: a line end in one would begin a line of its own, such as another alert.
    return one_line(f"{word}: {one['title']}, {_place(one)}.{measured} {one['threshold']}".strip())


def _place(one: Mapping[str, Any]) -> str:
    """Return what an alert is about, and of which chassis, where that is not the same."""
    return one["subject"] if one["subject"] == one["chassis"] else f"{one['subject']} of {one['chassis']}"


def _said(one: Line) -> str:
    lines = [line_words(one)]
    if one["quantity"]:
        lines.append(one_line(f"Measured: {one['quantity']} ({one['series_key']})"))
    lines.append(f"Since {one['since']}" + (f", over at {one['resolved_at']}" if one["resolved_at"] else ""))
    lines += [part for part in (one["resolved_because"], one["note"], one["url"]) if part]
    return "\n".join(lines)


def instant(at: datetime) -> str:
    """Return a moment as programs read it: ISO 8601, UTC, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def chart_of(reference: str, quantity: str, since: datetime, until: datetime) -> str:
    """Return where a subject's chart of a metric ('' for a series) shows a time, with some before and after it."""
    wanted = {
        "of": reference,
        "metric": quantity,
        "since": instant(datetime.fromtimestamp(since.timestamp() - AROUND, UTC)),
        "until": instant(datetime.fromtimestamp(until.timestamp() + AROUND, UTC)),
    }
    return f"/telemetry/?{urlencode({name: value for name, value in wanted.items() if value})}"
