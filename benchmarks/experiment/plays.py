"""What playing the published experiment takes: a host, devices, and a grid of its cells and variants. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from benchmarks.figures.comparison import PAIR_WORKLOAD
from benchmarks.model.calibration import PAPER_FALCON_GPU, PAPER_VARIANTS, PAPER_WORKLOADS
from benchmarks.model.paper_study import FALCON_GPUS, FALCON_NVME, HYBRID_GPUS, LOCAL_GPUS, LOCAL_NVME
from benchmarks.sweeps.grid import GridAxes, SweepGrid
from benchmarks.sweeps.placement import (
    HOST_STORAGE,
    HYBRID_PLACEMENT,
    LOCAL_PLACEMENT,
    NVME_PREFIX,
    OWN_DRIVE_STORAGE,
    SPREAD_PLACEMENT,
    PoolDevice,
    PoolHost,
    SweepPool,
)
from core.language import _
from hostwire.training import Executor

CUDA: Final = "cuda"
DEVICES: Final = 8  # of each cell
DRAWERS, A_DRAWER = 2, 4  # of falconGPUs: so many drawers with so many GPUs each
# A simulation repeats itself; a measurement has the steps of the preset.
SIMULATED_STEPS: Final = {"steps": 20, "warmup": 5}


@dataclass(frozen=True, kw_only=True)
class ExperimentPlay:
    """What is played on a host, with these parts of the pool; without a grid, `why_not` is the reason.

    `missing` are the configurations that the host cannot have, each with the reason.
    """

    executor: Executor
    host: PoolHost | None = None
    pool: SweepPool = field(default_factory=SweepPool)
    grid: SweepGrid | None = None
    missing: tuple[tuple[str, str], ...] = ()
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class _PlacedConfiguration:
    """A published configuration on a host; `why_not` is '' where it can be had."""

    name: str
    placement: str
    storage: str = HOST_STORAGE
    why_not: str = ""


def plan_play(pool: SweepPool, executor: Executor) -> ExperimentPlay:
    """Return what can be played with a pool: on the host that can have the most of the five configurations."""
    able = [host for host in pool.hosts if executor in host.executors]
    hosts = able if executor == "simulated" else [host for host in able if CUDA in host.backends]
    plays = [_play_on(pool, host, executor) for host in hosts]
    if found := [play for play in plays if play.grid is not None]:
        return min(found, key=lambda play: len(play.missing))
    if plays:
        why_not = _("No host has eight GPUs of its own, nor four of one model in each of two drawers that it reaches.")
    elif executor == "torch":
        why_not = _(
            "No host that you may compose can train on GPUs now. Install PyTorch with CUDA for the trainer of one; its "
            "agent reports it within a minute."
        )
    else:
        why_not = _("No agent reports from a host that you may compose. An administrator enrols one on its page.")
    return ExperimentPlay(executor=executor, missing=plays[0].missing if plays else (), why_not=why_not)


def _play_on(pool: SweepPool, host: PoolHost, executor: Executor) -> ExperimentPlay:
    gpus, drives = _chassis_gpus(pool, host), _reachable(pool, host, is_storage=True)[:1]
    known = list(_configurations(host, gpus, drives))
    found = [one for one in known if not one.why_not]
    places = [one.placement for one in found if one.storage == HOST_STORAGE]
    model = gpus[0].model if gpus else ""
    parts = [_part(host, one.placement, model, PAPER_WORKLOADS, storage=one.storage) for one in found]
    parts += [
        _part(host, place, model, ("bert_large",), variant=variant)
        for place in places
        for variant in PAPER_VARIANTS.values()
    ]
    # The host of hybridGPUs has pairs of all three kinds.
    pairs = HYBRID_PLACEMENT if HYBRID_PLACEMENT in places else next(iter(places), "")
    parts += [_part(host, pairs, model, (PAIR_WORKLOAD,))] if pairs else []
    steps = SIMULATED_STEPS if executor == "simulated" else {}
    return ExperimentPlay(
        executor=executor,
        host=host,
        pool=replace(pool, hosts=(host,), devices=(*gpus, *drives)),
        grid=SweepGrid(preset="paper", executor=executor, parts=tuple(parts), at_once=1, same={**steps})
        if parts
        else None,
        missing=tuple((one.name, one.why_not) for one in known if one.why_not),
    )


def _configurations(
    host: PoolHost, gpus: Sequence[PoolDevice], drives: Sequence[PoolDevice]
) -> Iterator[_PlacedConfiguration]:
    def own(count: int) -> str:
        if host.local_gpus >= count:
            return ""
        return _(
            "{host} has {found} GPUs of its own; {count} would be needed.",
            host=host.name,
            found=host.local_gpus,
            count=count,
        )

    no_gpus = "" if gpus else _("{host} reaches no two drawers with four free GPUs of one model each.", host=host.name)
    no_own_drive = "" if host.own_drive else _("{host} shows no NVMe drive of its own.", host=host.name)
    no_drive = "" if drives else _("{host} reaches no free NVMe drive.", host=host.name)
    yield _PlacedConfiguration(name=LOCAL_GPUS, placement=LOCAL_PLACEMENT, why_not=own(DEVICES))
    yield _PlacedConfiguration(name=HYBRID_GPUS, placement=HYBRID_PLACEMENT, why_not=no_gpus or own(DEVICES // 2))
    yield _PlacedConfiguration(name=FALCON_GPUS, placement=SPREAD_PLACEMENT, why_not=no_gpus)
    yield _PlacedConfiguration(
        name=LOCAL_NVME, placement=LOCAL_PLACEMENT, storage=OWN_DRIVE_STORAGE, why_not=own(DEVICES) or no_own_drive
    )
    storage = f"{NVME_PREFIX}{drives[0].id}" if drives else ""
    yield _PlacedConfiguration(
        name=FALCON_NVME, placement=LOCAL_PLACEMENT, storage=storage, why_not=own(DEVICES) or no_drive
    )


def _part(
    host: PoolHost,
    placement: str,
    model: str,
    workloads: tuple[str, ...],
    *,
    storage: str = HOST_STORAGE,
    variant: Mapping[str, object] = {},
) -> GridAxes:
    varied: dict[str, Any] = {name: (value,) for name, value in variant.items()}
    return GridAxes(
        workload=workloads,
        host=(host.id,),
        count=(DEVICES,),
        placement=(placement,),
        storage=(storage,),
        accelerator=() if placement == LOCAL_PLACEMENT else (model,),
        **varied,
    )


def _reachable(pool: SweepPool, host: PoolHost, *, is_storage: bool) -> list[PoolDevice]:
    """Return devices that the host reaches and no other host has, attached ones first."""
    found = [
        one
        for one in pool.devices
        if one.is_storage == is_storage and host.id in one.ports and one.attached in {None, host.id}
    ]
    return sorted(found, key=lambda one: (one.attached is None, one.drawer, one.slot, one.id))


def _chassis_gpus(pool: SweepPool, host: PoolHost) -> list[PoolDevice]:
    """Return four GPUs of one model in each of two drawers, of the published model if there are; [] for none."""
    shelves: dict[str, dict[int, list[PoolDevice]]] = {}
    for one in _reachable(pool, host, is_storage=False):
        shelves.setdefault(one.model, {}).setdefault(one.drawer, []).append(one)
    for model in sorted(shelves, key=lambda name: (name != PAPER_FALCON_GPU, name)):
        full = [some[:A_DRAWER] for __, some in sorted(shelves[model].items()) if len(some) >= A_DRAWER]
        if len(full) >= DRAWERS:
            return [one for some in full[:DRAWERS] for one in some]
    return []
