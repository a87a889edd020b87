"""Runs as input of figures, and distinguishing labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.model.calibration import PAPER_CONFIGURATIONS
from benchmarks.model.reference_data import is_nvme
from benchmarks.model.topology import LOCAL, Accelerator, Topology
from benchmarks.runs.results import Summary
from benchmarks.runs.topology import strategy_label
from core.language import _, _n, english, gettext_noop, joined
from core.text import natural_key
from hostwire.training import Spec

Floats = NDArray[np.float64]
GIGA: Final = 1e9
STEP_SECONDS_KEY: Final = "steps/timed/seconds"
MAX_TITLES: Final = 3  # in a sentence
LOSS_KEY: Final = "steps/timed/loss"


def no_values(key: str) -> tuple[Floats, Floats]:
    """Return the values of a run that has no series."""
    return np.zeros(0), np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class RunData:
    """A run with its results. `keys` are those of its series; `read(key)` returns (Unix s, values), NaN for none."""

    id: str
    title: str
    workload: str
    workload_title: str
    provenance: MarkSource
    state: str = "completed"
    spec: Spec | None = None
    topology: Topology | None = None
    software: Mapping[str, object] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)
    host: str = ""
    queued_at: datetime | None = None
    keys: frozenset[str] = frozenset()
    read: Callable[[str], tuple[Floats, Floats]] = no_values
    is_overlapped: bool = False  # something else used its host or its links meanwhile
    is_training: bool = True  # a training in steps; else a measurement of links or storage, or a command

    @property
    def samples_a_step(self) -> int | None:
        """The number of samples of a step over all devices; None if unknown."""
        return self.spec.global_batch if self.spec else None

    def steps(self) -> Floats:
        """Return the seconds of its timed steps, without missing values."""
        if STEP_SECONDS_KEY not in self.keys:
            return np.zeros(0)
        _, values = self.read(STEP_SECONDS_KEY)
        return values[np.isfinite(values) & (values > 0)]

    def readings(self, name: str) -> list[tuple[Floats, Floats]]:
        """Return the series of a reading: one of the host, or one a device ('gpu/<address>/<name>')."""
        return [self.read(key) for key in sorted(self.keys) if is_reading(key, name)]


def is_reading(key: str, name: str) -> bool:
    """Return whether a series is a reading of this name, of the host or of a device; links have separate names."""
    return key == name or (key.endswith(f"/{name}") and not key.startswith("link/"))


def title_list(rows: Iterable[RunData]) -> str:
    """Return the titles of some runs for a sentence."""
    titles = [_("‘{title}’", title=row.title) for row in rows]
    rest = len(titles) - MAX_TITLES
    shown = joined(titles[:MAX_TITLES], ", ")
    return _("{titles} and {count} more", titles=shown, count=rest) if rest > 0 else shown


def distinct_titles(rows: Sequence[RunData]) -> dict[str, str]:
    """Return a unique name for each run: its title, numbered if it is not unique."""
    counts: dict[str, int] = {}
    found = {}
    for row in rows:
        counts[row.title] = counts.get(row.title, 0) + 1
        found[row.id] = f"{row.title} #{counts[row.title]}" if counts[row.title] > 1 else row.title
    return found


LOCAL_STORAGE: Final = gettext_noop("local storage")
LOCAL_NVME: Final = gettext_noop("local NVMe")
FALCON_NVME: Final = "Falcon NVMe"
STORAGE_LABELS: Final = (LOCAL_STORAGE, LOCAL_NVME, FALCON_NVME)  # translated by who shows them
NOT_RECORDED: Final = gettext_noop("not recorded")
# Fields of a specification that do not change the work: the number of steps, and the seed.
IGNORED_FIELDS: Final = frozenset({"workload", "steps", "warmup", "seed", "command"})


def drawer_of(accelerator: Accelerator) -> str:
    """Return the drawer of a device ('falcon-1/drawer 1'), '' for the host's own."""
    return "" if accelerator.place == LOCAL else accelerator.place.rpartition("/")[0] or accelerator.place


def storage_label(topology: Topology) -> str:
    """Return the storage of the data: 'Falcon NVMe', 'local NVMe' or 'local storage'."""
    return _(_storage_kind(topology))


