"""Create, cancel, retry and delete runs; benchmarks.runs.scheduler advances them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone
from msgspec.structs import replace as replace_struct

from accounts.access import require_composer
from accounts.audit.actions import Action
from accounts.audit.context import request_id
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.runs.attachment import devices_to_restore
from benchmarks.runs.models import EXERCISE_SUFFIX, Run, RunNode, host_names, run_changed
from benchmarks.runs.recording import CHECKPOINT_KEY
from benchmarks.runs.requests import (
    MAX_LIMIT_SECONDS,
    RunRequest,
    refuse_too_many_open,
    validate_attachments,
    validate_trainers,
    validated_hosts,
    validated_topology,
    validated_workload,
)
from benchmarks.runs.rules import Composition
from benchmarks.workloads.definitions import Workload
from core.enqueue import enqueue
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.failpoints import failpoint
from core.idempotency import find_replayed, request_digest
from core.language import _
from hostwire.training import Spec

MAX_TITLE_LENGTH: Final = 200
State = Run.State


def run_create(
    *,
    person: User,
    request: RunRequest,
    sweep_id: UUID | None = None,
    position: int = 0,
    point: Mapping[str, Any] | None = None,
    repeat_of: Run | None = None,
    idempotency_key: str = "",
) -> Run:
    """Queue a run, which waits for its devices, attaches them, runs, is recorded, and restores its devices.

    The rules for a run of a sweep are checked when it is composed, because earlier runs change the fabric. Raises
    Invalid with a sentence for each wrong field, NotFound for what the person may not see, Forbidden for read-only
    users, Conflict for unavailable resources, RuleViolation. The same person and key return the same run.
    """
    spec, composition, executor = request.spec, request.composition, request.executor
    with attempt(Action.RUN_CREATE, actor=person, target=Target("run", name=_clean_title(request.title))) as act:
        require_composer(person, "run anything")
        more: tuple[Any, ...] = (request.title, request.limit_seconds, request.keep_composed, request.exercise)
        if request.may_share is not None:  # requests with a key were recorded without it
            more += (request.may_share,)
        digest = request_digest("run", spec.hash, composition.as_json(), executor, *more)
        if known := find_replayed(Run, person, idempotency_key, digest):
            return known
        workload = validated_workload(spec)
        if not 1.0 <= request.limit_seconds <= MAX_LIMIT_SECONDS:
            sentence = _("The time limit is from 1 second to 30 days.")
            raise Invalid(sentence, errors={"limit_seconds": sentence})
        hosts = validated_hosts(person, spec, composition)
        validate_trainers(person, hosts, spec, composition, executor)
        topology = validated_topology(spec, composition, workload)
        if sweep_id is None:
            validate_attachments(person, composition)
            refuse_too_many_open(person)
        try:
            with act.change():
                run = Run.objects.create(
                    title=_exercise_title(
                        _clean_title(request.title) or default_title(workload, spec, topology, host_names(hosts)),
                        request.exercise,
                    ),
                    workload=spec.workload,
                    preset=request.preset[:10],
                    spec=msgspec.to_builtins(spec),
                    spec_hash=spec.hash,
                    executor=executor,
                    provenance=Run.Provenance.SIMULATED if executor == "simulated" else Run.Provenance.MEASURED,
                    composition=composition.as_stored(),
                    host=hosts[0],
                    topology=msgspec.to_builtins(topology),
                    limit_seconds=request.limit_seconds,
                    keep_composed=request.keep_composed,
                    may_share=request.is_sharing,
                    sweep_id=sweep_id,
                    position=position,
                    point=dict(point or {}),
                    repeat_of=repeat_of,
                    requested_by=person,
                    requested_by_name=person.username,
                    tenant=person.tenant,
                    request_id=request_id(),
                    sentence="Waiting in the queue.",
                    source={"exercise": dict(request.exercise)} if request.exercise else {},
                    idempotency_key=idempotency_key,
                    request_digest=digest,
                )
                run.devices.set(composition.all_devices)
                RunNode.objects.bulk_create(
                    RunNode(run=run, number=number, host=host) for number, host in enumerate(hosts) if number
                )
                act.target = target_of(run, run.title)
                act.after = {
                    "workload": spec.workload, "executor": executor, "host": host_names(hosts), "spec": spec.hash,
                }  # fmt: skip
                failpoint("run.created.uncommitted")
                transaction.on_commit(partial(_notify_and_enqueue, run), robust=True)
        except IntegrityError:
            if known := find_replayed(Run, person, idempotency_key, digest):
                return known
            raise
    return run


def run_cancel(*, person: User, run: Run) -> Run:
    """Cancel a run: immediately while it is queued, else once its host has stopped it and its devices are restored.

    Raises NotFound, Forbidden, and Conflict if it has ended.
    """
    with audited(Action.RUN_CANCEL, actor=person, target=target_of(run, run.title)) as act:
        _refuse_invisible(person, run)
        now = timezone.now()
        act.before = {"state": run.state}
        mine = Run.objects.filter(pk=run.pk)
        by = {"cancel_requested_at": now, "cancelled_by_name": person.username}
        cancelled = {
            "state": State.CANCELLED, "outcome": State.CANCELLED, "finished_at": now,
            "sentence": f"{person.username} cancelled it before it started.",
        }  # fmt: skip
        waits = mine.filter(state=State.QUEUED, lease_until=None)
        if not waits.update(**by, **cancelled) and not (
            mine.open().exclude(state=State.RETURNING).filter(cancel_requested_at=None).update(**by)
        ):
            run.refresh_from_db()
            raise Conflict(_why_not_cancel(run))
        run.refresh_from_db()
        act.after = {"state": run.state}
        transaction.on_commit(partial(_notify_and_enqueue, run), robust=True)
    return run


def run_retry(*, person: User, run: Run, idempotency_key: str = "") -> Run:
    """Queue the same run again for this person, at the same point if it is part of a sweep.

    Raises as `run_create`, and Conflict if the run has not ended, or was imported.
    """
    return _run_again(person, run, run.specification(), idempotency_key)


def run_resume(*, person: User, run: Run, idempotency_key: str = "") -> Run:
    """Queue a run for this person that goes on from the checkpoint of one that was halted or failed.

    Raises as `run_retry`, and Conflict if it has no checkpoint to go on from.
    """
    return _run_again(person, run, replace_struct(run.specification(), resume_from=str(run.pk)), idempotency_key)


def has_checkpoint(run: Run) -> bool:
    """Return whether a run has ended before its last step, and left a checkpoint on the drive of its host."""
    is_left = run.executor == "torch" and run.state in {State.CANCELLED, State.FAILED} and run.spec.get("hosts", 1) == 1
    return is_left and run.series.filter(key=CHECKPOINT_KEY).exists()


def _run_again(person: User, run: Run, spec: Spec, idempotency_key: str) -> Run:
    """Queue a run of this spec in the place of another; a run that goes on from it is none of a sweep."""
    resumes = spec.resume_from == str(run.pk)
    with attempt(Action.RUN_RETRY, actor=person, target=target_of(run, run.title)) as act:
        _refuse_invisible(person, run)
        if run.is_open:
            raise Conflict(_("It has not ended. Cancel it, or wait for its end."))
        if run.executor not in {"torch", "simulated"}:
            raise Conflict(_("It was imported and cannot be run here."))
        if resumes and not has_checkpoint(run):
            raise Conflict(_("It left no checkpoint to go on from."))
        if run.sweep is not None and run.sweep.is_suspended:
            raise Conflict(
                _("Its sweep is paused. Resume the sweep to continue it.")
                if run.sweep.state == "paused"
                else _("Its sweep is halted. Resume the sweep to continue it.")
            )
        # A repeat by another tenant, such as administrators, does not join the sweep, which shows its own runs.
        sweep = run.sweep if run.sweep is not None and run.sweep.tenant_id == person.tenant_id else None
        sweep = None if resumes else sweep
        with act.change():
            if sweep is not None:  # against concurrent deletion
                sweep = sweep.locked()
            request = RunRequest(
                spec=spec,
                composition=Composition.from_json(run.composition),
                executor=run.executor,
                preset=run.preset,
                title=run.title,
                limit_seconds=run.limit_seconds,
                # A sweep restores the devices of its runs; a run outside of it, or after it, restores its own.
                keep_composed=run.keeps_devices or (sweep is not None and run.keep_composed),
                may_share=run.may_share,
                exercise=run.exercise,
            )
            again = run_create(
                person=person,
                request=request,
                sweep_id=None if sweep is None else sweep.pk,
                position=0 if resumes else run.position,
                point={} if resumes else run.point,
                repeat_of=run,
                idempotency_key=idempotency_key,
            )
            act.after = {"run": str(again.pk)}
    return again


def run_delete(*, person: User, run: Run) -> None:
    """Delete a run and its records. Raises NotFound, Forbidden for others' runs, Conflict while it is open."""
    with audited(Action.RUN_DELETE, actor=person, target=target_of(run, run.title)) as act:
        row = _lock_run(person, run)
        if not person.is_administrator and row.requested_by_id != person.pk:
            raise Forbidden(_("Only the requester of a run or an administrator may delete it."))
        if row.is_open:
            raise Conflict(_("It has not ended. Cancel it first."))
        if row.sweep is not None and row.sweep.is_open:
            raise Conflict(_("It is part of a sweep that has not ended. Halt that first."))
        act.before = {"workload": row.workload, "state": row.state}
        row.delete()


