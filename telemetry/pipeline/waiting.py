"""What other rooms have not delivered yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Count, Min, QuerySet

from telemetry.alerts.models import Delivery
from telemetry.exports.models import ExportRun
from telemetry.pipeline.judging import Waiting


def waiting_now() -> list[Waiting]:
    """Return what waits to be delivered, of each room that delivers; exports count once their target failed."""
    failing = ExportRun.objects.open().filter(failing_since__isnull=False)
    return [
        _waiting("notifications", Delivery.objects.waiting(), "made_at", "/alerts/"),
        _waiting("exports", failing, "failing_since", "/exports/"),
    ]


def _waiting(what: str, rows: QuerySet[Any], since: str, link: str) -> Waiting:
    found = rows.order_by().aggregate(count=Count("pk"), oldest=Min(since))
    oldest: datetime | None = found["oldest"]
    return Waiting(what, found["count"], oldest.timestamp() if oldest else 0.0, link)
