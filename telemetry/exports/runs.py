"""Runs of exports: asked for, cancelled, resumed; and a worker's claim on one, which holds for some seconds."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from falconweb.errors import Conflict, FalconWebError
from telemetry.exports.models import ExportDefinition, ExportRun, Span
from telemetry.exports.services import told

# Longer than one delivery may take, so that nobody takes over from who still waits for an answer.
LEASE_SECONDS = 30.0
LOOK_SECONDS = 1.0
State = ExportRun.State


class RunEnded(FalconWebError):
    """A run ends now, in `state`, with this sentence."""

    def __init__(self, state: State, sentence: str) -> None:
        super().__init__(sentence)
        self.state = state


class RunLost(FalconWebError):
    """Another worker has the run: this one writes nothing more."""


def run_request(*, by: User | None, definition: ExportDefinition, trigger: str = "person") -> ExportRun:
    """Have a definition carried out once, or go on for ever where it is a stream; nothing is done here yet.

    `by` None is the site itself. Raises Forbidden, and Conflict while a run of it goes on, or where a stream is off.
    """
    with attempt(Action.EXPORT_RUN, actor=by, target=target_of(definition)) as act:
        if by is not None:
            administrator_required(by)
        with act.change():
            run = _created(by, definition, trigger)
            act.after = {"run": run.pk}
    return run


def _created(by: User | None, definition: ExportDefinition, trigger: str) -> ExportRun:
    if definition.is_stream and not definition.enabled:
        raise Conflict("This export is switched off. Switch it on: it goes on by itself.")
    with transaction.atomic():
        row = ExportDefinition.objects.select_for_update().get(pk=definition.pk)
        cursor = row.cursor if row.span == Span.NEW else 0
        try:
            with transaction.atomic():
                return ExportRun.objects.create(
                    definition=row,
                    name=row.name,
                    snapshot=told(row),
                    version=row.version,
                    trigger=trigger,
                    requested_by=by,
                    requested_by_name=by.username if by else "",
                    begun_after=cursor,
                    cursor=cursor,
                )
        except IntegrityError as error:
            raise Conflict("A run of this export goes on. Wait for its end, or cancel it.") from error


def run_cancel(*, by: User, run: ExportRun) -> ExportRun:
    """End a run: at once where nobody is at it, else within a second or two; it can be resumed.

    Raises Forbidden, and Conflict where it has ended.
    """
    with audited(Action.EXPORT_CANCEL, actor=by, target=_target(run)):
        administrator_required(by)
        now = timezone.now()
        open_ = ExportRun.objects.open().filter(pk=run.pk)
        at_once = {"state": State.CANCELLED, "ended_at": now, "error": f"{by.username} cancelled it.", "retry_at": None}
        if not open_.unheld(now).update(**at_once, worker="", lease_until=None) and not open_.update(
            cancel_requested_at=now
        ):
            raise Conflict("The run has ended: there is nothing to cancel.")
    run.refresh_from_db()
    return run


def run_resume(*, by: User, run: ExportRun) -> ExportRun:
    """Have a run that failed or was cancelled go on where it stopped.

    Raises Forbidden, and Conflict where it is not that, its definition is gone, or another run is open or has taken
    over what it was about.
    """
    with attempt(Action.EXPORT_RESUME, actor=by, target=_target(run)) as act:
        administrator_required(by)
        with act.change():
            definition = ExportDefinition.objects.select_for_update().filter(runs=run.pk).first()
            if definition is None:
                raise Conflict("The export was removed: there is nothing to go on with.")
            if run.snapshot["span"] == Span.NEW and definition.runs.filter(pk__gt=run.pk).exists():
                raise Conflict("A later run has gone on from there.")
            if definition.is_stream and not definition.enabled:
                raise Conflict("This export is switched off. Switch it on first.")
            ended = ExportRun.objects.filter(pk=run.pk, state__in=[State.FAILED, State.CANCELLED], file_removed_at=None)
            try:
                with transaction.atomic():
                    changed = ended.update(
                        state=State.QUEUED, error="", attempts=0, failing_since=None, retry_at=None, ended_at=None,
                        cancel_requested_at=None, worker="", lease_until=None, resumed_at=timezone.now(),
                    )  # fmt: skip
            except IntegrityError as error:
                raise Conflict("Another run of this export goes on. Wait for its end, or cancel it.") from error
            if not changed:
                raise Conflict("Only a run that failed or was cancelled, and whose file is there, can be resumed.")
    run.refresh_from_db()
    return run


def _target(run: ExportRun) -> Target:
    return Target("export run", str(run.pk), run.name)


class Hold:
    """A worker's claim on a run: every write asks whether it still has it."""

    def __init__(self, run: ExportRun, worker: str) -> None:
        self.run, self.worker = run, worker
        self._kept_at = time.monotonic()

    @classmethod
    def claim(cls, run_id: int, worker: str) -> Hold | None:
        """Take a run that is due; None where somebody else was faster, or there is nothing to do."""
        now = timezone.now()
        taken = ExportRun.objects.due(now).filter(pk=run_id)
        if not taken.update(state=State.RUNNING, worker=worker, lease_until=_until(now), retry_at=None):
            return None
        ExportRun.objects.filter(pk=run_id, started_at=None).update(started_at=now)
        run = ExportRun.objects.select_related("definition").filter(pk=run_id, worker=worker).first()
        return None if run is None else cls(run, worker)

    @property
    def due(self) -> bool:
        """Whether it is time to keep what was done."""
        return time.monotonic() - self._kept_at >= LOOK_SECONDS

    def keep(self, **values: Any) -> None:
        """Keep how far it is, and hold on; raises RunLost."""
        self._write(lease_until=_until(timezone.now()), **values)
        self._kept_at = time.monotonic()

    def heed(self) -> None:
        """Hold on while something takes long; looks once a second."""
        if self.due:
            self.keep()
            self.look()

    def look(self) -> None:
        """Raise RunEnded where somebody cancelled the run, or it has gone on for too long."""
        asked = ExportRun.objects.filter(pk=self.run.pk).values_list("cancel_requested_at", flat=True).first()
        if asked is not None:
            raise RunEnded(State.CANCELLED, "It was cancelled.")
        begun = self.run.resumed_at or self.run.started_at or timezone.now()
        minutes = int(self.run.snapshot["options"].get("minutes", 0))
        if minutes and not self.run.is_stream and timezone.now() - begun > timedelta(minutes=minutes):
            raise RunEnded(State.FAILED, f"It took longer than its {minutes} minutes. Resume it to let it go on.")

    def release(self, **values: Any) -> None:
        """Let the run go: whoever comes next goes on with it."""
        self._write(lease_until=None, worker="", **values)

    def end(self, state: State, sentence: str = "", **values: Any) -> None:
        """End the run."""
        self.release(state=state, error=sentence[:500], ended_at=timezone.now(), pending=None, retry_at=None, **values)

    def _write(self, **values: Any) -> None:
        held = ExportRun.objects.filter(pk=self.run.pk, worker=self.worker, state=State.RUNNING)
        if not held.update(**values):
            raise RunLost("Another worker has the run.")
        for name, value in values.items():
            setattr(self.run, name, value)


def _until(now: datetime) -> datetime:
    return now + timedelta(seconds=LEASE_SECONDS)
