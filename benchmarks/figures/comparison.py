"""Runs side by side, and predictions beside runs.

Predictions use only published figures, not the compared runs, so that the error of the model is visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import msgspec

from benchmarks.figures.charts import Estimate, seconds_a_step
from benchmarks.figures.rows import (
    GIGA,
    NOT_RECORDED,
    RunData,
    configuration_label,
    no_values,
    storage_label,
    title_list,
    work_fields,
)
from benchmarks.figures.utilisation import DISPLAY_UNITS
from benchmarks.model import ModelError, link_tables, predict, prior, published_belief
from benchmarks.model.calibration import PAPER_TOPOLOGIES, PAPER_VARIANTS, PAPER_WORKLOADS, paper_cells, paper_spec
from benchmarks.model.paper_study import FALCON_GPUS, HYBRID_GPUS, LOCAL_GPUS
from benchmarks.model.prediction import Prediction
from benchmarks.model.step_time import LINK_UNITS
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.runs.results import Statistic, Summary
from benchmarks.runs.topology import strategy_label
from benchmarks.workloads.catalogue import CATALOGUE, spec_of, workload_title
from core.language import _, _n, cache_by_language, gettext_noop
from hostwire.training import READINGS, Spec

ABSENT_TEXT: Final = "–"
PAIR_WORKLOAD: Final = "gpu_bandwidth"
# Labels of fields of a specification, as on other pages.
VALUE_FORMATS: Final[Mapping[str, Callable[[str], str]]] = {
    "precision": str.upper,
    "gradient": str.upper,
    "strategy": lambda value: _(strategy_label(value)),
}
FIELD_NAMES: Final[Mapping[str, str]] = {
    "workload": gettext_noop("workload"),
    "devices": gettext_noop("devices"),
    "batch": gettext_noop("batch"),
    "accumulation": gettext_noop("accumulation"),
    "steps": gettext_noop("steps"),
    "warmup": gettext_noop("warmup"),
    "precision": gettext_noop("precision"),
    "gradient": gettext_noop("gradient"),
    "strategy": gettext_noop("strategy"),
    "compile": gettext_noop("compile"),
    "bucket_bytes": gettext_noop("bucket bytes"),
    "loader_workers": gettext_noop("loader workers"),
    "threads": gettext_noop("threads"),
    "cores": gettext_noop("cores"),
    "data": gettext_noop("data"),
    "samples": gettext_noop("samples"),
    "validate_every": gettext_noop("steps between validations"),
    "checkpoint_every": gettext_noop("steps between checkpoints"),
    "restarts": gettext_noop("restarts"),
    "resume_from": gettext_noop("resumed from"),
    "seed": gettext_noop("seed"),
    "backend": gettext_noop("backend"),
    "command": gettext_noop("command"),
    "width": gettext_noop("width"),
    "depth": gettext_noop("depth"),
    "sequence": gettext_noop("sequence"),
    "vocabulary": gettext_noop("vocabulary"),
    "least_bytes": gettext_noop("least bytes"),
    "most_bytes": gettext_noop("most bytes"),
    "iterations": gettext_noop("iterations"),
    "file_bytes": gettext_noop("file bytes"),
    "block_bytes": gettext_noop("block bytes"),
    "image": gettext_noop("image"),
    "classes": gettext_noop("classes"),
    "layers": gettext_noop("layers"),
    "hidden": gettext_noop("hidden"),
    "heads": gettext_noop("heads"),
}
# Of software, as hosts report it; others are shown as they are.
SOFTWARE_NAMES: Final = (
    gettext_noop("framework"),
    gettext_noop("driver"),
    gettext_noop("libraries"),
    gettext_noop("operating system"),
    gettext_noop("processor"),
    gettext_noop("container"),
)
FABRIC_LABELS: Final = {"nvlink": "NVLink", "pcie": "PCIe"}


@dataclass(frozen=True)
class ComparedFact:
    """A property of runs, with a text for each run."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class FactGroup:
    """Facts of one kind."""

    title: str
    facts: tuple[ComparedFact, ...]

    @property
    def different(self) -> tuple[ComparedFact, ...]:
        return tuple(fact for fact in self.facts if fact.differs)

    @property
    def same(self) -> tuple[ComparedFact, ...]:
        return tuple(fact for fact in self.facts if not fact.differs)


