"""Which figures there are, what each needs, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.figures.labels import configuration_of, software_of, storage_of
from benchmarks.figures.links import between_gpus, has_pairs
from benchmarks.figures.relative import by_configuration as time_by_configuration
from benchmarks.figures.relative import by_software, by_storage
from benchmarks.figures.rows import LOSS, STEPS, Row, is_reading
from benchmarks.figures.scaling import scaling
from benchmarks.figures.shapes import Figure
from benchmarks.figures.steps import durations, loss
from benchmarks.figures.storage import WORKLOAD as STORAGE_READ
from benchmarks.figures.storage import reading as storage_reading
from benchmarks.figures.traffic import LINKS, by_workload
from benchmarks.figures.use import by_configuration as use_by_configuration
from benchmarks.figures.use import over_time
from falconweb.errors import Invalid, NotFound
from hostwire.training import READINGS

MOST_MARKS: Final = 400  # of one chart


@dataclass(frozen=True, kw_only=True)
class Options:
    """What somebody chose of how a figure is drawn: see `Entry.options` for those that it has."""

    baseline: str = ""
    time: str = "share"
    reading: str = "utilisation"
    published: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A figure of the catalogue: some charts under one address. `needs` ends the sentence 'It needs ...'.

    `options` are the names of those of Options that it heeds, `besides` what may stand beside runs on request. `uses`
    tells whether a run can be in it; where `varied` is given, it must come to more than one value for there to be
    anything to compare.
    """

    name: str
    title: str
    about: str
    needs: str
    uses: Callable[[Row], bool]
    draw: Callable[[Sequence[Row], Options], tuple[Figure, ...]]
    options: tuple[str, ...] = ()
    varied: Callable[[Row], object] | None = None
    besides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """A figure of the catalogue, with how many of some runs would be in it; `is_ready` where that makes sense."""

    entry: Entry
    count: int
    is_ready: bool


def drawn(name: str, rows: Sequence[Row], options: Options) -> tuple[Figure, ...]:
    """Return the charts of a figure over these runs; each says in its notes whom it leaves out, and why.

    Raises NotFound for a figure that there is not, Invalid for an option that it cannot heed.
    """
    if name not in FIGURES:
        raise NotFound("There is no such figure.")
    checked(options)
    return tuple(_bounded(figure) for figure in FIGURES[name].draw(rows, options))


def checked(options: Options) -> None:
    """Raise Invalid for options that no figure heeds."""
    if options.time not in TIMES:
        raise Invalid("The time is shown in another way.", errors={"time": f"One of {', '.join(TIMES)}."})
    if options.reading not in READINGS:
        raise Invalid("There is no such reading.", errors={"reading": f"One of {', '.join(READINGS)}."})


def offered(rows: Sequence[Row]) -> list[Offer]:
    """Return all figures, each with how many of these runs would be in it."""
    return [_offer(entry, rows) for entry in FIGURES.values()]


def _offer(entry: Entry, rows: Sequence[Row]) -> Offer:
    used = [row for row in rows if entry.uses(row)]
    values = {entry.varied(row) for row in used} if entry.varied else set()
    return Offer(entry, len(used), bool(used) and (entry.varied is None or len(values) > 1))


def _bounded(figure: Figure) -> Figure:
    """Return a figure with no more marks than can be told apart."""
    if len(figure.marks) <= MOST_MARKS:
        return figure
    rest = len(figure.marks) - MOST_MARKS
    shorter = replace(figure, marks=figure.marks[:MOST_MARKS], ideals=())
    return shorter.noted(f"{rest} marks are left out: a chart holds {MOST_MARKS}. Choose fewer runs.")


def _has_steps(row: Row) -> bool:
    return row.is_training and (STEPS in row.keys or row.summary.step_seconds is not None)


def _sizes(row: Row) -> tuple[int, ...]:
    spec = row.spec
    return (spec.devices, spec.batch, spec.threads, spec.loader_workers) if spec else ()


def _has_reading(*names: str) -> Callable[[Row], bool]:
    return lambda row: any(name in row.summary.readings for name in names)


def _has_traffic(row: Row) -> bool:
    return (
        row.summary.pcie is not None
        or any(key.startswith(LINKS) for key in row.keys)
        or _has_reading("pcie_to", "pcie_from")(row)
    )


