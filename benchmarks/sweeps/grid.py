"""Grids: the values of their axes, common fields, and the resulting points. Pure: no database.

An impossible combination is left out with its reason; the others are points, each with its specification and
composition.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from benchmarks.runs.rules import Composition
from benchmarks.sweeps.placement import (
    CPU_PLACEMENT,
    DEVICES_PREFIX,
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
from benchmarks.workloads.definitions import Preset
from benchmarks.workloads.validation import SpecError
from core.errors import Invalid
from core.language import _, gettext_noop, join_words, joined
from hostwire.training import Executor, Option, Precision, Spec, Strategy

FRAMEWORK: Final = "pytorch"  # that hosts have
MAX_POINTS: Final = 1000
MAX_COMBINATIONS: Final = 20_000  # that are evaluated
MAX_EXCLUDED: Final = 500  # that are listed individually
MAX_PARTS: Final = 16  # of one grid
MAX_VALUES: Final = 64  # of one axis
MAX_REPEATS: Final = 50
MAX_LIMIT_SECONDS: Final = 7 * 86400.0
AxisNumber = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
AxisName = Annotated[str, msgspec.Meta(max_length=100)]


class GridAxes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The axes of a grid. One without values uses the preset's; one with several values is varied.

    `placement` is 'cpu', 'local', 'drawer:ID', 'devices:ID,ID', 'spread' or 'hybrid'; `storage` is 'host', 'own' (the
    host's own NVMe drive) or 'nvme:ID'; `host` has ids, `accelerator` models of devices.
    """

    workload: tuple[AxisName, ...] = ()
    framework: tuple[AxisName, ...] = (FRAMEWORK,)
    batch: tuple[AxisNumber, ...] = ()
    accumulation: tuple[AxisNumber, ...] = ()
    threads: tuple[AxisNumber, ...] = ()
    loader_workers: tuple[AxisNumber, ...] = ()
    cores: tuple[AxisNumber, ...] = ()
    precision: tuple[Precision, ...] = ()
    gradient: tuple[Precision, ...] = ()
    strategy: tuple[Strategy, ...] = ()
    compile: tuple[bool, ...] = ()
    host: tuple[AxisNumber, ...] = ()
    accelerator: tuple[AxisName, ...] = ()
    count: tuple[AxisNumber, ...] = (1,)
    placement: tuple[AxisName, ...] = (LOCAL_PLACEMENT,)
    storage: tuple[AxisName, ...] = (HOST_STORAGE,)


