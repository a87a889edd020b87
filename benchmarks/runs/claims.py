"""A worker's claim on a run, and the holds of runs on devices.

The database guarantees one run a key. A run acquires all its keys in one transaction, or none, so that runs cannot
deadlock. A run has its host and the switches of its devices to itself, unless it may share them.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from benchmarks.runs.models import Hold, Run, run_changed
from benchmarks.runs.rules import (
    DRIVE_KEY,
    LOCAL_GPU_KEY,
    Composition,
    HoldOwner,
    RunNeeds,
    acquirable_keys,
    held_key,
    stored_key,
    waiting_reason,
)
from core.claims import RowClaim
from core.errors import FalconWebError
from fabric.inventory.models import Device, Host, HostPort

CLAIM_RENEWAL_SECONDS: Final = 5.0
State = Run.State


class RunFailed(FalconWebError):
    """A run fails: `trouble` is a value of benchmarks.runs.models.Run.trouble."""

    def __init__(self, trouble: str, sentence: str) -> None:
        super().__init__(sentence)
        self.trouble = trouble


class RunClaim(RowClaim[Run]):
    # The time until another worker replaces a dead one; longer than a step that does not renew the claim.
    duration = timedelta(seconds=30)
    related = ("host", "plan", "plan_back", "requested_by", "tenant")

    @classmethod
    def claim(cls, run_id: str, worker: str) -> RunClaim | None:
        """Claim an open, unclaimed run; None if another worker was faster."""
        # Unique for each claim: an expired one of the same worker must not write as if it were still valid.
        mine = f"{worker}:{secrets.token_hex(4)}"[-100:]
        return cls.take(Run.objects.open().exclude(state=State.QUEUED), run_id, mine)

    @property
    def run(self) -> Run:
        return self.row

    def set_sentence(self, sentence: str) -> None:
        if sentence != self.run.sentence:
            self.write(sentence=sentence)

    def transition(self, state: Run.State, **values: Any) -> None:
        """Change its state; raises ClaimLost."""
        self.write(state=state, state_since=timezone.now(), **{"sentence": "", **values})
        transaction.on_commit(partial(run_changed.send, Run, run=self.run), robust=True)

    def record_outcome(self, outcome: Run.State, *, trouble: str = "", sentence: str = "", **values: Any) -> None:
        """Record its outcome; restoring its devices is the next step."""
        run = self.run
        self.transition(
            State.RETURNING,
            outcome=outcome,
            trouble=trouble or run.trouble,
            error=sentence or run.error,
            ended_at=run.ended_at or (timezone.now() if run.started_at is not None else None),
            **values,
        )

    def refresh_cancellation(self) -> None:
        """Reload the cancellation fields, which others may have changed."""
        self.run.refresh_from_db(fields=["cancel_requested_at", "cancelled_by_name"])

    def release(self, **values: Any) -> bool:
        with contextlib.suppress(DatabaseError):  # the claim expires
            return super().release(**values)
        return False

    @property
    def seconds_in_state(self) -> float:
        return (timezone.now() - self.run.state_since).total_seconds()


RunClaim.watch(Run.objects.open)


def holds_acquire(run: Run) -> bool:
    """Acquire all keys of a run, in the caller's transaction if there is one; False if any is held."""
    try:
        with transaction.atomic():
            _serialise_acquiring()
            held = {held_key(key) for key in Hold.objects.values_list("key", flat=True)}
            keys = acquirable_keys(_needs_of([run])[run.pk], held)
            if keys is None:
                return False
            Hold.objects.bulk_create(Hold(key=stored_key(key, run.pk), run=run) for key in sorted(keys))
    except IntegrityError:
        return False  # another transaction was faster
    return True