@dataclass(frozen=True)
class RelativeValue:
    """A result of one run with its interval, and its ratio to the first run; None if unknown."""

    value: float
    low: float | None
    high: float | None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@dataclass(frozen=True)
class ComparedResult:
    """A result of all runs, in their order. `interval` defines low and high."""

    name: str
    unit: str
    values: tuple[RelativeValue | None, ...]
    interval: str


@dataclass(frozen=True)
class Comparison:
    """Runs in the requested order."""

    rows: tuple[RunData, ...]
    parts: tuple[FactGroup, ...]
    results: tuple[ComparedResult, ...]

    @property
    def same(self) -> tuple[ComparedFact, ...]:
        """What does not differ among the runs."""
        return tuple(fact for part in self.parts for fact in part.same)

    @property
    def is_mixed(self) -> bool:
        """Whether figures of different provenance are compared."""
        return len({row.provenance for row in self.rows}) > 1


def compare_runs(rows: Sequence[RunData]) -> Comparison:
    """Return a comparison of runs; ratios are to the first one."""
    parts = (
        FactGroup(_("Specification"), _facts(rows, _specification)),
        FactGroup(_("Topology"), _facts(rows, lambda row: _topology(row.topology, row.host))),
        FactGroup(
            _("Software"),
            _facts(rows, lambda row: {_(name): value for name, value in _flattened(row.software)}),
        ),
    )
    results = (*_step_results(rows), *_summary_results(rows))
    return Comparison(tuple(rows), parts, tuple(result for result in results if any(result.values)))


def _facts(rows: Sequence[RunData], of: Callable[[RunData], Mapping[str, str]]) -> tuple[ComparedFact, ...]:
    facts = [of(row) for row in rows]
    names = dict.fromkeys(name for one in facts for name in one)
    return tuple(ComparedFact(name, tuple(one.get(name, ABSENT_TEXT) for one in facts)) for name in names)


def _specification(row: RunData) -> dict[str, str]:
    if row.spec is None:
        return {_("workload"): row.workload_title}
    plain: dict[str, Any] = msgspec.to_builtins(row.spec)
    options = plain.pop("options")
    plain |= {"workload": row.workload_title, "command": " ".join(row.spec.command)}
    fields = {
        _field_name(name): VALUE_FORMATS[name](value) if name in VALUE_FORMATS else _value_text(value)
        for name, value in (plain | options).items()
        if value not in ("", ())
    }
    return fields | {_("global batch"): str(row.spec.global_batch)}


def _topology(topology: Topology | None, host: str) -> dict[str, str]:
    if topology is None:
        return {_("configuration"): _(NOT_RECORDED)} | ({_("host"): host} if host else {})
    accelerators = topology.accelerators
    found = {
        _("configuration"): configuration_label(topology),
        _("host"): host or topology.host,
        _("accelerators"): _counted(one.model for one in accelerators) or _("none"),
        _("places"): _counted(_("local") if one.place == LOCAL else one.place for one in accelerators),
        _("links to accelerators"): _counted(
            f"x{one.link.lanes} Gen {one.link.generation}" for one in accelerators if one.place != LOCAL
        ),
        _("links to the host"): ", ".join(
            f"{place}: x{link.lanes} Gen {link.generation}" for place, link in sorted(topology.uplinks.items())
        ),
        _("between local accelerators"): FABRIC_LABELS[topology.local_fabric]
        if any(one.place == LOCAL for one in accelerators)
        else "",
        _("storage"): f"{storage_label(topology)}, {topology.storage.model}",
        _("cores"): str(topology.cores),
        _("system memory"): f"{topology.memory_bytes / 2**30:.0f} GiB",
    }
    return {name: value for name, value in found.items() if value}


def _field_name(name: str) -> str:
    """Return the name of a field of a specification as text."""
    return _(FIELD_NAMES[name]) if name in FIELD_NAMES else name.replace("_", " ")


def _counted(texts: Iterable[str]) -> str:
    return ", ".join(f"{count} × {text}" for text, count in Counter(texts).items())


