"""The site's log as JSON lines, for log collectors.

A line has the ids of its request, user, chassis and operation, as far as they are known. Other extra attributes of a
record are omitted unless they are in SHOWN: they may be anything, even a whole request.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from accounts.audit.context import ORIGIN, Origin, bound_origin, current_log_context, running_task

SHOWN_FIELDS = ("chassis_id", "operation_id", "status_code")


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
