"""Export definitions and runs: added, changed, requested, cancelled, resumed; a worker's claim on a run."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from core import credentials
from core.claims import ClaimLost, RowClaim
from core.errors import Conflict, FalconWebError, Invalid, Unavailable
from core.failpoints import failpoint
from core.language import _, english, gettext_noop
from telemetry.delivery.senders import send_syslog, send_webhook
from telemetry.events.models import Event, EventSeverity, EventSource
from telemetry.events.selectors import horizon
from telemetry.exports import files
from telemetry.exports.models import ExportDefinition, ExportRun, ExportSchedule, ExportSpan, ExportTarget
from telemetry.exports.options import SPEC_FIELDS, ExportSpec, delivers_same, next_cron_time, spec_of


def export_add(*, by: User, spec: ExportSpec, from_now: bool = False) -> ExportDefinition:
    """Define an export; administrators only.

    One of new events starts with the oldest event, or with the next one where `from_now` is set. Raises Forbidden, and
    Invalid with a sentence for each wrong field.
    """
    with attempt(Action.EXPORT_ADD, actor=by, target=Target("export", name=spec.name[:100])) as act:
        require_administrator(by)
        kept = spec.checked()
        cursor = horizon() if from_now and kept.span == ExportSpan.NEW else 0
        row = ExportDefinition(owner=by, owner_name=by.username, cursor=cursor)
        _apply_spec(row, kept)
        row.next_at = _next_time(row)
        with act.change():
            _save(row)
            act.target = target_of(row)
            act.after = definition_snapshot(row)
    return row


def export_edit(*, by: User, definition: ExportDefinition, spec: ExportSpec) -> ExportDefinition:
    """Change a definition; an open run ends unchanged, a stream continues with the new definition.

    A stream starts a new run only where its content or receiver changes. Without a new `secret` the stored one is kept,
    except where the address changes: it must not sign for another receiver. Administrators only. Raises as
    `export_add` does.
    """
    with attempt(Action.EXPORT_EDIT, actor=by, target=target_of(definition)) as act:
        require_administrator(by)
        kept = spec.checked()
        with act.change():
            row: ExportDefinition = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
            act.before, before = definition_snapshot(row), spec_of(row)
            delivery_changes = not delivers_same(before, kept) or _signature_changes(row, kept)
            if kept.secret is None and before.options.address != kept.options.address:
                row.secret_encrypted = ""
            # Saving re-encrypts the secret with the newest key.
            row.secret_encrypted = row.secret_encrypted and credentials.reencrypt(row.secret_encrypted)
            if kept.span == ExportSpan.NEW and row.span != ExportSpan.NEW:
                row.cursor = _last_exported(row)
            _apply_spec(row, kept)
            if (kept.schedule, kept.cron, kept.enabled) != (before.schedule, before.cron, before.enabled):
                # Not without such a change: a run that is due now would be skipped.
                row.next_at = _next_time(row)
            act.after = definition_snapshot(row)
            if delivery_changes:
                row.version = row.version + 1
            if delivery_changes or act.after != act.before:
                row.changed_at = timezone.now()
            _save(row)
            if delivery_changes or kept.enabled != before.enabled:
                # A stream that waits for its next attempt has to apply the change immediately.
                row.runs.open().update(retry_at=None)
    return row


def export_switch(*, by: User, definition: ExportDefinition, enabled: bool) -> ExportDefinition:
    """Switch a definition on or off; off, neither its schedule nor its stream runs. Raises Forbidden."""
    with audited(Action.EXPORT_SWITCH, actor=by, target=target_of(definition)) as act:
        require_administrator(by)
        row: ExportDefinition = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
        act.before = {"enabled": row.enabled}
        if row.enabled != enabled:
            row.enabled = enabled
            row.next_at = _next_time(row)
        row.note = ""
        row.save(update_fields=["enabled", "next_at", "note"])
        row.runs.open().update(retry_at=None)
        act.after = {"enabled": row.enabled}
    return row


def export_remove(*, by: User, definition: ExportDefinition) -> None:
    """Remove a definition and its files; its runs stay as records. Raises Forbidden, Conflict during a run."""
    with attempt(Action.EXPORT_REMOVE, actor=by, target=target_of(definition)) as act:
        require_administrator(by)
        with act.change():
            row = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
            act.before = definition_snapshot(row)
            unclaimed = row.runs.open().unclaimed()
            unclaimed.update(
                state=ExportRun.State.CANCELLED, ended_at=timezone.now(), error=gettext_noop("The export was removed.")
            )
            if row.runs.open().exists():
                raise Conflict(_("A run of this export is in progress. Cancel it first, then remove the export."))
            runs = [run.pk for run in row.runs.all()]
            row.delete()
            transaction.on_commit(lambda: files.files_delete(runs))


def target_check(*, by: User, spec: ExportSpec, definition: ExportDefinition | None = None) -> str:
    """Send a test event to a target, or check that its folder is writable; returns a sentence with the result.

    Without a `secret` in `spec` that of `definition` signs, where the address is the same. Administrators only.
    Raises Forbidden, Invalid, and DeliveryFailed.
    """
    target = target_of(definition) if definition else Target("export", name=spec.name[:100])
    with attempt(Action.EXPORT_TEST, actor=by, target=target) as act:
        require_administrator(by)
        kept = spec.checked()
        secret = kept.secret
        if secret is None:
            same = definition is not None and spec_of(definition).options.address == kept.options.address
            secret = definition.secret() if definition is not None and same else ""
        sentence = _check_target(kept, secret)
        with act.change():
            act.after = {"target": kept.target, "address": kept.options.address, "folder": kept.options.folder}
    return sentence


def _check_target(kept: ExportSpec, secret: str) -> str:
    options, shape = kept.options, kept.shape()
    if kept.target in {ExportTarget.DOWNLOAD, ExportTarget.DIRECTORY}:
        return _("Files can be written to {folder}.", folder=files.folder_check(options.folder))
    event = sample_event()
    if kept.target == ExportTarget.WEBHOOK:
        body = shape.heading + b"".join(shape.lines([event]))
        send_webhook(url=options.address, body=body, content_type=shape.content_type, secret=secret, ca=options.ca)
        return _("The webhook accepted a test event.")
    send_syslog(address=options.address, messages=shape.messages([event], shape.lines([event])), ca=options.ca)
    if options.address.startswith("udp:"):
        return _("A test event was sent. Datagrams are not confirmed: check whether the server has it.")
    return _("The syslog server accepted a test event.")


def sample_event() -> Event:
    """Return an unsaved event for the test of a target."""
    now = timezone.now()
    return Event(
        id=0,
        at=now,
        received_at=now,
        source=EventSource.SITE,
        severity=EventSeverity.OK,
        message_id="FalconWeb.1.0.ExportTest",
        message="FalconWeb.ExportTest",
        text="This is a test of an export: nothing happened.",
    )


def definition_snapshot(row: ExportDefinition) -> dict[str, Any]:
    """Return a definition for the audit log and for runs: with whether it has a secret, never the secret itself."""
    return {name: getattr(row, name) for name in SPEC_FIELDS} | {"signed": bool(row.secret_encrypted)}


def _apply_spec(row: ExportDefinition, kept: ExportSpec) -> None:
    for name in SPEC_FIELDS:
        if name != "options":
            setattr(row, name, getattr(kept, name))
    row.filter, row.columns, row.options = dict(kept.filter), list(kept.columns), asdict(kept.options)
    if kept.secret is not None:
        row.set_secret(kept.secret)
    row.note = ""


def _signature_changes(row: ExportDefinition, kept: ExportSpec) -> bool:
    if kept.secret is None:
        return False
    try:
        return kept.secret != row.secret()
    except Unavailable:  # the site's key has changed
        return True


def _next_time(row: ExportDefinition) -> datetime | None:
    return next_cron_time(row.cron, datetime.now(UTC)) if row.enabled and row.schedule == ExportSchedule.CRON else None


def _last_exported(row: ExportDefinition) -> int:
    """Return the cursor of the last complete run of a definition."""
    last = row.runs.filter(state=ExportRun.State.DONE).order_by("-pk").first()
    return last.cursor if last is not None else 0


def _save(row: ExportDefinition) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        sentence = _("Another export has this name.")
        raise Invalid(sentence, errors={"name": sentence}) from error


def cursor_move(run: ExportRun, cursor: int) -> None:
    """Advance the cursor of a run's definition, never backwards."""
    if run.snapshot["span"] == ExportSpan.NEW and run.definition is not None:
        rows = ExportDefinition.objects.filter(pk=run.definition.pk, span=ExportSpan.NEW, cursor__lt=cursor)
        rows.update(cursor=cursor)


