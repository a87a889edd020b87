"""The text of notifications, and sending them by e-mail, webhook or syslog."""

from __future__ import annotations

import json
import smtplib
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypedDict
from urllib.parse import urlencode

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from core.endpoints import DeliveryFailed
from core.language import english, gettext_noop
from telemetry.alerts.rules import value_label
from telemetry.delivery.formats import one_line, rfc5424_message
from telemetry.delivery.senders import send_syslog, send_webhook

MAX_LISTED = 50  # alerts listed in a message; of the rest it has the number
AROUND = 900  # s; time of a chart before the start of an alert, and after its end


class NotificationLine(TypedDict):
    """One alert of a message; `state` is 'firing' or 'resolved', times are ISO 8601 in UTC."""

    id: int
    state: str
    severity: str
    title: str
    subject: str
    chassis: str
    chassis_id: int | None  # None: of the site
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


class Notification(TypedDict):
    """Content of a delivery, the same at each attempt; `kind` is 'alerts', 'test', or 'notice' (the summary alone)."""

    kind: str
    site: str
    made_at: str
    summary: str
    firing: int
    resolved: int
    critical: int
    warning: int
    alerts: list[NotificationLine]
    more: int


def summary_text(lines: Sequence[Mapping[str, Any]]) -> str:
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


def build_notification(lines: Sequence[NotificationLine], *, site: str, at: datetime) -> Notification:
    """Return the message about alerts, the worst first; of those beyond MAX_LISTED it has only the number."""
    ranked = sorted(lines, key=lambda one: (one["state"] != "firing", one["severity"] != "Critical", one["since"]))
    firing = [one for one in ranked if one["state"] == "firing"]
    return Notification(
        kind="alerts",
        site=site,
        made_at=iso_utc(at),
        summary=summary_text(ranked),
        firing=len(firing),
        resolved=len(ranked) - len(firing),
        critical=sum(one["severity"] == "Critical" for one in firing),
        warning=sum(one["severity"] == "Warning" for one in firing),
        alerts=ranked[:MAX_LISTED],
        more=max(0, len(ranked) - MAX_LISTED),
    )


def email_body(message: Notification) -> str:
    if message["kind"] == "test":
        return f"{message['summary']}.\n\nNothing is wrong: this is a test of the delivery of alerts.\n"
    if message["kind"] == "notice":
        return f"{message['summary']}\n"
    parts = [_alert_text(one) for one in message["alerts"]]
    if message["more"]:
        parts.append(f"And {message['more']} more: see {message['site']}/alerts/" if message["site"] else
                     f"And {message['more']} more.")  # fmt: skip
    return "\n\n".join(parts) + "\n"


def line_text(one: Mapping[str, Any]) -> str:
    word = one["severity"] if one["state"] == "firing" else "Resolved"
    measured = (
        "" if one["value"] is None or not one["series_key"] else f" {english(value_label(one['value'], one['unit']))},"
    )
    # Names come from a BMC: a line break in one could forge another alert.
    return one_line(f"{word}: {one['title']}, {_place(one)}.{measured} {one['threshold']}".strip())


def _place(one: Mapping[str, Any]) -> str:
    """Return the subject of an alert, with its chassis where that is another name."""
    return one["subject"] if one["subject"] == one["chassis"] else f"{one['subject']} of {one['chassis']}"


def _alert_text(one: NotificationLine) -> str:
    lines = [line_text(one)]
    if one["quantity"]:
        lines.append(one_line(f"Measured: {one['quantity']} ({one['series_key']})"))
    lines.append(f"Since {one['since']}" + (f", over at {one['resolved_at']}" if one["resolved_at"] else ""))
    lines += [part for part in (one["resolved_because"], one["note"], one["url"]) if part]
    return "\n".join(lines)