def _serialise_acquiring() -> None:
    """Let no other transaction acquire keys before this one ends; those of SQLite are serial."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE runs_hold IN SHARE ROW EXCLUSIVE MODE")


def _needs_of(runs: Collection[Run]) -> dict[UUID, RunNeeds]:
    """Return what each run needs; two queries."""
    compositions = {run.pk: Composition.from_json(run.composition) for run in runs}
    hosts = {pk for one in compositions.values() for pk in one.hosts}
    own = dict(Host.objects.filter(pk__in=hosts).values_list("pk", "local_gpu_count"))
    ports = {port for one in compositions.values() for port in one.all_devices.values()}
    rows = HostPort.objects.filter(pk__in=ports).values_list("pk", "drawer", "chassis")
    switches = {pk: _switch_key(drawer, chassis) for pk, drawer, chassis in rows}
    return {
        run.pk: RunNeeds(
            composition=place,
            own_gpus=own,
            switches=frozenset(switches[port] for port in place.all_devices.values() if port in switches),
            may_share=run.may_share,
        )
        for run in runs
        for place in [compositions[run.pk]]
    }


def _switch_key(drawer: int | None, chassis: int) -> str:
    """Return the key of the switch of a drawer, or of a chassis without drawers."""
    return f"switch/{drawer}" if drawer is not None else f"chassis/{chassis}"


def held_devices(devices: Collection[int], claimant: str) -> dict[int, str]:
    """Return the devices held by runs other than `claimant`, each with a reason that everybody may see."""
    rows = Hold.objects.filter(key__in=[f"device/{pk}" for pk in devices]).select_related("run")
    # A device belongs to one tenant, whose users see their runs; the title of any other run is not disclosed.
    owners = dict(Device.objects.filter(pk__in=devices).values_list("pk", "tenant")) if rows else {}
    found = {}
    for row in rows:
        pk = int(row.key.partition("/")[2])
        if str(row.run_id) != claimant:
            is_theirs = row.run.tenant_id is not None and row.run.tenant_id == owners.get(pk)
            found[pk] = f"the run ‘{row.run.title}’ has it" if is_theirs else "a run of a benchmark has it"
    return found


def queue_status() -> list[tuple[Run, str]]:
    """Return the queued runs in order, each with its reason for waiting; '' for those that are due.

    A resource that an earlier run waits for is not given to a later one, unless the earlier one waits for its sweep.
    """
    rows = Run.objects.filter(state=Run.State.QUEUED).select_related("sweep")
    queued = list(rows.order_by("queued_at", "position", "pk"))
    if not queued:
        return []
    rows_held = Hold.objects.values_list("key", "run__title", "run__tenant")
    held = {held_key(key): HoldOwner(title, tenant) for key, title, tenant in rows_held}
    ahead: dict[str, HoldOwner] = {}
    needs = _needs_of(queued)
    labels = _resource_labels([one.composition for one in needs.values()])
    found = []
    for run in queued:
        # One of a sweep that has completed was asked for once more: there is nobody else to begin it.
        if run.sweep is not None and run.sweep.is_suspended:
            found.append((run, f"Waiting for its sweep, which is {run.sweep.get_state_display().lower()}."))
            continue
        mine, me = needs[run.pk], HoldOwner(run.title, run.tenant_id)
        sentence = waiting_reason(mine, me, held=held, ahead=ahead, labels=labels)
        found.append((run, sentence))
        if sentence:
            ahead |= {key: me for key in mine.keys if key not in ahead}
        else:
            # It acquires them now: they are held for the runs behind it.
            held |= dict.fromkeys(acquirable_keys(mine, held) or mine.keys, me)
    return found


def _resource_labels(compositions: Collection[Composition]) -> dict[str, str]:
    devices = {pk for one in compositions for pk in one.all_devices}
    rows = Device.objects.filter(pk__in=devices).select_related("chassis", "slot")
    names = {
        f"device/{row.pk}": f"{row.name} ({row.chassis.name} {row.slot.name})" if row.slot else row.name for row in rows
    }
    hosts = {pk for one in compositions for pk in one.hosts}
    for pk, name in Host.objects.filter(pk__in=hosts).values_list("pk", "name"):
        names[f"host/{pk}"] = name
        names[f"host/{pk}/{LOCAL_GPU_KEY}"] = f"the GPUs of {name}"
        names[f"host/{pk}/cpu"] = f"the CPU of {name}"
        names[f"host/{pk}/{DRIVE_KEY}"] = f"the NVMe drive of {name}"
    ports = {port for one in compositions for port in one.all_devices.values()}
    for port in HostPort.objects.filter(pk__in=ports).select_related("chassis", "drawer"):
        where = port.chassis.name if port.drawer is None else f"{port.chassis.name} {port.drawer.name}"
        names[_switch_key(port.drawer_id, port.chassis_id)] = f"the switch of {where}"
    return names
