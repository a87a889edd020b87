"""The site's log as lines of text, or as JSON lines for log collectors.

A line of JSON has the ids of its request, user, chassis and operation, as far as they are known. Other extra
attributes of a record are omitted unless they are in SHOWN_FIELDS: they may be anything, even a whole request.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from accounts.audit.context import ORIGIN, Origin, bound_origin, current_log_context, running_task

SHOWN_FIELDS = ("chassis_id", "operation_id", "status_code")


class PlainLines(logging.Formatter):
    """A log record as text: what anybody wrote into its message neither begins a line nor moves a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Return the line; a traceback follows it with lines of its own."""
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


class JsonLines(JsonFormatter):
    """A log record as JSON, without empty members."""

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """Return the members of a record; times are UTC."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        log_data |= {"at": at, "level": record.levelname, "logger": record.name, "message": record.message}
        log_data["process"] = os.getpid()
        origin, at_work = bound_origin() or _origin_of_record(record), running_task()
        if origin is not None:
            log_data |= {"request_id": origin.request_id, "via": origin.via, "method": origin.method}
            log_data["path"] = origin.path
            if origin.person_id is not None:
                log_data["person_id"] = origin.person_id
        elif at_work is not None:
            log_data["task"] = at_work[1]
        log_data |= current_log_context()
        log_data |= {name: value for name in SHOWN_FIELDS if (value := getattr(record, name, None)) is not None}
        for name, value in (("error", message_dict.get("exc_info")), ("stack", message_dict.get("stack_info"))):
            if value:
                log_data[name] = value


def _origin_of_record(record: logging.LogRecord) -> Origin | None:
    """Return the origin of the request that a record is about, if it has been answered already."""
    found: Origin | None = getattr(getattr(record, "request", None), "META", {}).get(ORIGIN)
    return found
