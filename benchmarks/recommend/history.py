"""What this site has measured of itself: how long operations and starts take, and what its chassis draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import numpy as np

from benchmarks.recommend.power import CHASSIS_WATTS, ChassisPower
from benchmarks.recommend.times import ASSUMED_TIMES, SiteTimes, StepSample
from benchmarks.runs.models import Chunk, Run
from benchmarks.runs.recording import PHASE_PREFIX, STORED_DTYPE
from fabric.inventory.models import Device
from fabric.operations.models import Operation
from fabric.operations.rules import DrawerSnapshot
from fabric.plans.rules import StepKind
from telemetry.live.newest import newest_base_watts

MAX_OPERATIONS: Final = 500  # of the newest
MAX_STARTS: Final = 100
FIRST_STEPS: Final = f"{PHASE_PREFIX}warmup"  # the phase that begins when everything is built
MAX_START_SECONDS: Final = 3600.0  # a longer one is an error of a clock


def site_times() -> SiteTimes:
    """Return how long operations and starts of trainings usually take here, in two queries.

    It does not depend on who asks: only medians and spreads of it are shown.
    """
    return SiteTimes.measured(_step_samples(), _starts())


def _step_samples() -> list[StepSample]:
    """Return the times of the newest completed operations; those of one plan and drawer follow each other."""
    done = Operation.objects.filter(
        state=Operation.State.DONE, kind__in=list(ASSUMED_TIMES), started_at__isnull=False, finished_at__isnull=False
    )
    rows = done.order_by("-finished_at").values_list(
        "plan", "is_rollback", "chassis", "drawer", "kind", "started_at", "finished_at"
    )[:MAX_OPERATIONS]
    groups: dict[object, list[Any]] = defaultdict(list)
    for number, row in enumerate(rows):
        groups[row[:4] if row[0] is not None else number].append(row)
    found = []
    for steps in groups.values():
        steps.sort(key=lambda row: row[6])
        before = None
        for *_, chassis, _drawer, kind, started, finished in steps:
            seconds = (finished - (before or started)).total_seconds()  # the pause before it counts
            found.append(StepSample(cast("StepKind", kind), chassis, len(steps), max(0.0, seconds)))
            before = finished
    return found


def _starts() -> Iterable[tuple[str, float]]:
    """Yield the times from a training's start on its host to its first step, by workload, of the newest real runs."""
    chunks = Chunk.objects.filter(
        series__key=FIRST_STEPS, first=0, series__run__state=Run.State.COMPLETED, series__run__started_at__isnull=False,
        series__run__provenance=Run.Provenance.MEASURED, series__run__overlaps=[],
    )  # fmt: skip
    rows = chunks.order_by("-series__run__queued_at").values_list(
        "series__run__workload", "series__run__started_at", "at"
    )
    for workload, started, at in rows[:MAX_STARTS]:
        begun = np.frombuffer(bytes(at), dtype=STORED_DTYPE)
        if (
            started is not None
            and len(begun)
            and 0 < (seconds := float(begun[0]) - started.timestamp()) < MAX_START_SECONDS
        ):
            yield workload, seconds


def chassis_power(drawers: Iterable[DrawerSnapshot]) -> Mapping[int, ChassisPower]:
    """Return what the chassis of these drawers draw without their devices, measured now or assumed."""
    slots: dict[int, int] = defaultdict(int)
    for drawer in drawers:
        slots[drawer.chassis] += (drawer.profile.slots or len(drawer.devices)) if drawer.id is not None else 0
    devices: dict[int, list[int]] = {pk: [] for pk in slots}
    kinds = (Device.Kind.GPU, Device.Kind.NVME)
    for pk, chassis in Device.objects.filter(chassis__in=slots, missing_since=None, kind__in=kinds).values_list(
        "pk", "chassis"
    ):
        devices[chassis].append(pk)
    measured = newest_base_watts(devices)
    return {
        pk: ChassisPower(watts=measured.get(pk, CHASSIS_WATTS), slots=count, is_measured=pk in measured)
        for pk, count in slots.items()
    }
