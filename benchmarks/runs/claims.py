"""A worker's claim on a run, and the devices that runs hold.

A key is held by at most one run: the database sees to it. All that a run needs is taken at once, or nothing: no two
runs wait for each other in a circle.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Collection, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from benchmarks.runs.models import Hold, Run, run_changed
from benchmarks.runs.rules import (
    DRIVE_KEY,
    LOCAL_GPU_KEY,
    Composition,
    HoldOwner,
    ResourceUse,
    acquirable_keys,
    resource_keys,
    waiting_reason,
)
from benchmarks.sweeps.models import Sweep
from core.errors import FalconWebError
from core.threads import run_in_thread
from fabric.inventory.models import Device, Host

# A worker that died is followed by another one after so long; longer than a step takes that renews nothing.
CLAIM_SECONDS: Final = 30.0
CLAIM_RENEWAL_SECONDS: Final = 5.0
State = Run.State


class RunClaimLost(FalconWebError):
    """Another worker has the run: this one writes nothing more."""


class RunFailed(FalconWebError):
    """A run ends badly: `trouble` is one of those that benchmarks.runs.models.Run names."""

    def __init__(self, trouble: str, sentence: str) -> None:
        super().__init__(sentence)
        self.trouble = trouble


class RunClaim:
    """A worker's claim on a run."""

    def __init__(self, run: Run, worker: str) -> None:
        self.run, self.worker = run, worker

    @classmethod
    def claim(cls, run_id: str, worker: str) -> RunClaim | None:
        """Take a run that is on its way and that nobody is at; None where somebody else was faster."""
        now = timezone.now()
        # Unlike for any other claim of this worker: one that took too long must not write as if it had held on.
        mine = f"{worker}:{secrets.token_hex(4)}"[-100:]
        free = Run.objects.open().exclude(state=State.QUEUED).filter(Q(lease_until=None) | Q(lease_until__lt=now))
        if not free.filter(pk=run_id).update(worker=mine, lease_until=_claim_end(now)):
            return None
        rows = Run.objects.select_related("host", "plan", "plan_back", "requested_by", "tenant")
        run: Run | None = rows.filter(pk=run_id, worker=mine).first()
        return None if run is None else cls(run, mine)

    def write(self, **values: Any) -> None:
        """Keep how far it is, and hold on; raises RunClaimLost."""
        if not self._held().update(**{"lease_until": _claim_end(timezone.now()), **values}):
            raise RunClaimLost("Another worker has the run.")
        for name, value in values.items():
            setattr(self.run, name, value)

    def say(self, sentence: str) -> None:
        """Say what it waits for, or does."""
        if sentence != self.run.sentence:
            self.write(sentence=sentence)

    def transition(self, state: Run.State, **values: Any) -> None:
        """Bring it into another state; raises RunClaimLost."""
        self.write(state=state, state_since=timezone.now(), **{"sentence": "", **values})
        transaction.on_commit(partial(run_changed.send, Run, run=self.run), robust=True)

    def ends(self, outcome: Run.State, *, trouble: str = "", sentence: str = "", **values: Any) -> None:
        """Note how it ends; its devices are given back next."""
        run = self.run
        self.transition(
            State.RETURNING,
            outcome=outcome,
            trouble=trouble or run.trouble,
            error=sentence or run.error,
            ended_at=run.ended_at or (timezone.now() if run.started_at is not None else None),
            **values,
        )

    def look(self) -> None:
        """Read again what others may have changed: that somebody wants it cancelled."""
        self.run.refresh_from_db(fields=["cancel_requested_at", "cancelled_by_name"])

    def release(self) -> None:
        """Let it go: whoever comes next goes on with it."""
        with contextlib.suppress(DatabaseError):  # the lease runs out
            self._held().update(lease_until=None, worker="")

    @property
    def waits(self) -> float:
        """Seconds in its present state."""
        return (timezone.now() - self.run.state_since).total_seconds()

    @contextlib.asynccontextmanager
    async def keep_renewed(self) -> AsyncIterator[None]:
        """Hold on while something takes long."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(CLAIM_RENEWAL_SECONDS)
                with contextlib.suppress(DatabaseError):
                    await run_in_thread(self._renew)

        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()

    def _renew(self) -> None:
        self._held().update(lease_until=_claim_end(timezone.now()))

    def _held(self) -> Any:
        return Run.objects.filter(pk=self.run.pk, worker=self.worker)


def _claim_end(now: datetime) -> datetime:
    return now + timedelta(seconds=CLAIM_SECONDS)


def holds_acquire(run: Run) -> bool:
    """Take all that a run needs, in the caller's transaction if there is one; False where some of it is held."""
    composition = Composition.from_json(run.composition)
    try:
        with transaction.atomic():
            held = set(Hold.objects.values_list("key", flat=True))
            own = Host.objects.filter(pk=composition.host).values_list("local_gpu_count", flat=True).first() or 0
            keys = acquirable_keys(composition, held, own)
            if keys is None:
                return False
            Hold.objects.bulk_create(Hold(key=key, run=run) for key in sorted(keys))
    except IntegrityError:
        return False  # somebody else was faster
    return True


