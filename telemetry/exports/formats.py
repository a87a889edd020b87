"""Formats events as bytes: four formats, with selected columns."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from core.language import gettext_noop
from telemetry.delivery.formats import FACILITIES, cef_line, csv_rows, json_line, rfc5424_message
from telemetry.events.models import Event
from telemetry.exports.models import ExportFormat

CONTENT_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSONL: "application/jsonl; charset=utf-8",
    ExportFormat.SYSLOG: "text/plain; charset=utf-8",
    ExportFormat.CEF: "text/plain; charset=utf-8",
}
SUFFIXES = {ExportFormat.CSV: "csv", ExportFormat.JSONL: "jsonl", ExportFormat.SYSLOG: "log", ExportFormat.CEF: "cef"}
# 32473 is the enterprise number for documentation (RFC 5612): FalconWeb has none of its own.
SD_ID = "falconweb@32473"
# Columns without a field of their own in CEF, with the custom field that has value and label.
CEF_LABELLED = {
    "chassis_id": ("cn1", "chassis_id"), "tenant_id": ("cn2", "tenant_id"), "port_id": ("cn3", "port_id"),
    "subject": ("cs1", "subject"), "tenant": ("cs2", "tenant"), "origin": ("cs3", "origin"),
    "drawer_id": ("cs4", "drawer_id"), "host_id": ("cs5", "host_id"), "arguments": ("cs6", "arguments"),
}  # fmt: skip
CEF_KEYS = {
    "id": "externalId", "source": "cat", "text": "msg", "chassis": "dvchost", "person": "suser", "link": "request",
    "device_id": "deviceExternalId", "originator": "suid", "address": "shost",
}  # fmt: skip
CEF_TIMES = {"at": "rt", "received_at": "end", "told_at": "start"}


@dataclass(frozen=True)
class EventFormatter:
    """Formats events as one line, or one message, each."""

    format: str
    columns: tuple[str, ...]
    facility: str = "local0"
    cef_version: int = 0

    @property
    def heading(self) -> bytes:
        """Header before the first event of a file, or of a batch."""
        return csv_rows([self.columns])[0] if self.format == ExportFormat.CSV else b""

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES[ExportFormat(self.format)]

    def fields(self) -> list[str]:
        needed = {"id", *(field for name in self.columns for field in COLUMNS[name].fields)}
        if self.format in {ExportFormat.SYSLOG, ExportFormat.CEF}:
            needed |= {"at", "severity", "message", "message_id", "text"}
        return sorted(needed)

    def lines(self, events: Sequence[Event]) -> list[bytes]:
        """Return a line for each event, with its line end."""
        if self.format == ExportFormat.CSV:
            return csv_rows([[_cell(value) for value in row] for row in self._rows(events)])
        if self.format == ExportFormat.JSONL:
            return [json_line(dict(zip(self.columns, row, strict=True))) for row in self._rows(events)]
        line = self._syslog if self.format == ExportFormat.SYSLOG else self._cef
        return [line(event) + b"\n" for event in events]

    def messages(self, events: Sequence[Event], lines: Sequence[bytes]) -> list[bytes]:
        """Return an RFC 5424 message for each event; its text is the line, unless the format is syslog itself."""
        if self.format == ExportFormat.SYSLOG:
            return [line.rstrip(b"\n") for line in lines]
        return [self._wrapped(event, line.decode().rstrip("\n")) for event, line in zip(events, lines, strict=True)]

    def _rows(self, events: Sequence[Event]) -> list[list[object]]:
        values: list[Callable[[Event], object]] = [COLUMNS[name].value for name in self.columns]
        return [[value(event) for value in values] for event in events]

    def _syslog(self, event: Event) -> bytes:
        texts = {name: _text(COLUMNS[name].value(event)) for name in self.columns if name != "text"}
        data = {SD_ID: {name: value for name, value in texts.items() if value}}
        return self._message(event, event.text, data=data)

    def _wrapped(self, event: Event, line: str) -> bytes:
        # Receivers expect 'CEF:' or '{' at the start of the text: no byte order mark.
        return self._message(event, line, mark=False, longest=65_000)

    def _message(self, event: Event, text: str, **more: Any) -> bytes:
        return rfc5424_message(
            at=event.at,
            severity=event.severity,
            facility=FACILITIES[self.facility],
            hostname=site_name(),
            app="falconweb",
            message_id=event.message,
            text=text,
            **more,
        )

    def _cef(self, event: Event) -> bytes:
        extension: dict[str, object] = {}
        for name in self.columns:
            if name in CEF_TIMES:
                instant: datetime | None = getattr(event, name)
                extension[CEF_TIMES[name]] = None if instant is None else round(instant.timestamp() * 1000)
                continue
            value = _text(COLUMNS[name].value(event))
            if name in CEF_KEYS:
                extension[CEF_KEYS[name]] = value
            elif name in CEF_LABELLED and value:
                key, label = CEF_LABELLED[name]
                extension |= {key: value, f"{key}Label": label}
        return cef_line(
            vendor="FalconWeb",
            product="FalconWeb",
            version="1",
            signature=event.message_id,
            name=event.message,
            severity=event.severity,
            extension=extension,
            cef_version=self.cef_version,
        ).encode()


def site_name() -> str:
    """Return the host name of the site in messages: that of its address, else of this machine."""
    return urlsplit(settings.CONFIG.address).hostname or socket.gethostname()


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _text(value: object) -> str:
    return "" if value is None else str(_cell(value))


@dataclass(frozen=True)
class ExportColumn:
    """A column: its label on pages, the model fields that it needs, and its value."""

    words: str
    fields: tuple[str, ...]
    value: Callable[[Event], Any]


def rfc3339(at: datetime | None) -> str | None:
    """Return a time in UTC as RFC 3339, to the microsecond; None for None."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _field_column(words: str, field: str) -> ExportColumn:
    return ExportColumn(words, (field,), lambda event: getattr(event, field))