CHECK_SECONDS = 1.0
State = ExportRun.State


class ExportRunEnded(FalconWebError):
    """A run ends now, in `state`, with this sentence."""

    def __init__(self, state: State, sentence: str) -> None:
        super().__init__(sentence)
        self.state = state


def run_request(*, by: User | None, definition: ExportDefinition, trigger: str = "person") -> ExportRun:
    """Queue a run of a definition, which never ends for a stream.

    `by` None is the site itself. Raises Forbidden, and Conflict during another run, or where a stream is off.
    """
    with attempt(Action.EXPORT_RUN, actor=by, target=target_of(definition)) as act:
        if by is not None:
            require_administrator(by)
        if definition.is_stream and not definition.enabled:
            raise Conflict(_("This export is switched off. Switch it on: it continues by itself."))
        with act.change():
            row = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
            cursor = row.cursor if row.span == ExportSpan.NEW else 0
            try:
                with transaction.atomic():
                    run = ExportRun.objects.create(
                        definition=row,
                        name=row.name,
                        snapshot=definition_snapshot(row),
                        version=row.version,
                        trigger=trigger,
                        requested_by=by,
                        requested_by_name=by.username if by else "",
                        begun_after=cursor,
                        cursor=cursor,
                    )
            except IntegrityError as error:
                raise Conflict(_("A run of this export is in progress. Wait for its end, or cancel it.")) from error
            act.after = {"run": run.pk}
            failpoint("export.requested.uncommitted")
    return run


