"""A grid: the values of its axes, what is the same for all, and the points that it comes to. Pure: no database.

A combination that cannot be is left out and told why; the rest are points, each with its specification and composition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from benchmarks.runs.rules import Composition
from benchmarks.sweeps.placement import (
    CPU_PLACEMENT,
    DRAWER_PREFIX,
    HOST_STORAGE,
    HYBRID_PLACEMENT,
    LOCAL_PLACEMENT,
    NVME_PREFIX,
    OWN_DRIVE_STORAGE,
    SPREAD_PLACEMENT,
    PlacementError,
    PlacementRequest,
    SweepPool,
    compose_placement,
    composition_key,
)
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.definitions import Preset, SpecError
from core.errors import Invalid
from hostwire.training import Executor, Option, Precision, Spec, Strategy

MAX_POINTS: Final = 1000
MAX_COMBINATIONS: Final = 20_000  # that are looked at
MAX_EXCLUDED: Final = 500  # that are told one by one
MAX_VALUES: Final = 64  # of one axis
MAX_REPEATS: Final = 50
MAX_LIMIT_SECONDS: Final = 7 * 86400.0
AxisNumber = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
AxisName = Annotated[str, msgspec.Meta(max_length=100)]


class SweepGrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a sweep goes over. An axis without values is as the preset has it; each with several is varied.

    `batch` is of one device, or with `batch_of` 'all' of all devices together. `placement` is 'cpu', 'local',
    'drawer:ID', 'spread' or 'hybrid'; `storage` is 'host', 'own' (the host's own NVMe drive) or 'nvme:ID'; `host` has
    ids, `accelerator` models of devices. `same` are further fields of a specification and options of workloads, the
    same for all.
    """

    workload: tuple[AxisName, ...] = ()
    framework: tuple[AxisName, ...] = ("pytorch",)
    batch: tuple[AxisNumber, ...] = ()
    batch_of: Literal["device", "all"] = "device"
    accumulation: tuple[AxisNumber, ...] = ()
    threads: tuple[AxisNumber, ...] = ()
    loader_workers: tuple[AxisNumber, ...] = ()
    precision: tuple[Precision, ...] = ()
    gradient: tuple[Precision, ...] = ()
    strategy: tuple[Strategy, ...] = ()
    compile: tuple[bool, ...] = ()
    host: tuple[AxisNumber, ...] = ()
    accelerator: tuple[AxisName, ...] = ()
    count: tuple[AxisNumber, ...] = (1,)
    placement: tuple[AxisName, ...] = (LOCAL_PLACEMENT,)
    storage: tuple[AxisName, ...] = (HOST_STORAGE,)
    repeats: AxisNumber = 1
    preset: Preset = "custom"
    same: dict[str, Option] = {}
    command: tuple[str, ...] = ()
    executor: Executor = "simulated"
    limit_seconds: float = 3600.0
    at_once: AxisNumber = 4
    early: EarlyStopping | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> SweepGrid:
        """Read what `as_json` returned or somebody wrote; raises Invalid that names the member which is wrong."""
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            said = str(error)
            member = said.rpartition("`$.")[2].rstrip("`").partition("[")[0] if "`$." in said else ""
            sentence = said.partition(" - at ")[0].rstrip(".") + "."
            raise Invalid(f"The grid is not understood: {sentence}", errors={member or "grid": sentence}) from None


# Axes in the order of a point's values: what is varied last is varied most.
AXES: Final = (
    "workload", "framework", "host", "placement", "accelerator", "storage", "count", "strategy", "precision",
    "gradient", "compile", "accumulation", "batch", "threads", "loader_workers",
)  # fmt: skip
AXIS_LABELS: Final = {
    "workload": "Workload", "framework": "Framework", "host": "Host", "placement": "Where",
    "accelerator": "Accelerator", "storage": "Storage", "count": "Devices", "strategy": "Strategy",
    "precision": "Arithmetic", "gradient": "Gradients sent as", "compile": "Compiled",
    "accumulation": "Accumulation", "batch": "Batch", "threads": "CPU threads",
    "loader_workers": "Loader processes", "repeat": "Repeat",
}  # fmt: skip
FIXED_FIELDS: Final = ("steps", "warmup", "seed", "bucket_bytes")
AxisValues = dict[str, Option]
# Why a specification cannot run on a composition, '' if it can: memory, rules of a drawer, what the host can do.
RefusalCheck = Callable[[Spec, Composition], str]


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """A run that a grid asks for."""

    values: AxisValues
    spec: Spec
    composition: Composition


@dataclass(frozen=True, kw_only=True)
class ExcludedCombination:
    """A combination that becomes no point, and why."""

    values: AxisValues
    why: str