def iso_utc(at: datetime) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def telemetry_url(reference: str, quantity: str, since: datetime, until: datetime) -> str:
    """Return the address of a subject's chart of a metric ('' for a series), from AROUND before to AROUND after."""
    parameters = {
        "of": reference,
        "metric": quantity,
        "since": iso_utc(datetime.fromtimestamp(since.timestamp() - AROUND, UTC)),
        "until": iso_utc(datetime.fromtimestamp(until.timestamp() + AROUND, UTC)),
    }
    return f"/telemetry/?{urlencode({name: value for name, value in parameters.items() if value})}"


SMTP_SECONDS: Final = 10
APP_NAME: Final = "falconweb"
SD_ID: Final = "falconweb@32473"  # the enterprise number for documentation (RFC 5612): FalconWeb has none of its own


def send_by_email(addresses: Sequence[str], message: Notification, *, message_id: str) -> None:
    """Send one e-mail to all addresses; raises DeliveryFailed, permanent where every address is refused."""
    if not settings.EMAIL_IS_SENT:
        raise DeliveryFailed(gettext_noop("E-mail is not set up: FALCONWEB_EMAIL_URL names a mail server."))
    host = settings.CONFIG.address.partition("://")[2].partition(":")[0] or "falconweb"
    email = EmailMessage(
        " ".join(f"[FalconWeb] {message['summary']}".split())[:180],
        email_body(message),
        settings.DEFAULT_FROM_EMAIL,
        list(addresses),
        connection=get_connection(timeout=SMTP_SECONDS),
        # The same at each attempt, so that a receiver can detect duplicates.
        headers={"Auto-Submitted": "auto-generated", "Message-ID": f"<{message_id}@{host}>"},
    )
    try:
        email.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, why = next(iter(error.recipients.values()), (0, b""))
        words = why.decode(errors="replace")
        # Codes from 500 on are permanent; below, a mailbox may be full for now.
        raise DeliveryFailed(f"The mail server refused the address: {code} {words}", permanent=code >= 500) from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"The mail server did not accept the message: {error}"[:500]) from error


def send_to_webhook(url: str, message: Notification, *, message_id: str, secret: str) -> None:
    """POST a message as JSON, with its id; raises DeliveryFailed."""
    body = json.dumps({"id": message_id, **message}, ensure_ascii=False, separators=(",", ":")).encode()
    send_webhook(url=url, body=body, content_type="application/json", secret=secret, message_id=message_id)


def send_to_syslog(address: str, message: Notification, *, message_id: str) -> None:
    """Send a message to a syslog server, a line an alert; raises DeliveryFailed."""
    made_at = datetime.fromisoformat(message["made_at"])
    host = settings.CONFIG.address.partition("://")[2].partition(":")[0] or socket.gethostname()
    lines: list[tuple[str, str, dict[str, str], str]] = []
    for one in message["alerts"]:
        severity = one["severity"] if one["state"] == "firing" else "OK"
        lines.append((severity, "ALERT", _structured_data(one, message_id), line_text(one)))
    if message["more"] or not lines:
        # The alerts that are not listed are one line.
        text = f"{message['summary']}; {message['more']} of them are not listed" if lines else message["summary"]
        severity = "Critical" if message["critical"] else "Warning" if message["warning"] else "OK"
        word = "ALERTS" if lines else message["kind"].upper()
        lines.append((severity, word, {"delivery": message_id}, text))
    messages = [
        rfc5424_message(
            at=made_at,
            severity=severity,
            hostname=host,
            app=APP_NAME,
            message_id=kind,
            data={SD_ID: data},
            text=text,
        )
        for severity, kind, data, text in lines
    ]
    send_syslog(address=address, messages=messages)


def _structured_data(one: NotificationLine, message_id: str) -> dict[str, str]:
    values = {
        "delivery": message_id, "alert": str(one["id"]), "state": one["state"], "severity": one["severity"],
        "chassis": one["chassis"], "subject": one["subject"], "series": one["series_key"],
        "value": "" if one["value"] is None else f"{one['value']:g}", "since": one["since"], "url": one["url"],
    }  # fmt: skip
    return {name: value for name, value in values.items() if value}
