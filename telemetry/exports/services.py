"""Definitions of exports: added, changed, switched, removed and tried by administrators."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from fabric import credentials
from falconweb.errors import Conflict, Invalid, Unavailable
from telemetry.delivery.senders import send_syslog, send_webhook
from telemetry.events.cursor import horizon
from telemetry.events.models import Event, Severity, Source
from telemetry.exports import files
from telemetry.exports.models import ExportDefinition, ExportRun, Kind, Schedule, Span
from telemetry.exports.options import Options, Wanted, next_time, sends_the_same, wanted_of

FIELDS = ("name", "filter", "columns", "format", "target", "options", "schedule", "cron", "span", "enabled")


def export_add(*, by: User, wanted: Wanted, from_now: bool = False) -> ExportDefinition:
    """Define an export; administrators only.

    One that takes what is new begins with all that there is, or with what comes `from_now` on. Raises Forbidden, and
    Invalid with a sentence for each wrong field.
    """
    with attempt(Action.EXPORT_ADD, actor=by, target=Target("export", name=wanted.name[:100])) as act:
        administrator_required(by)
        kept = wanted.checked()
        cursor = horizon() if from_now and kept.span == Span.NEW else 0
        row = ExportDefinition(owner=by, owner_name=by.username, cursor=cursor)
        _put(row, kept)
        row.next_at = _next(row)
        with act.change():
            _saved(row, insert=True)
            act.target = target_of(row)
            act.after = told(row)
    return row


def export_edit(*, by: User, definition: ExportDefinition, wanted: Wanted) -> ExportDefinition:
    """Change a definition; a run that goes on ends as it began, a stream goes on as it is now.

    A stream begins a new run only where what it sends, or where to, is another. Without another `secret` the kept one
    stays, except where the address changes: it signs for nobody else unasked. Administrators only. Raises as
    `export_add` does.
    """
    with attempt(Action.EXPORT_EDIT, actor=by, target=target_of(definition)) as act:
        administrator_required(by)
        kept = wanted.checked()
        with act.change():
            row = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
            act.before, before = told(row), wanted_of(row)
            sends_otherwise = not sends_the_same(before, kept) or _signs_otherwise(row, kept)
            if kept.secret is None and before.options.address != kept.options.address:
                row.secret_encrypted = ""
            # Saving is how a secret gets under the newest key.
            row.secret_encrypted = row.secret_encrypted and credentials.renew(row.secret_encrypted)
            if kept.span == Span.NEW and row.span != Span.NEW:
                row.cursor = _last_taken(row)
            _put(row, kept)
            if (kept.schedule, kept.cron, kept.enabled) != (before.schedule, before.cron, before.enabled):
                # Never otherwise: what is due just now would be left out.
                row.next_at = _next(row)
            act.after = told(row)
            if sends_otherwise:
                row.version = row.version + 1
            if sends_otherwise or act.after != act.before:
                row.changed_at = timezone.now()
            _saved(row)
            if sends_otherwise or kept.enabled != before.enabled:
                # A stream that waits for its next try is to notice at once.
                row.runs.open().update(retry_at=None)
    return row


def export_switch(*, by: User, definition: ExportDefinition, enabled: bool) -> ExportDefinition:
    """Switch a definition on or off: off, neither its schedule nor its stream does anything. Raises Forbidden."""
    with audited(Action.EXPORT_SWITCH, actor=by, target=target_of(definition)) as act:
        administrator_required(by)
        row = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
        act.before = {"enabled": row.enabled}
        if row.enabled != enabled:
            row.enabled = enabled
            row.next_at = _next(row)
        row.note = ""
        row.save(update_fields=["enabled", "next_at", "note"])
        row.runs.open().update(retry_at=None)
        act.after = {"enabled": row.enabled}
    return row


def export_remove(*, by: User, definition: ExportDefinition) -> None:
    """Remove a definition and its files; the record of its runs stays. Raises Forbidden, Conflict while one goes on."""
    with attempt(Action.EXPORT_REMOVE, actor=by, target=target_of(definition)) as act:
        administrator_required(by)
        with act.change():
            row = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
            act.before = told(row)
            going = row.runs.open().unheld(timezone.now())
            going.update(state=ExportRun.State.CANCELLED, ended_at=timezone.now(), error="The export was removed.")
            if row.runs.open().exists():
                raise Conflict("A run of this export goes on. Cancel it first; the export is removed after that.")
            runs = [run.pk for run in row.runs.all()]
            row.delete()
            transaction.on_commit(lambda: files.files_remove(runs))


def target_try(*, by: User, wanted: Wanted, definition: ExportDefinition | None = None) -> str:
    """Send one made-up event to a target, or see that its folder can be written; returns what to tell of it.

    Without a `secret` in `wanted` that of `definition` signs, where the address is the same. Administrators only.
    Raises Forbidden, Invalid, and DeliveryFailed where it does not arrive.
    """
    target = target_of(definition) if definition else Target("export", name=wanted.name[:100])
    with attempt(Action.EXPORT_TEST, actor=by, target=target) as act:
        administrator_required(by)
        kept = wanted.checked()
        secret = kept.secret
        if secret is None:
            same = definition is not None and Options.of(definition.options).address == kept.options.address
            secret = definition.secret if definition is not None and same else ""
        sentence = _try(kept, secret)
        with act.change():
            act.after = {"target": kept.target, "address": kept.options.address, "folder": kept.options.folder}
    return sentence


def _try(kept: Wanted, secret: str) -> str:
    options, shape = kept.options, kept.shape()
    if kept.target in {Kind.DOWNLOAD, Kind.DIRECTORY}:
        return f"Files can be written to {files.folder_try(options.folder)}."
    event = made_up_event()
    if kept.target == Kind.WEBHOOK:
        body = shape.heading + b"".join(shape.lines([event]))
        send_webhook(url=options.address, body=body, content_type=shape.content_type, secret=secret, ca=options.ca)
        return "The webhook took a test event."
    send_syslog(address=options.address, messages=shape.messages([event], shape.lines([event])), ca=options.ca)
    if options.address.startswith("udp:"):
        return "A test event was sent. Nobody confirms a datagram: look whether the server has it."
    return "The syslog server took a test event."


def made_up_event() -> Event:
    """Return an event that tries a target; it is in no log."""
    now = timezone.now()
    return Event(
        id=0,
        at=now,
        received_at=now,
        source=Source.SITE,
        severity=Severity.OK,
        message_id="FalconWeb.1.0.ExportTest",
        message="FalconWeb.ExportTest",
        text="This is a test of an export: nothing happened.",
    )


def told(row: ExportDefinition) -> dict[str, Any]:
    """Return a definition as the audit log and runs keep it: whether there is a secret, and never which."""
    return {name: getattr(row, name) for name in FIELDS} | {"signed": bool(row.secret_encrypted)}


def _put(row: ExportDefinition, kept: Wanted) -> None:
    for name in FIELDS:
        if name != "options":
            setattr(row, name, getattr(kept, name))
    row.filter, row.columns, row.options = dict(kept.filter), list(kept.columns), asdict(kept.options)
    if kept.secret is not None:
        row.set_secret(kept.secret)
    row.note = ""


def _signs_otherwise(row: ExportDefinition, kept: Wanted) -> bool:
    """Tell whether requests are signed otherwise from now on; the same secret once more changes nothing."""
    if kept.secret is None:
        return False
    try:
        return kept.secret != row.secret
    except Unavailable:  # the site's key is another one now
        return True


def _next(row: ExportDefinition) -> datetime | None:
    return next_time(row.cron, datetime.now(UTC)) if row.enabled and row.schedule == Schedule.CRON else None


def _last_taken(row: ExportDefinition) -> int:
    """Return up to which event a definition that took all has given everything once."""
    last = row.runs.filter(state=ExportRun.State.DONE).order_by("-pk").first()
    return last.cursor if last is not None else 0


def _saved(row: ExportDefinition, *, insert: bool = False) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=insert)
    except IntegrityError as error:
        sentence = "Another export has this name."
        raise Invalid(sentence, errors={"name": sentence}) from error


def cursor_move(run: ExportRun, cursor: int) -> None:
    """Note up to which event everything of a run's definition is delivered; never backwards."""
    if run.snapshot["span"] == Span.NEW and run.definition is not None:
        rows = ExportDefinition.objects.filter(pk=run.definition.pk, span=Span.NEW, cursor__lt=cursor)
        rows.update(cursor=cursor)
