"""A grid: the values of its axes, what is the same for all, and the points that it comes to. Pure: no database.

A combination that cannot be is left out and told why; the rest are points, each with its specification and composition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from benchmarks.runs.composition import Composition
from benchmarks.sweeps.early import OBJECTIVES, Early
from benchmarks.sweeps.pool import (
    CPU,
    DRAWER,
    HOST_STORAGE,
    HYBRID,
    NVME,
    OWN,
    OWN_DRIVE,
    SPREAD,
    Impossible,
    Pool,
    Wish,
    composed,
    key_of,
)
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.shapes import Preset
from benchmarks.workloads.specs import SpecError
from falconweb.errors import Invalid
from hostwire.training import Executor, Option, Precision, Spec, Strategy

MOST_POINTS: Final = 1000
MOST_COMBINATIONS: Final = 20_000  # that are looked at
MOST_LEFT_OUT: Final = 500  # that are told one by one
MOST_VALUES: Final = 64  # of one axis
MOST_REPEATS: Final = 50
LONGEST_LIMIT: Final = 7 * 86400.0
Number = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Named = Annotated[str, msgspec.Meta(max_length=100)]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a sweep goes over. An axis without values is as the preset has it; each with several is varied.

    `batch` is of one device, or with `batch_of` 'all' of all devices together. `placement` is 'cpu', 'local',
    'drawer:ID', 'spread' or 'hybrid'; `storage` is 'host', 'own' (the host's own NVMe drive) or 'nvme:ID'; `host` has
    ids, `accelerator` models of devices. `same` are further fields of a specification and options of workloads, the
    same for all.
    """

    workload: tuple[Named, ...] = ()
    framework: tuple[Named, ...] = ("pytorch",)
    batch: tuple[Number, ...] = ()
    batch_of: Literal["device", "all"] = "device"
    accumulation: tuple[Number, ...] = ()
    threads: tuple[Number, ...] = ()
    loader_workers: tuple[Number, ...] = ()
    precision: tuple[Precision, ...] = ()
    gradient: tuple[Precision, ...] = ()
    strategy: tuple[Strategy, ...] = ()
    compile: tuple[bool, ...] = ()
    host: tuple[Number, ...] = ()
    accelerator: tuple[Named, ...] = ()
    count: tuple[Number, ...] = (1,)
    placement: tuple[Named, ...] = (OWN,)
    storage: tuple[Named, ...] = (HOST_STORAGE,)
    repeats: Number = 1
    preset: Preset = "custom"
    same: dict[str, Option] = {}
    command: tuple[str, ...] = ()
    executor: Executor = "simulated"
    limit_seconds: float = 3600.0
    at_once: Number = 4
    early: Early | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> Grid:
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
AXIS_WORDS: Final = {
    "workload": "Workload", "framework": "Framework", "host": "Host", "placement": "Where",
    "accelerator": "Accelerator", "storage": "Storage", "count": "Devices", "strategy": "Strategy",
    "precision": "Arithmetic", "gradient": "Gradients sent as", "compile": "Compiled",
    "accumulation": "Accumulation", "batch": "Batch", "threads": "CPU threads",
    "loader_workers": "Loader processes", "repeat": "Repeat",
}  # fmt: skip
SAME: Final = ("steps", "warmup", "seed", "bucket_bytes")
Values = dict[str, Option]
# Why a specification cannot run on a composition, '' if it can: memory, rules of a drawer, what the host can do.
Refuse = Callable[[Spec, Composition], str]


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """A run that a grid asks for."""

    values: Values
    spec: Spec
    composition: Composition


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A combination that becomes no point, and why."""

    values: Values
    why: str


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """What a grid comes to; `left_out` is not longer than MOST_LEFT_OUT, `left_out_count` tells how many they are."""

    points: tuple[GridPoint, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    left_out_count: int = 0

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Why combinations were left out, and how many for each reason, the most frequent first."""
        counted: dict[str, int] = {}
        for one in self.left_out:
            counted[one.why] = counted.get(one.why, 0) + 1
        return sorted(counted.items(), key=lambda item: -item[1])