def _page_url(event: Event) -> str:
    """Return the address of the subject's page, absolute where the site's address is configured."""
    return f"{settings.CONFIG.address}{event.link}" if event.link else ""


COLUMNS: dict[str, ExportColumn] = {
    "id": _field_column(gettext_noop("Number"), "id"),
    "at": ExportColumn(gettext_noop("Time"), ("at",), lambda event: rfc3339(event.at)),
    "received_at": ExportColumn(gettext_noop("Received"), ("received_at",), lambda event: rfc3339(event.received_at)),
    "told_at": ExportColumn(
        gettext_noop("Time, by the BMC’s clock"), ("told_at",), lambda event: rfc3339(event.told_at)
    ),
    "source": _field_column(gettext_noop("Source"), "source"),
    "severity": _field_column(gettext_noop("Severity"), "severity"),
    "message_id": _field_column(gettext_noop("Message"), "message_id"),
    "text": _field_column(gettext_noop("Text"), "text"),
    "arguments": _field_column(gettext_noop("Arguments of the message"), "arguments"),
    "chassis": _field_column(gettext_noop("Chassis"), "chassis_name"),
    "subject": _field_column(gettext_noop("Subject"), "subject_name"),
    "tenant": _field_column(gettext_noop("Tenant"), "tenant_name"),
    "person": _field_column(gettext_noop("Person"), "person_name"),
    "link": ExportColumn(gettext_noop("Page of the subject"), ("link",), _page_url),
    "chassis_id": _field_column(gettext_noop("Chassis, number"), "chassis_id"),
    "drawer_id": _field_column(gettext_noop("Drawer, number"), "drawer_id"),
    "device_id": _field_column(gettext_noop("Device, number"), "device_id"),
    "port_id": _field_column(gettext_noop("Port, number"), "port_id"),
    "host_id": _field_column(gettext_noop("Host, number"), "host_id"),
    "tenant_id": _field_column(gettext_noop("Tenant, number"), "tenant_id"),
    "origin": _field_column(gettext_noop("Resource of the BMC"), "origin_uri"),
    "originator": _field_column(gettext_noop("Account on the BMC"), "originator"),
    "address": _field_column(gettext_noop("Address on the BMC"), "origin_address"),
}
DEFAULT_COLUMNS = (
    "id", "at", "source", "severity", "message_id", "text", "chassis", "subject", "tenant", "person", "link",
)  # fmt: skip
