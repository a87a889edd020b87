"""What runs have for themselves while they are at it: one run a device, first come first served.

A key is held by at most one run: the database sees to it. All that a run needs is taken at once, or nothing: no two
runs wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from django.db import IntegrityError, transaction

from benchmarks.runs.composition import Composition
from benchmarks.runs.models import Hold, Run
from benchmarks.sweeps.models import Sweep
from fabric.models import Device, Host

LOCAL: Final = "gpu"
DRIVE: Final = "drive"


@dataclass(frozen=True)
class User:
    """A run that has something, or comes before others; `tenant` None: an administrator's."""

    title: str
    tenant: int | None

    def named_to(self, other: User) -> str:
        """Return how another run's sentence calls it: hosts serve several tenants, who see nothing of each other."""
        return f"‘{self.title}’" if other.tenant in (None, self.tenant) else "somebody else's run"


def wanted_keys(composition: Composition) -> set[str]:
    """Return what a run waits for: 'device/12', 'host/3/gpu' (its own, as one), 'host/3/cpu', 'host/3/drive'."""
    keys = {f"device/{pk}" for pk in composition.devices}
    if composition.local_gpus:
        keys.add(f"host/{composition.host}/{LOCAL}")
    if composition.cpu:
        keys.add(f"host/{composition.host}/cpu")
    if composition.own_drive:
        keys.add(f"host/{composition.host}/{DRIVE}")
    return keys


def holds_take(run: Run) -> bool:
    """Take all that a run needs, in the caller's transaction if there is one; False where some of it is held."""
    composition = Composition.from_json(run.composition)
    try:
        with transaction.atomic():
            held = set(Hold.objects.values_list("key", flat=True))
            own = Host.objects.filter(pk=composition.host).values_list("local_gpu_count", flat=True).first() or 0
            keys = _keys_now(composition, held, own)
            if keys is None:
                return False
            Hold.objects.bulk_create(Hold(key=key, run=run) for key in sorted(keys))
    except IntegrityError:
        return False  # somebody else was faster
    return True


def holds_release(run: Run) -> None:
    """Let go of all that a run has."""
    Hold.objects.filter(run=run).delete()


def claims(devices: Collection[int], claimant: str) -> dict[int, str]:
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


def queue_in_turn() -> list[tuple[Run, str]]:
    """Return the runs that wait, in their order, each with the sentence of what it waits for; '' for whose turn it is.

    What an earlier run waits for is not given to a later one, except where the earlier one waits for its sweep.
    """
    rows = Run.objects.filter(state=Run.State.QUEUED).select_related("sweep", "host")
    queued = list(rows.order_by("queued_at", "position", "pk"))
    if not queued:
        return []
    rows_held = Hold.objects.values_list("key", "run__title", "run__tenant")
    held = {key: User(title, tenant) for key, title, tenant in rows_held}
    ahead: dict[str, User] = {}
    names = _names(queued)
    own = {run.host_id or 0: run.host.local_gpu_count if run.host is not None else 0 for run in queued}
    found = []
    for run in queued:
        # One of a sweep that has completed was asked for once more: there is nobody else to begin it.
        if run.sweep is not None and run.sweep.state in {Sweep.State.PAUSED, Sweep.State.HALTED}:
            found.append((run, f"Waits for its sweep, which is {run.sweep.get_state_display().lower()}."))
            continue
        composition = Composition.from_json(run.composition)
        keys = wanted_keys(composition)
        me = User(run.title, run.tenant_id)
        sentence = _waits_for(composition, Taken(held, ahead, names, own), me)
        found.append((run, sentence))
        if sentence:
            ahead |= {key: me for key in keys if key not in ahead}
        else:
            # It takes them now: who comes later sees them as taken.
            held |= dict.fromkeys(_keys_now(composition, held, own.get(composition.host, 0)) or keys, me)
    return found


@dataclass(frozen=True)
class Taken:
    """Who has which key, who waits for it first, how keys are called, and how many GPUs hosts have of their own."""

    held: Mapping[str, User]
    ahead: Mapping[str, User]
    names: Mapping[str, str]
    own: Mapping[int, int]


def _waits_for(composition: Composition, taken: Taken, me: User) -> str:
    held, ahead = taken.held, taken.ahead
    for key in sorted(wanted_keys(composition)):
        name = taken.names.get(key, key)
        if key.endswith(f"/{LOCAL}"):
            if _free_local(composition, held, taken.own.get(composition.host, 0)) is None:
                users = sorted({user.named_to(me) for one, user in held.items() if one.startswith(f"{key}/")})
                by = f": {users[0]} uses some" if users else ""
                return f"Waits for {composition.local_gpus} of {name}{by}."
        elif key in held:
            return f"Waits for {name}, which {held[key].named_to(me)} uses."
        if key in ahead:
            return f"Waits for {name}, behind {ahead[key].named_to(me)}."
    return ""


def _keys_now(composition: Composition, held: Collection[str], own: int) -> set[str] | None:
    """Return the keys that a run takes, of the host's `own` GPUs the first that are free; None where too few are."""
    keys = {key for key in wanted_keys(composition) if not key.endswith(f"/{LOCAL}")}
    if composition.local_gpus:
        free = _free_local(composition, held, own)
        if free is None:
            return None
        keys |= free
    return keys


def _free_local(composition: Composition, held: Collection[str], own: int) -> set[str] | None:
    mine = [f"host/{composition.host}/{LOCAL}/{number}" for number in range(own)]
    free = [key for key in mine if key not in held]
    return set(free[: composition.local_gpus]) if len(free) >= composition.local_gpus else None


def _names(runs: Iterable[Run]) -> dict[str, str]:
    """Return how keys are called in a sentence."""
    compositions = [Composition.from_json(run.composition) for run in runs]
    devices = {pk for one in compositions for pk in one.devices}
    rows = Device.objects.filter(pk__in=devices).select_related("chassis", "slot")
    names = {
        f"device/{row.pk}": f"{row.name} ({row.chassis.name} {row.slot.name})" if row.slot else row.name for row in rows
    }
    for pk, name in Host.objects.filter(pk__in={one.host for one in compositions}).values_list("pk", "name"):
        names[f"host/{pk}/{LOCAL}"] = f"the GPUs of {name}"
        names[f"host/{pk}/cpu"] = f"the CPU of {name}"
        names[f"host/{pk}/{DRIVE}"] = f"the NVMe drive of {name}"
    return names