def _has_series(name: str) -> Callable[[Row], bool]:
    return lambda row: any(is_reading(key, name) for key in row.keys)


TIMES: Final = {"share": "share of the run", "seconds": "seconds"}
_ENTRIES = (
    Entry(
        name="utilisation",
        title="GPU utilisation over a run",
        about="How busy the GPUs are from the first second to the last, several runs over each other.",
        needs="runs with readings of their GPUs",
        uses=_has_series("utilisation"),
        draw=lambda rows, options: (over_time(rows, reading=options.reading, by_share=options.time == "share"),),
        options=("reading", "time"),
    ),
    Entry(
        name="resources",
        title="Use of GPU, memory and CPU by configuration",
        about="GPU, GPU memory, CPU and system memory, each by configuration and workload.",
        needs="runs with readings of their GPUs or of their host",
        uses=_has_reading("utilisation", "memory_used", "memory_share", "cpu", "memory"),
        draw=lambda rows, _: use_by_configuration(rows),
        besides=("predicted",),
    ),
    Entry(
        name="relative-time",
        title="Relative training time by configuration",
        about="How much longer the same work takes with devices elsewhere, against a baseline, by workload.",
        needs="runs of training in two configurations at least",
        uses=_has_steps,
        draw=lambda rows, options: (time_by_configuration(rows, options.baseline),),
        options=("baseline",),
        varied=lambda row: configuration_of(row.topology),
        besides=("predicted",),
    ),
    Entry(
        name="pcie",
        title="PCIe transfer by workload",
        about="What goes to the devices and comes from them, apart and together.",
        needs="runs on devices whose PCIe traffic was counted",
        uses=_has_traffic,
        draw=lambda rows, _: (by_workload(rows),),
        besides=("predicted",),
    ),
    Entry(
        name="storage",
        title="Storage variants",
        about="Training time with the data on local storage, local NVMe and Falcon NVMe; and how quickly each is read.",
        needs="runs that read their data from different storage, or runs of storage read",
        uses=lambda row: _has_steps(row) or row.workload == STORAGE_READ,
        draw=lambda rows, options: (by_storage(rows, options.baseline), storage_reading(rows)),
        options=("baseline",),
        # A read says something by itself; of training it takes two kinds of storage.
        varied=lambda row: row.id if row.workload == STORAGE_READ else row.topology and storage_of(row.topology),
        besides=("predicted",),
    ),
    Entry(
        name="software",
        title="Software variants",
        about="DP, DDP and sharding, FP32, FP16 and BF16, compilation: the time each takes for the same samples.",
        needs="runs of one workload that differ in software",
        uses=_has_steps,
        draw=lambda rows, options: (by_software(rows, options.baseline),),
        options=("baseline",),
        varied=lambda row: (software_of(row.spec), row.spec.batch) if row.spec else None,
        besides=("predicted",),
    ),
    Entry(
        name="gpu-to-gpu",
        title="GPU to GPU",
        about="Bandwidth and latency between two GPUs: both local, one in the Falcon, both in the Falcon.",
        needs="runs of ‘GPU to GPU’, or imported tables of p2pBandwidthLatencyTest or nvbandwidth",
        uses=has_pairs,
        draw=lambda rows, options: between_gpus(rows, published=options.published),
        besides=("published",),
    ),
    Entry(
        name="scaling",
        title="Throughput scaling",
        about="Samples a second by accelerators, batch, threads and loaders, beside what would be in proportion.",
        needs="runs that differ in one of these alone, such as those of a sweep",
        uses=_has_steps,
        draw=lambda rows, _: scaling(rows),
        varied=_sizes,
        besides=("predicted",),
    ),
    Entry(
        name="loss",
        title="Loss over steps",
        about="Whether a run learns, and whether two learn alike.",
        needs="runs that tell their loss",
        uses=lambda row: LOSS in row.keys,
        draw=lambda rows, _: (loss(rows),),
    ),
    Entry(
        name="step-time",
        title="Distribution of step times",
        about="Whether all steps take as long, or some much longer.",
        needs="runs with the times of their steps",
        uses=lambda row: STEPS in row.keys,
        draw=lambda rows, _: (durations(rows),),
    ),
)
FIGURES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}