class SweepGrid(GridAxes, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a sweep: axes, and what is common to all points.

    `batch` is per device, or with `batch_of` 'all' over all devices. `same` are further fields of a specification and
    options of workloads. With `parts`, the points are those of all parts, and the axes are theirs together.
    """

    batch_of: Literal["device", "all"] = "device"
    repeats: AxisNumber = 1
    preset: Preset = "custom"
    same: dict[str, Option] = {}
    command: tuple[str, ...] = ()
    executor: Executor = "simulated"
    limit_seconds: float = 3600.0
    at_once: AxisNumber = 4
    early: EarlyStopping | None = None
    parts: tuple[GridAxes, ...] = ()

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> SweepGrid:
        """Parse the JSON of `as_json` or of a user; raises Invalid that names the wrong member."""
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            said = str(error)
            member = said.rpartition("`$.")[2].rstrip("`").partition("[")[0] if "`$." in said else ""
            sentence = said.partition(" - at ")[0].rstrip(".") + "."
            raise Invalid(
                _("The grid is invalid: {sentence}", sentence=sentence), errors={member or "grid": sentence}
            ) from None


# Axes in the order of a point's values: the last one varies fastest.
AXES: Final = (
    "workload", "framework", "host", "placement", "accelerator", "storage", "count", "strategy", "precision",
    "gradient", "compile", "accumulation", "batch", "threads", "loader_workers", "cores",
)  # fmt: skip
AXIS_LABELS: Final = {
    "workload": gettext_noop("Workload"),
    "framework": gettext_noop("Framework"),
    "host": gettext_noop("Host"),
    "placement": gettext_noop("Where"),
    "accelerator": gettext_noop("Accelerator"),
    "storage": gettext_noop("Storage"),
    "count": gettext_noop("Devices"),
    "strategy": gettext_noop("Strategy"),
    "precision": gettext_noop("Arithmetic"),
    "gradient": gettext_noop("Gradients sent as"),
    "compile": gettext_noop("Compiled"),
    "accumulation": gettext_noop("Accumulation"),
    "batch": gettext_noop("Batch"),
    "threads": gettext_noop("CPU threads"),
    "loader_workers": gettext_noop("Loader processes"),
    "cores": gettext_noop("CPU cores"),
    "repeat": gettext_noop("Repeat"),
}
FIXED_FIELDS: Final = (
    "steps", "warmup", "seed", "bucket_bytes", "data", "samples", "validate_every", "checkpoint_every", "restarts",
)  # fmt: skip
AxisValues = dict[str, Option]
# The reason why a specification cannot run on a composition, '' if it can: memory, drawer rules, host capabilities.
RefusalCheck = Callable[[Spec, Composition], str]


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """A run of a grid."""

    values: AxisValues
    spec: Spec
    composition: Composition


@dataclass(frozen=True, kw_only=True)
class ExcludedCombination:
    """A combination that is left out, and the reason."""

    values: AxisValues
    why: str


@dataclass(frozen=True, kw_only=True)
class GridExpansion:
    """An expanded grid; `left_out` has at most MAX_EXCLUDED entries, `left_out_count` is their number."""

    points: tuple[GridPoint, ...] = ()
    left_out: tuple[ExcludedCombination, ...] = ()
    left_out_count: int = 0

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """The reasons for leaving combinations out, with their numbers, the most frequent first."""
        return Counter(one.why for one in self.left_out).most_common()


def validated_grid(grid: SweepGrid) -> SweepGrid:
    """Return the grid with unique values of each axis; raises Invalid with a sentence for each wrong field."""
    if grid.parts:
        return _joined_parts(grid)
    errors: dict[str, str] = {}
    cleaned: dict[str, Any] = {}
    for axis in AXES:
        values = tuple(dict.fromkeys(getattr(grid, axis)))
        cleaned[axis] = values
        if len(values) > MAX_VALUES:
            errors[axis] = _("An axis has at most {most} values.", most=MAX_VALUES)
    errors |= _axis_errors(grid)
    if errors:
        raise Invalid(joined(errors.values()), errors=errors)
    cleaned_grid = msgspec.structs.replace(grid, **cleaned)
    _require_few(_combinations(cleaned_grid))
    return cleaned_grid


def _combinations(grid: SweepGrid) -> int:
    return math.prod(max(len(getattr(grid, axis)), 1) for axis in AXES) * max(grid.repeats, 1)


def _require_few(count: int) -> None:
    """Raise Invalid for more combinations than are evaluated."""
    if count > MAX_COMBINATIONS:
        sentence = _(
            "These are {count:,} combinations; at most {most:,} are possible. Remove values, or create several sweeps.",
            count=count,
            most=MAX_COMBINATIONS,
        )
        raise Invalid(sentence, errors={"grid": sentence})


def _joined_parts(grid: SweepGrid) -> SweepGrid:
    """Return a grid of parts, each validated, with the values of their axes together."""
    if len(grid.parts) > MAX_PARTS:
        sentence = _("A grid has at most {most} parts.", most=MAX_PARTS)
        raise Invalid(sentence, errors={"parts": sentence})
    _require_few(sum(_combinations(validated_grid(part)) for part in grids_of(grid)))
    axes = {axis: tuple(dict.fromkeys(one for part in grid.parts for one in getattr(part, axis))) for axis in AXES}
    return msgspec.structs.replace(grid, **axes)


def grids_of(grid: SweepGrid) -> tuple[SweepGrid, ...]:
    """Return the grids of its parts, or the grid itself without parts."""
    return tuple(
        msgspec.structs.replace(grid, parts=(), **{axis: getattr(part, axis) for axis in AXES}) for part in grid.parts
    ) or (grid,)


def expand_grid(grid: SweepGrid, pool: SweepPool, refuse: RefusalCheck) -> GridExpansion:
    """Return the points of a checked grid, with repeats adjacent. Raises Invalid for too many."""
    points: list[GridPoint] = []
    left_out: list[ExcludedCombination] = []
    count = 0
    seen: set[tuple[str, str]] = set()
    for one, values in ((part, values) for part in grids_of(grid) for values in _axis_products(part)):
        try:
            spec, composition = _build_point(one, pool, values, refuse, seen)
        except PlacementError as error:
            count += 1
            if len(left_out) < MAX_EXCLUDED:
                left_out.append(ExcludedCombination(values=values, why=error.args[0]))
            continue
        for repeat in range(1, grid.repeats + 1):
            own = {**values, "repeat": repeat} if grid.repeats > 1 else values
            points.append(GridPoint(values=own, spec=spec, composition=composition))
        if len(points) > MAX_POINTS:
            sentence = _("A sweep has at most {most:,} runs. Remove values, or create several sweeps.", most=MAX_POINTS)
            raise Invalid(sentence, errors={"grid": sentence})
    return GridExpansion(points=tuple(points), left_out=tuple(left_out), left_out_count=count)


def varied_axes(grid: SweepGrid) -> list[str]:
    """Return the axes that have several values, and 'repeat' if points are repeated."""
    names = [axis for axis in AXES if len(getattr(grid, axis)) > 1]
    return [*names, *(["repeat"] if grid.repeats > 1 else [])]


def _axis_products(grid: SweepGrid) -> Iterator[AxisValues]:
    given = [(axis, getattr(grid, axis)) for axis in AXES if getattr(grid, axis)]
    for combination in itertools.product(*(values for _axis, values in given)):
        yield dict(zip((axis for axis, _values in given), combination, strict=True))


def _build_point(
    grid: SweepGrid, pool: SweepPool, values: AxisValues, refuse: RefusalCheck, seen: set[tuple[str, str]]
) -> tuple[Spec, Composition]:
    """Return the point of a combination, and add it to those `seen`; raises PlacementError."""
    host, placement, count = int(values["host"]), str(values["placement"]), int(values["count"])
    of_pool = pool.host(host)
    framework = str(values["framework"])
    if of_pool is not None and framework != FRAMEWORK:
        raise PlacementError(
            _(
                "{framework} is not available on {host}: {installed} is.",
                framework=framework,
                host=of_pool.name,
                installed=FRAMEWORK,
            )
        )
    if of_pool is not None and grid.executor not in of_pool.executors:
        can = (
            join_words(list(of_pool.executors))
            if of_pool.executors
            else _("nothing: no agent with a trainer runs on it")
        )
        raise PlacementError(
            _(
                "{host} cannot run '{executor}' now; it can run {can}.",
                host=of_pool.name,
                executor=grid.executor,
                can=can,
            )
        )
    if placement == CPU_PLACEMENT and values.get("accelerator"):
        raise PlacementError(_("A run on the CPU alone has no accelerator."))
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
    key = spec.hash, composition_key(composition)
    if key in seen:
        raise PlacementError(_("It is the same run as another point of this grid."))
    seen.add(key)
    return spec, composition


def _point_spec(grid: SweepGrid, values: AxisValues) -> Spec:
    workload, count = str(values["workload"]), int(values["count"])
    known = CATALOGUE[workload]
    own = {parameter.name for parameter in known.parameters}
    given: dict[str, Any] = {name: value for name, value in grid.same.items() if name in FIXED_FIELDS or name in own}
    names = (
        "strategy",
        "precision",
        "gradient",
        "compile",
        "accumulation",
        "threads",
        "loader_workers",
        "cores",
        "batch",
    )
    given |= {name: values[name] for name in names if name in values}
    given |= {"framework": values["framework"], "devices": count}
    given["backend"] = "cpu" if values["placement"] == CPU_PLACEMENT else "cuda"
    if grid.command and workload == "command":
        given["command"] = grid.command
    preset = grid.preset if grid.preset in known.presets else "custom"
    if "strategy" not in given:
        # The preset's strategy is for its own number of devices.
        given["strategy"] = "single" if count == 1 and "single" in known.strategies else "ddp"
    if given["backend"] == "cpu" and "precision" not in given and known.presets[preset].get("precision") == "fp16":
        given["precision"] = "fp32"
    if "batch" in given and grid.batch_of == "all":
        shares = count * int(given.get("accumulation", 1))
        if int(given["batch"]) % shares:
            raise PlacementError(
                _(
                    "A batch of {batch} over all devices cannot be shared by {shares} evenly.",
                    batch=given["batch"],
                    shares=shares,
                )
            )
        given["batch"] = int(given["batch"]) // shares
    try:
        return spec_of(workload, preset, given)
    except SpecError as error:
        raise PlacementError(joined(error.errors.values())) from error


def _axis_errors(grid: SweepGrid) -> dict[str, str]:
    errors: dict[str, str] = {}
    for axis in ("workload", "framework", "host", "count", "placement", "storage"):
        if not getattr(grid, axis):
            errors[axis] = _("Choose at least one.")
    if unknown := [one for one in grid.workload if one not in CATALOGUE]:
        errors["workload"] = _(
            "There is no workload '{name}'. There are: {names}.", name=unknown[0][:40], names=", ".join(CATALOGUE)
        )
    if any(one < 1 for one in grid.batch):
        errors["batch"] = _("A batch has at least 1 sample.")
    if any(not 1 <= one <= 64 for one in grid.count):
        errors["count"] = _("A run has 1 to 64 devices.")
    if any(one < 1 for one in grid.accumulation):
        errors["accumulation"] = _("At least 1 batch makes a step.")
    placements = (CPU_PLACEMENT, LOCAL_PLACEMENT, SPREAD_PLACEMENT, HYBRID_PLACEMENT)
    if wrong := [
        one for one in grid.placement if one not in placements and not one.startswith((DRAWER_PREFIX, DEVICES_PREFIX))
    ]:
        errors["placement"] = _unknown_value(wrong[0], placements, DRAWER_PREFIX)
    storages = (HOST_STORAGE, OWN_DRIVE_STORAGE)
    if wrong := [one for one in grid.storage if one not in storages and not one.startswith(NVME_PREFIX)]:
        errors["storage"] = _unknown_value(wrong[0], storages, NVME_PREFIX)
    if not 1 <= grid.repeats <= MAX_REPEATS:
        errors["repeats"] = _("Each point is run 1 to {most} times.", most=MAX_REPEATS)
    if not 1 <= grid.at_once <= 64:
        errors["at_once"] = _("1 to 64 runs at once.")
    if not 1.0 <= grid.limit_seconds <= MAX_LIMIT_SECONDS:
        errors["limit_seconds"] = _("A run has 1 to {most:,.0f} seconds.", most=MAX_LIMIT_SECONDS)
    return errors | _option_errors(grid)


def _unknown_value(value: str, names: Sequence[str], prefix: str) -> str:
    known = ", ".join(names)
    return _("'{value}' is none of {names} and {prefix}ID.", value=value[:40], names=known, prefix=prefix)


def _option_errors(grid: SweepGrid) -> dict[str, str]:
    errors: dict[str, str] = {}
    known = {
        *FIXED_FIELDS,
        *(one.name for name in grid.workload if name in CATALOGUE for one in CATALOGUE[name].parameters),
    }
    if unknown := [name for name in grid.same if name not in known]:
        errors["same"] = _(
            "None of these workloads has '{name}'. Known here: {names}.",
            name=unknown[0][:40],
            names=", ".join(sorted(known)),
        )
    if grid.command and grid.workload != ("command",):
        errors["command"] = _("Only the workload 'command' takes a command.")
    if "command" in grid.workload and not grid.command:
        errors["command"] = _("Enter a command.")
    if grid.early is not None:
        if unknown := [one for one in grid.early.objectives if one not in EARLY_OBJECTIVES]:
            errors["early"] = _(
                "'{value}' is none of {names}.", value=unknown[0][:40], names=", ".join(EARLY_OBJECTIVES)
            )
        elif set(grid.early.objectives) <= {"devices"}:
            errors["early"] = _("Besides devices, name an objective to minimise: time or device_time.")
    if grid.preset not in get_args(Preset):
        errors["preset"] = _("A preset is one of: {names}.", names=", ".join(get_args(Preset)))
    return errors


# Objectives to minimise, with their labels.
EARLY_OBJECTIVES: Final = {
    "time": gettext_noop("time a sample"),
    "device_time": gettext_noop("device-seconds a sample"),
    "devices": gettext_noop("devices"),
}


class EarlyStopping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Points that are dominated in all of `objectives` are skipped; with `predicted` also by prediction alone."""

    objectives: tuple[str, ...] = ("time", "devices")
    predicted: bool = True
