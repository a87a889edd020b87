"""Violations of the content security policy that browsers report: counted, and logged a few at a time.

Anybody may send one, so nothing of it is stored: it becomes at most one line of the log, and no label of a metric.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse

from telemetry.instrumentation.metrics import increment

logger = logging.getLogger(__name__)
PATH: Final = "/csp-reports/"
MAX_REPORT_BYTES: Final = 16 * 2**10
MAX_REPORTS: Final = 10  # of one body: browsers gather them
LINES_PER_MINUTE: Final = 20  # of this process, whoever sends them
MAX_FIELD_LENGTH: Final = 200
_logged_at: deque[float] = deque(maxlen=LINES_PER_MINUTE)
_lock = threading.Lock()


def csp_report(request: HttpRequest) -> HttpResponse:
    """Take reports, in the form of `report-uri` or of the Reporting API; 204 for those that can be read."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    body = request.read(MAX_REPORT_BYTES + 1)
    if len(body) > MAX_REPORT_BYTES:
        return HttpResponse(status=413)
    try:
        found = list(_reports(json.loads(body)))
    except (ValueError, RecursionError):
        return HttpResponse(status=400)
    for directive, blocked, page in found[:MAX_REPORTS]:
        increment("csp_reports")
        if not _admitted():
            return HttpResponse(status=429)
        logger.warning("a browser refused %s on %s by the content security policy (%s)", blocked, page, directive)
    return HttpResponse(status=204)


def _reports(document: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the directive, what was refused and the page of each report; raises ValueError for another document."""
    bodies: list[Any] = (
        [one.get("body") for one in document if isinstance(one, dict) and one.get("type") == "csp-violation"]
        if isinstance(document, list)
        else [document.get("csp-report")]
        if isinstance(document, dict)
        else []
    )
    if not bodies or not all(isinstance(one, dict) for one in bodies):
        raise ValueError("This is no report.")
    for one in bodies:
        directive = one.get("effectiveDirective") or one.get("effective-directive") or one.get("violated-directive")
        blocked, page = (one.get(name) or one.get(old) for name, old in FIELDS)
        yield _clean(directive), _clean(blocked), _clean(page)


FIELDS: Final = (("blockedURL", "blocked-uri"), ("documentURL", "document-uri"))


def _clean(value: object) -> str:
    """Return a text for one field of a line; without the query of an address, which may have what nobody may read."""
    text = value if isinstance(value, str) else ""
    try:
        text = urlsplit(text)._replace(query="", fragment="").geturl()
    except ValueError:
        text = ""
    return "".join(one if one.isprintable() else "?" for one in text[:MAX_FIELD_LENGTH]) or "something"


def _admitted() -> bool:
    """Return whether another line may be logged within this minute."""
    now = time.monotonic()
    with _lock:
        if len(_logged_at) == LINES_PER_MINUTE and now - _logged_at[0] < 60:
            return False
        _logged_at.append(now)
    return True