def _storage_kind(topology: Topology) -> str:
    """Return it as one of STORAGE_LABELS."""
    if topology.storage.place != LOCAL:
        return FALCON_NVME
    return LOCAL_NVME if is_nvme(topology.storage.model) else LOCAL_STORAGE


def arrangement_label(topology: Topology | None) -> str:
    """Return the locations of a run's devices, without storage: '4 local GPUs, 4 Falcon GPUs in 2 drawers'."""
    if topology is None:
        return _(NOT_RECORDED)
    local, drawers = _gpu_counts(topology)
    parts: list[str] = [_n("{count} local GPU", "{count} local GPUs", local)] if local else []
    if len(drawers) > 1:
        parts.append(_("{count} Falcon GPUs in {drawers} drawers", count=drawers.total(), drawers=len(drawers)))
    elif drawers:
        parts.append(_n("{count} Falcon GPU", "{count} Falcon GPUs", drawers.total()))
    return joined(parts or ["CPU"], ", ")


def _gpu_counts(topology: Topology) -> tuple[int, Counter[str]]:
    """Return the number of local GPUs, and that of GPUs in each drawer."""
    drawers = Counter(map(drawer_of, topology.accelerators))
    return drawers.pop("", 0), drawers


def configuration_label(topology: Topology | None) -> str:
    """Return the published name of a topology if it is one of the five, else its description."""
    if topology is None:
        return _(NOT_RECORDED)
    storage = _storage_kind(topology)
    local, drawers = _gpu_counts(topology)
    if (local, drawers.total()) == (8, 0):
        return {FALCON_NVME: "falconNVMe", LOCAL_NVME: "localNVMe", LOCAL_STORAGE: "localGPUs"}[storage]
    if storage != FALCON_NVME and (local, drawers.total(), len(drawers)) == (4, 4, 2):
        return "hybridGPUs"
    if storage != FALCON_NVME and not local and sorted(drawers.values()) == [4, 4]:
        return "falconGPUs"
    return joined([arrangement_label(topology), *([_(storage)] if storage == FALCON_NVME else [])], ", ")


def software_label(spec: Spec) -> str:
    """Return the software variant of a run: 'DDP, FP16, compiled'."""
    parts = [_(strategy_label(spec.strategy)), spec.precision.upper()]
    if spec.gradient not in {"fp32", spec.precision}:
        parts.append(_("{precision} gradients", precision=spec.gradient.upper()))
    return joined([*parts, *([_("compiled")] if spec.compile else [])], ", ")


def software_sort_key(variant: str) -> tuple[int, int, str]:
    """Return the sort key of a variant, from plain to optimised."""
    strategies, precisions = ("DP", "DDP", "one device", "sharded"), ("FP32", "FP16", "BF16")
    parts = english(variant).split(", ")
    strategy = strategies.index(parts[0]) if parts[0] in strategies else len(strategies)
    precision = precisions.index(parts[1]) if len(parts) > 1 and parts[1] in precisions else len(precisions)
    return precision, strategy, variant


# Formats of fields of a specification; other fields show name and value.
_FIELD_LABELS: Final[Mapping[str, Callable[[Any], str]]] = {
    "devices": lambda value: _n("{count} device", "{count} devices", value),
    "batch": lambda value: _("batch {size}", size=value),
    "accumulation": lambda value: _("{count} batches a step", count=value),
    "precision": lambda value: value.upper(),
    "gradient": lambda value: _("{precision} gradients", precision=value.upper()),
    "strategy": lambda value: _(strategy_label(value)),
    "compile": lambda value: _("compiled") if value else _("not compiled"),
    "bucket_bytes": lambda value: _("buckets of {size:g} MiB", size=value / 2**20),
    "loader_workers": lambda value: _("{count} loaders", count=value),
    "threads": lambda value: _("{count} threads", count=value) if value else _("threads as chosen by the library"),
    "cores": lambda value: _("{count} cores", count=value) if value else _("all cores"),
    "data": lambda value: _("files") if value == "files" else _("random samples"),
    "backend": lambda value: "CPU" if value == "cpu" else "GPU",
}


def field_label(name: str, value: Any) -> str:
    """Return a field of a specification as text: 'batch 64', 'FP16', 'image 224'."""
    return _FIELD_LABELS[name](value) if name in _FIELD_LABELS else f"{name.replace('_', ' ')} {value}"