def run_return(*, person: User, run: Run) -> Run:
    """Retry restoring the devices that a run could not restore at its end. Raises NotFound, Forbidden, Conflict."""
    with audited(Action.RUN_RETURN, actor=person, target=target_of(run, run.title)) as act:
        row = _lock_run(person, run)
        if row.is_open:
            raise Conflict(_("It has not ended: its devices are returned then."))
        if not devices_to_restore(row).attachments:
            raise Conflict(_("All its devices are back where they were."))
        row.state, row.plan_back, row.finished_at = State.RETURNING, None, None
        row.sentence = "Its devices are being returned again."
        row.save(update_fields=["state", "plan_back", "finished_at", "sentence"])
        act.after = {"state": row.state}
        transaction.on_commit(partial(_notify_and_enqueue, row), robust=True)
    return row


def default_title(workload: Workload, spec: Spec, topology: Topology, host: str) -> str:
    """Return the title of a run without a title of its own: 'ResNet-50, 2 Falcon GPUs (P100), batch 128, node-a'."""
    places = []
    for is_local, kind in ((True, "local"), (False, "Falcon")):
        models = [one.model.partition("-")[0] for one in topology.accelerators if (one.place == LOCAL) is is_local]
        if models:
            number = f"{len(models)} {kind} GPU{'' if len(models) == 1 else 's'}"
            places.append(f"{number} ({' and '.join(dict.fromkeys(models))})")
    batch = [f"batch {spec.batch}"] if workload.is_training else []
    return ", ".join([workload.title, *(places or ["CPU"]), *batch, host])[:MAX_TITLE_LENGTH]


