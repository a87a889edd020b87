"""What tests of exports start from: events, a folder of their own, definitions, and a turn of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from accounts.models import User
from simulator.certificates import ServerCertificate, server_certificate
from telemetry.events.models import Event
from telemetry.exports import execution
from telemetry.exports.execution import run_continue
from telemetry.exports.models import ExportDefinition, ExportRun
from telemetry.exports.options import ExportOptions, ExportSpec
from telemetry.exports.services import export_add
from tests.telemetry.delivery.sinks import HttpSink, SyslogSink

BEGIN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
FORMULA = '=HYPERLINK("http://evil.example","click")'


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    """The folder of exports, of this test alone."""
    settings.EXPORTS_FOLDER = tmp_path / "exports"
    return tmp_path / "exports"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon, and keep what is done after every block."""
    monkeypatch.setattr(execution, "MIN_RETRY_PAUSE", 0.02)
    monkeypatch.setattr(execution, "MAX_RETRY_PAUSE", 0.1)
    monkeypatch.setattr("telemetry.exports.services.CHECK_SECONDS", 0.0)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ServerCertificate:
    """What TLS servers of tests show."""
    return server_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def webhook() -> Iterator[HttpSink]:
    """A receiver of webhooks."""
    with HttpSink() as sink:
        yield sink


@pytest.fixture
def syslog() -> Iterator[SyslogSink]:
    """A syslog server over TCP."""
    with SyslogSink("tcp") as sink:
        yield sink


def events_make(count: int, *, first: int = 1, **more: Any) -> list[Event]:
    """Make events, numbered in their texts from `first`."""
    same = {
        "source": "bmc",
        "message_id": "ResourceEvent.1.3.ResourceChanged",
        "message": "ResourceEvent.ResourceChanged",
        "chassis_id": 1,
        "chassis_name": "falcon-1",
        "subject_name": "GPU 3",
        "link": "/devices/7/",
        **more,
    }
    rows = [
        Event(
            at=BEGIN + timedelta(seconds=number),
            severity=("OK", "Warning", "Critical")[number % 3],
            text=f"Something happened, number {number}",
            **same,
        )
        for number in range(first, first + count)
    ]
    return Event.objects.bulk_create(rows, batch_size=500)


@pytest.fixture
def define(falconweb_administrator: User) -> Callable[..., ExportDefinition]:
    """A function that defines an export; what is an option goes there."""

    def made(name: str = "Everything", **more: Any) -> ExportDefinition:
        known = set(ExportOptions.__dataclass_fields__)
        options = ExportOptions(**{key: more.pop(key) for key in list(more) if key in known})
        wanted = {"format": "csv", "target": "download", "columns": ("id", "at", "severity", "text"), **more}
        from_now = wanted.pop("from_now", False)
        return export_add(
            by=falconweb_administrator, spec=ExportSpec(name, options=options, **wanted), from_now=from_now
        )

    return made


def turn(run: ExportRun, worker: str = "worker") -> ExportRun:
    """Let a worker go on with a run as far as it can at once; return the run as it is then."""
    while run_continue(run.pk, worker=worker):
        pass
    run.refresh_from_db()
    return run