def grid_checked(grid: Grid) -> Grid:
    """Return the grid with each value of an axis once; raises Invalid with a sentence for each field that is wrong."""
    errors: dict[str, str] = {}
    cleaned: dict[str, Any] = {}
    for axis in AXES:
        values = tuple(dict.fromkeys(getattr(grid, axis)))
        cleaned[axis] = values
        if len(values) > MOST_VALUES:
            errors[axis] = f"An axis has at most {MOST_VALUES} values."
    errors |= _wrong_values(grid)
    if not errors and (number := _combinations(cleaned)) * max(grid.repeats, 1) > MOST_COMBINATIONS:
        errors["grid"] = (
            f"These are {number * grid.repeats:,} combinations; at most {MOST_COMBINATIONS:,} are looked at. "
            "Take values out, or make several sweeps."
        )
    if errors:
        raise Invalid(" ".join(errors.values()), errors=errors)
    return msgspec.structs.replace(grid, **cleaned)


def expand(grid: Grid, pool: Pool, refuse: Refuse) -> Expansion:
    """Return the points of a checked grid, repeats one after the other. Raises Invalid where they are too many."""
    points: list[GridPoint] = []
    left_out: list[LeftOut] = []
    count = 0
    seen: set[tuple[str, str]] = set()
    for values in _combined(grid):
        made = _made_or_why(grid, pool, values, refuse, seen)
        if isinstance(made, str):
            count += 1
            if len(left_out) < MOST_LEFT_OUT:
                left_out.append(LeftOut(values=values, why=made))
            continue
        spec, composition = made
        for repeat in range(1, grid.repeats + 1):
            told = {**values, "repeat": repeat} if grid.repeats > 1 else values
            points.append(GridPoint(values=told, spec=spec, composition=composition))
        if len(points) > MOST_POINTS:
            sentence = f"A sweep has at most {MOST_POINTS:,} runs. Take values out, or make several sweeps."
            raise Invalid(sentence, errors={"grid": sentence})
    return Expansion(points=tuple(points), left_out=tuple(left_out), left_out_count=count)


def varied(grid: Grid) -> list[str]:
    """Return the axes that have several values, and 'repeat' where each is repeated."""
    names = [axis for axis in AXES if len(getattr(grid, axis)) > 1]
    return [*names, *(["repeat"] if grid.repeats > 1 else [])]


def _combinations(axes: Mapping[str, Sequence[object]]) -> int:
    number = 1
    for values in axes.values():
        number *= max(len(values), 1)
    return number


def _combined(grid: Grid) -> Iterator[Values]:
    given = [(axis, getattr(grid, axis)) for axis in AXES if getattr(grid, axis)]
    for combination in itertools.product(*(values for _, values in given)):
        yield dict(zip((axis for axis, _ in given), combination, strict=True))


def _made_or_why(
    grid: Grid, pool: Pool, values: Values, refuse: Refuse, seen: set[tuple[str, str]]
) -> tuple[Spec, Composition] | str:
    """Return what a combination comes to, or why it cannot be or is none of its own."""
    try:
        spec, composition = _made(grid, pool, values, refuse)
    except Impossible as error:
        return str(error)
    key = spec.hash, key_of(composition)
    if key in seen:
        return "It is the same run as another point of this grid."
    seen.add(key)
    return spec, composition