def _flattened(plain: Mapping[str, object], before: str = "") -> Iterable[tuple[str, str]]:
    for name, value in plain.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{before}{name} ")
        elif value not in ("", None, [], ()):
            yield f"{before}{name}".replace("_", " "), _value_text(value)


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(str(one) for one in value) if isinstance(value, list | tuple) else str(value)


def _step_results(rows: Sequence[RunData]) -> list[ComparedResult]:
    """Return the results from step times, with 90 % intervals of the values and their ratios."""
    steps = [seconds_a_step(row) for row in rows]
    rates = [
        one.inverse().scaled(row.samples_a_step) if one is not None and row.samples_a_step and row.is_training else None
        for row, one in zip(rows, steps, strict=True)
    ]
    sure = _("90 %, by bootstrap of the steps")
    return [
        ComparedResult(_("Step time, median"), "s", _relative_estimates(steps), sure),
        ComparedResult(_("Throughput"), "samples/s", _relative_estimates(rates), sure),
    ]


def _relative_estimates(estimates: Sequence[Estimate | None]) -> tuple[RelativeValue | None, ...]:
    first = estimates[0] if estimates else None
    found: list[RelativeValue | None] = []
    for place, one in enumerate(estimates):
        if one is None:
            found.append(None)
            continue
        ratio = one.over(first) if first is not None and place else None
        low, high = ratio.interval if ratio else (None, None)
        found.append(RelativeValue(one.value, *one.interval, ratio.value if ratio else None, low, high))
    return tuple(found)


def _summary_results(rows: Sequence[RunData]) -> Iterable[ComparedResult]:
    """Yield the results that are stored with percentiles; their ratios have no interval."""
    spread = _("5th to 95th percentile")
    summaries = [row.summary for row in rows]
    exposed = _relative_statistics([one.exposed_seconds for one in summaries])
    yield ComparedResult(_("Exposed communication"), "s", exposed, _("90 %, bootstrap"))
    pcie = _relative_statistics([one.pcie for one in summaries], 1 / GIGA)
    yield ComparedResult(_("PCIe transfer, both ways"), "GB/s", pcie, spread)
    for name, (unit, title) in READINGS.items():
        shown, factor = DISPLAY_UNITS.get(unit, (unit, 1.0))
        readings = _relative_statistics([one.readings.get(name) for one in summaries], factor)
        yield ComparedResult(_(title), shown, readings, spread)
    for title, losses in (
        (_("First loss"), [one.first_loss for one in summaries]),
        (_("Last loss"), [one.last_loss for one in summaries]),
    ):
        values = [None if one is None else Statistic.exact(one, "") for one in losses]
        yield ComparedResult(title, "", _relative_statistics(values), "")


def _relative_statistics(figures: Sequence[Statistic | None], factor: float = 1.0) -> tuple[RelativeValue | None, ...]:
    first = figures[0] if figures else None
    found: list[RelativeValue | None] = []
    for place, one in enumerate(figures):
        if one is None:
            found.append(None)
            continue
        ratio = one.value / first.value if place and first is not None and first.value else None
        has_spread = one.count > 1
        low, high = (one.low * factor, one.high * factor) if has_spread else (None, None)
        found.append(RelativeValue(one.value * factor, low, high, ratio))
    return tuple(found)


MAX_PREDICTIONS: Final = 100
PREDICTION_NOTE: Final = gettext_noop(
    "Predictions are the performance model's own before any run: published rates and data sheets (prior)."
)


def predict_runs(rows: Sequence[RunData]) -> tuple[list[RunData], list[str]]:
    """Return a prediction for each distinct specification and topology of some runs, and notes on them."""
    found: dict[tuple[object, ...], RunData] = {}
    unfit: list[RunData] = []
    for row in rows:
        if row.spec is None or row.topology is None or row.provenance == "predicted":
            continue
        if not row.is_training and row.workload != PAIR_WORKLOAD:
            continue
        key = (row.workload, tuple(sorted(work_fields(row.spec).items(), key=str)), repr(row.topology))
        if key in found or len(found) >= MAX_PREDICTIONS:
            continue
        try:
            # The published cells ran with that site's software and loaders.
            belief = published_belief() if row.provenance == "published" else None
            prediction = predict(row.spec, row.topology, belief)
        except ModelError:  # the model does not cover the workload
            unfit.append(row)
            continue
        if prediction.fits:
            unfit.append(row)
            continue
        found[key] = _predicted_run(row, prediction)
    notes: list[str] = [_(PREDICTION_NOTE)] if found else []
    if unfit:
        notes.append(
            _n(
                "The model has no prediction for {count} run ({titles}).",
                "The model has no prediction for {count} runs ({titles}).",
                len(unfit),
                titles=title_list(unfit),
            )
        )
    return list(found.values()), notes


