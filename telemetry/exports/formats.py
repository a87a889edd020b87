"""Events as bytes: the four formats, by the columns that are wanted."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from telemetry.delivery.cef import cef
from telemetry.delivery.rows import csv_rows, json_line
from telemetry.delivery.syslog import FACILITIES, rfc5424
from telemetry.events.models import Event
from telemetry.exports.columns import COLUMNS, fields_of
from telemetry.exports.models import Format

CONTENT_TYPES = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.JSONL: "application/jsonl; charset=utf-8",
    Format.SYSLOG: "text/plain; charset=utf-8",
    Format.CEF: "text/plain; charset=utf-8",
}
SUFFIXES = {Format.CSV: "csv", Format.JSONL: "jsonl", Format.SYSLOG: "log", Format.CEF: "cef"}
# 32473 is the enterprise number for examples and the like (RFC 5612): the site's maker has none of its own.
ELEMENT = "falconweb@32473"
VENDOR, PRODUCT, VERSION = "FalconWeb", "FalconWeb", "1"
# Columns that need a label beside the value in CEF, by the field that is free for them there.
LABELLED = {
    "chassis_id": ("cn1", "chassis_id"), "tenant_id": ("cn2", "tenant_id"), "port_id": ("cn3", "port_id"),
    "subject": ("cs1", "subject"), "tenant": ("cs2", "tenant"), "origin": ("cs3", "origin"),
    "drawer_id": ("cs4", "drawer_id"), "host_id": ("cs5", "host_id"), "arguments": ("cs6", "arguments"),
}  # fmt: skip
NAMED = {
    "id": "externalId", "source": "cat", "text": "msg", "chassis": "dvchost", "person": "suser", "link": "request",
    "device_id": "deviceExternalId", "originator": "suid", "address": "shost",
}  # fmt: skip
TIMES = {"at": "rt", "received_at": "end", "told_at": "start"}


@dataclass(frozen=True)
class Shape:
    """How events are written: one line, or one message, for each."""

    format: str
    columns: tuple[str, ...]
    facility: str = "local0"
    cef_version: int = 0

    @property
    def heading(self) -> bytes:
        """What comes before the first event of a file, or of a batch."""
        return csv_rows([self.columns])[0] if self.format == Format.CSV else b""

    @property
    def content_type(self) -> str:
        """The content type of lines in this format."""
        return CONTENT_TYPES[Format(self.format)]

    def fields(self) -> list[str]:
        """Return the fields of an event that are needed."""
        if self.format in {Format.SYSLOG, Format.CEF}:
            return fields_of(self.columns, "at", "severity", "message", "message_id", "text")
        return fields_of(self.columns)

    def lines(self, events: Sequence[Event]) -> list[bytes]:
        """Return a line for each event, with its end."""
        if self.format == Format.CSV:
            return csv_rows([[_cell(value) for value in row] for row in self._rows(events)])
        if self.format == Format.JSONL:
            return [json_line(dict(zip(self.columns, row, strict=True))) for row in self._rows(events)]
        made = self._syslog if self.format == Format.SYSLOG else self._cef
        return [made(event) + b"\n" for event in events]

    def messages(self, events: Sequence[Event], lines: Sequence[bytes]) -> list[bytes]:
        """Return a message of RFC 5424 for each event and its line, which is the text where the format is another."""
        if self.format == Format.SYSLOG:
            return [line.rstrip(b"\n") for line in lines]
        return [self._wrapped(event, line.decode().rstrip("\n")) for event, line in zip(events, lines, strict=True)]

    def _rows(self, events: Sequence[Event]) -> list[list[object]]:
        values: list[Callable[[Event], object]] = [COLUMNS[name].value for name in self.columns]
        return [[value(event) for value in values] for event in events]

    def _syslog(self, event: Event) -> bytes:
        said = {name: _text(COLUMNS[name].value(event)) for name in self.columns if name != "text"}
        data = {ELEMENT: {name: value for name, value in said.items() if value}}
        return self._message(event, event.text, data=data)

    def _wrapped(self, event: Event, line: str) -> bytes:
        # Receivers look for 'CEF:' or '{' at the very beginning of the text: no mark before it.
        return self._message(event, line, mark=False, longest=65_000)

    def _message(self, event: Event, text: str, **more: Any) -> bytes:
        """Return a message of RFC 5424 about an event."""
        return rfc5424(
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
            if name in TIMES:
                instant: datetime | None = getattr(event, name)
                extension[TIMES[name]] = None if instant is None else round(instant.timestamp() * 1000)
                continue
            value = _text(COLUMNS[name].value(event))
            if name in NAMED:
                extension[NAMED[name]] = value
            elif name in LABELLED and value:
                key, label = LABELLED[name]
                extension |= {key: value, f"{key}Label": label}
        return cef(
            vendor=VENDOR,
            product=PRODUCT,
            version=VERSION,
            signature=event.message_id,
            name=event.message,
            severity=event.severity,
            extension=extension,
            cef_version=self.cef_version,
        ).encode()


def site_name() -> str:
    """Return what the site is called in messages: the host of its address, else of this machine."""
    return urlsplit(settings.CONFIG.address).hostname or socket.gethostname()


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _text(value: object) -> str:
    return "" if value is None else str(_cell(value))
