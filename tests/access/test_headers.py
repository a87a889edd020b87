"""Headers of static files, errors and probes (of pages: test_matrix.py), and reports of violations of policy."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.http import HttpResponse
from django.test import Client, RequestFactory

from accounts.audit.models import AuditEntry
from falconweb import csp_reports
from falconweb.csp_reports import LINES_PER_MINUTE, MAX_REPORT_BYTES, PATH
from falconweb.middleware import ISOLATION_HEADERS, isolation_middleware, static_files_middleware
from telemetry.instrumentation.metrics import counter_values
from tests.access.lab import Lab, lab, made_lab

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
REPORT = {
    "csp-report": {
        "document-uri": "https://falcon.example/plans/?state=secret#x", "effective-directive": "script-src-elem",
        "blocked-uri": "https://evil.example/x.js?token=secret",
    }
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet_minute() -> Iterator[None]:
    csp_reports._logged_at.clear()
    yield
    csp_reports._logged_at.clear()


def reported() -> int:
    return counter_values().get(("csp_reports", None), 0)


def sent(body: object, kind: str = "application/csp-report") -> Any:
    return Client().post(PATH, body if isinstance(body, bytes) else json.dumps(body), content_type=kind)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/nothing/", "/api/v1/nothing/", "/static/nothing.js"])
def test_probes_and_errors_have_them_too(path: str) -> None:
    answer = Client().get(path)
    assert {name: answer.headers.get(name) for name in ISOLATION_HEADERS} == ISOLATION_HEADERS


def test_static_files_have_them_too(settings: Any) -> None:
    settings.SERVESTATIC_AUTOREFRESH = settings.SERVESTATIC_USE_FINDERS = True
    name = "site/axes.js"
    assert finders.find(name)
    chain = isolation_middleware(static_files_middleware(lambda _: HttpResponse(status=404)))
    answer = chain(RequestFactory().get(f"/static/{name}"))
    assert answer.status_code == 200
    assert {name: answer.headers.get(name) for name in ISOLATION_HEADERS} == ISOLATION_HEADERS


def test_a_report_is_a_line_of_the_log_without_what_an_address_may_hide(caplog: pytest.LogCaptureFixture) -> None:
    before = reported()
    with caplog.at_level(logging.WARNING, "falconweb.csp_reports"):
        assert sent(REPORT).status_code == 204
        new = {"effectiveDirective": "img-src", "blockedURL": "inline", "documentURL": "https://falcon.example/a\nb"}
        body = [{"type": "csp-violation", "body": new}, {"type": "deprecation", "body": {}}]
        assert sent(body, "application/reports+json").status_code == 204
    assert [one.getMessage() for one in caplog.records] == [
        f"a browser refused {refused} by the content security policy ({directive})"
        for refused, directive in (
            ("https://evil.example/x.js on https://falcon.example/plans/", "script-src-elem"),
            ("inline on https://falcon.example/ab", "img-src"),
        )
    ]
    assert reported() == before + 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"x" * (MAX_REPORT_BYTES + 1), 413),
        (b"no json", 400),
        (b"[" * 8000, 400),
        (b"\xff\xfe", 400),
        ([], 400),
        ({"csp-report": 3}, 400),
        ([{"type": "csp-violation"}], 400),
    ],
)
def test_anything_else_is_refused_and_leaves_nothing(
    body: object, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "falconweb.csp_reports"):
        assert sent(body).status_code == status
    assert not [one for one in caplog.records if one.name == "falconweb.csp_reports"]


def test_a_flood_is_counted_and_logs_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture, lab: Lab) -> None:
    entries, before = AuditEntry.objects.count(), reported()
    with caplog.at_level(logging.WARNING, "falconweb.csp_reports"):
        statuses = [sent(REPORT).status_code for _ in range(LINES_PER_MINUTE + 5)]
    assert statuses == [204] * LINES_PER_MINUTE + [429] * 5
    assert len([one for one in caplog.records if one.name == "falconweb.csp_reports"]) == LINES_PER_MINUTE
    assert reported() == before + LINES_PER_MINUTE + 5
    assert AuditEntry.objects.count() == entries
    assert Client().get(PATH).status_code == 405