def _made(grid: Grid, pool: Pool, values: Values, refuse: Refuse) -> tuple[Spec, Composition]:
    """Return what a combination comes to; raises Impossible."""
    host, placement, count = int(values["host"]), str(values["placement"]), int(values["count"])
    of_pool = pool.host(host)
    framework = str(values["framework"])
    if of_pool is not None and framework not in of_pool.frameworks:
        raise Impossible(f"{framework} is not available on {of_pool.name}: {' and '.join(of_pool.frameworks)} is.")
    if of_pool is not None and grid.executor not in of_pool.executors:
        can = " and ".join(of_pool.executors) or "nothing: no agent with a trainer runs on it"
        raise Impossible(f"{of_pool.name} cannot run '{grid.executor}' now; it can run {can}.")
    if placement == CPU and values.get("accelerator"):
        raise Impossible("A run on the CPU alone has no accelerator.")
    composition = composed(
        pool,
        Wish(
            host=host, count=count, placement=placement, accelerator=str(values.get("accelerator", "")),
            storage=str(values["storage"]),
        ),
    )  # fmt: skip
    spec = _spec(grid, values)
    if reason := refuse(spec, composition):
        raise Impossible(reason)
    return spec, composition


def _spec(grid: Grid, values: Values) -> Spec:
    workload, count = str(values["workload"]), int(values["count"])
    known = CATALOGUE[workload]
    own = {parameter.name for parameter in known.parameters}
    given: dict[str, Any] = {name: value for name, value in grid.same.items() if name in SAME or name in own}
    names = ("strategy", "precision", "gradient", "compile", "accumulation", "threads", "loader_workers", "batch")
    given |= {name: values[name] for name in names if name in values}
    given |= {"framework": values["framework"], "devices": count}
    given["backend"] = "cpu" if values["placement"] == CPU else "cuda"
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
            raise Impossible(f"A batch of {given['batch']} over all devices cannot be shared by {shares} evenly.")
        given["batch"] = int(given["batch"]) // shares
    try:
        return spec_of(workload, preset, given)
    except SpecError as error:
        raise Impossible(" ".join(error.errors.values())) from error


def _wrong_values(grid: Grid) -> dict[str, str]:
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
    placements = (CPU, OWN, SPREAD, HYBRID)
    if wrong := [one for one in grid.placement if one not in placements and not one.startswith(DRAWER)]:
        errors["placement"] = f"'{wrong[0][:40]}' is none of {', '.join(placements)} and {DRAWER}ID."
    if wrong := [one for one in grid.storage if one not in {HOST_STORAGE, OWN_DRIVE} and not one.startswith(NVME)]:
        errors["storage"] = f"'{wrong[0][:40]}' is none of {HOST_STORAGE}, {OWN_DRIVE} and {NVME}ID."
    if not 1 <= grid.repeats <= MOST_REPEATS:
        errors["repeats"] = f"Each point is run 1 to {MOST_REPEATS} times."
    if not 1 <= grid.at_once <= 64:
        errors["at_once"] = "1 to 64 runs at once."
    if not 1.0 <= grid.limit_seconds <= LONGEST_LIMIT:
        errors["limit_seconds"] = f"A run has 1 to {LONGEST_LIMIT:,.0f} seconds."
    return errors | _wrong_rest(grid)


def _wrong_rest(grid: Grid) -> dict[str, str]:
    errors: dict[str, str] = {}
    known = {*SAME, *(one.name for name in grid.workload if name in CATALOGUE for one in CATALOGUE[name].parameters)}
    if unknown := [name for name in grid.same if name not in known]:
        errors["same"] = f"None of these workloads has '{unknown[0][:40]}'. Known here: {', '.join(sorted(known))}."
    if grid.command and grid.workload != ("command",):
        errors["command"] = "Only the workload 'command' takes a command."
    if "command" in grid.workload and not grid.command:
        errors["command"] = "Say what to run."
    if grid.early is not None:
        if unknown := [one for one in grid.early.objectives if one not in OBJECTIVES]:
            errors["early"] = f"'{unknown[0][:40]}' is none of {', '.join(OBJECTIVES)}."
        elif set(grid.early.objectives) <= {"devices"}:
            errors["early"] = "Besides fewer devices, say what shall be little: time or device_time."
    if grid.preset not in get_args(Preset):
        errors["preset"] = f"A preset is one of {', '.join(get_args(Preset))}."
    return errors
