"""The notifications in the header: firing alerts, and how a person's own work has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince

from accounts.approvals.models import ApprovalRequest
from accounts.models import User
from benchmarks.runs.models import Run
from benchmarks.sweeps.models import Sweep
from core.language import _
from fabric.operations.models import Operation, Plan
from telemetry.alerts.selectors import active_alerts_for, worst_status
from telemetry.exports.models import ExportRun

MAX_SHOWN: Final = 20
LOOKS: Final = {"completed": "done", "stopped": "failed", "expired": "failed"}  # of states without one of their own


@dataclass(frozen=True)
class WorkNotice:
    """Work of a person that has ended, or that waits for their decision."""

    words: str
    state: str  # its label
    look: str  # a class of `state_badge`
    at: datetime
    url: str
    is_new: bool


def notices_for(person: User) -> dict[str, Any]:
    """Return the notifications of a person, as JSON: the worst alerts, status and newest work, in constant queries."""
    alerts = active_alerts_for(person)
    work = sorted(_work(person), key=attrgetter("at"), reverse=True)
    return {
        "worst": alerts.worst,
        "critical": alerts.critical,
        "warning": alerts.warning,
        "status": worst_status(person, alerts),
        "alerts": [
            {
                "url": reverse("alerts:alert", args=[one.id]),
                "severity": one.severity,
                "title": one.title_words,
                "subject": one.about,
                "value": one.value_words,
                "acknowledged": one.state == "acknowledged",
                "ago": _ago(one.shown_since),
            }
            for one in alerts.views
        ],
        "unseen": sum(one.is_new for one in work),
        "work": [
            {
                "url": one.url,
                "words": one.words,
                "state": one.state,
                "look": one.look,
                "ago": _ago(one.at),
                "is_new": one.is_new,
            }
            for one in work[:MAX_SHOWN]
        ],
    }


def notices_seen(person: User) -> None:
    """Store that a person has seen all notifications."""
    person.notices_seen_at = timezone.now()
    person.save(update_fields=["notices_seen_at"])


def _work(person: User) -> Iterator[WorkNotice]:
    """Yield the newest work of each kind that a person requested themselves, and approvals that wait for them."""
    operations = Operation.objects.filter(state__in=Operation.FINAL, plan=None)
    yield from _newest(person, operations, "finished_at", "summary", "fabric:operation")
    plans = Plan.objects.filter(state__in=(*Plan.FINAL, Plan.State.STOPPED), by_site=False)
    # A stopped plan has not ended: it waits for a decision.
    plans = plans.annotate(at=Coalesce("finished_at", "applied_at"))
    yield from _newest(person, plans, "at", "title", "fabric:plan")
    # Runs of a sweep end with that.
    runs = Run.objects.filter(state__in=Run.FINAL, sweep=None)
    yield from _newest(person, runs, "finished_at", "title", "runs:run")
    yield from _newest(person, Sweep.objects.all(), "finished_at", "title", "sweeps:sweep")
    exports = ExportRun.objects.exclude(state__in=ExportRun.OPEN)
    yield from _newest(person, exports, "ended_at", "name", "exports:export_run")
    approvals = ApprovalRequest.objects.all()
    yield from _newest(person, approvals, "ended_at", "sentence", "accounts:approval")
    if person.is_administrator:
        waiting = approvals.filter(state=ApprovalRequest.State.WAITING).exclude(requested_by=person)
        yield from _notices(person, waiting, "requested_at", "sentence", "accounts:approval")


def _newest(person: User, rows: Any, at: str, words: str, page: str) -> Iterator[WorkNotice]:
    """Yield notices of those rows that a person requested, and may still see."""
    return _notices(person, rows.visible_to(person).filter(requested_by=person), at, words, page)


def _notices(person: User, rows: QuerySet[Any], at: str, words: str, page: str) -> Iterator[WorkNotice]:
    rows = rows.exclude(**{at: None}).order_by(f"-{at}")
    label = rows.model.State
    for pk, state, text, when in rows.values_list("pk", "state", words, at)[:MAX_SHOWN]:
        yield WorkNotice(
            words=text, state=label(state).label, look=LOOKS.get(state, state), at=when,
            url=reverse(page, args=[pk]), is_new=when > person.notices_seen_at,
        )  # fmt: skip


def _ago(at: datetime) -> str:
    """Return '2 hours ago', or 'just now' within a minute."""
    since = timesince(at, depth=1)
    return _("just now") if since.startswith("0") else _("{since} ago", since=since)
