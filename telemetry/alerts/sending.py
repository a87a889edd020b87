"""How a message goes out by each kind of route: blocking, within a limited time, once."""

from __future__ import annotations

import json
import smtplib
import socket
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from telemetry.alerts.wording import Line, Message, body_of, line_words
from telemetry.delivery.senders import DeliveryFailed, send_syslog, send_webhook
from telemetry.delivery.syslog import rfc5424

SMTP_SECONDS: Final = 10
APP: Final = "falconweb"
NO_MAIL: Final = "E-mail is not set up: FALCONWEB_EMAIL_URL names a mail server."


def send_email(addresses: Sequence[str], message: Message, *, message_id: str) -> None:
    """Send a letter to all addresses at once; raises DeliveryFailed, permanent where every address is refused."""
    if not settings.EMAIL_IS_SENT:
        raise DeliveryFailed(NO_MAIL)
    host = settings.CONFIG.address.partition("://")[2].partition(":")[0] or "falconweb"
    letter = EmailMessage(
        " ".join(f"[FalconWeb] {message['summary']}".split())[:180],
        body_of(message),
        settings.DEFAULT_FROM_EMAIL,
        list(addresses),
        connection=get_connection(timeout=SMTP_SECONDS),
        # The same at each try: who gets it twice can tell.
        headers={"Auto-Submitted": "auto-generated", "Message-ID": f"<{message_id}@{host}>"},
    )
    try:
        letter.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, why = next(iter(error.recipients.values()), (0, b""))
        words = why.decode(errors="replace")
        # Beyond 500 it stays so; below, a mailbox may be full for now.
        raise DeliveryFailed(f"The mail server refused the address: {code} {words}", permanent=code >= 500) from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"The mail server did not take it: {error}"[:500]) from error


def send_json(url: str, message: Message, *, message_id: str, secret: str) -> None:
    """POST a message as JSON, with its id; raises DeliveryFailed."""
    body = json.dumps({"id": message_id, **message}, ensure_ascii=False, separators=(",", ":")).encode()
    send_webhook(url=url, body=body, content_type="application/json", secret=secret, message_id=message_id)


def send_lines(address: str, message: Message, *, message_id: str) -> None:
    """Send a message to a syslog server, a line an alert; raises DeliveryFailed."""
    made_at = datetime.fromisoformat(message["made_at"])
    host = settings.CONFIG.address.partition("://")[2].partition(":")[0] or socket.gethostname()
    lines = [
        rfc5424(
            at=made_at,
            severity=one["severity"] if one["state"] == "firing" else "OK",
            hostname=host,
            app=APP,
            message_id="ALERT",
            data={"falconweb@32473": _data(one, message_id)},
            text=line_words(one),
        )
        for one in message["alerts"]
    ]
    if message["more"] or not lines:
        # The rest of a storm is one line.
        text = f"{message['summary']}; {message['more']} of them are not listed" if lines else message["summary"]
        severity = "Critical" if message["critical"] else "Warning" if message["warning"] else "OK"
        data = {"falconweb@32473": {"delivery": message_id}}
        kind = "ALERTS" if lines else "TEST"
        lines.append(
            rfc5424(at=made_at, severity=severity, hostname=host, app=APP, message_id=kind, data=data, text=text)
        )
    send_syslog(address=address, messages=lines)


def _data(one: Line, message_id: str) -> dict[str, str]:
    values = {
        "delivery": message_id, "alert": str(one["id"]), "state": one["state"], "severity": one["severity"],
        "chassis": one["chassis"], "subject": one["subject"], "series": one["series_key"],
        "value": "" if one["value"] is None else f"{one['value']:g}", "since": one["since"], "url": one["url"],
    }  # fmt: skip
    return {name: value for name, value in values.items() if value}