def work_fields(spec: Spec) -> dict[str, Any]:
    """Return the fields and options that determine a run's work, in a fixed order."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    options = plain.pop("options")
    return {name: value for name, value in (plain | options).items() if name not in IGNORED_FIELDS}


def differing_fields(specs: Iterable[Spec | None], *, but: Collection[str] = ()) -> tuple[str, ...]:
    """Return the fields that differ between these specifications, without those in `but`."""
    values: dict[str, set[Any]] = defaultdict(set)
    known = [work_fields(spec) for spec in specs if spec is not None]
    for name in dict.fromkeys(name for one in known for name in one):
        values[name] = {one.get(name) for one in known}
    return tuple(name for name, found in values.items() if len(found) > 1 and name not in but)


def work_labels(rows: Sequence[RunData], *, but: Collection[str] = ()) -> dict[str, str]:
    """Return a label of each run's work: its workload, with the fields that differ among its runs ('batch 64').

    Fields in `but` are left out because the figure itself shows them. Runs with the same label did the same work.
    """
    of_workload: dict[str, list[RunData]] = defaultdict(list)
    for row in rows:
        of_workload[row.workload].append(row)
    found: dict[str, str] = {}
    for same in of_workload.values():
        names = differing_fields((row.spec for row in same), but=but)
        for row in same:
            fields = work_fields(row.spec) if row.spec else {}
            parts = [field_label(name, fields[name]) for name in names if fields.get(name) is not None]
            if row.spec is None and any(one.spec for one in same):
                parts = [_("specification not recorded")]
            found[row.id] = joined([row.workload_title, *parts], ", ")
    return found


def combined_labels(works: Mapping[str, str], places: Mapping[str, str]) -> dict[str, str]:
    """Return the label of each run's work, with that of its place if the runs have several."""
    several = len(set(places.values())) > 1
    return {run: joined([works[run], place], ", ") if several else works[run] for run, place in places.items()}


def configuration_labels(rows: Sequence[RunData]) -> dict[str, str]:
    """Return the configuration of each run, with devices or links added if they differ among runs of one name.

    A run on a device whose link trained at x8 is not a repetition of one at x16: they are separate marks.
    """
    alike: dict[str, list[RunData]] = defaultdict(list)
    for row in rows:
        alike[configuration_label(row.topology)].append(row)
    found: dict[str, str] = {}
    for label, same in alike.items():
        hardware = {row.id: hardware_labels(row.topology) for row in same}
        differ = [len({parts[place] for parts in hardware.values()}) > 1 for place in range(4)]
        for row in same:
            besides = [
                part for part, is_different in zip(hardware[row.id], differ, strict=True) if is_different and part
            ]
            found[row.id] = joined([label, *besides], ", ")
    return found


def hardware_labels(topology: Topology | None) -> tuple[str, str, str, str]:
    """Return the models of accelerators, their slowest link, the fabric of local ones, and the storage."""
    if topology is None:
        return "", "", "", ""
    storage = storage_label(topology)
    if not topology.accelerators:
        return "", "", "", storage
    models = " + ".join(sorted({one.model for one in topology.accelerators}))
    links = [one.link for one in topology.accelerators] + list(topology.uplinks.values())
    worst = min(links, key=lambda link: (link.lanes * 2**link.generation, link.lanes))
    return (
        models,
        f"x{worst.lanes} Gen {worst.generation}",
        _("local over {fabric}", fabric=topology.local_fabric),
        storage,
    )


def ordered_configurations(labels: Iterable[str]) -> list[str]:
    """Return distinct labels: the published ones first in their order, then the others by name."""
    place = {name: number for number, name in enumerate(PAPER_CONFIGURATIONS)}
    return sorted(
        dict.fromkeys(labels), key=lambda one: (place.get(one.partition(",")[0], len(place)), natural_key(one))
    )


# The provenance of a mark. 'published' are the figures of the published experiment, added on request.
MarkSource = Literal["measured", "simulated", "predicted", "imported", "published"]
MARK_SOURCES: Final[tuple[MarkSource, ...]] = ("measured", "simulated", "predicted", "imported", "published")
MARK_SOURCE_LABELS: Final[Mapping[MarkSource, str]] = {
    "measured": gettext_noop("measured"),
    "simulated": gettext_noop("simulated"),
    "predicted": gettext_noop("predicted"),
    "imported": gettext_noop("imported"),
    "published": gettext_noop("published"),
}
