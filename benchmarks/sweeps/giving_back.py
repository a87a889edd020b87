"""The way back of a sweep: what its runs brought to hosts goes where it was before, however the sweep ended.

All is read from the plans of its runs: nothing is kept in a process, so that one that dies takes nothing with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.utils import timezone

from accounts.audit.services import together
from benchmarks.runs.models import Hold, Run
from benchmarks.sweeps.models import Sweep
from benchmarks.sweeps.services import lock_sweep
from fabric.models import Device, Operation, Plan
from fabric.planning import Wanted
from fabric.services.jobs import plan_resume
from fabric.services.plans import plan_apply, plan_create, way_back
from falconweb.errors import Conflict, FalconWebError, Forbidden, NotFound

PAUSE: Final = timedelta(seconds=10)  # until giving back is tried again


@dataclass(frozen=True)
class Brought:
    """Where a device was before the first run of a sweep took it, and where the newest of them wanted it."""

    origin: int | None
    wanted: int | None
    is_done: bool  # whether it came there


def brought_by(sweep: Sweep) -> dict[int, Brought]:
    """Return the devices that runs of a sweep moved since it last had given all back."""
    plans = Plan.objects.filter(pk__in=Run.objects.filter(sweep=sweep).values("plan")).exclude(applied_at=None)
    if sweep.settled_at is not None:
        plans = plans.filter(applied_at__gt=sweep.settled_at)
    found: dict[int, Brought] = {}
    for plan in plans.order_by("applied_at"):
        wanted = Wanted.from_json(plan.wanted).attachments
        done = set(
            plan.operations.filter(state=Operation.State.DONE, is_rollback=False).values_list("device", flat=True)
        )
        for device, origin in way_back(plan).attachments.items():
            before = found.get(device)
            found[device] = Brought(origin if before is None else before.origin, wanted[device], device in done)
    return found


def left_of(sweep: Sweep, only: Collection[int] | None = None) -> dict[int, int | None]:
    """Return the devices that are still where runs of a sweep brought them, and the host ports that they came from.

    What somebody else has moved meanwhile is theirs. Of `only` these, unless None.
    """
    brought = brought_by(sweep)
    if only is not None:
        brought = {pk: one for pk, one in brought.items() if pk in only}
    now = dict(Device.objects.filter(pk__in=brought, missing_since=None).values_list("pk", "host_port"))
    return {
        pk: one.origin
        for pk, one in brought.items()
        if pk in now and now[pk] != one.origin and (now[pk] == one.wanted or (now[pk] is None and not one.is_done))
    }


def give_back(sweep: Sweep, only: Collection[int] | None = None) -> bool:
    """Take the way back of a sweep, or of some of its devices, one step further; True once nothing is left to do.

    To be called again until then.
    """
    if sweep.again_at is not None and sweep.again_at > timezone.now():
        return False
    plan = Plan.objects.filter(pk=sweep.plan_back).first() if sweep.plan_back else None
    if plan is not None and not plan.is_final:
        _see_to(sweep, plan)
        return False
    left = left_of(sweep, only)
    if plan is not None and plan.state in {Plan.State.LEFT, Plan.State.CANCELLED} and only is None and left:
        # A person decided that: it is not asked of the hardware again.
        _settle(sweep, f"Somebody left {len(left)} devices where they are.")
        return True
    if not left:
        if only is None:
            _settle(sweep, "")
        return True
    held = Hold.objects.filter(key__in=[f"device/{pk}" for pk in left]).select_related("run").first()
    if held is not None:
        _wait(sweep, f"Gives its devices back as soon as ‘{held.run.title}’ has ended.")
        return False
    _plan_back(sweep, left)
    return False


def _plan_back(sweep: Sweep, left: dict[int, int | None]) -> None:
    """Begin the plan that brings devices back, in the name of who asked, else of the site: they may have left."""
    person = sweep.requested_by
    for by in ([person] if person is not None and person.may_compose else []) + [None]:
        try:
            with together():
                row = lock_sweep(sweep)
                plan = plan_create(
                    person=by, wanted=Wanted(attachments=left), title=f"Give back: {sweep.title}"[:200], origin="sweep"
                )
                plan = plan_apply(person=by, plan=plan)
                row.plan_back = plan.pk
                row.save(update_fields=["plan_back"])
        except (Forbidden, NotFound) as error:
            if by is not None:
                continue
            _wait(sweep, f"Its devices cannot be given back yet: {error.sentence}")
        except FalconWebError as error:
            _wait(sweep, f"Its devices cannot be given back yet: {error.sentence}")
        return


def _see_to(sweep: Sweep, plan: Plan) -> None:
    """Have a plan go on that has stopped: whatever stood against it may be gone."""
    if plan.state != Plan.State.STOPPED:
        return
    _wait(sweep, f"Giving its devices back has stopped, and is tried again: {plan.sentence}")
    try:
        plan_resume(person=None, plan=plan)
    except Conflict:
        return


def _wait(sweep: Sweep, sentence: str) -> None:
    sweep.again_at = timezone.now() + PAUSE
    Sweep.objects.filter(pk=sweep.pk).update(again_at=sweep.again_at, note=sentence)


def _settle(sweep: Sweep, sentence: str) -> None:
    now = timezone.now()
    Sweep.objects.filter(pk=sweep.pk).update(settled=True, settled_at=now, plan_back=None, again_at=None, note=sentence)