def _notify_and_enqueue(run: Run) -> None:
    """Notify subscribers of a committed change and enqueue the scheduler."""
    run_changed.send(Run, run=run)
    # An unreachable broker loses nothing: beat schedules the task every second.
    enqueue("runs.tend")


def _lock_run(person: User, run: Run) -> Run:
    _refuse_invisible(person, run)
    row: Run | None = Run.objects.select_for_update().filter(pk=run.pk).first()
    if row is None:
        raise NotFound(_("There is no such run."))
    return row


def _refuse_invisible(person: User, run: Run) -> None:
    if not Run.objects.visible_to(person).filter(pk=run.pk).exists():
        raise NotFound(_("There is no such run."))
    require_composer(person)


def _why_not_cancel(run: Run) -> str:
    if run.state == State.RETURNING:
        return _("It has ended: its devices are being returned.")
    if run.is_open:
        return _("It is being cancelled already.")
    ended = {State.COMPLETED: _("Completed"), State.FAILED: _("Failed"), State.CANCELLED: _("Cancelled")}
    return _("The run has ended: it is '{state}'.", state=ended.get(State(run.state), run.state))


def _exercise_title(title: str, exercise: Mapping[str, Any] | None) -> str:
    """Mark the title of a run that fails on purpose, so that nobody takes it for a hardware fault."""
    if not exercise:
        return title
    return f"{title.removesuffix(EXERCISE_SUFFIX)[: MAX_TITLE_LENGTH - len(EXERCISE_SUFFIX)]}{EXERCISE_SUFFIX}"


def _clean_title(title: str) -> str:
    """Return a title as stored: one line, without control and bidirectional formatting characters."""
    return " ".join("".join(one if one.isprintable() else " " for one in title).split())[:MAX_TITLE_LENGTH]