def holds_release(run: Run) -> None:
    """Let go of all that a run has."""
    Hold.objects.filter(run=run).delete()


def held_devices(devices: Collection[int], claimant: str) -> dict[int, str]:
    """Return which of the devices a run has, other than the run `claimant`, each with a sentence for all who see it."""
    rows = Hold.objects.filter(key__in=[f"device/{pk}" for pk in devices]).select_related("run")
    # A device belongs to one tenant, and its people's runs are theirs to see; the title of any other is not told.
    owners = dict(Device.objects.filter(pk__in=devices).values_list("pk", "tenant"))
    found = {}
    for row in rows:
        pk = int(row.key.partition("/")[2])
        if str(row.run_id) != claimant:
            is_theirs = row.run.tenant_id is not None and row.run.tenant_id == owners.get(pk)
            found[pk] = f"the run ‘{row.run.title}’ has it" if is_theirs else "a run of a benchmark has it"
    return found


def queue_status() -> list[tuple[Run, str]]:
    """Return the runs that wait, in their order, each with the sentence of what it waits for; '' for whose turn it is.

    What an earlier run waits for is not given to a later one, except where the earlier one waits for its sweep.
    """
    rows = Run.objects.filter(state=Run.State.QUEUED).select_related("sweep", "host")
    queued = list(rows.order_by("queued_at", "position", "pk"))
    if not queued:
        return []
    rows_held = Hold.objects.values_list("key", "run__title", "run__tenant")
    held = {key: HoldOwner(title, tenant) for key, title, tenant in rows_held}
    ahead: dict[str, HoldOwner] = {}
    names = _resource_labels(queued)
    own = {run.host_id or 0: run.host.local_gpu_count if run.host is not None else 0 for run in queued}
    found = []
    for run in queued:
        # One of a sweep that has completed was asked for once more: there is nobody else to begin it.
        if run.sweep is not None and run.sweep.state in {Sweep.State.PAUSED, Sweep.State.HALTED}:
            found.append((run, f"Waits for its sweep, which is {run.sweep.get_state_display().lower()}."))
            continue
        composition = Composition.from_json(run.composition)
        keys = resource_keys(composition)
        me = HoldOwner(run.title, run.tenant_id)
        sentence = waiting_reason(composition, ResourceUse(held, ahead, names, own), me)
        found.append((run, sentence))
        if sentence:
            ahead |= {key: me for key in keys if key not in ahead}
        else:
            # It takes them now: who comes later sees them as taken.
            held |= dict.fromkeys(acquirable_keys(composition, held, own.get(composition.host, 0)) or keys, me)
    return found


def _resource_labels(runs: Iterable[Run]) -> dict[str, str]:
    """Return how keys are called in a sentence."""
    compositions = [Composition.from_json(run.composition) for run in runs]
    devices = {pk for one in compositions for pk in one.devices}
    rows = Device.objects.filter(pk__in=devices).select_related("chassis", "slot")
    names = {
        f"device/{row.pk}": f"{row.name} ({row.chassis.name} {row.slot.name})" if row.slot else row.name for row in rows
    }
    for pk, name in Host.objects.filter(pk__in={one.host for one in compositions}).values_list("pk", "name"):
        names[f"host/{pk}/{LOCAL_GPU_KEY}"] = f"the GPUs of {name}"
        names[f"host/{pk}/cpu"] = f"the CPU of {name}"
        names[f"host/{pk}/{DRIVE_KEY}"] = f"the NVMe drive of {name}"
    return names