# Figures whose published cells are others than those of all workloads in all configurations.
OWN_CELLS: Final = frozenset({"software", "gpu-to-gpu", "scaling"})
COMMON_CELLS: Final = "experiment"
PUBLISHED_NOTE: Final = gettext_noop(
    "There are not enough runs for this figure yet: it has the performance model's predictions of the published"
    " workloads (prior), from published rates and data sheets."
)


def published_predictions(figure: str) -> tuple[list[RunData], list[str]]:
    """Return predictions of the published workloads and configurations, for a figure that lacks runs."""
    # Most figures have the same cells, which are predicted once.
    return _published_rows(figure if figure in OWN_CELLS else COMMON_CELLS), [_(PUBLISHED_NOTE)]


@cache_by_language
def _published_rows(figure: str) -> list[RunData]:
    rows = [
        RunData(
            id=f"{figure} {number}",
            title=workload_title(spec.workload),
            workload=spec.workload,
            workload_title=workload_title(spec.workload),
            is_training=CATALOGUE[spec.workload].is_training,
            provenance="published",
            spec=spec,
            topology=topology,
        )
        for number, (spec, topology) in enumerate(published_cells(figure))
    ]
    return predict_runs(rows)[0]


def published_cells(figure: str) -> Iterable[tuple[Spec, Topology]]:
    """Yield what a figure predicts where it lacks runs: published workloads in published configurations."""
    changed, falcon = msgspec.structs.replace, PAPER_TOPOLOGIES[FALCON_GPUS]
    if figure == "software":
        for variant, place in product(({}, *PAPER_VARIANTS.values()), (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)):
            yield changed(paper_spec("bert_large"), **variant), PAPER_TOPOLOGIES[place]
    elif figure == "gpu-to-gpu":
        yield spec_of(PAIR_WORKLOAD, "paper", {}), PAPER_TOPOLOGIES[HYBRID_GPUS]  # it has pairs of all classes
    elif figure == "scaling":
        for workload, devices in product(PAPER_WORKLOADS, (1, 2, 4, 8)):
            strategy = "ddp" if devices > 1 else "single"
            yield changed(paper_spec(workload), devices=devices, strategy=strategy), falcon
    else:
        for *__, spec, topology in paper_cells():
            yield spec, topology


def _predicted_run(row: RunData, prediction: Prediction) -> RunData:
    step = prediction.step_seconds
    low, high = prediction.interval.low, prediction.interval.high
    to, back = (sum(way) / step for way in zip(*(prediction.pcie_bytes.values() or [(0.0, 0.0)]), strict=True))
    devices = len(prediction.pcie_bytes) or 1
    tables = {} if row.is_training else link_tables(prediction.spec, prediction.topology, prior().mean)
    return replace(
        row,
        id=f"predicted of {row.id}",
        title=_("{title}, predicted", title=row.title),
        provenance="predicted",
        keys=frozenset(),
        read=no_values,
        software={},
        summary=Summary(
            step_seconds=Statistic(value=step, low=low, high=high, unit="s"),
            samples_per_second=Statistic.exact(prediction.samples_per_second, "1/s"),
            readings={
                "utilisation": Statistic.exact(prediction.utilisation, "share"),
                "memory_share": Statistic.exact(prediction.memory_share_busy, "share"),
                "cpu": Statistic.exact(prediction.cpu_share, "share"),
                "memory_used": Statistic.exact(prediction.memory_bytes, "B"),
                "pcie_to": Statistic.exact(to / devices, "B/s"),
                "pcie_from": Statistic.exact(back / devices, "B/s"),
            },
            pcie=Statistic.exact(prediction.pcie_bytes_per_second, "B/s") if prediction.pcie_bytes_per_second else None,
            tables=tables,
            units={name: LINK_UNITS[name] for name in tables},
        ),
    )
