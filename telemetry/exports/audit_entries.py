"""Entries of the audit log as events, so that exports take them to receivers as they do events.

Entries become events only while an export asks for them by their source, in the order of the log, each once: the
position and the events are stored together. A search that names no source does not find them.
"""

from __future__ import annotations

from typing import Final

from django.db import transaction
from django.db.models import Max
from django.urls import reverse

from accounts.audit import chain
from accounts.audit.actions import Outcome
from accounts.audit.models import AuditEntry
from telemetry.events.models import Event, EventSeverity, EventSource
from telemetry.events.services import event_record
from telemetry.exports.models import AuditPosition, ExportDefinition

BATCH_ROWS: Final = 500


def audit_entries_add() -> int:
    """Add the next entries of the audit log to the events, if an export wants them; returns how many.

    The first export that wants them begins with the entry of its own definition.
    """
    enabled = ExportDefinition.objects.filter(enabled=True).only("filter", "changed_at")
    wanting = [one.changed_at for one in enabled if EventSource.AUDIT in one.filter.get("source", [])]
    if not wanting:
        return 0
    if not AuditPosition.objects.exists():
        before = AuditEntry.objects.filter(at__lt=min(wanting)).aggregate(last=Max("sequence"))["last"] or 0
        AuditPosition.objects.get_or_create(pk=1, defaults={"sequence": before})
    with transaction.atomic():
        position = AuditPosition.objects.select_for_update().get(pk=1)
        # The chain is written under a lock: an entry that can be seen has none before it that will come.
        entries = list(AuditEntry.objects.filter(sequence__gt=position.sequence).order_by("sequence")[:BATCH_ROWS])
        added = sum(_record(entry) is not None for entry in entries)
        if entries:
            position.sequence = entries[-1].sequence
            position.save(update_fields=["sequence"])
    return added


def _record(entry: AuditEntry) -> Event | None:
    done = entry.outcome == Outcome.DONE
    what = f"{entry.action_words}: {entry.target_name}" if entry.target_name else entry.action_words
    who = entry.actor_name or "nobody who was signed in"
    return event_record(
        source=EventSource.AUDIT,
        message_id="FalconWeb.1.0.AuditEntry",
        severity=EventSeverity.OK if done else EventSeverity.WARNING,
        text=f"{what}, by {who}: {entry.get_outcome_display().lower()}. {entry.sentence}".strip(),
        at=entry.at,
        # The whole entry, as an export of the log has it: receivers can verify the chain.
        arguments=[chain.canonical(entry.record()).decode()],
        key=str(entry.sequence),
        subject_name=entry.target_name,
        link=reverse("accounts:audit_entry", args=[entry.sequence]),
        person_id=entry.actor_id,
        person_name=entry.actor_name,
    )