@dataclass(frozen=True, kw_only=True)
class GridExpansion:
    """What a grid comes to; `left_out` is not longer than MAX_EXCLUDED, `left_out_count` tells how many they are."""

    points: tuple[GridPoint, ...] = ()
    left_out: tuple[ExcludedCombination, ...] = ()
    left_out_count: int = 0

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Why combinations were left out, and how many for each reason, the most frequent first."""
        counted: dict[str, int] = {}
        for one in self.left_out:
            counted[one.why] = counted.get(one.why, 0) + 1
        return sorted(counted.items(), key=lambda item: -item[1])


def validated_grid(grid: SweepGrid) -> SweepGrid:
    """Return the grid with each value of an axis once; raises Invalid with a sentence for each field that is wrong."""
    errors: dict[str, str] = {}
    cleaned: dict[str, Any] = {}
    for axis in AXES:
        values = tuple(dict.fromkeys(getattr(grid, axis)))
        cleaned[axis] = values
        if len(values) > MAX_VALUES:
            errors[axis] = f"An axis has at most {MAX_VALUES} values."
    errors |= _axis_errors(grid)
    if not errors and (number := _combination_count(cleaned)) * max(grid.repeats, 1) > MAX_COMBINATIONS:
        errors["grid"] = (
            f"These are {number * grid.repeats:,} combinations; at most {MAX_COMBINATIONS:,} are looked at. "
            "Take values out, or make several sweeps."
        )
    if errors:
        raise Invalid(" ".join(errors.values()), errors=errors)
    return msgspec.structs.replace(grid, **cleaned)


def expand_grid(grid: SweepGrid, pool: SweepPool, refuse: RefusalCheck) -> GridExpansion:
    """Return the points of a checked grid, repeats one after the other. Raises Invalid where they are too many."""
    points: list[GridPoint] = []
    left_out: list[ExcludedCombination] = []
    count = 0
    seen: set[tuple[str, str]] = set()
    for values in _axis_products(grid):
        made = _point_or_reason(grid, pool, values, refuse, seen)
        if isinstance(made, str):
            count += 1
            if len(left_out) < MAX_EXCLUDED:
                left_out.append(ExcludedCombination(values=values, why=made))
            continue
        spec, composition = made
        for repeat in range(1, grid.repeats + 1):
            told = {**values, "repeat": repeat} if grid.repeats > 1 else values
            points.append(GridPoint(values=told, spec=spec, composition=composition))
        if len(points) > MAX_POINTS:
            sentence = f"A sweep has at most {MAX_POINTS:,} runs. Take values out, or make several sweeps."
            raise Invalid(sentence, errors={"grid": sentence})
    return GridExpansion(points=tuple(points), left_out=tuple(left_out), left_out_count=count)


def varied_axes(grid: SweepGrid) -> list[str]:
    """Return the axes that have several values, and 'repeat' where each is repeated."""
    names = [axis for axis in AXES if len(getattr(grid, axis)) > 1]
    return [*names, *(["repeat"] if grid.repeats > 1 else [])]


def _combination_count(axes: Mapping[str, Sequence[object]]) -> int:
    number = 1
    for values in axes.values():
        number *= max(len(values), 1)
    return number


def _axis_products(grid: SweepGrid) -> Iterator[AxisValues]:
    given = [(axis, getattr(grid, axis)) for axis in AXES if getattr(grid, axis)]
    for combination in itertools.product(*(values for _, values in given)):
        yield dict(zip((axis for axis, _ in given), combination, strict=True))


def _point_or_reason(
    grid: SweepGrid, pool: SweepPool, values: AxisValues, refuse: RefusalCheck, seen: set[tuple[str, str]]
) -> tuple[Spec, Composition] | str:
    """Return what a combination comes to, or why it cannot be or is none of its own."""
    try:
        spec, composition = _build_point(grid, pool, values, refuse)
    except PlacementError as error:
        return str(error)
    key = spec.hash, composition_key(composition)
    if key in seen:
        return "It is the same run as another point of this grid."
    seen.add(key)
    return spec, composition


def _build_point(
    grid: SweepGrid, pool: SweepPool, values: AxisValues, refuse: RefusalCheck
) -> tuple[Spec, Composition]:
    """Return what a combination comes to; raises Impossible."""
    host, placement, count = int(values["host"]), str(values["placement"]), int(values["count"])
    of_pool = pool.host(host)
    framework = str(values["framework"])
    if of_pool is not None and framework not in of_pool.frameworks:
        raise PlacementError(f"{framework} is not available on {of_pool.name}: {' and '.join(of_pool.frameworks)} is.")
    if of_pool is not None and grid.executor not in of_pool.executors:
        can = " and ".join(of_pool.executors) or "nothing: no agent with a trainer runs on it"
        raise PlacementError(f"{of_pool.name} cannot run '{grid.executor}' now; it can run {can}.")
    if placement == CPU_PLACEMENT and values.get("accelerator"):
        raise PlacementError("A run on the CPU alone has no accelerator.")
    composition = compose_placement(
        pool,
        PlacementRequest(
            host=host, count=count, placement=placement, accelerator=str(values.get("accelerator", "")),
            storage=str(values["storage"]),
        ),
    )  # fmt: skip
    spec = _point_spec(grid, values)
    if reason := refuse(spec, composition):
        raise PlacementError(reason)
    return spec, composition


def _point_spec(grid: SweepGrid, values: AxisValues) -> Spec:
    workload, count = str(values["workload"]), int(values["count"])
    known = CATALOGUE[workload]
    own = {parameter.name for parameter in known.parameters}
    given: dict[str, Any] = {name: value for name, value in grid.same.items() if name in FIXED_FIELDS or name in own}
    names = ("strategy", "precision", "gradient", "compile", "accumulation", "threads", "loader_workers", "batch")
    given |= {name: values[name] for name in names if name in values}
    given |= {"framework": values["framework"], "devices": count}
    given["backend"] = "cpu" if values["placement"] == CPU_PLACEMENT else "cuda"
    if grid.command and workload == "command":
        given["command"] = grid.command
    preset = grid.preset if grid.preset in known.presets else "custom"
    if "strategy" not in given:
        # The preset's is of its own number of devices.
        given["strategy"] = "single" if count == 1 and "single" in known.strategies else "ddp"
    if given["backend"] == "cpu" and "precision" not in given and known.presets[preset].get("precision") == "fp16":
        given["precision"] = "fp32"
    if "batch" in given and grid.batch_of == "all":
        shares = count * int(given.get("accumulation", 1))
        if int(given["batch"]) % shares:
            raise PlacementError(f"A batch of {given['batch']} over all devices cannot be shared by {shares} evenly.")
        given["batch"] = int(given["batch"]) // shares
    try:
        return spec_of(workload, preset, given)
    except SpecError as error:
        raise PlacementError(" ".join(error.errors.values())) from error


def _axis_errors(grid: SweepGrid) -> dict[str, str]:
    errors: dict[str, str] = {}
    for axis in ("workload", "framework", "host", "count", "placement", "storage"):
        if not getattr(grid, axis):
            errors[axis] = "Choose at least one."
    if unknown := [one for one in grid.workload if one not in CATALOGUE]:
        errors["workload"] = f"There is no workload '{unknown[0][:40]}'. There are: {', '.join(CATALOGUE)}."
    if any(one < 1 for one in grid.batch):
        errors["batch"] = "A batch has at least 1 sample."
    if any(not 1 <= one <= 64 for one in grid.count):
        errors["count"] = "A run has 1 to 64 devices."
    if any(one < 1 for one in grid.accumulation):
        errors["accumulation"] = "At least 1 batch makes a step."
    placements = (CPU_PLACEMENT, LOCAL_PLACEMENT, SPREAD_PLACEMENT, HYBRID_PLACEMENT)
    if wrong := [one for one in grid.placement if one not in placements and not one.startswith(DRAWER_PREFIX)]:
        errors["placement"] = f"'{wrong[0][:40]}' is none of {', '.join(placements)} and {DRAWER_PREFIX}ID."
    if wrong := [
        one for one in grid.storage if one not in {HOST_STORAGE, OWN_DRIVE_STORAGE} and not one.startswith(NVME_PREFIX)
    ]:
        errors["storage"] = f"'{wrong[0][:40]}' is none of {HOST_STORAGE}, {OWN_DRIVE_STORAGE} and {NVME_PREFIX}ID."
    if not 1 <= grid.repeats <= MAX_REPEATS:
        errors["repeats"] = f"Each point is run 1 to {MAX_REPEATS} times."
    if not 1 <= grid.at_once <= 64:
        errors["at_once"] = "1 to 64 runs at once."
    if not 1.0 <= grid.limit_seconds <= MAX_LIMIT_SECONDS:
        errors["limit_seconds"] = f"A run has 1 to {MAX_LIMIT_SECONDS:,.0f} seconds."
    return errors | _option_errors(grid)


def _option_errors(grid: SweepGrid) -> dict[str, str]:
    errors: dict[str, str] = {}
    known = {
        *FIXED_FIELDS,
        *(one.name for name in grid.workload if name in CATALOGUE for one in CATALOGUE[name].parameters),
    }
    if unknown := [name for name in grid.same if name not in known]:
        errors["same"] = f"None of these workloads has '{unknown[0][:40]}'. Known here: {', '.join(sorted(known))}."
    if grid.command and grid.workload != ("command",):
        errors["command"] = "Only the workload 'command' takes a command."
    if "command" in grid.workload and not grid.command:
        errors["command"] = "Say what to run."
    if grid.early is not None:
        if unknown := [one for one in grid.early.objectives if one not in EARLY_OBJECTIVES]:
            errors["early"] = f"'{unknown[0][:40]}' is none of {', '.join(EARLY_OBJECTIVES)}."
        elif set(grid.early.objectives) <= {"devices"}:
            errors["early"] = "Besides fewer devices, say what shall be little: time or device_time."
    if grid.preset not in get_args(Preset):
        errors["preset"] = f"A preset is one of {', '.join(get_args(Preset))}."
    return errors


# Of each, less is better. The words are of people.
EARLY_OBJECTIVES: Final = {
    "time": "time a sample",
    "device_time": "device-seconds a sample",
    "devices": "devices",
}


class EarlyStopping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Points that are clearly worse in all of `objectives` are skipped; with `predicted` also by prediction alone."""

    objectives: tuple[str, ...] = ("time", "devices")
    predicted: bool = True