def run_cancel(*, by: User, run: ExportRun) -> ExportRun:
    """Cancel a run: immediately where no worker has claimed it, else within a second or two; it can be resumed.

    Raises Forbidden, and Conflict where it has ended.
    """
    with audited(Action.EXPORT_CANCEL, actor=by, target=target_of(run)):
        require_administrator(by)
        now = timezone.now()
        open_ = ExportRun.objects.open().filter(pk=run.pk)
        ended = {"state": State.CANCELLED, "ended_at": now, "error": f"{by.username} cancelled it.", "retry_at": None}
        if not open_.unclaimed().update(**ended, worker="", lease_until=None) and not open_.update(
            cancel_requested_at=now
        ):
            raise Conflict(_("The run has ended: there is nothing to cancel."))
    run.refresh_from_db()
    return run


def run_resume(*, by: User, run: ExportRun) -> ExportRun:
    """Queue a failed or cancelled run to continue where it stopped.

    Raises Forbidden, and Conflict where it is in another state, its definition was removed, or another run is open or
    has continued from there.
    """
    with attempt(Action.EXPORT_RESUME, actor=by, target=target_of(run)) as act:
        require_administrator(by)
        with act.change():
            definition = ExportDefinition.objects.select_for_update().filter(runs=run.pk).first()
            if definition is None:
                raise Conflict(_("The export was removed: the run cannot be resumed."))
            if run.snapshot["span"] == ExportSpan.NEW and definition.runs.filter(pk__gt=run.pk).exists():
                raise Conflict(_("A later run has continued from there."))
            if definition.is_stream and not definition.enabled:
                raise Conflict(_("This export is switched off. Switch it on first."))
            ended = ExportRun.objects.filter(pk=run.pk, state__in=[State.FAILED, State.CANCELLED], file_removed_at=None)
            try:
                with transaction.atomic():
                    changed = ended.update(
                        state=State.QUEUED, error="", attempts=0, failing_since=None, retry_at=None, ended_at=None,
                        cancel_requested_at=None, worker="", lease_until=None, resumed_at=timezone.now(),
                    )  # fmt: skip
            except IntegrityError as error:
                raise Conflict(
                    _("Another run of this export is in progress. Wait for its end, or cancel it.")
                ) from error
            if not changed:
                raise Conflict(_("Only a failed or cancelled run whose file still exists can be resumed."))
    run.refresh_from_db()
    return run


class ExportRunClaim(RowClaim[ExportRun]):
    # Longer than one delivery may take, so that the claim does not expire while a response is awaited.
    duration = timedelta(seconds=30)
    related = ("definition",)

    def __init__(self, row: ExportRun, worker: str) -> None:
        super().__init__(row, worker)
        self._written_at = time.monotonic()

    @classmethod
    def claim(cls, run_id: int, worker: str) -> ExportRunClaim | None:
        """Claim a run that is due; None where it is not, or another worker was faster."""
        now = timezone.now()
        started = {"started_at": Coalesce("started_at", Value(now))}
        return cls.take(ExportRun.objects.due(now), run_id, worker, state=State.RUNNING, retry_at=None, **started)

    def held(self) -> QuerySet[ExportRun]:
        """Return the run while it is claimed by this worker and running."""
        return super().held().filter(state=State.RUNNING)

    @property
    def is_due(self) -> bool:
        """Whether the progress is due to be stored."""
        return time.monotonic() - self._written_at >= CHECK_SECONDS

    def write(self, **values: Any) -> None:
        """Store the progress, and extend the claim; raises ClaimLost."""
        super().write(**values)
        self._written_at = time.monotonic()

    def extend_if_due(self) -> None:
        """Extend the claim during long work, at most once a second; raises as `check_may_continue` does."""
        if self.is_due:
            self.write()
            self.check_may_continue()

    def check_may_continue(self) -> None:
        """Raise ExportRunEnded where the run was cancelled, or has exceeded its time."""
        if ExportRun.objects.filter(pk=self.row.pk, cancel_requested_at__isnull=False).exists():
            raise ExportRunEnded(State.CANCELLED, gettext_noop("It was cancelled."))
        begun = self.row.resumed_at or self.row.started_at or timezone.now()
        minutes = int(self.row.snapshot["options"].get("minutes", 0))
        if minutes and not self.row.is_stream and timezone.now() - begun > timedelta(minutes=minutes):
            raise ExportRunEnded(State.FAILED, f"It took longer than its {minutes} minutes. Resume it to continue.")

    def release(self, **values: Any) -> bool:
        """Release the run for any worker to continue; raises ClaimLost."""
        if not super().release(**values):
            raise ClaimLost("Another worker has claimed the run.")
        return True

    def end(self, state: State, sentence: str = "", **values: Any) -> None:
        """End the run; raises ClaimLost."""
        self.release(
            state=state, error=english(sentence)[:500], ended_at=timezone.now(), pending=None, retry_at=None, **values
        )


ExportRunClaim.watch(ExportRun.objects.open)
